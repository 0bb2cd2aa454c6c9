package kernels

// mmaHeader is what the products need of the tensor cores: D[16,8] += A·B with
// sixteen columns of A, in bfloat16, added in float32; and weights that pass the
// first cache by, because no block reads them twice.
const mmaHeader = `
__device__ __forceinline__ void gf_mma(float* c, const unsigned* a, unsigned b0, unsigned b1) {
asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ uint2 gf_stream(const unsigned* p) {
uint2 r;
asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1},[%2];" : "=r"(r.x), "=r"(r.y) : "l"(p));
return r;
}
`

// q4Header asks for two blocks on a multiprocessor. MLX writes the kernel's
// head, so launch bounds can only come in through the word before it.
const q4Header = `
#undef __global__
#define __global__ __attribute__((global)) __launch_bounds__(256, 2)
`

// q4Text is y[T,N] = x[T,K]·Wᵀ for T up to 16, W in 4 bits, affine in groups of
// 64. A block of 8 warps takes 8·NT rows of W; the warps share the columns, CG
// groups at a time, and add their sums at the end in a fixed order, so a row of
// y does not depend on T. What a warp needs next, weights of the next groups and x
// of the next group, is on its way while it multiplies.
//
// A 4-bit number q is the bfloat16 128+q after one mask and one or, exactly; with
// X the group's sum of x, s·(Σx(128+q) − 128X) + bX is the group's part. Lane
// (g, t) holds the 16 numbers of a group that begin at 16t, in rows g and g+8 of
// x and row g of each tile of W; the order of columns within a group is the same
// on both sides, which is all that a product needs.
const q4Text = `
constexpr int ROWS = NT * 8, PAD = ROWS + 8;
__shared__ float part[8 * 16 * PAD];
const int warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3;
const int rows = x_shape[1], K = x_shape[2], N = w_shape[0], G = K / 64;
const int n0 = bid * ROWS;
float acc[NT][4];
#pragma unroll
for (int j = 0; j < NT; j++) { acc[j][0] = 0; acc[j][1] = 0; acc[j][2] = 0; acc[j][3] = 0; }
uint2 q[CG][NT], qn[CG][NT];
unsigned s[NT][2][CG / 2], b[NT][2][CG / 2], sn[NT][2][CG / 2], bn[NT][2][CG / 2];
uint4 v[4], vn[4];
auto load_weights = [&](int c) {
  #pragma unroll
  for (int j = 0; j < NT; j++) {
    const unsigned* p = w + (size_t)min(n0 + j * 8 + g, N - 1) * (K / 8) + c * 8 + t * 2;
    #pragma unroll
    for (int u = 0; u < CG; u++) qn[u][j] = gf_stream(p + u * 8);
    #pragma unroll
    for (int e = 0; e < 2; e++) {
      const size_t at = ((size_t)min(n0 + j * 8 + 2 * t + e, N - 1) * G + c) / 2;
      #pragma unroll
      for (int u = 0; u < CG / 2; u++) { sn[j][e][u] = ((const unsigned*)scales)[at + u]; bn[j][e][u] = ((const unsigned*)biases)[at + u]; }
    }
  }
};
auto load_x = [&](int c) {
  #pragma unroll
  for (int h = 0; h < 2; h++) {
    vn[2 * h] = make_uint4(0, 0, 0, 0);
    vn[2 * h + 1] = make_uint4(0, 0, 0, 0);
    if (g < rows) vn[2 * h] = *(const uint4*)(x + (size_t)g * K + c * 64 + t * 16 + h * 8);
    if (g + 8 < rows) vn[2 * h + 1] = *(const uint4*)(x + (size_t)(g + 8) * K + c * 64 + t * 16 + h * 8);
  }
};
if (warp * CG < G) { load_weights(warp * CG); load_x(warp * CG); }
#pragma unroll 1
for (int c = warp * CG; c < G; c += 8 * CG) {
  #pragma unroll
  for (int j = 0; j < NT; j++) {
    #pragma unroll
    for (int u = 0; u < CG; u++) q[u][j] = qn[u][j];
    #pragma unroll
    for (int e = 0; e < 2; e++) {
      #pragma unroll
      for (int u = 0; u < CG / 2; u++) { s[j][e][u] = sn[j][e][u]; b[j][e][u] = bn[j][e][u]; }
    }
  }
  const int next = c + 8 * CG;
  if (next < G) load_weights(next);
  #pragma unroll
  for (int u = 0; u < CG; u++) {
    #pragma unroll
    for (int i = 0; i < 4; i++) v[i] = vn[i];
    if (u + 1 < CG) load_x(c + u + 1); else if (next < G) load_x(next);
    unsigned a[4][4];
    float sum0 = 0, sum1 = 0;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
      const uint4 top = v[2 * h], low = v[2 * h + 1];
      sum0 += GF_LO(top.x) + GF_HI(top.x) + GF_LO(top.y) + GF_HI(top.y) + GF_LO(top.z) + GF_HI(top.z) + GF_LO(top.w) + GF_HI(top.w);
      sum1 += GF_LO(low.x) + GF_HI(low.x) + GF_LO(low.y) + GF_HI(low.y) + GF_LO(low.z) + GF_HI(low.z) + GF_LO(low.w) + GF_HI(low.w);
      a[2 * h][0] = __byte_perm(top.x, top.z, 0x5410); a[2 * h][1] = __byte_perm(low.x, low.z, 0x5410);
      a[2 * h][2] = __byte_perm(top.x, top.z, 0x7632); a[2 * h][3] = __byte_perm(low.x, low.z, 0x7632);
      a[2 * h + 1][0] = __byte_perm(top.y, top.w, 0x5410); a[2 * h + 1][1] = __byte_perm(low.y, low.w, 0x5410);
      a[2 * h + 1][2] = __byte_perm(top.y, top.w, 0x7632); a[2 * h + 1][3] = __byte_perm(low.y, low.w, 0x7632);
    }
    sum0 += GF_XOR(sum0, 1); sum0 += GF_XOR(sum0, 2);
    sum1 += GF_XOR(sum1, 1); sum1 += GF_XOR(sum1, 2);
    #pragma unroll
    for (int j = 0; j < NT; j++) {
      float d[4] = {0, 0, 0, 0};
      #pragma unroll
      for (int h = 0; h < 2; h++) {
        const unsigned f = h ? q[u][j].y : q[u][j].x;
        gf_mma(d, a[2 * h], GF_Q4(f), GF_Q4(f >> 4));
        gf_mma(d, a[2 * h + 1], GF_Q4(f >> 8), GF_Q4(f >> 12));
      }
      const float s0 = u & 1 ? GF_HI(s[j][0][u / 2]) : GF_LO(s[j][0][u / 2]), s1 = u & 1 ? GF_HI(s[j][1][u / 2]) : GF_LO(s[j][1][u / 2]);
      const float b0 = (u & 1 ? GF_HI(b[j][0][u / 2]) : GF_LO(b[j][0][u / 2])) - 128 * s0, b1 = (u & 1 ? GF_HI(b[j][1][u / 2]) : GF_LO(b[j][1][u / 2])) - 128 * s1;
      acc[j][0] += s0 * d[0] + b0 * sum0; acc[j][1] += s1 * d[1] + b1 * sum0;
      acc[j][2] += s0 * d[2] + b0 * sum1; acc[j][3] += s1 * d[3] + b1 * sum1;
    }
  }
}
#pragma unroll
for (int j = 0; j < NT; j++) {
  float* p = part + (warp * 16 + g) * PAD + j * 8 + 2 * t;
  *(float2*)p = make_float2(acc[j][0], acc[j][1]);
  *(float2*)(p + 8 * PAD) = make_float2(acc[j][2], acc[j][3]);
}
__syncthreads();
for (int i = tid; i < rows * ROWS; i += 256) {
  const int m = i / ROWS, n = i - m * ROWS;
  float sum = 0;
  #pragma unroll
  for (int k = 0; k < 8; k++) sum += part[(k * 16 + m) * PAD + n];
  if (n0 + n < N) y[(size_t)m * N + n0 + n] = (T)sum;
}
`

const q4Macros = `
#define GF_LO(v) __uint_as_float((v) << 16)
#define GF_HI(v) __uint_as_float((v) & 0xffff0000u)
#define GF_Q4(v) (((v) & 0x000f000fu) | 0x43004300u)
`
