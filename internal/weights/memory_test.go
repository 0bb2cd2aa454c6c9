package weights

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/mlx"
)

// Sizes worked out by hand.
func TestResident(t *testing.T) {
	ck := &safetensors.Checkpoint{Tensors: map[string]safetensors.Tensor{
		"norm.weight":  {Dtype: "BF16", Shape: []int{128}, Bytes: 256},
		"dense.weight": {Dtype: "BF16", Shape: []int{10, 128}, Bytes: 2560},
		"odd.weight":   {Dtype: "BF16", Shape: []int{10, 100}, Bytes: 2000},
		"four.weight":  {Dtype: "U32", Shape: []int{10, 16}, Bytes: 640},
		"four.scales":  {Dtype: "BF16", Shape: []int{10, 2}, Bytes: 40},
		"four.biases":  {Dtype: "BF16", Shape: []int{10, 2}, Bytes: 40},
		"fp.weight":    {Dtype: "U32", Shape: []int{10, 16}, Bytes: 640},
		"fp.scales":    {Dtype: "U8", Shape: []int{10, 4}, Bytes: 40},
	}}
	plan := map[string]mlx.QuantizeOptions{"four": {Bits: 4, GroupSize: 64}, "fp": {Mode: mlx.MXFP4}}
	resident := func(d mlx.DeviceType, quantize mlx.QuantizeOptions) int64 {
		return Resident(ck, d, "norm.weight", plan, quantize)
	}
	const norm, fp = 4 * 128, 640 + 40
	require.EqualValues(t, norm+4*1280+4*1000+640+2*4*20+fp, resident(mlx.DeviceCPU, mlx.QuantizeOptions{}))
	require.EqualValues(t, norm+2*1280+2*1000+640+2*2*20+fp, resident(mlx.DeviceGPU, mlx.QuantizeOptions{}))
	// Quantised at load: half a byte each, and two numbers for 64; rows of 100
	// do not divide.
	four := mlx.QuantizeOptions{Bits: 4, GroupSize: 64}
	require.EqualValues(t, norm+640+2*4*20+4*1000+640+2*4*20+fp, resident(mlx.DeviceCPU, four))
	require.EqualValues(t, norm+640+2*2*20+2*1000+640+2*2*20+fp, resident(mlx.DeviceGPU, four))
}

func TestGigabytes(t *testing.T) {
	require.Equal(t, "1.5 GB", gigabytes(1_500_000_000))
	require.Equal(t, "0.0 GB", gigabytes(0))
}
