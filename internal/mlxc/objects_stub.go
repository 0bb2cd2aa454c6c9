//go:build !(cgo && ((linux && (amd64 || arm64)) || (darwin && arm64)))

package mlxc

import "unsafe"

// Without Load none of these can be reached; each answers as a thread that does not own MLX would.

// NewPayload is not here.
func NewPayload(any) Payload { return 0 }

// Dropped is not here.
func Dropped() (any, bool) { return nil, false }

// Closure is not here.
func Closure(Payload) Handle { return OffWorker }

// FreeClosure is not here.
func FreeClosure(Handle) {}

// Checkpoint is not here.
func Checkpoint(Handle) Handle { return OffWorker }

// Custom is not here.
func Custom(Handle, Payload, Payload) Handle { return OffWorker }

// Compile is not here.
func Compile(Handle, bool) Handle { return OffWorker }

// CompileMode is not here.
func CompileMode(int) bool { return false }

// Apply is not here.
func Apply(Handle, []Handle) ([]Handle, int) { return nil, OffThread }

// VJP is not here.
func VJP(Handle, []Handle, []Handle) (out, grads []Handle, status int) { return nil, nil, OffThread }

// JVP is not here.
func JVP(Handle, []Handle, []Handle) (out, outTangents []Handle, status int) {
	return nil, nil, OffThread
}

// ValueAndGrad is not here.
func ValueAndGrad(Handle, []int32, []Handle) (values, grads []Handle, status int) {
	return nil, nil, OffThread
}

// Kernel is not here.
func Kernel(bool, string, []string, []string, string, string, bool, bool, int) Handle {
	return OffWorker
}

// FreeKernel is not here.
func FreeKernel(bool, Handle) {}

// KernelConfig is not here.
func KernelConfig(bool, Ints, Ints) Handle { return OffWorker }

// ConfigOutput is not here.
func ConfigOutput(bool, Handle, Ints, int) bool { return false }

// ConfigInit is not here.
func ConfigInit(bool, Handle, float32) bool { return false }

// ConfigArg is not here.
func ConfigArg(bool, Handle, string, int, int) bool { return false }

// FreeConfig is not here.
func FreeConfig(bool, Handle) {}

// KernelApply is not here.
func KernelApply(bool, Handle, []Handle, Handle, Handle) ([]Handle, int) { return nil, OffThread }

// FromShared is not here.
func FromShared(unsafe.Pointer, Ints, int, Payload) Handle { return OffWorker }

// View is not here.
func View(Handle) (unsafe.Pointer, int) { return nil, OffThread }

// StreamOn is not here.
func StreamOn(bool, int) (st Handle, index int) { return OffWorker, 0 }

// Synchronize is not here.
func Synchronize(Handle) int { return OffThread }

// DeviceCount is not here.
func DeviceCount(bool) (int, int) { return 0, OffThread }

// DeviceInfo is not here.
func DeviceInfo(bool, int, func(key, text string, size int, isText bool)) int { return OffThread }

// LoadNPY is not here.
func LoadNPY(string, Handle) Handle { return OffWorker }

// LoadNPYBytes is not here.
func LoadNPYBytes([]byte, Handle) Handle { return OffWorker }

// SaveNPY is not here.
func SaveNPY(Handle) ([]byte, int) { return nil, OffThread }

// LoadSafetensorsBytes is not here.
func LoadSafetensorsBytes([]byte, Handle, func(name string, h Handle)) int { return OffThread }

// NewGGUF is not here.
func NewGGUF() GGUF { return GGUF(OffWorker) }

// LoadGGUF is not here.
func LoadGGUF(string, Handle) GGUF { return GGUF(OffWorker) }

// Free is not here.
func (GGUF) Free() {}

// Keys is not here.
func (GGUF) Keys() ([]string, bool) { return nil, false }

// Array is not here.
func (GGUF) Array(string) Handle { return OffWorker }

// Metadata is not here.
func (GGUF) Metadata(string) (any, bool) { return nil, false }

// SetArray is not here.
func (GGUF) SetArray(string, Handle) bool { return false }

// SetMetadata is not here.
func (GGUF) SetMetadata(string, any) bool { return false }

// Save is not here.
func (GGUF) Save(string) int { return OffThread }

// Group is not here.
func Group(bool, string) Handle { return OffWorker }

// GroupAvailable is not here.
func GroupAvailable(string) bool { return false }

// FreeGroup is not here.
func FreeGroup(Handle) {}

// GroupRank is not here.
func GroupRank(Handle) int { return 0 }

// GroupSize is not here.
func GroupSize(Handle) int { return 0 }

// GroupSplit is not here.
func GroupSplit(Handle, int, int) Handle { return OffWorker }

// CallGroup is not here.
func CallGroup(Handle, Handle, Handle, Handle) Handle { return OffWorker }

// CallIntGroup is not here.
func CallIntGroup(Handle, Handle, int, Handle, Handle) Handle { return OffWorker }

// Recv is not here.
func Recv(Ints, int, int, Handle, Handle) Handle { return OffWorker }

// GGUF is not here.
type GGUF Handle
