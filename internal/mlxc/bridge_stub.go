//go:build !(cgo && ((linux && (amd64 || arm64)) || (darwin && arm64)))

package mlxc

import "unsafe"

// Supported says whether this build can call the library.
const Supported = false

// Load always fails with ErrPlatform.
func Load(string) error { return ErrPlatform }

// The rest cannot be reached without Load; it answers as a thread that does not own MLX would.

// Lookup finds nothing.
func Lookup(string) (Handle, string) { return 0, "" }

// LastError names the platform.
func LastError() string { return ErrPlatform.Error() }

// SetWorker does nothing.
func SetWorker(bool) {}

// OnWorker is false.
func OnWorker() bool { return false }

// Version is unknown.
func Version() (string, bool) { return "", false }

// HasGPU is false.
func HasGPU() bool { return false }

// IsCUDA is false.
func IsCUDA() bool { return false }

// DisableCompile fails.
func DisableCompile() bool { return false }

// Stream is OffWorker.
func Stream(bool) Handle { return OffWorker }

// FreeStream fails.
func FreeStream(Handle) bool { return false }

// Memory is OffThread.
func Memory(int, int) (value, status int) { return 0, OffThread }

// Split is OffThread.
func Split(Handle, int, int, []Handle, Handle) int { return OffThread }

// SplitAt is OffThread.
func SplitAt(Handle, []int32, int, []Handle, Handle) int { return OffThread }

// Eval is OffThread.
func Eval([]Handle, bool) int { return OffThread }

// Free is OffThread.
func Free([]Handle) int { return OffThread }

// Describe is OffThread.
func Describe(Handle) Info { return Info{Status: OffThread} }

// Read is OffThread.
func Read(Handle, Handle) (unsafe.Pointer, Handle, int) { return nil, 0, OffThread }

// Text is OffThread.
func Text(Handle) (string, int) { return "", OffThread }

// LoadSafetensors is OffThread.
func LoadSafetensors(string, Handle, func(string, Handle)) int { return OffThread }

// CallUnary is OffWorker.
func CallUnary(Handle, Handle, Handle) Handle { return OffWorker }

// CallBinary is OffWorker.
func CallBinary(Handle, Handle, Handle, Handle) Handle { return OffWorker }

// CallTernary is OffWorker.
func CallTernary(Handle, Handle, Handle, Handle, Handle) Handle { return OffWorker }

// CallInt is OffWorker.
func CallInt(Handle, Handle, int, Handle) Handle { return OffWorker }

// CallInt2 is OffWorker.
func CallInt2(Handle, Handle, int, int, Handle) Handle { return OffWorker }

// CallBool is OffWorker.
func CallBool(Handle, Handle, bool, Handle) Handle { return OffWorker }

// CallIntBool is OffWorker.
func CallIntBool(Handle, Handle, int, bool, Handle) Handle { return OffWorker }

// CallInts is OffWorker.
func CallInts(Handle, Handle, Ints, Handle) Handle { return OffWorker }

// CallIntsBool is OffWorker.
func CallIntsBool(Handle, Handle, Ints, bool, Handle) Handle { return OffWorker }

// CallDtype is OffWorker.
func CallDtype(Handle, Handle, int, Handle) Handle { return OffWorker }

// CallBinaryInt is OffWorker.
func CallBinaryInt(Handle, Handle, Handle, int, Handle) Handle { return OffWorker }

// CallBinaryBool is OffWorker.
func CallBinaryBool(Handle, Handle, Handle, bool, Handle) Handle { return OffWorker }

// CallFill is OffWorker.
func CallFill(Handle, Ints, int, Handle) Handle { return OffWorker }

// CallVectorInt is OffWorker.
func CallVectorInt(Handle, []Handle, int, Handle) Handle { return OffWorker }

// Full is OffWorker.
func Full(Ints, Handle, int, Handle) Handle { return OffWorker }

// Arange is OffWorker.
func Arange(float64, float64, float64, int, Handle) Handle { return OffWorker }

// FromData is OffWorker.
func FromData(unsafe.Pointer, Ints, int) Handle { return OffWorker }

// Slice is OffWorker.
func Slice(Handle, Ints, Ints, Handle) Handle { return OffWorker }

// SliceAxis is OffWorker.
func SliceAxis(Handle, int, int, int, Handle) Handle { return OffWorker }

// SliceDynamic is OffWorker.
func SliceDynamic(Handle, Handle, Ints, Ints, Handle) Handle { return OffWorker }

// SliceUpdate is OffWorker.
func SliceUpdate(Handle, Handle, Ints, Ints, Handle) Handle { return OffWorker }

// SliceUpdateDynamic is OffWorker.
func SliceUpdateDynamic(Handle, Handle, Handle, Ints, Handle) Handle { return OffWorker }

// AddMM is OffWorker.
func AddMM(Handle, Handle, Handle, float32, float32, Handle) Handle { return OffWorker }

// Conv1d is OffWorker.
func Conv1d(Handle, Handle, int, int, int, int, Handle) Handle { return OffWorker }

// RMSNorm is OffWorker.
func RMSNorm(Handle, Handle, float32, Handle) Handle { return OffWorker }

// LayerNorm is OffWorker.
func LayerNorm(Handle, Handle, Handle, float32, Handle) Handle { return OffWorker }

// RoPE is OffWorker.
func RoPE(Handle, int, bool, bool, float32, float32, int, Handle, Handle) Handle { return OffWorker }

// RoPEDynamic is OffWorker.
func RoPEDynamic(Handle, int, bool, bool, float32, float32, Handle, Handle, Handle) Handle {
	return OffWorker
}

// Attention is OffWorker.
func Attention(Handle, Handle, Handle, float32, bool, Handle, Handle, Handle) Handle {
	return OffWorker
}

// Ref is OffWorker.
func Ref(Handle) Handle { return OffWorker }
