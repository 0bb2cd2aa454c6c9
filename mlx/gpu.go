package mlx

import "github.com/godflash/godflash/internal/mlxc"

// GPU says what a CUDA kernel of one's own can count on.
type GPU struct {
	Multiprocessors int
	SharedMemory    int  // bytes that one block may have
	Clusters        bool // a kernel can have its blocks in clusters of two, by __cluster_dims__(2, 1, 1)
}

// CUdevice_attribute's numbers.
const (
	attributeMultiprocessors = 16
	attributeSharedMemory    = 97 // that a block gets when it asks for it
)

// GPU is the library's CUDA device; ok is false on other devices. It must be called
// inside [Library.Do]. (cuDeviceGetAttribute)
func (l *Library) GPU() (g GPU, ok bool) {
	if l.device != DeviceGPU || !l.cuda {
		return GPU{}, false
	}
	g = GPU{Multiprocessors: mlxc.DeviceAttribute(attributeMultiprocessors), SharedMemory: mlxc.DeviceAttribute(attributeSharedMemory), Clusters: mlxc.Clusters()}
	return g, g.Multiprocessors > 0 && g.SharedMemory > 0
}
