package kernels

import (
	"strings"

	"github.com/godflash/godflash/mlx"
)

// The macros under which a common text is both CUDA and Metal. A warp is
// Metal's simdgroup: 32 threads on both.
const (
	cudaHeader = overlapHeader + `
#define GF_GROUP __shared__
#define GF_SYNC() __syncthreads()
#define GF_XOR(v, mask) __shfl_xor_sync(0xffffffffu, v, mask)
#define GF_FLOAT(bits) __int_as_float(bits)
#define GF_LOAD4(p) (*(const float4*)(p))
#define GF_GLOAD4(p) (*(const float4*)(p))
#define GF_STORE4(p, v) (*(float4*)(p) = v)
#define GF_EXP(x) expf(x)
#define GF_LOG(x) logf(x)
#define GF_RSQRT(x) rsqrtf(x)
#define GF_SIN(x) sinf(x)
#define GF_COS(x) cosf(x)
`
	metalHeader = `
#define GF_GROUP threadgroup
#define GF_SYNC() threadgroup_barrier(mem_flags::mem_threadgroup)
#define GF_XOR(v, mask) simd_shuffle_xor(v, ushort(mask))
#define GF_FLOAT(bits) as_type<float>(bits)
#define GF_LOAD4(p) (*(const device float4*)(p))
#define GF_GLOAD4(p) (*(const threadgroup float4*)(p))
#define GF_STORE4(p, v) (*(threadgroup float4*)(p) = v)
#define GF_EXP(x) metal::precise::exp(x)
#define GF_LOG(x) metal::precise::log(x)
#define GF_RSQRT(x) metal::precise::rsqrt(x)
#define GF_SIN(x) metal::precise::sin(x)
#define GF_COS(x) metal::precise::cos(x)
`
	// cudaIndex begins a CUDA text that has gf_wait() itself, cudaWaits any other.
	cudaIndex  = "gf_next();\nconst int tid = threadIdx.x, bid = blockIdx.x;\n"
	cudaWaits  = cudaIndex + "gf_wait();\n"
	metalIndex = "const int tid = thread_position_in_threadgroup.x, bid = threadgroup_position_in_grid.x;\n"
)

// overlapHeader is for launches that may overlap (programmatic dependent launch of
// sm_90 and later). With gf_next() a block says that the next launch's blocks may
// start; with gf_wait() a thread waits until the launches before have ended and what
// they wrote is seen. Every text calls gf_next() first, and every thread calls
// gf_wait(), also one that has nothing to do: the next launch waits for this one
// alone, and takes it that the ones before have ended too. Before gf_wait() nothing
// is written, and only weights are read: arrays that were made when the model was
// loaded. Both do nothing in an ordinary launch, and gf_wait() does nothing in a launch
// that does not overlap: those with [mlx.KernelSpec]'s Overlaps do, products in chains,
// which an H200 measured faster so; all others it measured no faster, or slower.
const overlapHeader = `
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void gf_next() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ __forceinline__ void gf_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
__device__ __forceinline__ void gf_next() {}
__device__ __forceinline__ void gf_wait() {}
#endif
`

// cuda and metal make the two forms of a common text.
func cuda(body string) mlx.KernelSource {
	return mlx.KernelSource{Header: compact(cudaHeader), Source: cudaWaits + compact(body)}
}

func metal(body string) mlx.KernelSource {
	return mlx.KernelSource{Header: compact(metalHeader), Source: metalIndex + compact(body)}
}

// compact drops comments and margins: MLX hashes the whole text at each launch.
func compact(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if i := strings.Index(line, "//"); i >= 0 {
			line = line[:i]
		}
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// dropLines leaves out the lines that end in "//" and that mark.
func dropLines(text, mark string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(strings.TrimSpace(line), "//"+mark) {
			b.WriteString(line)
		}
	}
	return b.String()
}
