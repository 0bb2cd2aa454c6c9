package weights

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/internal/sysmem"
	"github.com/godflash/godflash/mlx"
)

// ErrMemory is returned for weights that are larger than the memory there is.
var ErrMemory = errors.New("not enough memory")

// Resident is the number of bytes that a checked checkpoint's weights take once
// a Reader has read them on a device: dense ones in the compute dtype, which is
// float32 on the CPU, quantised ones as stored, but for the scales of experts on the
// CPU and of all on a GPU, which are in the compute dtype. like and plan are Open's;
// quantize is Reader.Quantize, which applies to the matrices that lie in the files
// dense.
func Resident(ck *safetensors.Checkpoint, device mlx.DeviceType, like string, plan map[string]mlx.QuantizeOptions, quantize mlx.QuantizeOptions) int64 {
	width := int64(dtypes[ck.Tensors[like].Dtype].Size())
	if device == mlx.DeviceCPU {
		width = 4
	}
	var total int64
	for name, t := range ck.Tensors {
		elements := int64(1)
		for _, d := range t.Shape {
			elements *= int64(d)
		}
		module, kind := name, ""
		if i := strings.LastIndexByte(name, '.'); i >= 0 {
			module, kind = name[:i], name[i+1:]
		}
		o, quantised := plan[module]
		switch {
		case quantised && (kind == "weight" || o.Mode != mlx.Affine),
			quantised && device == mlx.DeviceCPU && !expert(module, t):
			total += t.Bytes
		case !quantised && quantize.Bits > 0 && len(t.Shape) == 2 && t.Shape[1]%quantize.GroupSize == 0:
			total += elements*int64(quantize.Bits)/8 + 2*width*elements/int64(quantize.GroupSize)
		case len(t.Shape) < 2:
			total += 4 * elements // norms and decay factors
		default:
			total += width * elements
		}
	}
	return total
}

// expert says whether a tensor belongs to the experts of a mixture, stacked or one
// by one.
func expert(module string, t safetensors.Tensor) bool {
	return len(t.Shape) > 2 || strings.Contains(module, ".experts.")
}

// CheckMemory compares need, the bytes of the weights in dir, and reserve, what
// must stay free beside them, with the memory of the library's device. Where
// that is not known nothing is checked. The error wraps ErrMemory.
func CheckMemory(ctx context.Context, lib *mlx.Library, dir string, need, reserve int64) error {
	have, ok, err := DeviceMemory(ctx, lib)
	if err != nil || !ok || need+reserve <= have.Bytes {
		return err
	}
	beside := ""
	if reserve > 0 {
		beside = " and what is loaded beside them " + gigabytes(reserve)
	}
	advice := "take a smaller model, or a quantised one (4-bit conversions lie under mlx-community on the hub)"
	if lib.Device() == mlx.DeviceCPU {
		advice += "; on the CPU weights that are not quantised are widened to float32"
	}
	return fmt.Errorf("%s: %w: the weights need %s%s, but there are %s %s: %s", dir, ErrMemory, gigabytes(need), beside, gigabytes(have.Bytes), have.Of, advice)
}

// gigabytes writes a size in units of 10^9 bytes.
func gigabytes(n int64) string { return fmt.Sprintf("%.1f GB", float64(n)/1e9) }

// DeviceMemory is what there is on the library's device, with ok false where that
// is not known. On the CPU the machine is asked; a CUDA device says what is free, a
// Metal device how much memory it shares with the CPU.
func DeviceMemory(ctx context.Context, lib *mlx.Library) (m sysmem.Memory, ok bool, err error) {
	if lib.Device() == mlx.DeviceCPU {
		m, ok = sysmem.Available()
		return m, ok, nil
	}
	devices, err := lib.Devices(ctx)
	if err != nil {
		return m, false, err
	}
	for _, d := range devices {
		if d.Type != mlx.DeviceGPU {
			continue
		}
		for _, known := range []struct{ key, of string }{{"free_memory", "free on the GPU"}, {"memory_size", "in this machine"}} {
			if bytes, is := d.Info[known.key].(int); is && bytes > 0 {
				return sysmem.Memory{Bytes: int64(bytes), Of: known.of}, true, nil
			}
		}
		break // the library runs on the first
	}
	return m, false, nil
}
