package kernels

// copyHeader copies from global to shared memory in the background: gf_copy16 zeros
// where there is nothing, gf_ask16 and its like nothing. What gf_ask writes is none of
// the compiler's business: it may move other reads and writes past one, but not past
// gf_copies_wait. And it gives a name to the memory that a launch is given. The shim has
// its own.
const copyHeader = `
__device__ __forceinline__ void gf_copy16(void* to, const void* from, bool there) {
asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void gf_copy8(void* to, const void* from) {
asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void gf_copy4(void* to, const void* from) {
asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void gf_ask16(void* to, const void* from, bool there) {
asm volatile("{.reg .pred p;setp.ne.b32 p,%2,0;@p cp.async.cg.shared.global [%0],[%1],16;}" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"((int)there));
}
__device__ __forceinline__ void gf_ask8(void* to, const void* from, bool there) {
asm volatile("{.reg .pred p;setp.ne.b32 p,%2,0;@p cp.async.ca.shared.global [%0],[%1],8;}" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"((int)there));
}
__device__ __forceinline__ void gf_ask4(void* to, const void* from, bool there) {
asm volatile("{.reg .pred p;setp.ne.b32 p,%2,0;@p cp.async.ca.shared.global [%0],[%1],4;}" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"((int)there));
}
__device__ __forceinline__ void gf_copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void gf_copies_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
#define GF_DYNAMIC(name, size) extern __shared__ __align__(16) float name[]
`

// chunkHeader asks for as many blocks on a multiprocessor as the heads of a model
// need to run all at once, each being a chain over all chunks.
const chunkHeader = `
#undef __global__
#define __global__ __attribute__((global)) __launch_bounds__(128, 3)
`

// chunkPrepareText makes what a chunk of C rows needs and no state: a block does
// one chunk of one key head, a warp each of its value heads. With P[i,j] the decay
// from row j to row i,
//
//	t = (I + L)⁻¹ diag(β), L[i,j] = βᵢ P[i,j] kᵢ·kⱼ for j < i
//	a[i,j] = P[i,j] qᵢ·kⱼ for j ≤ i
//	d[0,i] = the decay from before the chunk to row i, d[1,i] from row i to its end
//
// Decays are products of the rows' own, never quotients or differences of
// logarithms, so none overflows or cancels. Rows past the last have q = k = 0, no
// decay and β = 0, which leaves the state as it is.
const chunkPrepareText = `
constexpr int D = 128, ROW = D + 4, LROW = C + 4, G = HV / HK;
__shared__ __align__(16) float rows[2 * C * ROW];
__shared__ float kk[C * (C + 1)], qk[C * (C + 1)];
const int lane = tid & 31, warp = tid >> 5, chunk = bid / HK, hk = bid - chunk * HK, total = k_shape[0];
for (int i = tid; i < 2 * C * D / 4; i += 128) {
  const int r = i / (D / 4), c = i % (D / 4) * 4, row = chunk * C + r % C;
  const float* from = (r < C ? k : q) + ((size_t)row * HK + hk) * D + c;
  *(float4*)(rows + r * ROW + c) = row < total ? *(const float4*)from : make_float4(0, 0, 0, 0);
}
__syncthreads();
{
  const int x0 = tid >> 3, y0 = tid & 7;
  float sum[4][4] = {};
  for (int c = 0; c < D; c += 4) {
    float4 x[4], y[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) { x[i] = *(const float4*)(rows + (x0 + 16 * i) * ROW + c); y[i] = *(const float4*)(rows + (y0 + 8 * i) * ROW + c); }
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      #pragma unroll
      for (int j = 0; j < 4; j++) { sum[i][j] += x[i].x * y[j].x; sum[i][j] += x[i].y * y[j].y; sum[i][j] += x[i].z * y[j].z; sum[i][j] += x[i].w * y[j].w; }
    }
  }
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    #pragma unroll
    for (int j = 0; j < 4; j++) (i < 2 ? kk : qk)[(x0 + 16 * (i & 1)) * (C + 1) + y0 + 8 * j] = sum[i][j];
  }
}
__syncthreads();
float* const low = rows + warp * C * LROW;
for (int h = warp; h < G; h += 4) {
  const int hv = hk * G + h, row = chunk * C + lane;
  const size_t at = (size_t)chunk * HV + hv;
  const float decay = row < total ? g[(size_t)row * HV + hv] : 1.0f, b = row < total ? beta[(size_t)row * HV + hv] : 0.0f;
  float since = 1, before = 0, p = 0; // the decay from before the chunk, the same to this lane's row, and from this lane's row
  for (int i = 0; i < C; i++) {
    const float gi = __shfl_sync(0xffffffffu, decay, i), bi = __shfl_sync(0xffffffffu, b, i);
    since *= gi;
    if (lane == i) before = since;
    p = lane == i ? 1.0f : p * gi;
    low[i * LROW + lane] = lane < i ? bi * (p * kk[i * (C + 1) + lane]) : 0.0f;
    a[(at * C + i) * C + lane] = p * qk[i * (C + 1) + lane];
  }
  d[at * 2 * C + lane] = before;
  d[at * 2 * C + C + lane] = p;
  __syncwarp();
  float column[C];
  #pragma unroll
  for (int i = 0; i < C; i++) column[i] = 0;
  #pragma unroll
  for (int i = 0; i < C; i++) {
    float x0 = lane == i ? 1.0f : 0.0f, x1 = 0, x2 = 0, x3 = 0;
    #pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 l = *(const float4*)(low + i * LROW + j);
      x0 -= l.x * column[j]; x1 -= l.y * column[j + 1]; x2 -= l.z * column[j + 2]; x3 -= l.w * column[j + 3];
    }
    column[i] = (x0 + x1) + (x2 + x3);
    t[(at * C + i) * C + lane] = column[i] * b;
  }
  __syncwarp();
}
`

// chunkScanText runs the rule from chunk to chunk: a block has NS columns of one
// head's state S. With K and Q the chunk's keys and queries,
//
//	R = V − d₀∘(K S);  U = t R;  Y = d₀∘(Q S) + a U;  S ← d₀[last]·S + (d₁∘K)ᵀ U
//
// A thread keeps its part of S in registers, a copy lies in shared memory for the
// products. The two products with S go through D in KS parts, one warp each, whose
// sums are added in order; each thread has a tile of 8 rows and 4 columns. Lanes are
// laid so that neighbours read the same columns, and lanes two apart the same rows.
//
// What comes next is copied meanwhile: keys a chunk ahead, queries as soon as the
// sums that take their place are read, t and a while S is multiplied.
const chunkScanText = `
constexpr int D = 128, ROW = D + 4, TROW = C + 4;
constexpr int CG = NS / 4, RG = 32 / CG, RS = NS / 16, KS = 4 / RS, NR = NS / 16;
GF_DYNAMIC(shared, SHARED);
float *const keys = shared, *const queries = keys + 2 * C * ROW, *const sums = queries, *const S = queries + C * ROW;
float *const T = S + D * NS, *const A = T + C * TROW, *const R = A + C * TROW, *const U = R + C * NS, *const UE = U + C * NS;
const int lane = tid & 31, warp = tid >> 5, hv = bid / (DV / NS), c0 = (bid - hv * (DV / NS)) * NS, hk = hv / (HV / HK);
const int total = k_shape[0], chunks = t_shape[0];
const int cg = (lane >> 1) % CG, rg = (lane & 1) + lane / (2 * CG) * 2;
const int k0 = (warp * RG + rg) * 4, pr = (warp * RG + rg) * NR, pc = cg * 4; // this thread's rows of S and, between, of the chunk
const size_t next = (size_t)C * HK * D, from = (size_t)hk * D + (size_t)warp * HK * D + lane * 4;
auto copy_rows = [&](float* to, const float* rows, int chunk) {
  #pragma unroll
  for (int r = 0; r < C; r += 4) gf_copy16(to + (warp + r) * ROW + lane * 4, rows + chunk * next + from + r * HK * D, chunk * C + warp + r < total);
};
auto copy_square = [&](float* to, const float* square) {
  #pragma unroll
  for (int r = 0; r < C; r += 16) gf_copy16(to + (tid / 8 + r) * TROW + tid % 8 * 4, square + tid * 4 + r * C, true);
};
auto add = [](float4& to, float x, const float4& y) { to.x += x * y.x; to.y += x * y.y; to.z += x * y.z; to.w += x * y.w; };
copy_rows(keys, k, 0);
copy_rows(queries, q, 0);
gf_copies_end();
float4 own[NR][4];
#pragma unroll
for (int n = 0; n < NR; n++) {
  #pragma unroll
  for (int e = 0; e < 4; e++) {
    own[n][e] = *(const float4*)(state + ((size_t)hv * D + k0 + 64 * n + e) * DV + c0 + pc);
    *(float4*)(S + (k0 + 64 * n + e) * NS + pc) = own[n][e];
  }
}
for (int chunk = 0; chunk < chunks; chunk++) {
  const float* const K = keys + (chunk & 1) * C * ROW;
  gf_copies_wait<0>();
  __syncthreads();
  const size_t at = (size_t)chunk * HV + hv;
  copy_square(T, t + at * C * C);
  copy_square(A, a + at * C * C);
  gf_copies_end();
  if (chunk + 1 < chunks) copy_rows(keys + (~chunk & 1) * C * ROW, k, chunk + 1);
  gf_copies_end();
  float4 y[NR], x[NR];
  float d0[NR], d1[NR];
  const float* const decay = d + at * 2 * C;
  const float* const values = v + ((size_t)(chunk * C + pr) * HV + hv) * DV + c0 + pc;
  #pragma unroll
  for (int n = 0; n < NR; n++) {
    x[n] = chunk * C + pr + n < total ? *(const float4*)(values + n * HV * DV) : make_float4(0, 0, 0, 0);
    d0[n] = decay[pr + n];
    d1[n] = decay[C + pr + n];
  }
  const float last = decay[C - 1];
  {
    const float* const x0 = (warp % RS == 0 ? K : queries) + rg * ROW;
    const float* const x1 = RS == 1 ? queries + rg * ROW : x0 + 4 * RG * ROW;
    const int part = warp / RS * (D / KS);
    float4 sum[8];
    #pragma unroll
    for (int i = 0; i < 8; i++) sum[i] = make_float4(0, 0, 0, 0);
    #pragma unroll 4
    for (int c = part; c < part + D / KS; c += 4) {
      float4 s[4];
      #pragma unroll
      for (int e = 0; e < 4; e++) s[e] = *(const float4*)(S + (c + e) * NS + pc);
      #pragma unroll
      for (int i = 0; i < 8; i++) {
        const float4 w = *(const float4*)((i < 4 ? x0 : x1) + RG * (i & 3) * ROW + c);
        add(sum[i], w.x, s[0]); add(sum[i], w.y, s[1]); add(sum[i], w.z, s[2]); add(sum[i], w.w, s[3]);
      }
    }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 8; i++) *(float4*)(sums + ((warp / RS * 2 * C) + warp % RS * C + rg + RG * i) * NS + pc) = sum[i];
  }
  __syncthreads();
  #pragma unroll
  for (int n = 0; n < NR; n++) {
    float4 ks = make_float4(0, 0, 0, 0), qs = ks;
    #pragma unroll
    for (int i = 0; i < KS; i++) {
      add(ks, 1.0f, *(const float4*)(sums + (i * 2 * C + pr + n) * NS + pc));
      add(qs, 1.0f, *(const float4*)(sums + (i * 2 * C + C + pr + n) * NS + pc));
    }
    add(x[n], -d0[n], ks);
    *(float4*)(R + (pr + n) * NS + pc) = x[n];
    y[n] = make_float4(d0[n] * qs.x, d0[n] * qs.y, d0[n] * qs.z, d0[n] * qs.w);
  }
  gf_copies_wait<1>();
  __syncthreads();
  if (chunk + 1 < chunks) copy_rows(queries, q, chunk + 1);
  gf_copies_end();
  // t and a are zero above the diagonal: a warp's 8 rows need no more.
  auto through = [&](float4* to, const float* square, const float* columns) {
    for (int j = 0; j < 8 * warp + 8; j += 4) {
      float4 w[4];
      #pragma unroll
      for (int e = 0; e < 4; e++) w[e] = *(const float4*)(columns + (j + e) * NS + pc);
      #pragma unroll
      for (int n = 0; n < NR; n++) {
        const float4 m = *(const float4*)(square + (pr + n) * TROW + j);
        add(to[n], m.x, w[0]); add(to[n], m.y, w[1]); add(to[n], m.z, w[2]); add(to[n], m.w, w[3]);
      }
    }
  };
  float4 u[NR];
  #pragma unroll
  for (int n = 0; n < NR; n++) u[n] = make_float4(0, 0, 0, 0);
  through(u, T, R);
  #pragma unroll
  for (int n = 0; n < NR; n++) {
    *(float4*)(U + (pr + n) * NS + pc) = u[n];
    *(float4*)(UE + (pr + n) * NS + pc) = make_float4(d1[n] * u[n].x, d1[n] * u[n].y, d1[n] * u[n].z, d1[n] * u[n].w);
  }
  __syncthreads();
  through(y, A, U);
  #pragma unroll
  for (int n = 0; n < NR; n++) {
    const int row = chunk * C + pr + n;
    if (row < total) *(float4*)(out + ((size_t)row * HV + hv) * DV + c0 + pc) = y[n];
  }
  #pragma unroll
  for (int n = 0; n < NR; n++) {
    #pragma unroll
    for (int e = 0; e < 4; e++) { own[n][e].x *= last; own[n][e].y *= last; own[n][e].z *= last; own[n][e].w *= last; }
  }
  #pragma unroll 4
  for (int r = 0; r < C; r++) {
    const float4 w = *(const float4*)(UE + r * NS + pc);
    #pragma unroll
    for (int n = 0; n < NR; n++) {
      const float4 m = *(const float4*)(K + r * ROW + k0 + 64 * n);
      add(own[n][0], m.x, w); add(own[n][1], m.y, w); add(own[n][2], m.z, w); add(own[n][3], m.w, w);
    }
  }
  #pragma unroll
  for (int n = 0; n < NR; n++) {
    #pragma unroll
    for (int e = 0; e < 4; e++) *(float4*)(S + (k0 + 64 * n + e) * NS + pc) = own[n][e];
  }
}
#pragma unroll
for (int n = 0; n < NR; n++) {
  #pragma unroll
  for (int e = 0; e < 4; e++) *(float4*)(after + ((size_t)hv * D + k0 + 64 * n + e) * DV + c0 + pc) = own[n][e];
}
`
