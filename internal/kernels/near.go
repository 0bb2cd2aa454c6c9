package kernels

import "github.com/godflash/godflash/mlx"

// nearSize is the number of elements of 4 bytes to which MLX gives memory of their
// own on CUDA. Results that a launch does not need have it as well.
const nearSize = 4

// Near is x, a single number that the device computed and that kernels of many
// blocks read, such as a position, as the first of 16 bytes: int32 [1]. MLX keeps
// CUDA arrays of up to 8 bytes in pages that host and device share. While the host
// writes there, each block of a kernel waits for the host's memory, and kernels of a
// few microseconds take three times as long.
func Near(s *mlx.Scope, x mlx.Array) mlx.Array {
	if s.Err() != nil || s.Library().Device() != mlx.DeviceGPU {
		return x
	}
	return widen(s, x)
}

func widen(s *mlx.Scope, x mlx.Array) mlx.Array {
	return s.SliceAxis(s.Contiguous(s.BroadcastTo(s.Reshape(x, 1), nearSize)), 0, 0, 1)
}
