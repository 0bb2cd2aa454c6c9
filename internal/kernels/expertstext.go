package kernels

// streamHeader loads 16 bytes of weights past the first cache.
const streamHeader = `
__device__ __forceinline__ uint4 gf_stream4(const unsigned* p) {
uint4 r;
asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
return r;
}
`

// upHeader asks for four blocks on a multiprocessor.
const upHeader = `
#undef __global__
#define __global__ __attribute__((global)) __launch_bounds__(128, 4)
`

// downHeader bounds the registers: a block has a warp for each expert of a row.
const downHeader = `
#undef __global__
#define __global__ __attribute__((global)) __launch_bounds__(512, 1)
`

// scoresText is one row's product with the router, BITS 8 (affine, groups of 64) or
// 16 (bfloat16), and with the shared expert's gate behind it. A warp makes one
// score; it is rounded as a product of its own would store it. With NORM x is
// normalised as in chainText, and left in normed for the experts.
const scoresText = `
__shared__ uint4 xs[H / 8];
const int lane = tid & 31, n = blockIdx.y * 4 + (tid >> 5);
constexpr int FOURS = H * BITS / 128, ROUNDS = (FOURS + 31) / 32, HELD = ROUNDS < 8 ? ROUNDS : 8;
const bool own = n < E, live = n < E + GATE;
const size_t at = own ? n : 0;
const uint4* wr = (const uint4*)(own ? w : gate_w) + at * FOURS;
const unsigned short* sc = (const unsigned short*)(own ? scales : gate_scales) + at * (H / 64);
const unsigned short* bi = (const unsigned short*)(own ? biases : gate_biases) + at * (H / 64);
uint4 held[HELD];
unsigned short held_s[HELD], held_b[HELD];
#pragma unroll
for (int i = 0; i < HELD; i++) {
  const int c = lane + 32 * i;
  if (live && c < FOURS) {
    held[i] = wr[c];
    if (BITS == 8) { held_s[i] = sc[c / 4]; held_b[i] = bi[c / 4]; }
  }
}
gf_wait();
constexpr int TURNS = (H / 8 + 127) / 128;
uint4 mine[TURNS];
float4 scale[TURNS][2];
#pragma unroll
for (int i = 0; i < TURNS; i++) {
  const int c = tid + 128 * i;
  if (c < H / 8) {
    mine[i] = ((const uint4*)(x + (size_t)bid * H))[c];
    if (NORM) { scale[i][0] = ((const float4*)norm)[2 * c]; scale[i][1] = ((const float4*)norm)[2 * c + 1]; }
  }
}
float inverse = 0;
if (NORM) {
  const int parts = sums_shape[1];
  inverse = gf_lane_sum(sums + (size_t)bid * parts, parts, lane);
  for (int o = 16; o > 0; o >>= 1) inverse += GF_XOR(inverse, o);
  inverse = GF_RSQRT(inverse / H + GF_FLOAT(EPS));
} else if (bid == 0 && n == 0 && tid == 0) normed[0] = (__nv_bfloat16)0.0f;
#pragma unroll
for (int i = 0; i < TURNS; i++) {
  const int c = tid + 128 * i;
  if (c >= H / 8) break;
  uint4 a = mine[i];
  if (NORM) {
    const float* w = (const float*)scale[i];
    a = make_uint4(GF_NORM(a.x, w, inverse), GF_NORM(a.y, w + 2, inverse), GF_NORM(a.z, w + 4, inverse), GF_NORM(a.w, w + 6, inverse));
    if (blockIdx.y == 0) ((uint4*)(normed + (size_t)bid * H))[c] = a;
  }
  xs[c] = a;
}
__syncthreads();
if (live) {
  float sum = 0;
  #pragma unroll
  for (int i = 0; i < ROUNDS; i++) {
    const int c = lane + 32 * i;
    if (c >= FOURS) continue;
    const uint4 q = i < HELD ? held[i % HELD] : wr[c];
    if (BITS == 8) {
      const unsigned s = i < HELD ? held_s[i % HELD] : sc[c / 4], z = i < HELD ? held_b[i % HELD] : bi[c / 4];
      const uint4 a = xs[2 * c], b = xs[2 * c + 1];
      float dot = 0, total = 0;
      GF_BYTES(q.x, a.x, a.y) GF_BYTES(q.y, a.z, a.w) GF_BYTES(q.z, b.x, b.y) GF_BYTES(q.w, b.z, b.w)
      sum += GF_LO(s) * dot + GF_LO(z) * total;
    } else {
      const uint4 a = xs[c];
      sum += GF_LO(q.x) * GF_LO(a.x) + GF_HI(q.x) * GF_HI(a.x) + GF_LO(q.y) * GF_LO(a.y) + GF_HI(q.y) * GF_HI(a.y)
        + GF_LO(q.z) * GF_LO(a.z) + GF_HI(q.z) * GF_HI(a.z) + GF_LO(q.w) * GF_LO(a.w) + GF_HI(q.w) * GF_HI(a.w);
    }
  }
  for (int o = 16; o > 0; o >>= 1) sum += GF_XOR(sum, o);
  if (lane == 0) scores[(size_t)bid * (E + GATE) + n] = (float)(__nv_bfloat16)sum;
}
`

// scoresMacros: four numbers of 8 bits by two pairs of x.
const scoresMacros = `
#define GF_BYTES(q, a, b) \
dot += (float)((q) & 255u) * GF_LO(a) + (float)((q) >> 8 & 255u) * GF_HI(a) + (float)((q) >> 16 & 255u) * GF_LO(b) + (float)((q) >> 24) * GF_HI(b); \
total += GF_LO(a) + GF_HI(a) + GF_LO(b) + GF_HI(b);
`

// chooseText is a row's softmax over the experts, in one warp, and the K greatest
// probabilities in descending order, the lower expert first where two are equal;
// with NORM they add up to 1. The shared expert's weight, the logistic function of
// its score, stands behind them. An index is in range whatever the scores are.
const chooseText = `
constexpr int N = (E + 31) / 32, W = E + GATE;
const float none = -__int_as_float(0x7f800000);
float v[N];
float top = none, total = 0, sum = 0, mine = 0;
unsigned used = 0;
int id = 0;
for (int i = 0; i < N; i++) {
  v[i] = tid + 32 * i < E ? scores[(size_t)bid * W + tid + 32 * i] : none;
  top = fmaxf(top, v[i]);
}
for (int o = 16; o > 0; o >>= 1) top = fmaxf(top, GF_XOR(top, o));
for (int i = 0; i < N; i++) total += GF_EXP(v[i] - top);
for (int o = 16; o > 0; o >>= 1) total += GF_XOR(total, o);
for (int k = 0; k < K; k++) {
  float best = none;
  int at = E;
  for (int i = 0; i < N; i++) if (!(used >> i & 1) && v[i] > best) { best = v[i]; at = tid + 32 * i; }
  const unsigned bits = __float_as_int(best + 0.0f), key = bits >> 31 ? ~bits : bits | 0x80000000u; // in the order of the numbers
  const unsigned most = __reduce_max_sync(0xffffffffu, key);
  best = __int_as_float(most >> 31 ? most & 0x7fffffffu : ~most);
  at = min(__reduce_min_sync(0xffffffffu, key == most ? at : E), E - 1);
  if ((at & 31) == tid) used |= 1u << (at >> 5);
  const float p = GF_EXP(best - top) / total;
  sum += p;
  if (tid == k) { mine = p; id = at; }
}
if (tid < K) {
  chosen[bid * K + tid] = id;
  weights[bid * (K + GATE) + tid] = NORM ? mine / sum : mine;
}
if (GATE && tid == K) weights[bid * (K + GATE) + K] = 1.0f / (1.0f + GF_EXP(-scores[(size_t)bid * W + E]));
`

// expertsMacros is the product of one row of x with tiles of 16 rows of a weight in
// 4 bits, affine, of G groups of 64, on tensor cores. A warp takes eight groups at a
// time. A lane holds half a group of two rows; the matrix by which they are
// multiplied has x in as many columns as there are groups, each zero outside its
// own: so every group has a sum of its own, to which its scale belongs, and nothing
// of the sixteen columns that a step adds is wasted.
//
// As in chainText a number q is exactly the bfloat16 128+q, and the order of columns
// within a group is the same on both sides.
//
//	gf_row       puts x into shared memory, and the sums of its groups; zeros up to GP.
//	             All of x is asked for before any of it is used
//	gf_take      loads a unit of eight groups, with scales and biases
//	gf_multiply  adds the unit's product to acc, for rows g and g+8
const expertsMacros = `
#define GF_PART(v, j) ((j) == 0 ? (v).x : (j) == 1 ? (v).y : (j) == 2 ? (v).z : (v).w)
struct GfUnit { uint4 q[8]; unsigned s[4]; };
template <int G, int STEP> __device__ __forceinline__ void gf_row(const __nv_bfloat16* x, uint4* xs, float* xg, int from) {
  constexpr int GP = (G + 7) / 8 * 8, ROUNDS = (GP * 8 + STEP - 1) / STEP;
  uint4 v[ROUNDS];
  #pragma unroll
  for (int k = 0; k < ROUNDS; k++) {
    const int i = from + k * STEP;
    v[k] = make_uint4(0, 0, 0, 0);
    if (i < G * 8) v[k] = *(const uint4*)(x + i * 8);
  }
  #pragma unroll
  for (int k = 0; k < ROUNDS; k++) {
    const int i = from + k * STEP;
    if (i >= GP * 8) break;
    const uint4 a = v[k];
    float sum = GF_LO(a.x) + GF_HI(a.x) + GF_LO(a.y) + GF_HI(a.y) + GF_LO(a.z) + GF_HI(a.z) + GF_LO(a.w) + GF_HI(a.w);
    sum += GF_XOR(sum, 1); sum += GF_XOR(sum, 2); sum += GF_XOR(sum, 4);
    xs[(i >> 3) * 9 + (i & 7)] = make_uint4(__byte_perm(a.x, a.z, 0x5410), __byte_perm(a.x, a.z, 0x7632), __byte_perm(a.y, a.w, 0x5410), __byte_perm(a.y, a.w, 0x7632));
    if ((i & 7) == 0) xg[i >> 3] = sum;
  }
}
template <int G, class S> __device__ __forceinline__ void gf_take(GfUnit& m, const unsigned* w, const S* scales, const S* biases, int unit, int lane) {
  const int g = lane >> 2, t = lane & 3;
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const int group = unit * 8 + 2 * i + (t >> 1);
    const unsigned* p = w + (size_t)g * (G * 8) + group * 8 + (t & 1) * 4;
    m.q[2 * i] = make_uint4(0, 0, 0, 0); m.q[2 * i + 1] = m.q[2 * i];
    if (group < G) { m.q[2 * i] = gf_stream4(p); m.q[2 * i + 1] = gf_stream4(p + G * 64); }
  }
  const int from = unit * 8 + 2 * t;
  m.s[0] = 0; m.s[1] = 0; m.s[2] = 0; m.s[3] = 0;
  if (from < G) {
    const size_t o = (size_t)g * G + from;
    m.s[0] = GF_UINT(scales + o); m.s[1] = GF_UINT(scales + o + 8 * G);
    m.s[2] = GF_UINT(biases + o); m.s[3] = GF_UINT(biases + o + 8 * G);
  }
}
template <int N> __device__ __forceinline__ void gf_multiply(float* acc, const GfUnit* m, const uint4* xs, const float* xg, int unit, int lane) {
  const int g = lane >> 2, t = lane & 3;
  float d[N][4];
  uint4 x[4];
  #pragma unroll
  for (int n = 0; n < N; n++) { d[n][0] = 0; d[n][1] = 0; d[n][2] = 0; d[n][3] = 0; }
  #pragma unroll
  for (int j = 0; j < 4; j++) x[j] = xs[(unit * 8 + g) * 9 + (t & 1) * 4 + j];
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const bool own = g == 2 * i + (t >> 1);
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      const uint4 v = make_uint4(own ? x[j].x : 0, own ? x[j].y : 0, own ? x[j].z : 0, own ? x[j].w : 0);
      #pragma unroll
      for (int n = 0; n < N; n++) {
        const unsigned f = GF_PART(m[n].q[2 * i], j), e = GF_PART(m[n].q[2 * i + 1], j);
        const unsigned a[4] = {GF_Q4(f), GF_Q4(e), GF_Q4(f >> 4), GF_Q4(e >> 4)};
        const unsigned b[4] = {GF_Q4(f >> 8), GF_Q4(e >> 8), GF_Q4(f >> 12), GF_Q4(e >> 12)};
        gf_mma(d[n], a, v.x, v.y);
        gf_mma(d[n], b, v.z, v.w);
      }
    }
  }
  const float x0 = xg[unit * 8 + 2 * t], x1 = xg[unit * 8 + 2 * t + 1];
  #pragma unroll
  for (int n = 0; n < N; n++) {
    #pragma unroll
    for (int r = 0; r < 2; r++) {
      const float s0 = GF_LO(m[n].s[r]), s1 = GF_HI(m[n].s[r]);
      acc[2 * n + r] += s0 * d[n][2 * r] + (GF_LO(m[n].s[2 + r]) - 128 * s0) * x0 + s1 * d[n][2 * r + 1] + (GF_HI(m[n].s[2 + r]) - 128 * s1) * x1;
    }
  }
}
`

// upText is silu(gate·x)·(up·x) for one row and one of its experts, the shared one
// being the last: 16 outputs a block, the columns shared out over 4 warps, whose
// sums are added in their order. Blocks of one tile lie together, so that rows with
// the same expert find its weights in the second cache.
const upText = `
constexpr int G = H / 64, GP = (G + 7) / 8 * 8, KS = K + SHARED;
__shared__ uint4 xs[GP * 9];
__shared__ float xg[GP];
__shared__ float part[4 * 32];
const int warp = tid >> 5, lane = tid & 31, row = bid / KS, k = bid - row * KS, n0 = blockIdx.y * 16;
const bool own = k < K;
const size_t e = own ? (size_t)chosen[row * K + k] * F + n0 : n0 / HALF * 2 * HALF + n0 % HALF;
const size_t u = own ? e : e + HALF;
const unsigned* gw = (own ? gate_w : shared_w) + e * (H / 8);
const unsigned* uw = (own ? up_w : shared_w) + u * (H / 8);
const auto* gs = (own ? gate_scales : shared_scales) + e * G;
const auto* gb = (own ? gate_biases : shared_biases) + e * G;
const auto* us = (own ? up_scales : shared_scales) + u * G;
const auto* ub = (own ? up_biases : shared_biases) + u * G;
GfUnit m[2];
if (warp < GP / 8) { gf_take<G>(m[0], gw, gs, gb, warp, lane); gf_take<G>(m[1], uw, us, ub, warp, lane); }
gf_row<G, 128>(x + (size_t)row * H, xs, xg, tid);
__syncthreads();
float acc[4] = {0, 0, 0, 0};
#pragma unroll 1
for (int i = warp; i < GP / 8; i += 4) {
  gf_multiply<2>(acc, m, xs, xg, i, lane);
  if (i + 4 < GP / 8) { gf_take<G>(m[0], gw, gs, gb, i + 4, lane); gf_take<G>(m[1], uw, us, ub, i + 4, lane); }
}
#pragma unroll
for (int i = 0; i < 4; i++) {
  acc[i] += GF_XOR(acc[i], 1); acc[i] += GF_XOR(acc[i], 2);
  if ((lane & 3) == 0) part[warp * 32 + i * 8 + (lane >> 2)] = acc[i];
}
__syncthreads();
if (tid < 16) {
  float g = 0, v = 0;
  for (int i = 0; i < 4; i++) { g += part[i * 32 + tid]; v += part[i * 32 + 16 + tid]; }
  h[(size_t)bid * F + n0 + tid] = (__nv_bfloat16)(GF_SILU(g) * GF_ROUND(v));
}
`

// downText is Σ weight·(down·h) over a row's experts: 16 outputs a block, a warp
// for each expert, whose results are added in the experts' order, in float32. RES and
// SQ are chainText's.
const downText = `
constexpr int G = F / 64, GP = (G + 7) / 8 * 8, KS = K + SHARED;
__shared__ uint4 xs[KS * GP * 9];
__shared__ float xg[KS * GP];
__shared__ float part[KS * 16];
const int warp = tid >> 5, lane = tid & 31, n0 = blockIdx.y * 16;
const bool own = warp < K;
const size_t e = own ? (size_t)chosen[bid * K + warp] * H + n0 : n0;
const unsigned* w = (own ? down_w : shared_w) + e * (F / 8);
const auto* sc = (own ? down_scales : shared_scales) + e * G;
const auto* bi = (own ? down_biases : shared_biases) + e * G;
GfUnit m;
gf_take<G>(m, w, sc, bi, 0, lane);
uint4* xw = xs + warp * (GP * 9);
float* gw = xg + warp * GP;
gf_row<G, 32>(h + ((size_t)bid * KS + warp) * F, xw, gw, lane);
__syncthreads();
float acc[2] = {0, 0};
#pragma unroll 1
for (int i = 0; i < GP / 8; i++) {
  gf_multiply<1>(acc, &m, xw, gw, i, lane);
  if (i + 1 < GP / 8) gf_take<G>(m, w, sc, bi, i + 1, lane);
}
acc[0] += GF_XOR(acc[0], 1); acc[0] += GF_XOR(acc[0], 2);
acc[1] += GF_XOR(acc[1], 1); acc[1] += GF_XOR(acc[1], 2);
if ((lane & 3) == 0) { part[warp * 16 + (lane >> 2)] = acc[0]; part[warp * 16 + 8 + (lane >> 2)] = acc[1]; }
__syncthreads();
if (warp == 0) {
  const size_t to = (size_t)bid * H + n0 + (lane & 15);
  float sum = 0;
  for (int k = 0; k < KS; k++) sum += weights[bid * KS + k] * part[k * 16 + (lane & 15)];
  sum = GF_ROUND(sum);
  if (RES) sum = GF_ROUND(sum + (float)residual[to]);
  if (lane < 16) y[to] = (__nv_bfloat16)sum;
  if (SQ) {
    float q = sum * sum;
    for (int o = 8; o > 0; o >>= 1) q += GF_XOR(q, o);
    if (lane == 0) squares[bid * (H / 16) + blockIdx.y] = q;
  } else if (bid == 0 && n0 == 0 && lane < 4) squares[lane] = 0;
}
`
