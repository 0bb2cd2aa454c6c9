package kernels

// deltaInText is what comes before the scan: causal convolution, SiLU, the
// norms of queries and keys, decay and β. A warp does one head of one row.
//
// tail is the convolution's input before the block, [KW-1, channels]; a row of
// qkv, a and b begins ROW, AROW and BROW elements after the one before it, at
// QAT, AAT and BAT. conv_in is tail with the block's rows after it, next the tail
// of the block that follows when all rows are kept. The sums of
// a row are float32 and do not depend on the other rows. All is loaded before the
// first store, here and in the other texts: a compiler that cannot see that arrays
// lie apart waits for each load behind a store.
const deltaInText = `
constexpr int CH = 2 * HK * DK + HV * DV, SLOTS = 2 * HK + HV;
const int lane = tid & 31, unit = bid * 4 + (tid >> 5);
const int row = unit / SLOTS, slot = unit - row * SLOTS;
const int rows = qkv_shape[1];
if (row < rows) {
  const bool value = slot >= 2 * HK;
  const int width = value ? DV : DK;
  const int from = value ? 2 * HK * DK + (slot - 2 * HK) * DV : slot * DK;
  float u[WIDTH / 32];
  T x[WIDTH / 32][KW];
  for (int i = 0; i < WIDTH / 32; i++) {
    const int c = from + (lane + 32 * i < width ? lane + 32 * i : lane);
    float sum = 0;
    for (int j = 0; j < KW; j++) {
      const int r = row + j - (KW - 1);
      x[i][j] = r < 0 ? tail[(r + KW - 1) * CH + c] : qkv[(size_t)r * ROW + QAT + c];
      sum += (float)x[i][j] * (float)conv[j * CH + c];
    }
    u[i] = lane + 32 * i < width ? sum / (1.0f + GF_EXP(-sum)) : 0.0f;
  }
  float squares = 0;
  for (int i = 0; i < WIDTH / 32; i++) squares += u[i] * u[i];
  for (int i = 0; i < WIDTH / 32; i++) {
    const int c = from + lane + 32 * i;
    if (lane + 32 * i < width) {
      conv_in[(size_t)(row + KW - 1) * CH + c] = x[i][KW - 1];
      if (row == 0) for (int j = 0; j < KW - 1; j++) conv_in[j * CH + c] = x[i][j];
      if (row == rows - 1) for (int j = 0; j < KW - 1; j++) next[j * CH + c] = x[i][j + 1];
    }
  }
  if (value) {
    const int h = slot - 2 * HK;
    for (int i = 0; i < WIDTH / 32; i++)
      if (lane + 32 * i < DV) v[((size_t)row * HV + h) * DV + lane + 32 * i] = u[i];
    if (lane == 0) {
      const float x = (float)a[(size_t)row * AROW + AAT + h] + bias[h];
      const float y = (float)b[(size_t)row * BROW + BAT + h];
      const float softplus = (x > 0 ? x : 0.0f) + GF_LOG(1.0f + GF_EXP(x > 0 ? -x : x));
      g[row * HV + h] = GF_EXP(neg_a[h] * softplus);
      beta[row * HV + h] = 1.0f / (1.0f + GF_EXP(-y));
    }
  } else {
    for (int o = 16; o > 0; o >>= 1) squares += GF_XOR(squares, o);
    const bool query = slot < HK;
    const int h = query ? slot : slot - HK;
    float scale = GF_RSQRT(squares + GF_FLOAT(EPS));
    if (query) scale *= GF_RSQRT((float)DK);
    for (int i = 0; i < WIDTH / 32; i++) {
      if (lane + 32 * i < DK) {
        const size_t to = ((size_t)row * HK + h) * DK + lane + 32 * i;
        if (query) q[to] = u[i] * scale; else k[to] = u[i] * scale;
      }
    }
  }
}
`

// deltaScanText and deltaKeepText are the rule over the first count rows, the state
// in registers: a threadgroup of 64 threads owns 16 columns of one head's state
// [DK, DV], a thread DK/4 elements of one column, which 4 threads of a warp share.
// Both products of a row use the state before it, for q·(gS + kᵀδ) is
// g(q·S) + (q·k)δ: then the two sums are one round of shuffles. What R rows need
// lies in shared memory before the first of them.
//
// The scan gives the outputs of all rows. To keep some rows of a block gives the
// state after them and the convolution's input before the next, tail, and no outputs.
var (
	deltaScanText = dropLines(deltaRuleText, "keep")
	deltaKeepText = dropLines(deltaRuleText, "scan")
)

// Lines for one of the two end in its name.
const deltaRuleText = `
constexpr int R = 16, N = DK / 4, P = DK + 16;
GF_GROUP float sk[R * P];
GF_GROUP float sq[R * P]; //scan
GF_GROUP float kq[R]; //scan
GF_GROUP float sv[R * 16];
GF_GROUP float sg[R];
GF_GROUP float sb[R];
const int lane = tid & 31, sub = lane >> 3, column = (tid >> 5) * 8 + (lane & 7);
const int hv = bid / (DV / 16), first = (bid - hv * (DV / 16)) * 16, dv = first + column, hk = hv / (HV / HK);
const int rows = k_shape[0], kept = count[0], n = kept < rows ? kept : rows;
const size_t at = (size_t)hv * DK * DV + dv;
float S[N];
for (int i = 0; i < N; i++) S[i] = state[at + (size_t)((i >> 2) * 16 + sub * 4 + (i & 3)) * DV];
for (int r0 = 0; r0 < n; r0 += R) {
  const int m = n - r0 < R ? n - r0 : R;
  GF_SYNC();
  for (int i = tid * 4; i < m * DK; i += 256) {
    const int r = i / DK, c = i - r * DK;
    const size_t from = ((size_t)(r0 + r) * HK + hk) * DK + c;
    GF_STORE4(sk + r * P + c, GF_LOAD4(k + from));
    GF_STORE4(sq + r * P + c, GF_LOAD4(q + from)); //scan
  }
  for (int i = tid; i < m * 16; i += 64) sv[i] = v[((size_t)(r0 + (i >> 4)) * HV + hv) * DV + first + (i & 15)];
  if (tid < m) {
    sg[tid] = g[(size_t)(r0 + tid) * HV + hv];
    sb[tid] = beta[(size_t)(r0 + tid) * HV + hv];
  }
  GF_SYNC();
  float d = 0; //scan
  for (int c = (tid & 3) * 4; c < DK && tid >> 2 < m; c += 16) { //scan
    const float4 a = GF_GLOAD4(sk + (tid >> 2) * P + c), b = GF_GLOAD4(sq + (tid >> 2) * P + c); //scan
    d += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; //scan
  } //scan
  d += GF_XOR(d, 1); //scan
  d += GF_XOR(d, 2); //scan
  if ((tid & 3) == 0) kq[tid >> 2] = d; //scan
  GF_SYNC(); //scan
  for (int r = 0; r < m; r++) {
    const float gr = sg[r], br = sb[r], vr = sv[r * 16 + column];
    float K[N], d0 = 0, d1 = 0, d2 = 0, d3 = 0;
    float e0 = 0, e1 = 0, e2 = 0, e3 = 0; //scan
    for (int i = 0; i < N / 4; i++) {
      const float4 a = GF_GLOAD4(sk + r * P + i * 16 + sub * 4);
      const float4 c = GF_GLOAD4(sq + r * P + i * 16 + sub * 4); //scan
      K[4 * i] = a.x; K[4 * i + 1] = a.y; K[4 * i + 2] = a.z; K[4 * i + 3] = a.w;
      d0 += S[4 * i] * a.x; d1 += S[4 * i + 1] * a.y; d2 += S[4 * i + 2] * a.z; d3 += S[4 * i + 3] * a.w;
      e0 += S[4 * i] * c.x; e1 += S[4 * i + 1] * c.y; e2 += S[4 * i + 2] * c.z; e3 += S[4 * i + 3] * c.w; //scan
    }
    d0 = (d0 + d1) + (d2 + d3);
    e0 = (e0 + e1) + (e2 + e3); //scan
    for (int o = 8; o < 32; o <<= 1) { d0 += GF_XOR(d0, o); e0 += GF_XOR(e0, o); } //scan
    for (int o = 8; o < 32; o <<= 1) d0 += GF_XOR(d0, o); //keep
    const float delta = br * (vr - gr * d0);
    for (int i = 0; i < N; i++) S[i] = gr * S[i] + delta * K[i];
    if (sub == 0) y[((size_t)(r0 + r) * HV + hv) * DV + dv] = gr * e0 + delta * kq[r]; //scan
  }
}
if (sub == 0) for (int r = n; r < rows; r++) y[((size_t)r * HV + hv) * DV + dv] = 0; //scan
for (int i = 0; i < N; i++) after[at + (size_t)((i >> 2) * 16 + sub * 4 + (i & 3)) * DV] = S[i];
for (int i = bid * 64 + tid; i < TAIL; i += HV * DV / 16 * 64) tail[i] = conv_in[(size_t)n * CH + i]; //keep
`

// deltaOutText is the norm over each head's output and the gate: y·rms(y)⁻¹·w
// times SiLU(z). A warp does one head of one row.
const deltaOutText = `
const int lane = tid & 31, unit = bid * 4 + (tid >> 5);
const int row = unit / HV, h = unit - row * HV;
if (row < y_shape[0]) {
  float u[DV / 32], gate[DV / 32], w[DV / 32];
  float squares = 0;
  for (int i = 0; i < DV / 32; i++) {
    u[i] = y[(size_t)unit * DV + lane + 32 * i];
    gate[i] = (float)z[(size_t)row * ZROW + ZAT + h * DV + lane + 32 * i];
    w[i] = weight[lane + 32 * i];
    squares += u[i] * u[i];
  }
  for (int o = 16; o > 0; o >>= 1) squares += GF_XOR(squares, o);
  const float scale = GF_RSQRT(squares / DV + GF_FLOAT(EPS));
  for (int i = 0; i < DV / 32; i++) {
    o[(size_t)unit * DV + lane + 32 * i] = (T)(u[i] * scale * w[i] * (gate[i] / (1.0f + GF_EXP(-gate[i]))));
  }
}
`
