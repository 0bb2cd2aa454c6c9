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
	plan := map[string]mlx.QuantizeOptions{"four": {Bits: 4, GroupSize: 64}, "fp": {Mode: mlx.MXFP4}, "stack": {Bits: 4, GroupSize: 64}, "mlp.experts.0.up": {Bits: 4, GroupSize: 64}}
	for name, shape := range map[string][]int{"stack": {2, 5}, "mlp.experts.0.up": {10}} {
		ck.Tensors[name+".weight"] = safetensors.Tensor{Dtype: "U32", Shape: append(append([]int(nil), shape...), 16), Bytes: 640}
		for _, part := range []string{".scales", ".biases"} {
			ck.Tensors[name+part] = safetensors.Tensor{Dtype: "BF16", Shape: append(append([]int(nil), shape...), 2), Bytes: 40}
		}
	}
	resident := func(d mlx.DeviceType, quantize mlx.QuantizeOptions) int64 {
		return Resident(ck, d, "norm.weight", plan, quantize)
	}
	const norm, fp = 4 * 128, 640 + 40
	const wide, half = 2 * (640 + 2*4*20), 2 * (640 + 2*2*20) // the experts
	require.EqualValues(t, norm+4*1280+4*1000+640+2*40+fp+wide, resident(mlx.DeviceCPU, mlx.QuantizeOptions{}))
	require.EqualValues(t, norm+2*1280+2*1000+640+2*2*20+fp+half, resident(mlx.DeviceGPU, mlx.QuantizeOptions{}))
	// Quantised at load: half a byte each, and two numbers for 64; rows of 100
	// do not divide.
	four := mlx.QuantizeOptions{Bits: 4, GroupSize: 64}
	require.EqualValues(t, norm+640+2*4*20+4*1000+640+2*40+fp+wide, resident(mlx.DeviceCPU, four))
	require.EqualValues(t, norm+640+2*2*20+2*1000+640+2*2*20+fp+half, resident(mlx.DeviceGPU, four))
}

func TestGigabytes(t *testing.T) {
	require.Equal(t, "1.5 GB", gigabytes(1_500_000_000))
	require.Equal(t, "0.0 GB", gigabytes(0))
}
