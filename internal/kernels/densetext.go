package kernels

import "fmt"

// pairHeader is what two blocks of a cluster need of each other (sm_90 and later):
// gf_far4 writes to p's place in the memory of the block rank; after gf_arrive() by all
// threads of both, gf_meet() ends, and what was written before is there.
const pairHeader = `
__device__ __forceinline__ void gf_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void gf_meet() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ void gf_far4(void* p, unsigned rank, float4 v) {
unsigned a;
asm volatile("mapa.shared::cluster.u32 %0,%1,%2;" : "=r"(a) : "r"((unsigned)__cvta_generic_to_shared(p)), "r"(rank));
asm volatile("st.shared::cluster.v4.f32 [%0],{%1,%2,%3,%4};" :: "r"(a), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
`

// aloneHeader stands for pairHeader where blocks have no pair.
const aloneHeader = `
#define gf_arrive()
#define gf_meet()
#define gf_far4(p, rank, v)
`

// denseHeader asks for blocks on a multiprocessor, see q4Header, and for clusters of
// two where blocks are pairs; and copies like copyHeader's, with which the second cache
// loads the line around what is asked for.
func denseHeader(blocks, line int, pair bool) string {
	cluster := ""
	if pair {
		cluster = " __cluster_dims__(2, 1, 1)"
	}
	return fmt.Sprintf(`
#undef __global__
#define __global__ __attribute__((global)) __launch_bounds__(128, %d)%s
__device__ __forceinline__ void gf_copy(void* to, const void* from) {
asm volatile("cp.async.cg.shared.global.L2::%dB [%%0],[%%1],16;" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
`, blocks, cluster, line)
}

// denseText is a product of up to 16 rows with weights in bfloat16, and what stands
// around it in a layer, as in chainText: NORM, SILU, RES, SQ.
//
// A block of 4 warps makes ROWS = 8·NT outputs from all columns, or, as one of a PAIR,
// from half of them, so that x is read half as often: then each block gives its sums of
// half of the outputs to the other, through shared memory, and finishes OWN. The warps
// share a block's columns, 32 at a time, so nothing is read twice in a block and no warp
// waits for another before the end; then their sums are added in shared memory in a
// fixed order, and no row of y depends on the number of rows.
//
// Weights, x and the norm's weights are on their way to a ring of D stages in shared
// memory long before they are needed: memory is as fast as there are bytes asked for.
// Each thread reads what it copied itself. Lane (g, t) has the eight numbers of 32
// columns that begin at 8t, in rows g and g+8 of x and row g of each tile of W: the
// order of columns is the same on both sides, which is all that a product needs.
const denseText = `
constexpr int BLOCKS = PAIR ? 2 : 1, COLUMNS = K / BLOCKS;
constexpr int ROWS = NT * 8, STEPS = COLUMNS / 128, TILES = NT + 2, PAD = ROWS + 8;
constexpr int PARTS = SILU ? 2 : 1, WIDE = ROWS / PARTS, OWN = WIDE / BLOCKS, TURNS = (OWN + 31) / 32;
const int tile = bid / BLOCKS, rank = bid % BLOCKS;
if (PAIR) gf_arrive();
const int warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3;
const int rows = x_shape[1];
constexpr int SHARED = D * (TILES * 128 + 32) * 4;
GF_DYNAMIC(shared, SHARED + (PAIR ? 16 * PARTS * OWN : 0));
float4* other = (float4*)(shared + SHARED); // the other block's sums of OWN
__shared__ float inverse[16];
uint4* own = (uint4*)shared + tid;
uint4* norms = (uint4*)shared + D * TILES * 128 + warp * 8;
const __nv_bfloat16* wr = w + (size_t)(tile * ROWS + g) * K + rank * COLUMNS + warp * 32 + t * 8;
const float* nr = norm + rank * COLUMNS + warp * 32 + lane * 4;
auto ask_weights = [&](int at, int slot) {
  if (at < STEPS) {
    const int c = at * 128;
    if (NORM && lane < 8) gf_copy(norms + slot * 32 + lane, nr + c);
    #pragma unroll
    for (int j = 0; j < NT; j++) gf_copy(own + (slot * TILES + j) * 128, wr + (size_t)j * 8 * K + c);
  }
};
// While the launch before ends there is time for the first stages' weights.
#pragma unroll
for (int i = 0; i < D - 1; i++) ask_weights(i, i);
gf_wait();
const __nv_bfloat16* xr = x + (size_t)g * K + rank * COLUMNS + warp * 32 + t * 8;
auto ask_x = [&](int at, int slot) {
  const int c = at * 128;
  if (at < STEPS && g < rows) gf_copy(own + (slot * TILES + NT) * 128, xr + c);
  if (at < STEPS && g + 8 < rows) gf_copy(own + (slot * TILES + NT + 1) * 128, xr + 8 * K + c);
  gf_copies_end();
};
// Thread 8m + i has every eighth four of row m, before the product and after it.
const int m = tid >> 3, n0 = (tid & 7) * 4;
constexpr int TAKEN = 6;
float4 taken[TAKEN];
const int fours = NORM && sums_shape[1] % 4 == 0 ? sums_shape[1] : 0;
#pragma unroll
for (int i = 0; i < TAKEN; i++) {
  taken[i] = make_float4(0, 0, 0, 0);
  if (m < rows && n0 + i * 32 < fours) taken[i] = *(const float4*)(sums + m * fours + n0 + i * 32);
}
uint2 res[TURNS];
#pragma unroll
for (int i = 0; i < TURNS; i++) {
  res[i] = make_uint2(0, 0);
  if (RES && m < rows && n0 + i * 32 < OWN) res[i] = *(const uint2*)(residual + (size_t)m * N + bid * OWN + n0 + i * 32);
}
#pragma unroll
for (int i = 0; i < D - 1; i++) ask_x(i, i);
float i0 = 0, i1 = 0;
if (NORM) {
  float v = 0;
  #pragma unroll
  for (int i = 0; i < TAKEN; i++) v += taken[i].x + taken[i].y + taken[i].z + taken[i].w;
  if (m < rows) for (int i = (fours ? TAKEN * 32 : 0) + (tid & 7); i < sums_shape[1]; i += 8) v += sums[m * sums_shape[1] + i];
  v += GF_XOR(v, 1); v += GF_XOR(v, 2); v += GF_XOR(v, 4);
  if (n0 == 0) inverse[m] = GF_RSQRT(v / K + GF_FLOAT(EPS));
  __syncthreads();
  if (g < rows) i0 = inverse[g];
  if (g + 8 < rows) i1 = inverse[g + 8];
}
float acc[NT][4];
#pragma unroll
for (int j = 0; j < NT; j++) { acc[j][0] = 0; acc[j][1] = 0; acc[j][2] = 0; acc[j][3] = 0; }
int slot = 0, empty = D - 1;
#pragma unroll 1
for (int at = 0; at < STEPS; at++) {
  gf_copies_wait<D - 2>();
  if (NORM) __syncwarp();
  ask_weights(at + D - 1, empty);
  ask_x(at + D - 1, empty);
  const uint4* in = own + slot * TILES * 128;
  uint4 a = make_uint4(0, 0, 0, 0), b = a;
  if (g < rows) a = in[NT * 128];
  if (g + 8 < rows) b = in[(NT + 1) * 128];
  if (NORM) {
    const float* n = (const float*)(norms + slot * 32) + t * 8;
    a = make_uint4(GF_NORM(a.x, n, i0), GF_NORM(a.y, n + 2, i0), GF_NORM(a.z, n + 4, i0), GF_NORM(a.w, n + 6, i0));
    b = make_uint4(GF_NORM(b.x, n, i1), GF_NORM(b.y, n + 2, i1), GF_NORM(b.z, n + 4, i1), GF_NORM(b.w, n + 6, i1));
  }
  const unsigned a4[4] = {a.x, b.x, a.y, b.y}, b4[4] = {a.z, b.z, a.w, b.w};
  #pragma unroll
  for (int j = 0; j < NT; j++) {
    const uint4 f = in[j * 128];
    gf_mma(acc[j], a4, f.x, f.y);
    gf_mma(acc[j], b4, f.z, f.w);
  }
  empty = slot;
  slot = slot + 1 == D ? 0 : slot + 1;
}
__syncthreads();
#pragma unroll
for (int j = 0; j < NT; j++) {
  float* p = shared + (warp * 16 + g) * PAD + j * 8 + 2 * t;
  *(float2*)p = make_float2(acc[j][0], acc[j][1]);
  *(float2*)(p + 8 * PAD) = make_float2(acc[j][2], acc[j][3]);
}
__syncthreads();
auto sum = [&](int n) {
  float4 a = make_float4(0, 0, 0, 0);
  #pragma unroll
  for (int k = 0; k < 4; k++) {
    const float4 f = *(const float4*)(shared + (k * 16 + m) * PAD + n);
    a.x += f.x; a.y += f.y; a.z += f.z; a.w += f.w;
  }
  return a;
};
if (PAIR) {
  gf_meet(); // the other block has begun, and its memory is there
  for (int i = 0; i < TURNS; i++) {
    const int n = n0 + i * 32;
    if (m < rows && n < OWN) {
      for (int part = 0; part < PARTS; part++) gf_far4(other + ((m * PARTS + part) * OWN + n) / 4, 1 - rank, sum(part * WIDE + (1 - rank) * OWN + n));
    }
  }
  gf_arrive();
  gf_meet();
}
auto all = [&](int part, int n) {
  float4 a = sum(part * WIDE + rank * OWN + n);
  if (PAIR) {
    const float4 f = other[((m * PARTS + part) * OWN + n) / 4];
    a.x += f.x; a.y += f.y; a.z += f.z; a.w += f.w;
  }
  return a;
};
float q = 0;
#pragma unroll
for (int i = 0; i < TURNS; i++) {
  const int n = n0 + i * 32;
  if (m < rows && n < OWN) {
    float4 a = all(0, n);
    if (SILU) {
      const float4 f = all(1, n);
      a.x = GF_SILU(a.x) * GF_ROUND(f.x); a.y = GF_SILU(a.y) * GF_ROUND(f.y); a.z = GF_SILU(a.z) * GF_ROUND(f.z); a.w = GF_SILU(a.w) * GF_ROUND(f.w);
    }
    if (RES) { a.x = GF_ROUND(a.x) + GF_LO(res[i].x); a.y = GF_ROUND(a.y) + GF_HI(res[i].x); a.z = GF_ROUND(a.z) + GF_LO(res[i].y); a.w = GF_ROUND(a.w) + GF_HI(res[i].y); }
    const unsigned o0 = GF_PAIR(a.x, a.y), o1 = GF_PAIR(a.z, a.w);
    *(uint2*)(y + (size_t)m * (SILU ? N / 2 : N) + bid * OWN + n) = make_uint2(o0, o1);
    q += GF_LO(o0) * GF_LO(o0) + GF_HI(o0) * GF_HI(o0) + GF_LO(o1) * GF_LO(o1) + GF_HI(o1) * GF_HI(o1);
  }
}
if (SQ) {
  q += GF_XOR(q, 1); q += GF_XOR(q, 2); q += GF_XOR(q, 4);
  if (m < rows && n0 == 0) squares[m * (N / OWN) + bid] = q;
} else if (bid == 0 && tid < 4) {
  squares[tid] = 0;
}
`
