package kernels

// q4Header lets the compiler use all registers that a block of so many threads
// can have. MLX writes the kernel's head, so launch bounds can only come in through
// the word before it.
const (
	q4Header = `
#undef __global__
#define __global__ __attribute__((global)) __launch_bounds__(512, 1)
`
	q4WideHeader = `
#undef __global__
#define __global__ __attribute__((global)) __launch_bounds__(256, 1)
`
)

// onceHeader asks for what no block asks for again: the second cache gives its place
// away first, and keeps activations, keys and the kernels themselves instead, past
// which the weights of every layer stream.
const onceHeader = `
__device__ __forceinline__ unsigned long long gf_once() {
unsigned long long policy;
asm("createpolicy.fractional.L2::evict_first.b64 %0,1.0;" : "=l"(policy));
return policy;
}
__device__ __forceinline__ void gf_ask16_once(void* to, const void* from, bool there, unsigned long long once) {
asm volatile("{.reg .pred p;setp.ne.b32 p,%2,0;@p cp.async.cg.shared.global.L2::cache_hint [%0],[%1],16,%3;}" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"((int)there), "l"(once));
}
`

// chainText is a product of up to 16 rows with weights in 4 bits, affine in groups
// of 64, and what stands around it in a layer:
//
//	NORM  x is normalised on its way in: x·norm before the product, rsqrt(Σ sums / K + ε) after it
//	SILU  16 rows of W for gates, then 16 for values, by turns; silu(gate)·value comes out
//	RES   residual is added to the result
//	SQ    squares gets the sums of the result's squares, 16 outputs' each
//
// A multiprocessor has one block, of W warps. It takes part blockIdx.y of SPLITS of
// the columns, a warp GW groups of them, of which x stays in registers from begin to
// end; and every block of a part takes its share of W's rows, 16 at a time. What a
// warp needs of these 16 rows is a stage of its ring in shared memory: lines of
// GW·32 bytes of weights, then scales, then biases, an odd number of 32 bytes long,
// so that the lanes' reads fall into different banks. STAGES − 1 are on their way.
// To ask for a stage is as much work for the multiprocessor's copies as half of a
// product of 16 rows, and warps come to it at the same time. With SPREAD a warp asks
// for two or three pieces of it after each of the first half of its groups, in the
// place of the stage that it has left; without, for all of it before its product,
// which is earlier, and better where a block has few tiles.
//
// The warps' sums of 32 rows meet in shared memory, where a lane adds two of each in
// the order of the columns. With several SPLITS blocks leave their sums in parts, and
// the last of a share, which counter tells, adds them in the same way: no row of y
// depends on the number of rows, or on which block is last. counter is 0 before and
// after.
//
// A 4-bit number q is the bfloat16 128+q after one mask and one or, exactly, and the
// order of columns within a group is the same on both sides, which is all that a
// product needs: lane (g, t) holds the 16 numbers of a group that begin at 16t, in
// rows g and g+8 of x and of a tile of W. Scales are put on the groups' sums, and
// the term Σ (b − 128 s)·X over groups, X being a group's sum of x, is one more step
// of the tensor cores for four groups, with X in two bfloat16 parts.
const chainText = `
constexpr int G = K / 64, FOURS = GW / 4, TWO = GW % 4 / 2, EIGHTS = GW / 8, REST = GW % 8;
constexpr int LINE = 2 * (GW + (GW > 8 ? 3 : 1)), STAGE = 16 * LINE, THREADS = W * 32, TILES = (N + 15) / 16, UNIT = SILU ? 2 : 1, PAD = 36;
GF_DYNAMIC(memory, W * 16 * (STAGES * LINE * 4 + 2 * PAD));
uint4* ring = (uint4*)memory;
float* red = memory + STAGES * W * STAGE * 4;
__shared__ float inverse[16];
const int warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3, part = blockIdx.y, rows = x_shape[1];
const int first = bid * (TILES / UNIT) / (int)gridDim.x * UNIT, count = (bid + 1) * (TILES / UNIT) / (int)gridDim.x * UNIT - first;
const int begin = (part * W + warp) * GW, from = min(begin, G - GW);

// Before the wait there is time for the norm and for one stage of weights; with more
// of them on their way x, which comes next, would be late. The last stage's place is
// free for the norm's columns.
float* own_norm = (float*)(ring + ((STAGES - 1) * W + warp) * STAGE);
constexpr int ROUNDS = (16 + W - 1) / W;
float squared[ROUNDS];
if (NORM) {
  #pragma unroll
  for (int e = 0; e < GW / 2; e++) gf_copy16(own_norm + (e * 32 + lane) * 4, norm + from * 64 + (e * 32 + lane) * 4, true);
  gf_copies_end();
}
const unsigned* w4 = w + (size_t)(first * 16 + lane / 8) * (K / 8) + from * 8 + lane % 8 * 4;
const unsigned* w2 = w + (size_t)(first * 16 + lane / 4) * (K / 8) + from * 8 + FOURS * 32 + lane % 4 * 4;
const __nv_bfloat16* sb = (lane < 16 ? scales : biases) + (size_t)(first * 16 + lane % 16) * G + from;
const unsigned long long once = gf_once();
// piece asks for part e of a stage: four or eight rows of weights, or all scales and
// biases. The compiler may move it among reads of other stages.
constexpr int PIECES = FOURS * 4 + TWO * 2 + 1;
auto piece = [&](int i, int e, bool there) {
  uint4* to = ring + (i % STAGES * W + warp) * STAGE;
  const int left = N % 16 == 0 ? 15 : N - 1 - (first + i) * 16;
  if (e < FOURS * 4) {
    const int r = e % 4 * 4, a = e / 4, back = N % 16 == 0 ? 0 : max(r + lane / 8 - left, 0);
    gf_ask16_once(to + (lane / 8 + r) * LINE + lane % 8 + a * 8, w4 + a * 32 + (r - back) * (K / 8), there, once);
  } else if (e < PIECES - 1) {
    const int r = (e - FOURS * 4) * 8, back = N % 16 == 0 ? 0 : max(r + lane / 4 - left, 0);
    gf_ask16_once(to + (lane / 4 + r) * LINE + lane % 4 + FOURS * 8, w2 + (r - back) * (K / 8), there, once);
  } else {
    unsigned* ss = (unsigned*)(to + lane % 16 * LINE + 2 * GW) + lane / 16 * (GW / 2);
    const __nv_bfloat16* p = sb - (N % 16 == 0 ? 0 : max(lane % 16 - left, 0) * G);
    if (GW == 8 && G % 8 == 0) {
      gf_ask16(ss, p, there);
    } else if (GW % 4 == 0 && G % 4 == 0) {
      #pragma unroll
      for (int k = 0; k < GW / 4; k++) gf_ask8(ss + 2 * k, p + 4 * k, there);
    } else {
      #pragma unroll
      for (int k = 0; k < GW / 2; k++) gf_ask4(ss + k, p + 2 * k, there);
    }
  }
};
auto next = [&]() {
  w4 += 16 * (K / 8);
  w2 += 16 * (K / 8);
  sb += 16 * G;
  gf_copies_end();
};
auto fetch = [&](int i) {
  if (i < count) {
    #pragma unroll
    for (int e = 0; e < PIECES; e++) piece(i, e, true);
  }
  next();
};
fetch(0);
gf_wait();
if (NORM) {
  const int n = sums_shape[1];
  #pragma unroll
  for (int r = 0; r < ROUNDS; r++) {
    squared[r] = gf_lane_sum(sums + (size_t)min(warp + r * W, rows - 1) * n, n, lane);
  }
}
uint4 raw[GW][2][2];
const __nv_bfloat16* x0 = x + (size_t)min(g, rows - 1) * K + from * 64 + t * 16;
const __nv_bfloat16* x1 = x + (size_t)min(g + 8, rows - 1) * K + from * 64 + t * 16;
#pragma unroll
for (int u = 0; u < GW; u++) {
  #pragma unroll
  for (int h = 0; h < 2; h++) {
    raw[u][h][0] = *(const uint4*)(x0 + u * 64 + h * 8);
    raw[u][h][1] = *(const uint4*)(x1 + u * 64 + h * 8);
    if (G % (W * GW) != 0 && from + u < begin) { raw[u][h][0] = make_uint4(0, 0, 0, 0); raw[u][h][1] = raw[u][h][0]; }
  }
}

#pragma unroll 1
for (int i = 1; i < STAGES - 1; i++) fetch(i);

if (NORM) {
  #pragma unroll
  for (int r = 0; r < ROUNDS; r++) {
    float v = squared[r];
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += GF_XOR(v, o);
    if (lane == 0 && warp + r * W < rows) inverse[warp + r * W] = GF_RSQRT(v / K + GF_FLOAT(EPS));
  }
  gf_copies_wait<STAGES - 1>();
  __syncwarp();
}
unsigned xf[GW][2][2][4];
float xg[GW][2];
#pragma unroll
for (int u = 0; u < GW; u++) {
  float d[4] = {0, 0, 0, 0};
  #pragma unroll
  for (int h = 0; h < 2; h++) {
    #pragma unroll
    for (int m = 0; m < 2; m++) {
      const uint4 a = raw[u][h][m];
      unsigned* f = xf[u][m][h];
      if (NORM) {
        const float* n = own_norm + u * 64 + t * 16 + h * 8;
        const float4 p = *(const float4*)n, q = *(const float4*)(n + 4);
        f[0] = GF_PAIR(GF_LO(a.x) * p.x, GF_LO(a.z) * q.x); f[1] = GF_PAIR(GF_HI(a.x) * p.y, GF_HI(a.z) * q.y);
        f[2] = GF_PAIR(GF_LO(a.y) * p.z, GF_LO(a.w) * q.z); f[3] = GF_PAIR(GF_HI(a.y) * p.w, GF_HI(a.w) * q.w);
      } else {
        f[0] = __byte_perm(a.x, a.z, 0x5410); f[1] = __byte_perm(a.x, a.z, 0x7632);
        f[2] = __byte_perm(a.y, a.w, 0x5410); f[3] = __byte_perm(a.y, a.w, 0x7632);
      }
    }
    #pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const unsigned a[4] = {xf[u][0][h][e], xf[u][1][h][e], xf[u][0][h][e + 1], xf[u][1][h][e + 1]};
      gf_mma(d, a, 0x3f803f80u, 0x3f803f80u);
    }
  }
  xg[u][0] = d[0]; xg[u][1] = d[2];
}
// The groups' sums as columns of the last step: eight groups in two steps, one for
// each part of the sums, what is left over in one.
unsigned xs[EIGHTS + 1][2][2];
#pragma unroll
for (int e = 0; e <= EIGHTS; e++) {
  #pragma unroll
  for (int m = 0; m < 2; m++) {
    float a = 0, b = 0;
    #pragma unroll
    for (int k = 0; k < 4; k++) {
      const int u = e * 8 + 2 * (e < EIGHTS ? k : k % (REST == 4 ? 2 : 1));
      if (t == k && (e < EIGHTS || k < REST)) { a = xg[u % GW][m]; b = xg[(u + 1) % GW][m]; }
    }
    const unsigned hi = GF_PAIR(a, b), lo = GF_PAIR(a - GF_LO(hi), b - GF_HI(hi));
    xs[e][m][0] = e == EIGHTS && t >= REST / 2 ? lo : hi;
    xs[e][m][1] = lo;
  }
}

// finish is for outputs n and n + 1 of a tile; there says which of them there are.
auto finish = [&](int tile, int m, int n, int there, float v0, float v1) {
  if (NORM) { v0 *= inverse[m]; v1 *= inverse[m]; }
  size_t at = (size_t)m * N + tile * 16 + n;
  if (SILU) {
    const float u0 = GF_XOR(v0, 8), u1 = GF_XOR(v1, 8);
    v0 = GF_SILU(v0) * GF_ROUND(u0);
    v1 = GF_SILU(v1) * GF_ROUND(u1);
    if (tile % 2 != 0) there = 0;
    at = (size_t)m * (N / 2) + tile * 8 + n;
  }
  unsigned o;
  static_assert(N % 2 == 0 || !RES && !SQ && !SILU, "chains have even maps");
  if (N % 2 == 0) {
    if (RES && there) {
      const unsigned r = *(const unsigned*)(residual + at);
      v0 = GF_ROUND(v0) + GF_LO(r);
      v1 = GF_ROUND(v1) + GF_HI(r);
    }
    o = GF_PAIR(v0, v1);
    if (there) *(unsigned*)(y + at) = o;
  } else {
    o = GF_PAIR(v0, v1);
    if (there > 0) y[at] = (__nv_bfloat16)v0;
    if (there > 1) y[at + 1] = (__nv_bfloat16)v1;
  }
  if (SQ) {
    float q = (there > 0 ? GF_LO(o) * GF_LO(o) : 0.0f) + (there > 1 ? GF_HI(o) * GF_HI(o) : 0.0f);
    #pragma unroll
    for (int k = 1; k < 8; k <<= 1) q += GF_XOR(q, k);
    if (there && n == 0) squares[m * TILES + tile] = q;
  }
};
#pragma unroll 1
for (int i = 0; i < count; i += 2) {
  float* sum = red + i / 2 % 2 * W * 16 * PAD;
  #pragma unroll 1
  for (int j = 0; j < 2 && i + j < count; j++) {
    float* to = sum + warp * 16 * PAD + 2 * t * PAD + g + j * 16;
    if (rows > 8) {
      constexpr int M = 2;
      ` + chainStep + `
    } else {
      constexpr int M = 1;
      ` + chainStep + `
    }
  }
  __syncthreads();
  for (int two = warp; two < (rows + 1) / 2; two += W) {
    const int m = two * 2 + lane / 16, n = lane % 16 * 2, tile = first + i + n / 16;
    const float* p = sum + m * PAD + n;
    float v0 = 0, v1 = 0;
    #pragma unroll
    for (int k = 0; k < W; k++) {
      const float2 a = *(const float2*)(p + k * 16 * PAD);
      v0 += a.x;
      v1 += a.y;
    }
    const int there = m < rows && i + n / 16 < count ? N % 16 == 0 ? 2 : min(max(N - tile * 16 - n % 16, 0), 2) : 0;
    if (SPLITS > 1) {
      float* to = parts + ((size_t)part * rows + m) * N + tile * 16 + n % 16;
      if (N % 2 == 0) {
        if (there) *(float2*)to = make_float2(v0, v1);
      } else {
        if (there > 0) to[0] = v0;
        if (there > 1) to[1] = v1;
      }
    } else {
      finish(tile, min(m, rows - 1), n % 16, there, v0, v1);
    }
  }
}
if (SPLITS > 1) {
  __shared__ int last;
  __threadfence();
  __syncthreads();
  if (tid == 0) {
    int* c = (int*)counter + bid;
    last = atomicAdd(c, 1) == SPLITS - 1;
    if (last) *c = 0;
  }
  __syncthreads();
  if (last) {
    __threadfence();
    constexpr int AT_ONCE = 4;
    const int sixteens = rows * count;
    for (int i = tid / 8; i < (sixteens + 3) / 4 * 4; i += AT_ONCE * THREADS / 8) {
      float v[AT_ONCE][2];
      int m[AT_ONCE], tile[AT_ONCE], there[AT_ONCE];
      #pragma unroll
      for (int a = 0; a < AT_ONCE; a++) {
        const int j = i + a * THREADS / 8, e = min(j, sixteens - 1), n = tid % 8 * 2;
        m[a] = e / count;
        tile[a] = first + e - m[a] * count;
        there[a] = j >= sixteens ? 0 : N % 16 == 0 ? 2 : min(max(N - tile[a] * 16 - n, 0), 2);
        v[a][0] = v[a][1] = 0;
        #pragma unroll
        for (int k = 0; k < SPLITS; k++) {
          const float* p = parts + ((size_t)k * rows + m[a]) * N + tile[a] * 16 + n;
          if (N % 2 == 0) {
            float2 b = make_float2(0, 0);
            if (there[a]) b = __ldcg((const float2*)p);
            v[a][0] += b.x;
            v[a][1] += b.y;
          } else {
            if (there[a] > 0) v[a][0] += __ldcg(p);
            if (there[a] > 1) v[a][1] += __ldcg(p + 1);
          }
        }
      }
      #pragma unroll
      for (int a = 0; a < AT_ONCE; a++) finish(tile[a], m[a], tid % 8 * 2, there[a], v[a][0], v[a][1]);
    }
  }
}
if (tid < 4 && bid == 0 && part == 0) {
  if (!SQ) squares[tid] = 0;
  if (SPLITS == 1) parts[tid] = 0;
}
`

// chainStep adds up 16 rows of W for M times 8 rows of x, in place of to.
const chainStep = `
gf_copies_wait<STAGES - 2>();
__syncwarp();
const int ask = i + j + STAGES - 1;
if (!SPREAD) fetch(ask);
float acc[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
const uint4* line = ring + ((i + j) % STAGES * W + warp) * STAGE + g * LINE;
const unsigned* sc = (const unsigned*)(line + 2 * GW);
#pragma unroll
for (int u = 0; u < GW; u++) {
  const uint2 top = ((const uint2*)line)[u * 4 + t], low = ((const uint2*)(line + 8 * LINE))[u * 4 + t];
  float d[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
  #pragma unroll
  for (int h = 0; h < 2; h++) {
    const unsigned f = h ? top.y : top.x, e = h ? low.y : low.x;
    const unsigned a[4] = {GF_Q4(f), GF_Q4(e), GF_Q4(f >> 4), GF_Q4(e >> 4)}, b[4] = {GF_Q4(f >> 8), GF_Q4(e >> 8), GF_Q4(f >> 12), GF_Q4(e >> 12)};
    #pragma unroll
    for (int m = 0; m < M; m++) gf_mma(d[m], a, xf[u][m][h][0], xf[u][m][h][1]);
    #pragma unroll
    for (int m = 0; m < M; m++) gf_mma(d[m], b, xf[u][m][h][2], xf[u][m][h][3]);
  }
  const unsigned s0 = sc[u / 2], s1 = sc[8 * LINE * 4 + u / 2];
  const float f0 = u & 1 ? GF_HI(s0) : GF_LO(s0), f1 = u & 1 ? GF_HI(s1) : GF_LO(s1);
  #pragma unroll
  for (int m = 0; m < M; m++) { acc[m][0] += f0 * d[m][0]; acc[m][1] += f0 * d[m][1]; acc[m][2] += f1 * d[m][2]; acc[m][3] += f1 * d[m][3]; }
  if (SPREAD) {
    #pragma unroll
    for (int e = min(u * 2, GW) * PIECES / GW; e < min(u * 2 + 2, GW) * PIECES / GW; e++) piece(ask, e, ask < count);
  }
}
if (SPREAD) next();
#pragma unroll
for (int e = 0; e < EIGHTS + (REST > 0); e++) {
  const unsigned* c = sc + e * 4 + (e < EIGHTS ? t : t % (REST / 2 + (REST == 0)));
  const unsigned a[4] = {c[GW / 2], c[8 * LINE * 4 + GW / 2], c[0], c[8 * LINE * 4]};
  #pragma unroll
  for (int k = 0; k < (e < EIGHTS ? 2 : 1); k++) {
    #pragma unroll
    for (int m = 0; m < M; m++) gf_mma(acc[m], a, xs[e][m][k], GF_PAIR(-128 * GF_LO(xs[e][m][k]), -128 * GF_HI(xs[e][m][k])));
  }
}
#pragma unroll
for (int m = 0; m < M; m++) { to[m * 8 * PAD] = acc[m][0]; to[m * 8 * PAD + PAD] = acc[m][1]; to[m * 8 * PAD + 8] = acc[m][2]; to[m * 8 * PAD + PAD + 8] = acc[m][3]; }
`

// chainMacros: results are rounded where they would be stored between separate
// kernels, so that both ways give the same numbers up to the order of sums.
// gf_lane_sum is a lane's part of the sum of n numbers, eight of them asked for at once.
const chainMacros = `
__device__ __forceinline__ float gf_round(float x) { return __uint_as_float((unsigned)(GF_PAIR(x, 0.0f) << 16)); }
#define GF_ROUND(x) gf_round(x)
#define GF_SILU(x) gf_silu(gf_round(x))
__device__ __forceinline__ float gf_silu(float x) { return x / (1.0f + GF_EXP(-x)); }
__device__ __forceinline__ float gf_lane_sum(const float* p, int n, int lane) {
  float v[8];
  #pragma unroll
  for (int e = 0; e < 8; e++) v[e] = e * 32 + lane < n ? p[e * 32 + lane] : 0.0f;
  float sum = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  #pragma unroll 1
  for (int i = 256 + lane; i < n; i += 32) sum += p[i];
  return sum;
}
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
