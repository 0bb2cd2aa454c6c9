package mlx

import (
	"strconv"

	"github.com/godflash/godflash/internal/mlxc"
)

var (
	opFFT       = newOp("FFT", "mlx_fft_fft", mlxc.ClassFFT)
	opIFFT      = newOp("IFFT", "mlx_fft_ifft", mlxc.ClassFFT)
	opRFFT      = newOp("RFFT", "mlx_fft_rfft", mlxc.ClassFFT)
	opIRFFT     = newOp("IRFFT", "mlx_fft_irfft", mlxc.ClassFFT)
	opFFTN      = newOp("FFTN", "mlx_fft_fftn", mlxc.ClassFFTN)
	opIFFTN     = newOp("IFFTN", "mlx_fft_ifftn", mlxc.ClassFFTN)
	opRFFTN     = newOp("RFFTN", "mlx_fft_rfftn", mlxc.ClassFFTN)
	opIRFFTN    = newOp("IRFFTN", "mlx_fft_irfftn", mlxc.ClassFFTN)
	opFFTShift  = newOp("FFTShift", "mlx_fft_fftshift", mlxc.IntsOnly)
	opIFFTShift = newOp("IFFTShift", "mlx_fft_ifftshift", mlxc.IntsOnly)
	opFFTFreq   = newOp("FFTFreq", "mlx_fft_fftfreq", mlxc.ClassFrequencies)
	opRFFTFreq  = newOp("RFFTFreq", "mlx_fft_rfftfreq", mlxc.ClassFrequencies)
)

// FFTNorm says which of a transform and its inverse is scaled.
type FFTNorm uint8

// Norms of Fourier transforms.
const (
	FFTBackward FFTNorm = iota // the inverse by 1/n
	FFTOrtho                   // both by 1/sqrt(n)
	FFTForward                 // the transform by 1/n
)

// FFT is the discrete Fourier transform along an axis, Complex64. The axis is cut or
// filled up with 0 to n elements first; n = 0 takes it as it is. (mlx_fft_fft)
func (s *Scope) FFT(a Array, n, axis int, norm FFTNorm) Array { return s.fft(opFFT, a, n, axis, norm) }

// IFFT is the inverse of [Scope.FFT]. (mlx_fft_ifft)
func (s *Scope) IFFT(a Array, n, axis int, norm FFTNorm) Array {
	return s.fft(opIFFT, a, n, axis, norm)
}

// RFFT is the first half, n/2+1 elements, of the transform of real numbers. (mlx_fft_rfft)
func (s *Scope) RFFT(a Array, n, axis int, norm FFTNorm) Array {
	return s.fft(opRFFT, a, n, axis, norm)
}

// IRFFT is the inverse of [Scope.RFFT]: n real numbers, Float32; n = 0 stands for twice
// the axis' length less 2. (mlx_fft_irfft)
func (s *Scope) IRFFT(a Array, n, axis int, norm FFTNorm) Array {
	return s.fft(opIRFFT, a, n, axis, norm)
}

func (s *Scope) fft(o op, a Array, n, axis int, norm FFTNorm) Array {
	text := func() string { return args2("n", n, "axis", axis) + ", norm " + strconv.Itoa(int(norm)) }
	i, ok := a.peek(s, o, 1)
	if ok {
		k := axis
		if k < 0 {
			k += len(i.Shape)
		}
		if k < 0 || k >= len(i.Shape) {
			return s.stop(o, "no such axis", text, a)
		}
		axis = k
		if n == 0 {
			n = fftLength(o, int(i.Shape[k]))
		}
	}
	if n < 1 && ok || !fits(n) || norm > FFTForward {
		return s.stop(o, "impossible length or norm", text, a)
	}
	if ok {
		shape := lengths(i)
		shape[axis] = n
		if msg := grows(shape...); msg != "" {
			return s.stop(o, msg, text, a)
		}
	}
	return s.call(o, &mlxc.Args{I: [14]int32{int32(n), int32(axis), int32(norm)}}, 1, text, a)
}

// fftLength is the number of elements before a transform, after it for the inverse of a real one.
func fftLength(o op, length int) int {
	if o == opIRFFT || o == opIRFFTN {
		return 2 * (length - 1)
	}
	return length
}

// FFTN is the transform of [Scope.FFT] along several axes, all without axes. sizes cuts or
// fills up; nil takes the axes as they are. (mlx_fft_fftn)
func (s *Scope) FFTN(a Array, sizes, axes []int, norm FFTNorm) Array {
	return s.fftn(opFFTN, a, sizes, axes, norm)
}

// IFFTN is the inverse of [Scope.FFTN]. (mlx_fft_ifftn)
func (s *Scope) IFFTN(a Array, sizes, axes []int, norm FFTNorm) Array {
	return s.fftn(opIFFTN, a, sizes, axes, norm)
}

// RFFTN is the transform of real numbers along several axes, halved along the last. (mlx_fft_rfftn)
func (s *Scope) RFFTN(a Array, sizes, axes []int, norm FFTNorm) Array {
	return s.fftn(opRFFTN, a, sizes, axes, norm)
}

// IRFFTN is the inverse of [Scope.RFFTN]. (mlx_fft_irfftn)
func (s *Scope) IRFFTN(a Array, sizes, axes []int, norm FFTNorm) Array {
	return s.fftn(opIRFFTN, a, sizes, axes, norm)
}

func (s *Scope) fftn(o op, a Array, sizes, axes []int, norm FFTNorm) Array {
	text := func() string {
		return "sizes " + formatInts(sizes) + ", axes " + formatInts(axes) + ", norm " + strconv.Itoa(int(norm))
	}
	g := &mlxc.Args{I: [14]int32{int32(norm)}}
	if i, ok := a.peek(s, o, 1); ok {
		axes = s.allAxes(o, a, axes)
		ax, fit := pack(axes)
		shape := lengths(i)
		if !fit || len(axes) == 0 || repeats(axes) || sizes != nil && len(sizes) != len(axes) || norm > FFTForward {
			return s.stop(o, "different axes, at most 8, as many sizes and a norm are needed", text, a)
		}
		for k := range axes {
			axis, n := axes[k], 0
			if axis < 0 {
				axis += len(i.Shape)
			}
			if axis < 0 || axis >= len(i.Shape) {
				return s.stop(o, "no such axis", text, a)
			}
			switch {
			case sizes != nil:
				n = sizes[k]
			case k == len(axes)-1:
				n = fftLength(o, int(i.Shape[axis]))
			default:
				n = int(i.Shape[axis])
			}
			if n < 1 || !fits(n) {
				return s.stop(o, "impossible length", text, a)
			}
			g.L[0].V[k] = int32(n)
			shape[axis] = n
		}
		if msg := grows(shape...); msg != "" {
			return s.stop(o, msg, text, a)
		}
		g.L[0].N, g.L[1] = ax.N, ax
	}
	return s.call(o, g, 1, text, a)
}

// FFTShift moves the frequency 0 to the middle of the axes, of all without axes. (mlx_fft_fftshift)
func (s *Scope) FFTShift(a Array, axes ...int) Array {
	return s.withInts(opFFTShift, a, s.allAxes(opFFTShift, a, axes), "axes")
}

// IFFTShift undoes [Scope.FFTShift]. (mlx_fft_ifftshift)
func (s *Scope) IFFTShift(a Array, axes ...int) Array {
	return s.withInts(opIFFTShift, a, s.allAxes(opIFFTShift, a, axes), "axes")
}

// FFTFreq is the frequencies of [Scope.FFT] of n samples at distance d: [n]. (mlx_fft_fftfreq)
func (s *Scope) FFTFreq(n int, d float64) Array { return s.frequencies(opFFTFreq, n, d) }

// RFFTFreq is the frequencies of [Scope.RFFT] of n samples at distance d: [n/2+1]. (mlx_fft_rfftfreq)
func (s *Scope) RFFTFreq(n int, d float64) Array { return s.frequencies(opRFFTFreq, n, d) }

func (s *Scope) frequencies(o op, n int, d float64) Array {
	text := func() string { return args1("n", n) + ", d " + strconv.FormatFloat(d, 'g', -1, 64) }
	if n < 1 || !fits(n) || d == 0 {
		return s.stop(o, "n must be positive and d not 0", text)
	}
	return s.call(o, &mlxc.Args{I: [14]int32{int32(n)}, D: [3]float64{d}}, 0, text)
}
