package kernels

// mma8Header is D[16,8] += A·B with eight columns of A.
const mma8Header = `
__device__ __forceinline__ void gf_mma8(float* c, unsigned a0, unsigned a1, unsigned b0) {
asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(b0));
}
`

// chainHeader asks for four blocks on a multiprocessor, see q4Header.
const chainHeader = `
#undef __global__
#define __global__ __attribute__((global)) __launch_bounds__(128, 4)
`

// chainText is a product of up to 16 rows with weights in 4 bits, affine in groups
// of 64, and what stands around it in a layer:
//
//	NORM  x is normalised on its way in: x·rsqrt(Σ sums / K + ε)·norm
//	SILU  tiles of W hold gate rows, then up rows; silu(gate)·up comes out
//	RES   residual is added to the result
//	SQ    squares gets the sums of the result's squares, a tile's each
//
// A block of 4 warps takes ROWS = 32·NT rows of W and KC of the K columns; a warp
// NT tiles of 8 rows. Blocks leave their parts in parts, and the last of a tile,
// which counter tells, adds them in the order of the columns: no row of y depends
// on the number of rows, or on which block is last. counter is 0 before and after.
//
// As in q4Text a number q is exactly the bfloat16 128+q, and the order of columns
// within a group is the same on both sides. Scales are put on the groups' sums, and
// the term Σ (b − 128 s)·X over groups, X being a group's sum of x, is four products
// more for eight groups, with X in two bfloat16 parts.
const chainText = `
constexpr int ROWS = NT * 32, G = KC / 64, S = K / KC;
const int warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3, part = blockIdx.y;
const int rows = x_shape[1];
__shared__ uint4 xs[G * 4 * 32];
__shared__ float ss[G * ROWS];
__shared__ float xg[G * 16];
__shared__ float inverse[16];
const unsigned* wr = w + (size_t)(bid * ROWS + warp * NT * 8 + g) * (K / 8) + part * (KC / 8) + t * 2;
uint2 cur[U][NT], nxt[U][NT];
#pragma unroll
for (int u = 0; u < U; u++) {
  #pragma unroll
  for (int j = 0; j < NT; j++) cur[u][j] = gf_stream(wr + (size_t)j * 8 * (K / 8) + u * 8);
}
for (int i = tid; i < ROWS * (G / 8); i += 128) {
  const int r = i % ROWS, c = i / ROWS;
  const uint4 v = *(const uint4*)(scales + (size_t)(bid * ROWS + r) * (K / 64) + part * G + c * 8);
  float* d = ss + c * 8 * ROWS + r;
  d[0] = GF_LO(v.x); d[ROWS] = GF_HI(v.x); d[2 * ROWS] = GF_LO(v.y); d[3 * ROWS] = GF_HI(v.y);
  d[4 * ROWS] = GF_LO(v.z); d[5 * ROWS] = GF_HI(v.z); d[6 * ROWS] = GF_LO(v.w); d[7 * ROWS] = GF_HI(v.w);
}
if (NORM) {
  const int m = tid >> 3;
  float v = 0;
  const int n = sums_shape[1];
  if (m < rows) for (int i = tid & 7; i < n; i += 8) v += sums[m * n + i];
  v += GF_XOR(v, 1); v += GF_XOR(v, 2); v += GF_XOR(v, 4);
  if ((tid & 7) == 0) inverse[m] = GF_RSQRT(v / K + GF_FLOAT(EPS));
  __syncthreads();
}
for (int gr = warp; gr < G; gr += 4) {
  const int from = part * KC + gr * 64 + t * 16;
  float s0 = 0, s1 = 0;
  #pragma unroll
  for (int h = 0; h < 2; h++) {
    uint4 a = make_uint4(0, 0, 0, 0), b = a;
    if (g < rows) a = *(const uint4*)(x + (size_t)g * K + from + h * 8);
    if (g + 8 < rows) b = *(const uint4*)(x + (size_t)(g + 8) * K + from + h * 8);
    if (NORM) {
      const float* n = norm + from + h * 8;
      const float i0 = g < rows ? inverse[g] : 0, i1 = g + 8 < rows ? inverse[g + 8] : 0;
      a = make_uint4(GF_NORM(a.x, n, i0), GF_NORM(a.y, n + 2, i0), GF_NORM(a.z, n + 4, i0), GF_NORM(a.w, n + 6, i0));
      b = make_uint4(GF_NORM(b.x, n, i1), GF_NORM(b.y, n + 2, i1), GF_NORM(b.z, n + 4, i1), GF_NORM(b.w, n + 6, i1));
    }
    s0 += GF_LO(a.x) + GF_HI(a.x) + GF_LO(a.y) + GF_HI(a.y) + GF_LO(a.z) + GF_HI(a.z) + GF_LO(a.w) + GF_HI(a.w);
    s1 += GF_LO(b.x) + GF_HI(b.x) + GF_LO(b.y) + GF_HI(b.y) + GF_LO(b.z) + GF_HI(b.z) + GF_LO(b.w) + GF_HI(b.w);
    xs[(gr * 4 + h * 2) * 32 + lane] = make_uint4(__byte_perm(a.x, a.z, 0x5410), __byte_perm(b.x, b.z, 0x5410), __byte_perm(a.x, a.z, 0x7632), __byte_perm(b.x, b.z, 0x7632));
    xs[(gr * 4 + h * 2 + 1) * 32 + lane] = make_uint4(__byte_perm(a.y, a.w, 0x5410), __byte_perm(b.y, b.w, 0x5410), __byte_perm(a.y, a.w, 0x7632), __byte_perm(b.y, b.w, 0x7632));
  }
  s0 += GF_XOR(s0, 1); s0 += GF_XOR(s0, 2);
  s1 += GF_XOR(s1, 1); s1 += GF_XOR(s1, 2);
  if (t == 0) { xg[gr * 16 + g] = s0; xg[gr * 16 + g + 8] = s1; }
}
__syncthreads();
float acc[NT][4];
#pragma unroll
for (int j = 0; j < NT; j++) { acc[j][0] = 0; acc[j][1] = 0; acc[j][2] = 0; acc[j][3] = 0; }
#pragma unroll 1
for (int g0 = 0; g0 < G; g0 += U) {
  if (g0 + U < G) {
    #pragma unroll
    for (int u = 0; u < U; u++) {
      #pragma unroll
      for (int j = 0; j < NT; j++) nxt[u][j] = gf_stream(wr + (size_t)j * 8 * (K / 8) + (g0 + U + u) * 8);
    }
  }
  #pragma unroll
  for (int u = 0; u < U; u++) {
    float d[NT][4];
    #pragma unroll
    for (int j = 0; j < NT; j++) { d[j][0] = 0; d[j][1] = 0; d[j][2] = 0; d[j][3] = 0; }
    #pragma unroll
    for (int h = 0; h < 2; h++) {
      const uint4 a = xs[((g0 + u) * 4 + h * 2) * 32 + lane], b = xs[((g0 + u) * 4 + h * 2 + 1) * 32 + lane];
      const unsigned a4[4] = {a.x, a.y, a.z, a.w}, b4[4] = {b.x, b.y, b.z, b.w};
      #pragma unroll
      for (int j = 0; j < NT; j++) {
        const unsigned f = h ? cur[u][j].y : cur[u][j].x;
        gf_mma(d[j], a4, GF_Q4(f), GF_Q4(f >> 4));
        gf_mma(d[j], b4, GF_Q4(f >> 8), GF_Q4(f >> 12));
      }
    }
    #pragma unroll
    for (int j = 0; j < NT; j++) {
      const float2 s = *(const float2*)(ss + (g0 + u) * ROWS + (warp * NT + j) * 8 + 2 * t);
      acc[j][0] += s.x * d[j][0]; acc[j][1] += s.y * d[j][1]; acc[j][2] += s.x * d[j][2]; acc[j][3] += s.y * d[j][3];
    }
  }
  #pragma unroll
  for (int u = 0; u < U; u++) {
    #pragma unroll
    for (int j = 0; j < NT; j++) cur[u][j] = nxt[u][j];
  }
}
for (int g0 = 0; g0 < G; g0 += 8) {
  const float x0 = xg[(g0 + 2 * t) * 16 + g], x1 = xg[(g0 + 2 * t + 1) * 16 + g], z0 = xg[(g0 + 2 * t) * 16 + g + 8], z1 = xg[(g0 + 2 * t + 1) * 16 + g + 8];
  const unsigned h0 = GF_PAIR(x0, x1), h1 = GF_PAIR(z0, z1);
  const unsigned l0 = GF_PAIR(x0 - GF_LO(h0), x1 - GF_HI(h0)), l1 = GF_PAIR(z0 - GF_LO(h1), z1 - GF_HI(h1));
  const unsigned m0 = GF_PAIR(-128 * GF_LO(h0), -128 * GF_HI(h0)), m1 = GF_PAIR(-128 * GF_LO(h1), -128 * GF_HI(h1));
  const unsigned k0 = GF_PAIR(-128 * GF_LO(l0), -128 * GF_HI(l0)), k1 = GF_PAIR(-128 * GF_LO(l1), -128 * GF_HI(l1));
  #pragma unroll
  for (int j = 0; j < NT; j++) {
    const size_t o = (size_t)(bid * ROWS + (warp * NT + j) * 8 + g) * (K / 64) + part * G + g0 + 2 * t;
    const unsigned bv = GF_UINT(biases + o), sv = GF_UINT(scales + o);
    gf_mma8(acc[j], h0, h1, bv);
    gf_mma8(acc[j], l0, l1, bv);
    gf_mma8(acc[j], m0, m1, sv);
    gf_mma8(acc[j], k0, k1, sv);
  }
}
const int n0 = bid * ROWS + warp * NT * 8;
float* own = parts + (size_t)part * rows * N;
#pragma unroll
for (int j = 0; j < NT; j++) {
  if (g < rows) *(float2*)(own + (size_t)g * N + n0 + j * 8 + 2 * t) = make_float2(acc[j][0], acc[j][1]);
  if (g + 8 < rows) *(float2*)(own + (size_t)(g + 8) * N + n0 + j * 8 + 2 * t) = make_float2(acc[j][2], acc[j][3]);
}
__shared__ int last;
__threadfence();
__syncthreads();
if (tid == 0) {
  int* count = (int*)counter + bid;
  last = atomicAdd(count, 1) == S - 1;
  if (last) *count = 0;
}
__syncthreads();
if (last) {
  __threadfence();
  constexpr int WIDE = SILU ? ROWS / 2 : ROWS, FOURS = WIDE / 4;
  for (int i0 = 0; i0 < rows * FOURS; i0 += 128) {
    const int i = i0 + tid, m = i / FOURS, n = (i - m * FOURS) * 4;
    const bool in = i < rows * FOURS;
    float4 a = make_float4(0, 0, 0, 0), u = a;
    if (in) {
      #pragma unroll
      for (int k = 0; k < S; k++) {
        const float* p = parts + ((size_t)k * rows + m) * N + bid * ROWS + n;
        float4 v = __ldcg((const float4*)p);
        a.x += v.x; a.y += v.y; a.z += v.z; a.w += v.w;
        if (SILU) { v = __ldcg((const float4*)(p + WIDE)); u.x += v.x; u.y += v.y; u.z += v.z; u.w += v.w; }
      }
    }
    if (SILU) { a.x = GF_SILU(a.x) * GF_ROUND(u.x); a.y = GF_SILU(a.y) * GF_ROUND(u.y); a.z = GF_SILU(a.z) * GF_ROUND(u.z); a.w = GF_SILU(a.w) * GF_ROUND(u.w); }
    if (RES && in) {
      const uint2 r = *(const uint2*)(residual + (size_t)m * N + bid * ROWS + n);
      a.x = GF_ROUND(a.x) + GF_LO(r.x); a.y = GF_ROUND(a.y) + GF_HI(r.x); a.z = GF_ROUND(a.z) + GF_LO(r.y); a.w = GF_ROUND(a.w) + GF_HI(r.y);
    }
    const unsigned o0 = GF_PAIR(a.x, a.y), o1 = GF_PAIR(a.z, a.w);
    if (in) *(uint2*)(y + (size_t)m * (SILU ? N / 2 : N) + bid * WIDE + n) = make_uint2(o0, o1);
    if (SQ) {
      float q = in ? GF_LO(o0) * GF_LO(o0) + GF_HI(o0) * GF_HI(o0) + GF_LO(o1) * GF_LO(o1) + GF_HI(o1) * GF_HI(o1) : 0.0f;
      #pragma unroll
      for (int o = 1; o < FOURS; o <<= 1) q += GF_XOR(q, o);
      if (in && i - m * FOURS == 0) squares[m * (N / ROWS) + bid] = q;
    }
  }
}
if (!SQ && bid == 0 && part == 0 && tid == 0) squares[0] = 0;
`

// chainMacros: results are rounded where they would be stored between separate
// kernels, so that both ways give the same numbers up to the order of sums.
const chainMacros = `
__device__ __forceinline__ float gf_round(float x) { return __uint_as_float((unsigned)(GF_PAIR(x, 0.0f) << 16)); }
#define GF_ROUND(x) gf_round(x)
#define GF_SILU(x) gf_silu(gf_round(x))
__device__ __forceinline__ float gf_silu(float x) { return x / (1.0f + GF_EXP(-x)); }
#define GF_NORM(v, n, i) GF_PAIR(GF_LO(v) * i * (n)[0], GF_HI(v) * i * (n)[1])
`

// squaresText is the sum of each row's squares: the begin of a chain.
const squaresText = `
GF_GROUP float part[8];
float v = 0;
for (int c = tid; c < H; c += 256) {
  const float u = (float)x[(size_t)bid * H + c];
  v += u * u;
}
for (int o = 16; o > 0; o >>= 1) v += GF_XOR(v, o);
if ((tid & 31) == 0) part[tid >> 5] = v;
GF_SYNC();
if (tid == 0) {
  float total = 0;
  for (int i = 0; i < 8; i++) total += part[i];
  sums[bid] = total;
}
`
