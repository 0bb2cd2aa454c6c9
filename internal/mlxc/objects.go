package mlxc

// Payload is a number that stands for a Go value in C. MLX tells when it has
// dropped one, on whatever thread; Dropped collects them.
type Payload uintptr

// Callback is the Go side of a function of arrays. The inputs, and the references
// that it returns, change hands. A rule for vjp gets primals, cotangents and
// outputs, one for jvp primals and tangents of the arguments argnums.
type Callback func(in [3][]Handle, argnums []int32) (out []Handle, ok bool)

// Kinds of template arguments of kernels.
const (
	ArgInt = iota
	ArgBool
	ArgDtype
)

// Modes of CompileMode.
const (
	CompileDisabled = iota
	CompileNoSimplify
	CompileNoFuse
	CompileEnabled
)

// Signature classes of mlxc.h for collectives.
const (
	OfGroup    = "MLXC_GROUP"
	IntOfGroup = "MLXC_INT_GROUP"
)

// Figures of Memory beside those above.
const (
	MemoryWiredLimit = MemoryLimit + 1 + iota
	MemoryGetLimit
)
