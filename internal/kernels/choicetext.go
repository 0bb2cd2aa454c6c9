package kernels

// largestText is the index of a row's largest score, bfloat16, the lowest where
// several are equal; a NaN is never the largest. A block looks at 256·EACH·8 scores
// of one row, and the row's last block, which counter tells, at what the others
// found: places are indices, or, of a part that is not all finite, their
// complements. counter is 0 before and after.
const largestText = `
const int row = blockIdx.y, lane = tid & 31, warp = tid >> 5;
const float lowest = -__int_as_float(0x7f800000);
__shared__ unsigned keys[8];
__shared__ int found[8];
uint4 x[EACH];
#pragma unroll
for (int i = 0; i < EACH; i++) {
  const int c = ((bid * EACH + i) * 256 + tid) * 8;
  x[i] = c < V ? *(const uint4*)(scores + (size_t)row * V + c) : make_uint4(0xff7fff7fu, 0xff7fff7fu, 0xff7fff7fu, 0xff7fff7fu);
}
float top = lowest;
int place = V;
bool odd = false;
#pragma unroll
for (int i = 0; i < EACH; i++) {
  const int c = ((bid * EACH + i) * 256 + tid) * 8;
  const unsigned u[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    const float a = __uint_as_float(u[j] << 16), b = __uint_as_float(u[j] & 0xffff0000u);
    if (a > top) { top = a; place = c + 2 * j; }
    if (b > top) { top = b; place = c + 2 * j + 1; }
    odd |= (u[j] & 0x7f80u) == 0x7f80u || (u[j] & 0x7f800000u) == 0x7f800000u;
  }
}
unsigned key = GF_KEY(top);
GF_LARGEST(key, place, odd)
if (lane == 0) { keys[warp] = key; found[warp] = odd ? ~place : place; }
__syncthreads();
if (warp == 0) {
  key = lane < 8 ? keys[lane] : 0;
  place = lane < 8 ? found[lane] : V;
  odd = place < 0;
  place = odd ? ~place : place;
  GF_LARGEST(key, place, odd)
  int last = 0;
  if (lane == 0) {
    tops[row * PARTS + bid] = key;
    places[row * PARTS + bid] = odd ? ~place : place;
    __threadfence();
    int* count = (int*)counter + row;
    last = atomicAdd(count, 1) == PARTS - 1;
    if (last) *count = 0;
  }
  if (__shfl_sync(0xffffffffu, last, 0)) {
    __threadfence();
    key = 0;
    place = V;
    odd = false;
    for (int i = lane; i < PARTS; i += 32) {
      const unsigned other = __ldcg(tops + row * PARTS + i);
      const int p = __ldcg(places + row * PARTS + i), there = p < 0 ? ~p : p;
      odd |= p < 0;
      if (other > key || (other == key && there < place)) { key = other; place = there; }
    }
    GF_LARGEST(key, place, odd)
    if (lane == 0) ids[row + LED] = CHECKED && odd ? -1 : place < V ? place : 0;
  }
}
if (LED && row == 0 && bid == 0 && tid == 0) ids[0] = first[0];
`

// largestMacros: keys are in the order of floats, with one for both zeros, and a
// warp's largest, with the lowest place that has it, comes to all lanes. Places
// below V have floats above minus infinity.
const largestMacros = `
__device__ __forceinline__ unsigned gf_key(float x) {
const unsigned u = (unsigned)__float_as_int(x + 0.0f);
return u >> 31 ? ~u : u | 0x80000000u;
}
#define GF_KEY(x) gf_key(x)
#define GF_LARGEST(key, place, odd) { \
const unsigned most = __reduce_max_sync(0xffffffffu, key); \
place = __reduce_min_sync(0xffffffffu, key == most ? place : 0x7fffffff); \
key = most; \
odd = __any_sync(0xffffffffu, odd); \
}
`

// acceptText counts, in one warp, the drafts of a block, [anchor, drafts], up to
// the first that is not the choice of the row before. Out come the count, the
// number of rows to keep, the choice of the last of these, and packed: the count,
// the choices, the block.
const acceptText = `
const int t = block_shape[0];
int count = tid + 1 < t && block[tid + 1 < t ? tid + 1 : 0] == choices[tid < t ? tid : 0] ? 32 : tid;
for (int o = 16; o > 0; o >>= 1) count = min(count, GF_XOR(count, o));
if (instead[0] >= 0) count = instead[0];
if (tid == 0) { accepted[0] = count; accepted[1] = count + 1; accepted[2] = choices[count]; accepted[3] = 0; packed[0] = count; }
if (tid < t) { packed[1 + tid] = choices[tid]; packed[1 + t + tid] = block[tid]; }
`
