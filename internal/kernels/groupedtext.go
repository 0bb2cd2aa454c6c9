package kernels

// groupHeader bounds the registers for two blocks on a multiprocessor. gf_copy is
// copyHeader's copy with which the second cache loads 128 bytes; gf_affine is q·s + b
// for two numbers 128+q, rounded once, as a weight that is written out is.
const groupHeader = `
#undef __global__
#define __global__ __attribute__((global)) __launch_bounds__(256, 2)
__device__ __forceinline__ void gf_copy(void* to, const void* from) {
asm volatile("cp.async.cg.shared.global.L2::128B [%0],[%1],16;" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__device__ __forceinline__ unsigned gf_affine(unsigned v, unsigned s, unsigned b) {
unsigned r;
asm("{.reg .b32 q;\nfma.rn.bf16x2 q,%1,%2,%3;\nfma.rn.bf16x2 %0,q,%4,%5;}" : "=r"(r) : "r"(v), "r"(0x3f803f80u), "r"(0xc300c300u), "r"(s), "r"(b));
return r;
}
`

// groupMacros: what the warp's lanes say, as bits.
const groupMacros = `
#define GF_BALLOT(v) __ballot_sync(0xffffffffu, v)
`

// groupText puts pairs of a row and an expert, of which there are K a row, in the
// order of the experts, and of the rows within an expert. Block e finds how many
// pairs belong to experts before e, and where e's lie.
//
// Products go by tiles of up to M rows of one expert. How many there are only the
// device knows, but expert e has no more than it needs if its tiles begin at
// first/M + e, first being its first row: so a grid of pairs/M + E holds all of them,
// some of them empty, and no block waits for another's count. A tile is the expert,
// its first row, its number of rows and a 0.
//
// lined is x in the order of columns in which packed weights come out of a register,
// column 4 after column 0: see groupedText.
const groupText = `
constexpr int WARPS = 16;
__shared__ int less[WARPS], same[WARPS];
const int warp = tid >> 5, lane = tid & 31, rows = chosen_shape[0], pairs = rows * K;
const int share = (pairs + WARPS * 32 - 1) / (WARPS * 32) * 32, from = min(warp * share, pairs), to = min(from + share, pairs);
int before = 0, mine = 0;
#pragma unroll 8
for (int i = from + lane; i < to; i += 32) {
  const int e = chosen[i];
  before += e < bid;
  mine += e == bid;
}
for (int o = 16; o > 0; o >>= 1) { before += GF_XOR(before, o); mine += GF_XOR(mine, o); }
if (lane == 0) { less[warp] = before; same[warp] = mine; }
__syncthreads();
int first = 0, count = 0, at = 0;
for (int k = 0; k < WARPS; k++) {
  first += less[k];
  if (k < warp) at += same[k];
  count += same[k];
}
at += first;
#pragma unroll 4
for (int i = from; i < to; i += 32) {
  const bool own = i + lane < to && chosen[min(i + lane, to - 1)] == bid;
  const unsigned all = GF_BALLOT(own);
  if (own) order[at + __popc(all & ((1u << lane) - 1))] = i + lane;
  at += __popc(all);
}
const int begin = first / M + bid, end = (first + count) / M + bid + 1;
for (int i = begin + tid; i < end; i += WARPS * 32) {
  const int row = (i - begin) * M;
  tiles[4 * i] = bid;
  tiles[4 * i + 1] = first + row;
  tiles[4 * i + 2] = max(min(M, count - row), 0);
  tiles[4 * i + 3] = 0;
}
for (int i = bid * WARPS * 32 + tid; i < rows * (H / 8); i += E * WARPS * 32) {
  const uint4 a = ((const uint4*)x)[i];
  ((uint4*)lined)[i] = make_uint4(__byte_perm(a.x, a.z, 0x5410), __byte_perm(a.x, a.z, 0x7632), __byte_perm(a.y, a.w, 0x5410), __byte_perm(a.y, a.w, 0x7632));
}
`

// groupedText is a product of the rows of one tile with 4-bit weights of its expert,
// affine in groups of 64, K columns and N outputs. Eight warps have 32 outputs each:
// with UP 16 of the gate and the same 16 of up, and out is silu(gate)·up, in the order
// of the experts and with lined columns, as the next product takes it; else 32 of
// down, and out has each pair's row in its own place.
//
// Weights are the 16 rows of the tensor cores' first matrix and rows of x the 8
// columns of the second, so a tile of few rows costs little. A weight is unpacked
// once for all rows of a tile, in the registers of the lane that multiplies by it: as
// in chainText lane (g, t) holds the 16 numbers of a group that begin at 16t. A stage
// of the ring is 128 columns: 256 rows of weights in 64 bytes each, with the halves
// of every third and fourth row exchanged, and rows of x of 256 bytes, with the 16
// bytes exchanged by twos in every second row, so that the lanes' reads fall into
// different banks. Scales and biases come for EVERY stages at once: a row's two would
// be a small part of the 32 bytes that memory gives.
//
// The columns are added in their order by one lane: a row's bits do not depend on the
// tile that it lies in.
const groupedText = `
constexpr int G = K / 64, STEPS = K / 128, LINES = 256, STAGE = LINES * 4 + M * 16, BLOCK = UP ? 128 : 256;
constexpr int EVERY = G % 8 == 0 ? 4 : G % 4 == 0 ? 2 : 1, SLOTS = (STAGES + EVERY - 2) / EVERY + 1;
GF_DYNAMIC(memory, STAGES * STAGE * 4 + SLOTS * LINES * 2 * EVERY);
uint4* ring = (uint4*)memory;
unsigned* scale_ring = (unsigned*)(ring + STAGES * STAGE);
const int* tile = tiles + 4 * blockIdx.y;
const int expert = tile[0], first = tile[1], count = tile[2];
if (count == 0) return;
const int warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3, n0 = bid * BLOCK;

// Each thread copies 16 bytes of four rows of weights, those of one row's scale and
// bias, and 16 bytes of four rows of x.
const int line = tid >> 2, part = tid & 3;
const bool gate = UP && (line & 16) == 0, gate_scale = UP && (tid & 16) == 0;
const size_t n = (size_t)expert * N + n0 + (UP ? line / 32 * 16 + line % 16 : line);
const size_t scale = (size_t)expert * N + n0 + (UP ? tid / 32 * 16 + tid % 16 : tid);
const unsigned* wr = (gate ? gate_w : w) + n * (K / 8) + part * 4;
const __nv_bfloat16* sr = (gate_scale ? gate_scales : scales) + scale * G;
const __nv_bfloat16* br = (gate_scale ? gate_biases : biases) + scale * G;
unsigned xr[M / 16];
#pragma unroll
for (int i = 0; i < M / 16; i++) {
  const int r = min(i * 16 + tid / 16, count - 1) + first;
  xr[i] = (unsigned)(UP ? order[r] / TOPK : r) * (K / 8) + tid % 16;
}
auto fetch = [&](int step, int slot) {
  if (step < STEPS) {
    uint4* to = ring + slot * STAGE;
    #pragma unroll
    for (int i = 0; i < 4; i++) gf_copy(to + (i * 64 + line) * 4 + (part ^ (line & 2)), wr + i * (UP ? 32 : 64) * (K / 8) + step * 16);
    if (step % EVERY == 0) {
      unsigned* s = scale_ring + (step / EVERY % SLOTS * 2 * LINES + tid) * EVERY;
      if (EVERY == 4) { gf_copy16(s, sr + step * 2, true); gf_copy16(s + LINES * EVERY, br + step * 2, true); }
      if (EVERY == 2) { gf_copy8(s, sr + step * 2); gf_copy8(s + LINES * EVERY, br + step * 2); }
      if (EVERY == 1) { gf_copy4(s, sr + step * 2); gf_copy4(s + LINES * EVERY, br + step * 2); }
    }
    #pragma unroll
    for (int i = 0; i < M / 16; i++)
      if (i * 16 + tid / 16 < count) gf_copy16(to + LINES * 4 + i * 256 + (tid ^ (tid / 16 & 1)), (const uint4*)x + xr[i] + step * 16, true);
  }
  gf_copies_end();
};
#pragma unroll
for (int i = 0; i < STAGES - 1; i++) fetch(i, i);
float acc[2][M / 8][4];
#pragma unroll
for (int m = 0; m < 2; m++) {
  #pragma unroll
  for (int j = 0; j < M / 8; j++) { acc[m][j][0] = 0; acc[m][j][1] = 0; acc[m][j][2] = 0; acc[m][j][3] = 0; }
}
int slot = 0, empty = STAGES - 1;
#pragma unroll 1
for (int step = 0; step < STEPS; step++) {
  gf_copies_wait<STAGES - 2>();
  __syncthreads();
  fetch(step + STAGES - 1, empty);
  const uint4* in = ring + slot * STAGE;
  const unsigned* sc = scale_ring + (step / EVERY % SLOTS * 2 * LINES + warp * 32 + g) * EVERY + step % EVERY;
  const uint4* xs = in + LINES * 4 + g * 16 + t * 2;
  in += (warp * 32 + g) * 4;
  #pragma unroll
  for (int u = 0; u < 2; u++) {
    uint2 q[2][2];
    unsigned s[2][2], b[2][2];
    #pragma unroll
    for (int m = 0; m < 2; m++) {
      #pragma unroll
      for (int r = 0; r < 2; r++) {
        q[m][r] = ((const uint2*)(in + (m * 16 + r * 8) * 4))[((2 * u + t / 2) ^ (g & 2)) * 2 + t % 2];
        const unsigned two = sc[(m * 16 + r * 8) * EVERY], low = sc[(LINES + m * 16 + r * 8) * EVERY];
        s[m][r] = __byte_perm(two, two, u ? 0x3232 : 0x1010);
        b[m][r] = __byte_perm(low, low, u ? 0x3232 : 0x1010);
      }
    }
    #pragma unroll
    for (int h = 0; h < 2; h++) {
      unsigned a[2][2][4];
      #pragma unroll
      for (int m = 0; m < 2; m++) {
        #pragma unroll
        for (int i = 0; i < 8; i++) {
          const int r = i & 1;
          const unsigned v = h ? q[m][r].y : q[m][r].x;
          a[m][i >> 2][i & 3] = gf_affine(GF_Q4(v >> 4 * (i >> 1)), s[m][r], b[m][r]);
        }
      }
      #pragma unroll
      for (int j = 0; j < M / 8; j += 2) {
        if (j * 8 < count) {
          const uint4 x0 = xs[j * 128 + u * 8 + (h ^ (g & 1))], x1 = xs[(j + 1) * 128 + u * 8 + (h ^ (g & 1))];
          gf_mma(acc[0][j], a[0][0], x0.x, x0.y);
          gf_mma(acc[1][j], a[1][0], x0.x, x0.y);
          gf_mma(acc[0][j + 1], a[0][0], x1.x, x1.y);
          gf_mma(acc[1][j + 1], a[1][0], x1.x, x1.y);
          gf_mma(acc[0][j], a[0][1], x0.z, x0.w);
          gf_mma(acc[1][j], a[1][1], x0.z, x0.w);
          gf_mma(acc[0][j + 1], a[0][1], x1.z, x1.w);
          gf_mma(acc[1][j + 1], a[1][1], x1.z, x1.w);
        }
      }
    }
  }
  empty = slot;
  slot = slot + 1 == STAGES ? 0 : slot + 1;
}
// A lane has rows 2t and 2t+1 of outputs g and g+8. It exchanges one of its rows with
// the lane of the output that lies beside its own in out, so both store two numbers.
constexpr int OTHER = UP ? 16 : 4;
const bool lower = (lane & OTHER) == 0;
auto store = [&](int j, int n, float v0, float v1) {
  const float other = GF_XOR(lower ? v1 : v0, OTHER);
  const unsigned two = lower ? GF_PAIR(v0, other) : GF_PAIR(other, v1);
  const int r = j * 8 + 2 * t + !lower;
  if (r < count) *(unsigned*)(out + (size_t)(UP ? first + r : order[first + r]) * N + n0 + n + (UP ? g % 4 * 2 : g / 2 * 2)) = two;
};
#pragma unroll
for (int j = 0; j < M / 8; j++) {
  if (j * 8 < count) {
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      if (UP) {
        store(j, warp * 16 + i * 8, GF_SILU(acc[0][j][2 * i]) * GF_ROUND(acc[1][j][2 * i]), GF_SILU(acc[0][j][2 * i + 1]) * GF_ROUND(acc[1][j][2 * i + 1]));
      } else {
        store(j, warp * 32 + i * 8, acc[0][j][2 * i], acc[0][j][2 * i + 1]);
        store(j, warp * 32 + 16 + i * 8, acc[1][j][2 * i], acc[1][j][2 * i + 1]);
      }
    }
  }
}
`

// groupSumText is Σ weight·pairs over a row's K experts, in their order, in float32.
const groupSumText = `
const int i = bid * 256 + tid, row = i / (H / 8), c = i % (H / 8);
if (row < weights_shape[0]) {
  float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  #pragma unroll
  for (int k = 0; k < K; k++) {
    const uint4 a = ((const uint4*)pairs)[(size_t)(row * K + k) * (H / 8) + c];
    const float p = weights[row * K + k];
    sum[0] += p * GF_LO(a.x); sum[1] += p * GF_HI(a.x); sum[2] += p * GF_LO(a.y); sum[3] += p * GF_HI(a.y);
    sum[4] += p * GF_LO(a.z); sum[5] += p * GF_HI(a.z); sum[6] += p * GF_LO(a.w); sum[7] += p * GF_HI(a.w);
  }
  ((uint4*)y)[(size_t)i] = make_uint4(GF_PAIR(sum[0], sum[1]), GF_PAIR(sum[2], sum[3]), GF_PAIR(sum[4], sum[5]), GF_PAIR(sum[6], sum[7]));
}
`
