package mlxc

// Args carries the arguments of Call and CallMany into C; the fields are filled
// in the order of the C parameters of their sort.
type Args struct {
	H       [8]Handle // arrays
	V       [8]Handle // arrays of a vector parameter, N of them
	Strides [8]int64
	D       [3]float64
	U       uint64
	I       [14]int32
	L       [5]Ints
	N       int32
}

// SetBool writes a truth value as a number.
func (a *Args) SetBool(i int, b bool) {
	a.I[i] = 0
	if b {
		a.I[i] = 1
	}
}

// Signature classes of mlxc.h that Call and CallMany serve.
const (
	ClassSlice           = "MLXC_SLICE"
	ClassSliceUpdate     = "MLXC_SLICE_UPDATE"
	ClassAsStrided       = "MLXC_AS_STRIDED"
	ClassTri             = "MLXC_TRI"
	ClassIdentity        = "MLXC_IDENTITY"
	ClassLinspace        = "MLXC_LINSPACE"
	ClassWindow          = "MLXC_WINDOW"
	ClassFrequencies     = "MLXC_FREQUENCIES"
	ClassFullLike        = "MLXC_FULL_LIKE"
	ClassPad             = "MLXC_PAD"
	ClassIntsInts        = "MLXC_INTS_INTS"
	ClassIntInts         = "MLXC_INT_INTS"
	ClassInt3            = "MLXC_INT3"
	ClassTernaryInt      = "MLXC_TERNARY_INT"
	ClassGather          = "MLXC_GATHER"
	ClassScatter         = "MLXC_SCATTER"
	ClassClose           = "MLXC_CLOSE"
	ClassNanToNum        = "MLXC_NAN_TO_NUM"
	ClassSearchsorted    = "MLXC_SEARCHSORTED"
	ClassOrderedScan     = "MLXC_ORDERED_SCAN"
	ClassBoolInt         = "MLXC_BOOL_INT"
	ClassIntsBoolInt     = "MLXC_INTS_BOOL_INT"
	ClassTensordot       = "MLXC_TENSORDOT"
	ClassHadamard        = "MLXC_HADAMARD"
	ClassBlockMaskedMM   = "MLXC_BLOCK_MASKED_MM"
	ClassGatherMM        = "MLXC_GATHER_MM"
	ClassConv2D          = "MLXC_CONV2D"
	ClassConv3D          = "MLXC_CONV3D"
	ClassConvGeneral     = "MLXC_CONV_GENERAL"
	ClassConvTranspose1d = "MLXC_CONV_TRANSPOSE1D"
	ClassConvTranspose2d = "MLXC_CONV_TRANSPOSE2D"
	ClassConvTranspose3d = "MLXC_CONV_TRANSPOSE3D"
	ClassFFT             = "MLXC_FFT"
	ClassFFTN            = "MLXC_FFTN"
	ClassText            = "MLXC_TEXT"
	ClassNorm            = "MLXC_NORM"
	ClassNormMatrix      = "MLXC_NORM_MATRIX"
	ClassRandomKey       = "MLXC_RANDOM_KEY"
	ClassRandomRange     = "MLXC_RANDOM_RANGE"
	ClassRandomScaled    = "MLXC_RANDOM_SCALED"
	ClassRandomPlain     = "MLXC_RANDOM_PLAIN"
	ClassRandomBits      = "MLXC_RANDOM_BITS"
	ClassRandomShape     = "MLXC_RANDOM_SHAPE"
	ClassRandomAxis      = "MLXC_RANDOM_AXIS"
	ClassRandomAxisShape = "MLXC_RANDOM_AXIS_SHAPE"
	ClassRandomInt       = "MLXC_RANDOM_INT"
	ClassDequantize      = "MLXC_DEQUANTIZE"
	ClassQuantizedMatmul = "MLXC_QUANTIZED_MATMUL"
	ClassGatherQMM       = "MLXC_GATHER_QMM"
	ClassQQMM            = "MLXC_QQMM"
	ClassGatherQQMM      = "MLXC_GATHER_QQMM"
	ClassPair            = "MLXC_PAIR"
	ClassPairText        = "MLXC_PAIR_TEXT"
	ClassMany            = "MLXC_MANY"
	ClassManyInt         = "MLXC_MANY_INT"
	ClassManyBool        = "MLXC_MANY_BOOL"
	ClassManyVector      = "MLXC_MANY_VECTOR"
	ClassMeshgrid        = "MLXC_MESHGRID"
	ClassQuantize        = "MLXC_QUANTIZE"
	ClassEinsum          = "MLXC_EINSUM"
)
