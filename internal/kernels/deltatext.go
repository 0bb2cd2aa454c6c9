package kernels

// deltaInText is what comes before the scan: causal convolution, SiLU, the
// norms of queries and keys, decay and β. A warp does one head of one row.
//
// tail is the convolution's input before the block, [KW-1, channels]; a row of
// qkv, a and b begins ROW, AROW and BROW elements after the one before it, at
// QAT, AAT and BAT. conv_in is tail with the block's rows after it. The sums of
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

// deltaScanText and deltaKeepText are the rule over the first count rows, the state in registers:
// a threadgroup of 128 threads owns 16 columns of one head's state [DK, DV], a
// thread DK/8 elements of one column, which 8 threads of a warp share. Both
// products of a row use the state before it, for q·(gS + kᵀδ) is
// g(q·S) + (q·k)δ: then the two sums are one round of shuffles.
//
// The scan gives the outputs of all rows. To keep some rows of a block gives the
// state after them and the convolution's input before the next, tail, and no outputs.
var (
	deltaScanText = dropLines(deltaRuleText, "keep")
	deltaKeepText = dropLines(deltaRuleText, "scan")
)

// Lines for one of the two end in its name.
const deltaRuleText = `
constexpr int R = 16, N = DK / 8;
GF_GROUP float sk[R * DK];
GF_GROUP float sq[R * DK]; //scan
GF_GROUP float kq[R]; //scan
const int lane = tid & 31, warp = tid >> 5, sub = lane >> 2;
const int hv = bid / (DV / 16), dv = (bid - hv * (DV / 16)) * 16 + warp * 4 + (lane & 3), hk = hv / (HV / HK);
const int rows = k_shape[0], kept = count[0], n = kept < rows ? kept : rows;
const size_t at = (size_t)hv * DK * DV + dv;
float S[N];
for (int i = 0; i < N; i++) S[i] = state[at + (size_t)((i >> 2) * 32 + sub * 4 + (i & 3)) * DV];
for (int r0 = 0; r0 < n; r0 += R) {
  const int m = n - r0 < R ? n - r0 : R;
  GF_SYNC();
  for (int i = tid * 4; i < m * DK; i += 512) {
    const int r = i / DK;
    const size_t from = ((size_t)(r0 + r) * HK + hk) * DK + (i - r * DK);
    GF_STORE4(sk + i, GF_LOAD4(k + from));
    GF_STORE4(sq + i, GF_LOAD4(q + from)); //scan
  }
  GF_SYNC();
  for (int r = warp; r < m; r += 4) { //scan
    float d = 0; //scan
    for (int c = lane; c < DK; c += 32) d += sk[r * DK + c] * sq[r * DK + c]; //scan
    for (int o = 16; o > 0; o >>= 1) d += GF_XOR(d, o); //scan
    if (lane == 0) kq[r] = d; //scan
  } //scan
  GF_SYNC(); //scan
  size_t p = (size_t)r0 * HV + hv;
  float g1 = g[p], b1 = beta[p], v1 = v[p * DV + dv];
  for (int r = 0; r < m; r++, p += HV) {
    const float gr = g1, br = b1, vr = v1;
    if (r + 1 < m) { g1 = g[p + HV]; b1 = beta[p + HV]; v1 = v[(p + HV) * DV + dv]; }
    float K[N], d1 = 0, e1 = 0;
    float d2 = 0, e2 = 0; //scan
    for (int i = 0; i < N / 4; i++) {
      const float4 a = GF_GLOAD4(sk + r * DK + i * 32 + sub * 4);
      const float4 c = GF_GLOAD4(sq + r * DK + i * 32 + sub * 4); //scan
      K[4 * i] = a.x; K[4 * i + 1] = a.y; K[4 * i + 2] = a.z; K[4 * i + 3] = a.w;
      d1 += S[4 * i] * a.x; e1 += S[4 * i + 1] * a.y; d1 += S[4 * i + 2] * a.z; e1 += S[4 * i + 3] * a.w;
      d2 += S[4 * i] * c.x; e2 += S[4 * i + 1] * c.y; d2 += S[4 * i + 2] * c.z; e2 += S[4 * i + 3] * c.w; //scan
    }
    d1 += e1;
    d2 += e2; //scan
    for (int o = 4; o < 32; o <<= 1) { d1 += GF_XOR(d1, o); d2 += GF_XOR(d2, o); } //scan
    for (int o = 4; o < 32; o <<= 1) d1 += GF_XOR(d1, o); //keep
    const float delta = br * (vr - gr * d1);
    for (int i = 0; i < N; i++) S[i] = gr * S[i] + delta * K[i];
    if (sub == 0) y[p * DV + dv] = gr * d2 + delta * kq[r]; //scan
  }
}
if (sub == 0) for (int r = n; r < rows; r++) y[((size_t)r * HV + hv) * DV + dv] = 0; //scan
for (int i = 0; i < N; i++) after[at + (size_t)((i >> 2) * 32 + sub * 4 + (i & 3)) * DV] = S[i];
for (int i = bid * 128 + tid; i < TAIL; i += HV * DV / 16 * 128) tail[i] = conv_in[(size_t)n * CH + i]; //keep
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
