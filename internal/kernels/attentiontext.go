package kernels

// loadHeader is the transposing load of matrix fragments from shared memory.
const loadHeader = `
__device__ __forceinline__ void gf_load_transposed(const void* p, unsigned* r) {
asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(p)));
}
`

const attentionMacros = `
#define GF_UINT(p) (*(const unsigned*)(p))
#define GF_PAIR(a, b) gf_pair(a, b)
__device__ __forceinline__ unsigned gf_pair(float a, float b) {
const __nv_bfloat16 x = __nv_bfloat16(a), y = __nv_bfloat16(b);
return (unsigned)*(const unsigned short*)&x | (unsigned)*(const unsigned short*)&y << 16;
}
`

// attentionText is attention of up to 16 rows at a position that the device
// knows, over the rows of a cache [1, HK, capacity, D]. A block takes every
// SPLITS-th tile of BK keys for one key head, a warp one query head; tiles pass
// through a ring of STAGES in shared memory, of which all but one are on their way. The
// first tile is asked for before the position is known, if the cache has it.
//
// Lane (g, t) takes the eight features of 32 that begin at 8t, of rows g and g+8 of the
// queries and of key g: the order of features is the same on both sides, which is all
// that a product needs. Where keys lie an odd number of 64 bytes apart, the lanes' reads
// of them fall into different banks.
//
// Which keys lie together does not depend on where the block ends, and a key that a
// row does not see adds an exact zero: so a row has the same bits in any block. Row r
// sees the keys up to its own position, or, not causal, up to the block's last; with
// a WINDOW, not those that lie WINDOW or more positions before it. Parts leave unnormalised sums and, for
// each, the greatest score and the sum of weights, in powers of two.
const attentionText = `
constexpr int GQ = HQ / HK, NTH = GQ * 32;
constexpr int PK = D + (D % 64 == 0 ? 32 : 0), PV = D + 8, TILE = BK * (PK + PV);
GF_DYNAMIC(memory, STAGES * TILE / 2);
const int lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
const int part = bid, kh = blockIdx.y, head = kh * GQ + warp;
const int rows = q_shape[2], capacity = keys_shape[2];
const auto fetch = [&](int tile, int slot) {
  const size_t o = ((size_t)kh * capacity + (size_t)tile * BK) * D;
  __nv_bfloat16* to = (__nv_bfloat16*)memory + slot * TILE;
  for (int i = tid; i < BK * D / 8; i += NTH) {
    const int r = i / (D / 8), c = (i - r * (D / 8)) * 8;
    gf_ask16(to + r * PK + c, keys + o + r * D + c, true);
    gf_ask16(to + BK * PK + r * PV + c, values + o + r * D + c, true);
  }
};
const bool ahead = WINDOW == 0 && (part + 1) * BK <= capacity;
if (ahead) fetch(part, 0);
const int at = position[0] - (BASED ? base[0] : 0), end = at + rows;
const int first = WINDOW > 0 && at - WINDOW + 1 > 0 ? (at - WINDOW + 1) / BK : 0;
const int from = first + (part + SPLITS - first % SPLITS) % SPLITS, to = (end + BK - 1) / BK;
float m0 = -1e30f, m1 = -1e30f, l0 = 0, l1 = 0;
float acc[D / 8][4];
unsigned qa[D / 16][4];
#pragma unroll
for (int i = 0; i < D / 8; i++) { acc[i][0] = 0; acc[i][1] = 0; acc[i][2] = 0; acc[i][3] = 0; }
const __nv_bfloat16* q0 = q + ((size_t)head * rows + g) * D;
const __nv_bfloat16* q1 = q0 + (size_t)8 * D;
#pragma unroll
for (int i = 0; i < D / 32; i++) {
  uint4 a = make_uint4(0, 0, 0, 0), b = a;
  if (g < rows) a = *(const uint4*)(q0 + i * 32 + 8 * t);
  if (g + 8 < rows) b = *(const uint4*)(q1 + i * 32 + 8 * t);
  qa[2 * i][0] = a.x; qa[2 * i][1] = b.x; qa[2 * i][2] = a.y; qa[2 * i][3] = b.y;
  qa[2 * i + 1][0] = a.z; qa[2 * i + 1][1] = b.z; qa[2 * i + 1][2] = a.w; qa[2 * i + 1][3] = b.w;
}
const float scale = GF_FLOAT(SCALE) * 1.44269504f;
if (!ahead && from < to) fetch(from, 0);
gf_copies_end();
#pragma unroll
for (int i = 1; i < STAGES - 1; i++) {
  if (from + i * SPLITS < to) fetch(from + i * SPLITS, i);
  gf_copies_end();
}
int slot = 0;
#pragma unroll 1
for (int tile = from; tile < to; tile += SPLITS) {
  gf_copies_wait<STAGES - 2>();
  __syncthreads();
  if (tile + (STAGES - 1) * SPLITS < to) fetch(tile + (STAGES - 1) * SPLITS, (slot + STAGES - 1) % STAGES);
  gf_copies_end();
  const __nv_bfloat16* ks = (const __nv_bfloat16*)memory + slot * TILE;
  const __nv_bfloat16* vs = ks + BK * PK;
  slot = (slot + 1) % STAGES;
  float s[BK / 8][4];
  #pragma unroll
  for (int j = 0; j < BK / 8; j++) {
    s[j][0] = 0; s[j][1] = 0; s[j][2] = 0; s[j][3] = 0;
    const __nv_bfloat16* k = ks + (j * 8 + g) * PK;
    #pragma unroll
    for (int i = 0; i < D / 32; i++) {
      const uint4 f = *(const uint4*)(k + i * 32 + 8 * t);
      gf_mma(s[j], qa[2 * i], f.x, f.y);
      gf_mma(s[j], qa[2 * i + 1], f.z, f.w);
    }
  }
  float n0 = m0, n1 = m1;
  #pragma unroll
  for (int j = 0; j < BK / 8; j++) {
    #pragma unroll
    for (int e = 0; e < 2; e++) {
      const int key = tile * BK + j * 8 + 2 * t + e, last0 = CAUSAL ? at + g : end - 1, last1 = CAUSAL ? at + g + 8 : end - 1;
      const bool see0 = key <= last0 && (WINDOW == 0 || key > at + g - WINDOW), see1 = key <= last1 && (WINDOW == 0 || key > at + g + 8 - WINDOW);
      s[j][e] = see0 ? s[j][e] * scale : -1e30f;
      s[j][2 + e] = see1 ? s[j][2 + e] * scale : -1e30f;
      n0 = fmaxf(n0, s[j][e]);
      n1 = fmaxf(n1, s[j][2 + e]);
    }
  }
  n0 = fmaxf(n0, GF_XOR(n0, 1)); n0 = fmaxf(n0, GF_XOR(n0, 2));
  n1 = fmaxf(n1, GF_XOR(n1, 1)); n1 = fmaxf(n1, GF_XOR(n1, 2));
  const float f0 = exp2f(m0 - n0), f1 = exp2f(m1 - n1);
  m0 = n0; m1 = n1; l0 *= f0; l1 *= f1;
  #pragma unroll
  for (int i = 0; i < D / 8; i++) { acc[i][0] *= f0; acc[i][1] *= f0; acc[i][2] *= f1; acc[i][3] *= f1; }
  #pragma unroll
  for (int j = 0; j < BK / 8; j++) {
    #pragma unroll
    for (int e = 0; e < 2; e++) {
      s[j][e] = s[j][e] > -1e29f ? exp2f(s[j][e] - m0) : 0.0f;
      s[j][2 + e] = s[j][2 + e] > -1e29f ? exp2f(s[j][2 + e] - m1) : 0.0f;
      l0 += s[j][e];
      l1 += s[j][2 + e];
    }
  }
  #pragma unroll
  for (int j = 0; j < BK / 16; j++) {
    const unsigned p[4] = {GF_PAIR(s[2 * j][0], s[2 * j][1]), GF_PAIR(s[2 * j][2], s[2 * j][3]), GF_PAIR(s[2 * j + 1][0], s[2 * j + 1][1]), GF_PAIR(s[2 * j + 1][2], s[2 * j + 1][3])};
    const __nv_bfloat16* v = vs + (j * 16 + (lane & 15)) * PV + (lane >> 4) * 8;
    #pragma unroll
    for (int i = 0; i < D / 16; i++) {
      unsigned r[4];
      gf_load_transposed(v + i * 16, r);
      gf_mma(acc[2 * i], p, r[0], r[1]);
      gf_mma(acc[2 * i + 1], p, r[2], r[3]);
    }
  }
}
if (from >= to) gf_copies_wait<0>(); // the first tile may be on its way for nothing
l0 += GF_XOR(l0, 1); l0 += GF_XOR(l0, 2); l1 += GF_XOR(l1, 1); l1 += GF_XOR(l1, 2);
const size_t u0 = ((size_t)part * rows + g) * HQ + head, u1 = u0 + (size_t)8 * HQ;
if (t == 0) {
  if (g < rows) *(float2*)(weights + u0 * 2) = make_float2(m0, l0);
  if (g + 8 < rows) *(float2*)(weights + u1 * 2) = make_float2(m1, l1);
}
if (from < to) // who joins them does not read parts without weight
#pragma unroll
for (int i = 0; i < D / 8; i++) {
  if (g < rows) *(float2*)(sums + u0 * D + i * 8 + 2 * t) = make_float2(acc[i][0], acc[i][1]);
  if (g + 8 < rows) *(float2*)(sums + u1 * D + i * 8 + 2 * t) = make_float2(acc[i][2], acc[i][3]);
}
`

// joinText puts the parts together, in a fixed order, and through the gates where
// the layer has them. A block does one head of one row, each of its 4 warps a
// quarter of the parts, all of which are on their way before the first is needed. AHEAD
// asks for them before it is known which were written; the others' numbers are not used.
const joinText = `
constexpr int E = D / 32, Q = SPLITS / 4;
constexpr bool AHEAD = D <= 128; // with more, it was slower
GF_GROUP float quarter[4 * D];
const int lane = tid & 31, warp = tid >> 5, unit = bid, units = sums_shape[1] * HQ;
const int row = unit / HQ, head = unit - row * HQ;
float v[Q][E], share[Q];
const auto ask = [&](int k) {
  #pragma unroll
  for (int i = 0; i < E; i++) v[k][i] = sums[((size_t)(warp * Q + k) * units + unit) * D + lane + 32 * i];
};
#pragma unroll
for (int k = 0; k < Q; k++) if (AHEAD) ask(k);
const float m = weights[((size_t)lane * units + unit) * 2], l = weights[((size_t)lane * units + unit) * 2 + 1];
float gate[(D + 127) / 128];
for (int i = 0; i < (D + 127) / 128; i++) {
  const int d = tid + 128 * i;
  gate[i] = GATED && d < D ? (float)q[(size_t)row * QROW + QAT + (head * 2 + 1) * D + d] : 0.0f;
}
float top = m;
for (int o = 16; o > 0; o >>= 1) top = fmaxf(top, GF_XOR(top, o));
const float w = l > 0 ? exp2f(m - top) : 0.0f;
#pragma unroll
for (int k = 0; k < Q; k++) {
  share[k] = __shfl_sync(0xffffffffu, w, warp * Q + k);
  if (!AHEAD && share[k] > 0) ask(k);
}
float total = w * l;
for (int o = 16; o > 0; o >>= 1) total += GF_XOR(total, o);
#pragma unroll
for (int i = 0; i < E; i++) {
  float a = 0;
  #pragma unroll
  for (int k = 0; k < Q; k++) if (share[k] > 0) a += share[k] * v[k][i];
  quarter[warp * D + lane + 32 * i] = a;
}
GF_SYNC();
for (int i = 0; i < (D + 127) / 128; i++) {
  const int d = tid + 128 * i;
  if (d < D) {
    float a = (quarter[d] + quarter[D + d] + quarter[2 * D + d] + quarter[3 * D + d]) / total;
    if (GATED) a /= 1.0f + GF_EXP(-gate[i]);
    y[(size_t)unit * D + d] = (T)a;
  }
}
`
