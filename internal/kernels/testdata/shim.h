// Runs the text of a CUDA or Metal kernel on the CPU: every thread of a block is
// a user context, which yields where threads wait for each other. Slow, exact.
// The two blocks of a cluster run together; what they do not share is dynamic memory.
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

typedef unsigned int u32;
struct uint3 { u32 x, y, z; };
struct uint2 { u32 x, y; };
struct alignas(16) uint4 { u32 x, y, z, w; };
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
template <class T> static T min(T a, T b) { return a < b ? a : b; }
template <class T> static T max(T a, T b) { return a > b ? a : b; }
static uint2 make_uint2(u32 a, u32 b) { return {a, b}; }
static uint4 make_uint4(u32 a, u32 b, u32 c, u32 d) { return {a, b, c, d}; }
static float2 make_float2(float a, float b) { return {a, b}; }
static float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }

template <class To, class From> static To bits(From f) {
  static_assert(sizeof(To) == sizeof(From));
  To t;
  memcpy(&t, &f, sizeof t);
  return t;
}

struct bfloat16 {
  uint16_t v;
  bfloat16() = default;
  explicit bfloat16(float f) {
    u32 u = bits<u32>(f);
    v = (u & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  }
  operator float() const { return bits<float>((u32)v << 16); }
};
typedef bfloat16 __nv_bfloat16;
typedef bfloat16 bfloat16_t;
struct Shape { int32_t v[10]; int operator[](int i) const { return v[i]; } };

// The threads of a block, or of all blocks of a cluster.
static uint3 threadIdx, blockIdx, blockDim, gridDim;
static int cluster = 1; // its number of blocks, along x
#define thread_position_in_threadgroup threadIdx
#define threadgroup_position_in_grid blockIdx
static int current, threads;
static long steps; // arrivals at barriers, and ends
static const int MOST = 1024, STACK = 65536;
static jmp_buf scheduler, fibers[MOST];
static char begun[MOST], ended[MOST];
static char* stacks;

struct barrier {
  int generation = 0, arrived = 0, alive = 0;
  void leave() {
    alive--;
    if (alive > 0 && arrived == alive) { arrived = 0; generation++; }
  }
};
static int rank_of(int i) { return i / (threads / cluster); }
static barrier blocks[2], pair;
static barrier& own_block() { return blocks[rank_of(current)]; }
static barrier warp[MOST / 32];
static u32 exchange[32][32][16];

static void resume(int i) {
  current = i;
  const int in = i % (threads / cluster);
  threadIdx = {in % blockDim.x, in / blockDim.x % blockDim.y, in / (blockDim.x * blockDim.y)};
  blockIdx.x = blockIdx.x / cluster * cluster + rank_of(i);
}
static void give_way() {
  const int me = current;
  if (!_setjmp(fibers[me])) _longjmp(scheduler, 1);
  resume(me);
}
static void wait(barrier& b) {
  int g = b.generation;
  steps++;
  if (++b.arrived == b.alive) { b.arrived = 0; b.generation++; return; }
  while (b.generation == g) give_way();
}
static void warp_wait() { wait(warp[current / 32]); }
template <class T> static T from_lane(T v, int lane) {
  int w = current / 32;
  exchange[w][current % 32][0] = bits<u32>(v);
  warp_wait();
  T r = bits<T>(exchange[w][lane][0]);
  warp_wait();
  return r;
}

// CUDA.
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
static void __syncthreads() { wait(own_block()); }
static void __syncwarp() { warp_wait(); }
template <class T> static T __shfl_xor_sync(u32, T v, int mask) { return from_lane(v, (current % 32) ^ mask); }
template <class T> static T __shfl_sync(u32, T v, int lane) { return from_lane(v, lane); }
static u32 __reduce_max_sync(u32, u32 v) {
  for (int o = 16; o > 0; o >>= 1) v = max(v, from_lane(v, (current % 32) ^ o));
  return v;
}
static int __reduce_min_sync(u32, int v) {
  for (int o = 16; o > 0; o >>= 1) v = min(v, from_lane(v, (current % 32) ^ o));
  return v;
}
static u32 __ballot_sync(u32, bool v) {
  const int w = current / 32;
  exchange[w][current % 32][0] = v;
  warp_wait();
  u32 r = 0;
  for (int i = 0; i < 32; i++) r |= exchange[w][i][0] << i;
  warp_wait();
  return r;
}
static int __popc(u32 v) { return __builtin_popcount(v); }
static bool __any_sync(u32, bool v) { return __reduce_max_sync(0, v); }
static int __float_as_int(float f) { return bits<int>(f); }
static float __int_as_float(int i) { return bits<float>(i); }
static float __uint_as_float(u32 i) { return bits<float>(i); }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }

// Metal.
#define device
#define threadgroup static
typedef uint16_t ushort;
enum mem_flags { mem_threadgroup };
static void threadgroup_barrier(mem_flags) { wait(own_block()); }
template <class T> static T simd_shuffle_xor(T v, ushort mask) { return from_lane(v, (current % 32) ^ mask); }
template <class To, class From> static To as_type(From f) { return bits<To>(f); }
namespace metal { namespace precise {
static float exp(float x) { return expf(x); }
static float log(float x) { return logf(x); }
static float rsqrt(float x) { return rsqrtf(x); }
static float sin(float x) { return sinf(x); }
static float cos(float x) { return cosf(x); }
} }

// Tensor cores: D[16,8] += A[16,8·ks] · B[8·ks,8], fragments as PTX lays them out
// over the lanes. Products of a step are added in double, then once in float.
static void mma(float* c, const u32* a, const u32* b, int ks) {
  int w = current / 32, l = current % 32;
  for (int i = 0; i < 2 * ks; i++) exchange[w][l][i] = a[i];
  for (int i = 0; i < ks; i++) exchange[w][l][8 + i] = b[i];
  warp_wait();
  float add[4];
  for (int e = 0; e < 4; e++) {
    int m = l / 4 + (e >> 1) * 8, n = 2 * (l % 4) + (e & 1);
    double sum = 0;
    for (int k = 0; k < 8 * ks; k++) {
      int at = k % 8, half = k / 8;
      u32 x = exchange[w][(m % 8) * 4 + at / 2][half * 2 + m / 8], y = exchange[w][n * 4 + at / 2][8 + half];
      sum += (double)bits<float>(k & 1 ? x & 0xffff0000u : x << 16) * bits<float>(k & 1 ? y & 0xffff0000u : y << 16);
    }
    add[e] = sum;
  }
  warp_wait();
  for (int e = 0; e < 4; e++) c[e] += add[e];
}

static void gf_mma(float* c, const u32* a, u32 b0, u32 b1) {
  const u32 b[2] = {b0, b1};
  mma(c, a, b, 2);
}
static u32 gf_q4(u32 v) { return (v & 0x000f000fu) | 0x43004300u; }
static u32 gf_affine(u32 v, u32 s, u32 b) {
  u32 r = 0;
  for (int i = 0; i < 32; i += 16) {
    const double q = (double)bits<float>(v >> i << 16) - 128;
    r |= (u32)bfloat16((float)(q * bits<float>(s >> i << 16) + bits<float>(b >> i << 16))).v << i;
  }
  return r;
}

// Copies in the background happen as late as they may, when their thread waits, or at
// once, with at_once: what is asked for too early, into a place that is still read,
// shows in the one way, and what is used too early in the other.
static bool at_once;
static struct { void* to; const void* from; int size, group; } copies[MOST][256];
static int asked[MOST], done[MOST], groups[MOST];
static void within(const void* from, int size);
static void later(void* to, const void* from, int size) {
  if (from) {
    (void)*(const volatile char*)from; // may be read from now on
    within(from, size);
  }
  if (((size_t)to | (size_t)from) % size != 0) { fprintf(stderr, "a copy of %d bytes is not aligned\n", size); exit(2); }
  if (at_once) {
    from ? memcpy(to, from, size) : memset(to, 0, size);
    return;
  }
  const int me = current;
  if (asked[me] - done[me] == 256) { fprintf(stderr, "too many copies on their way\n"); exit(2); }
  copies[me][asked[me]++ % 256] = {to, from, size, groups[me]};
}
static void gf_ask16(void* to, const void* from, bool there) { if (there) later(to, from, 16); }
static unsigned long long gf_once() { return 0; }
static void gf_ask16_once(void* to, const void* from, bool there, unsigned long long) { gf_ask16(to, from, there); }
static void gf_ask8(void* to, const void* from, bool there) { if (there) later(to, from, 8); }
static void gf_ask4(void* to, const void* from, bool there) { if (there) later(to, from, 4); }
static void gf_copy16(void* to, const void* from, bool there) { later(to, there ? from : 0, 16); }
static void gf_copy(void* to, const void* from) { later(to, from, 16); }
static void gf_copy8(void* to, const void* from) { later(to, from, 8); }
static void gf_copy4(void* to, const void* from) { later(to, from, 4); }
static void gf_copies_end() { groups[current]++; }
template <int N> static void gf_copies_wait() {
  for (int me = current; done[me] < asked[me] && copies[me][done[me] % 256].group < groups[me] - N; done[me]++) {
    const auto& c = copies[me][done[me] % 256];
    c.from ? memcpy(c.to, c.from, c.size) : memset(c.to, 0, c.size);
  }
}
// Behind the memory that a launch is given comes a page that nobody may touch.
static float* guarded(size_t floats) {
  const size_t bytes = (floats * 4 + 15) / 16 * 16, room = (bytes + 4095) / 4096 * 4096, guard = 1 << 20;
  char* p = (char*)mmap(0, room + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
  if (p == MAP_FAILED || mprotect(p + room, guard, PROT_NONE)) { perror("mmap"); exit(2); }
  return (float*)(p + room - bytes);
}
// Each block of a cluster has its own, of as many bytes as the launch is given.
static float* dynamic[2];
static size_t given;
static float* own_memory(float* const* of, size_t floats) {
  if (floats * 4 > given) { fprintf(stderr, "a text wants %zu bytes of shared memory, its launch has %zu\n", floats * 4, given); exit(2); }
  dynamic[0] = of[0], dynamic[1] = of[1];
  return of[rank_of(current)];
}
#define GF_DYNAMIC(name, size) static float* const name##_of[2] = {guarded(size), guarded(size)}; float* const name = own_memory(name##_of, size)

// Blocks of a cluster: a thread may write to the other's memory when it knows that it
// has begun.
static int arrived_at[MOST], meetings[MOST];
static void gf_arrive() {
  arrived_at[current] = pair.generation;
  steps++;
  if (++pair.arrived == pair.alive) { pair.arrived = 0; pair.generation++; }
}
static void gf_meet() {
  while (pair.generation == arrived_at[current]) give_way();
  meetings[current]++;
  steps++;
}
static void gf_far4(void* p, int rank, float4 v) {
  if (!meetings[current]) { fprintf(stderr, "a block writes to the other's memory before it knows that it has begun\n"); exit(2); }
  *(float4*)((char*)p - (char*)dynamic[rank_of(current)] + (char*)dynamic[rank]) = v;
}
template <class T> static T __ldcg(const T* p) { return *p; }
static void __threadfence() {}
static int atomicAdd(int* p, int v) { const int old = *p; *p += v; return old; }
static void gf_load_transposed(const void* p, u32* r) {
  const int w = current / 32, l = current % 32;
  memcpy(exchange[w][l], p, 16);
  warp_wait();
  for (int m = 0; m < 4; m++) {
    const uint16_t low = ((uint16_t*)exchange[w][m * 8 + 2 * (l % 4)])[l / 4], high = ((uint16_t*)exchange[w][m * 8 + 2 * (l % 4) + 1])[l / 4];
    r[m] = low | (u32)high << 16;
  }
  warp_wait();
}
static uint4 gf_stream4(const u32* p) { return {p[0], p[1], p[2], p[3]}; }
static u32 __byte_perm(u32 a, u32 b, u32 s) {
  const uint64_t v = ((uint64_t)b << 32) | a;
  u32 r = 0;
  for (int i = 0; i < 4; i++) r |= ((v >> (8 * ((s >> (4 * i)) & 7))) & 0xff) << (8 * i);
  return r;
}

// While a launch before this one may still run, the arrays that it may write are
// out of reach: they lie in one piece of memory, which opens when all threads of a
// block wait for it.
static int overlaps; // the kernel calls gf_wait()
static bool waited[MOST], open_now;
static barrier ahead;
static char* arena;
static size_t reserved;
static void set_open(bool o) {
  if (reserved && mprotect(arena, reserved, o ? PROT_READ | PROT_WRITE : PROT_NONE)) { perror("mprotect"); exit(2); }
  open_now = o;
}
static void gf_next() {}
static void gf_wait() {
  waited[current] = true;
  wait(ahead);
  if (!open_now) set_open(true);
}

static void body(int which, void** args);
static int which;
static void** arguments;

// A fiber runs its thread in every block; it is made once.
static void entry(int i) {
  for (;;) {
    resume(i);
    asked[i] = done[i] = groups[i] = meetings[i] = 0;
    body(which, arguments);
    if (done[i] != asked[i]) { fprintf(stderr, "thread %d of a block ends with copies on their way\n", i); exit(2); }
    if (overlaps && !waited[i]) { fprintf(stderr, "thread %d of a block ends without gf_wait()\n", i); exit(2); }
    ended[i] = 1;
    steps++;
    warp[i / 32].leave();
    own_block().leave();
    pair.leave();
    give_way();
  }
}
static void __attribute__((noinline)) enter(int i) {
  if (_setjmp(scheduler)) return;
  if (begun[i]) _longjmp(fibers[i], 1);
  begun[i] = 1;
  ucontext_t c;
  getcontext(&c);
  c.uc_stack.ss_sp = stacks + (size_t)i * STACK;
  c.uc_stack.ss_size = STACK;
  c.uc_link = 0;
  makecontext(&c, (void (*)())entry, 1, i);
  setcontext(&c);
}

static void must_read(void* p, size_t n) { if (n && fread(p, 1, n, stdin) != n) { fprintf(stderr, "short input\n"); exit(2); } }
static int32_t word() { int32_t v; must_read(&v, 4); return v; }

static const int ARRAYS = 128;
static char* memory[ARRAYS];
static size_t room[ARRAYS];
static int arrays, bytes[ARRAYS];
// A copy in the background must come from one array.
static void within(const void* from, int size) {
  for (int i = 0; i < arrays; i++)
    if ((const char*)from >= memory[i] && (const char*)from + size <= memory[i] + bytes[i]) return;
  fprintf(stderr, "a copy from outside of all arguments\n");
  exit(2);
}
static void fault(int, siginfo_t* info, void*) {
  for (int i = 0; i < ARRAYS; i++)
    if ((char*)info->si_addr >= memory[i] && (char*)info->si_addr < memory[i] + room[i]) fprintf(stderr, "argument %d is touched before gf_wait()\n", i);
  _exit(2);
}

// Input, again and again: which kernel, whether it calls gf_wait(), how many blocks are
// a cluster, bytes of shared memory, grid and block in threads, the number of arrays,
// and for each its shape in 10 words, whether it is an output, whether it may be read
// before gf_wait(), its number of bytes and, for an input, these. Output: the outputs'
// bytes, and a word that names an array written behind its end, or −1.
int main(int argc, char**) {
  at_once = argc > 1;
  stacks = (char*)malloc((size_t)MOST * STACK);
  struct sigaction act = {};
  act.sa_sigaction = fault;
  act.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &act, 0);
  sigaction(SIGBUS, &act, 0);
  while (fread(&which, 4, 1, stdin) == 1) {
    overlaps = word();
    cluster = word();
    given = word();
    int g[3], b[3];
    must_read(g, 12);
    must_read(b, 12);
    blockDim = {(u32)b[0], (u32)b[1], (u32)b[2]};
    gridDim = {(u32)((g[0] + b[0] - 1) / b[0]), (u32)((g[1] + b[1] - 1) / b[1]), (u32)((g[2] + b[2] - 1) / b[2])};
    const int n = word(), guard = 64;
    Shape shapes[ARRAYS];
    int output[ARRAYS], early[ARRAYS];
    void* args[2 * ARRAYS];
    reserved = 0;
    arrays = n;
    for (int i = 0; i < n; i++) {
      must_read(&shapes[i], sizeof(Shape));
      output[i] = word();
      early[i] = word();
      bytes[i] = word();
      room[i] = (bytes[i] + 63) / 64 * 64 + guard;
      memory[i] = (char*)aligned_alloc(64, room[i]);
      memset(memory[i], 0xff, room[i]);
      if (output[i] != 1) must_read(memory[i], bytes[i]);
      if (!early[i]) reserved += room[i];
    }
    if (reserved) arena = (char*)mmap(0, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (reserved && arena == MAP_FAILED) { perror("mmap"); exit(2); }
    char* to = arena;
    for (int i = 0; i < n; i++) {
      if (!early[i]) {
        memcpy(to, memory[i], room[i]);
        free(memory[i]);
        memory[i] = to;
        to += room[i];
      }
      args[2 * i] = memory[i];
      args[2 * i + 1] = &shapes[i];
    }
    arguments = args;
    threads = b[0] * b[1] * b[2] * cluster;
    if (gridDim.x % cluster != 0 || threads > MOST) { fprintf(stderr, "blocks do not divide into clusters\n"); exit(2); }
    for (u32 z = 0; z < gridDim.z; z++) for (u32 y = 0; y < gridDim.y; y++) for (u32 x = 0; x < gridDim.x; x += cluster) {
      blockIdx = {x, y, z};
      memset(ended, 0, sizeof ended);
      memset(waited, 0, sizeof waited);
      if (overlaps) set_open(false);
      ahead = barrier();
      ahead.alive = threads;
      pair = barrier();
      pair.alive = threads;
      for (int i = 0; i < cluster; i++) blocks[i] = barrier(), blocks[i].alive = threads / cluster;
      for (int i = 0; i < MOST / 32; i++) warp[i] = barrier();
      for (int i = 0; i < threads; i++) warp[i / 32].alive++;
      for (int left = threads; left > 0;) {
        left = 0;
        const long before = steps;
        for (int i = 0; i < threads; i++)
          if (!ended[i]) { enter(i); left += !ended[i]; }
        if (steps == before) { fprintf(stderr, "threads of a block wait for each other at different places\n"); exit(2); }
      }
    }
    int32_t bad = -1;
    for (int i = 0; i < n; i++) {
      for (int j = bytes[i]; j < (bytes[i] + 63) / 64 * 64 + guard; j++) if (memory[i][j] != (char)0xff) bad = i;
      if (output[i]) fwrite(memory[i], 1, bytes[i], stdout);
      if (early[i]) free(memory[i]);
    }
    if (reserved) munmap(arena, reserved);
    fwrite(&bad, 4, 1, stdout);
    fflush(stdout);
  }
}
