// Package mlx is Go's access to MLX, the array library for Apple silicon that
// also runs on NVIDIA GPUs and on plain Linux, through its C interface mlx-c.
//
// # Arrays are promises
//
// An operation does not compute. It adds a node to a graph and gives an [Array]
// that stands for the result; shape and type are known at once, values are not.
// [Scope.Eval], [ToSlice] and [Item] make MLX compute what they need. A loop
// that carries arrays along must evaluate them each time round, all of them
// together, or the graph grows without end.
//
// # Scopes own arrays
//
// Every array belongs to a [Scope], and operations are methods of the scope that
// shall own their result:
//
//	err := lib.Do(ctx, func(s *mlx.Scope) error {
//		h := s.SiLU(s.MatMul(x, w)) // two arrays of s
//		cache.k = keep.Move(h)      // one of them moves to a scope that lives on
//		return keep.Err()
//	})
//
// When a scope closes its arrays are freed at once, whatever the garbage
// collector thinks. There are no finalizers, and an operation allocates nothing
// on Go's heap. An array used after its end panics with a text that says what
// made it and what ended it.
//
// # One thread
//
// MLX keeps its streams and caches per thread, so all of it happens on one
// goroutine, locked to a thread, that [Open] starts and the last
// [Library.Close] ends. [Library.Do] runs a function there. A hop costs some
// tens of microseconds and an operation a fraction of one, so put a whole step
// of work into one Do. Everything that is not documented otherwise works inside
// Do only; outside it fails with [ErrOutsideDo].
//
// # Errors stick
//
// The first operation that fails sets its scope's error and returns the zero
// Array; later operations on that scope do nothing. So a computation is written
// without checks, and the error, an [OpError] with the operation's name and the
// shapes and types of its inputs, is read once: Do returns it. A panic inside Do
// becomes a [PanicError]; it does not reach other goroutines.
//
// # Functions of arrays
//
// A [Func] can be differentiated ([Scope.ValueAndGrad], [Scope.VJP], [Scope.JVP]),
// given derivatives of its own ([Custom]), made to save memory ([Checkpoint]) and
// recorded ([Scope.Compile]). MLX calls it back on the worker, in the middle of the
// operation that was given it; a panic or an error in it is the error of that
// operation. A [Kernel] is a computation written for Metal and CUDA, with
// operations of this package as the fallback; a compiled function of nothing but
// kernels can be one launch on CUDA ([CompileOptions]).
//
// # Data in and out
//
// [FromSlice] and [ToSlice] copy. [ShareSlice] lends a slice to MLX and says when
// it is free again; [ViewSlice] lends MLX's memory to the program, until the array
// ends. Files are safetensors, NPY and GGUF, and the first two also readers and
// writers. A file is checked before MLX, which trusts them, sees it.
//
// # Devices and streams
//
// A Library has a device, and its operations run there on one stream. [Scope.On]
// sends some to another [Stream], of that device or another one. A [Group] joins
// processes.
//
// # Finding the library
//
// The library is loaded when [Open] is called, not linked: a program builds, and
// starts, without it. Looked at are, in this order, Options.Path; the
// environment variable MLXC_LIBRARY; the program's own folder, then Frameworks
// and lib beside that folder; the builds that the installer of this module has
// put into the user's cache folder (command native, or make native in a clone);
// on macOS Homebrew's mlx-c; and what the system's loader finds. A file named by
// the user must fit; others that do not fit are logged and passed over. Needed
// is mlx-c 0.7.0 with MLX 0.32.2 or newer. A process can load one library.
//
// On NVIDIA machines MLX compiles kernels when it runs and wants CUDA's headers:
// if neither CUDA_HOME nor CUDA_PATH is set, Open sets CUDA_HOME to the headers
// that the installer put beside the library, else to /usr/local/cuda. MLX multiplies float32 matrices there with
// the TF32 format unless MLX_ENABLE_TF32=0 is set before the program starts: set
// it to compare numbers. On the CPU MLX would compile fused kernels with a C++
// compiler at run time; Open turns that off.
//
// # What this package is not
//
// It has no layers, models or optimisers, and no Go fallback: without MLX
// nothing is computed. It does not check values: an index out of range in
// [Scope.Take], [Scope.SliceDynamic] and their relatives reads or writes other
// memory. And it cannot catch what MLX itself cannot: on the CPU, memory that
// the system refuses during evaluation ends the process, and so does a fault on
// a GPU.
package mlx
