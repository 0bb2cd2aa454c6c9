//go:build !(cgo && ((linux && (amd64 || arm64)) || (darwin && arm64)))

package mlxc

// Kind is 0.
func Kind(string) int { return 0 }

// Call is OffWorker.
func Call(Handle, int, *Args, Handle) Handle { return OffWorker }

// CallMany is OffThread.
func CallMany(Handle, int, *Args, []Handle, []Handle, Handle) int { return OffThread }

// Einsum is OffWorker.
func Einsum(Handle, string, []Handle, Handle) Handle { return OffWorker }
