//go:build ignore

/*
 * cblas_sgemm for Linux, linked into libmlxc.so so that MLX's CPU build calls it
 * in place of its reference BLAS: the loader looks up libmlx.so's undefined
 * symbols in the scope of the library that was opened, and that scope begins
 * with libmlxc.so. (The constraint on the first line keeps the go command from
 * compiling this file; it is embedded and built by the installer.)
 *
 * Contract. Every element is
 *
 *     s = 0;  for k = 0 .. K-1:  s = fma(op(A)[i,k], op(B)[k,j], s)
 *     s = s + 0                                  (a negative zero becomes zero)
 *     C[i,j] = alpha*s                           when beta == 0: C is not read
 *     C[i,j] = fma(beta, C[i,j], alpha*s)        otherwise
 *
 * in float32, round to nearest, one rounding per operation, in this order. When
 * alpha or K is zero neither A nor B is read and C = beta*C (zero if beta is
 * zero, untouched if beta is one). Nothing else enters into a result: not M or
 * N, not where the row or the column lies, not transposition, strides or
 * alignment, nor the instruction set. So
 *   - a block of rows gives the bits of its single rows;
 *   - zeros appended to K change no bit of a finite result;
 *   - addition of a matrix by beta = 1 gives the bits of a separate addition;
 *   - AVX-512, AVX2, NEON and the portable code agree bit for bit.
 * The sign and payload of a NaN are the exception: the processors choose them.
 *
 * Invalid arguments leave C as it is and print nothing. Calls may come from any
 * thread; each thread that calls holds about 260 KiB of thread-local scratch,
 * and no call allocates.
 *
 * Method. C is cut into tiles of up to 6 rows by up to 64 columns held in
 * registers, with the loop over k innermost: lanes are columns, so no sum is
 * ever split. K is cut into blocks for the caches; between two blocks the
 * chains wait in scratch, as the float32 numbers that they are.
 * Each element of B is read once for every 96 rows of A: in place, or copied to
 * scratch in panels of up to 64 columns, transposed if its columns are adjacent
 * floats.
 *
 * Build: C11 or C++17, GCC or clang, -O3 -fPIC -ffp-contract=off. Contraction
 * must be off and -ffast-math must not be given: all fused operations are
 * written out. No -m option is needed: on x86-64 the instruction set is chosen
 * at run time. The file includes itself once per instruction set, by its name.
 * For tests, -DGF_TEST exports the choice of the instruction set and
 * -DGF_PORTABLE leaves all but the portable code out.
 */

#ifndef GF_ISA

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__) && !defined(GF_PORTABLE)
#define GF_X86 1
#include <immintrin.h>
#elif defined(__aarch64__) && !defined(GF_PORTABLE)
#define GF_NEON 1
#include <arm_neon.h>
#endif

#if defined(__FAST_MATH__)
#error "sgemm.c: -ffast-math breaks the contract at the top of this file"
#endif

enum {
	GF_ROW_MAJOR = 101, GF_COL_MAJOR = 102,
	GF_NO_TRANS = 111, GF_TRANS = 112, GF_CONJ_TRANS = 113,

	GF_MR = 6,                 /* rows of a tile */
	GF_NR = 64,                /* columns of a panel of B */
	GF_MC = 96,                /* rows of a block of A, a multiple of GF_MR */
	GF_KC = 256,               /* most steps of k in a block */
	GF_LDA = GF_KC + 16,       /* row stride of a copied block of A: off the powers of two */
	GF_SUMS = GF_MC * 256,     /* sums that wait between two blocks of K */
	GF_FEW = 48,               /* rows of A for which reading B is most of the work */
	GF_NEAR = 1 << 18          /* floats of B that the caches nearby may hold */
};

/* Runs kc steps on a tile of MR rows and NV vectors. a points to the tile's
 * first row, with strides ars (rows) and acs (k); b to kc rows of ldb floats. t
 * holds the tile's sums, GF_NR floats a row: the chain starts there, or from zero
 * if first is set. It ends in c, by alpha and beta, or if c is NULL in t. If ahead is
 * not NULL, the memory is asked for kc rows from there, ldahead floats apart. */
typedef void gf_tile(ptrdiff_t kc, const float *a, ptrdiff_t ars, ptrdiff_t acs, const float *b, ptrdiff_t ldb,
	const float *ahead, ptrdiff_t ldahead, float *t, int first, float *c, ptrdiff_t crs, float alpha, float beta);

/* Copies n <= GF_NR columns of B, each of kc adjacent floats and bcs apart, to
 * kc rows of GF_NR floats, and asks the memory for what is ahead floats further. */
typedef void gf_transpose(ptrdiff_t kc, ptrdiff_t n, const float *b, ptrdiff_t bcs, float *out, ptrdiff_t ahead);

/* Ends the chains of m rows and n columns of t in a C of any strides. */
typedef void gf_finish(ptrdiff_t m, ptrdiff_t n, const float *t, float *c, ptrdiff_t crs, ptrdiff_t ccs, float alpha, float beta);

typedef struct {
	const char *name;
	int width;                            /* floats of a vector */
	gf_tile *tile[GF_MR + 1][5];          /* by rows and by log2 of the vectors; NULL: does not fit the registers */
	gf_transpose *transpose;
	gf_finish *finish;
} gf_kernels;

#define GF_CAT_(a, b) a##b
#define GF_CAT(a, b) GF_CAT_(a, b)
#define GF_FN(name) GF_CAT(GF_CAT(gf_, name##_), GF_ISA)
#define GF_STRING_(a) #a
#define GF_STRING(a) GF_STRING_(a)

/* ---- instruction sets -------------------------------------------------- */

#ifdef GF_X86

#define GF_ISA avx512
#define GF_TARGET __attribute__((target("avx512f,avx2,fma")))
#define GF_V 16
#define GF_VEC __m512
#define GF_LOAD(p) _mm512_loadu_ps(p)
#define GF_STORE(p, x) _mm512_storeu_ps(p, x)
#define GF_SET1(x) _mm512_set1_ps(x)
#define GF_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define GF_MUL(a, b) _mm512_mul_ps(a, b)
#define GF_ADD(a, b) _mm512_add_ps(a, b)
#define GF_NV(mr) 4
#include "sgemm.c"

#define GF_ISA avx2
#define GF_TARGET __attribute__((target("avx2,fma")))
#define GF_V 8
#define GF_VEC __m256
#define GF_LOAD(p) _mm256_loadu_ps(p)
#define GF_STORE(p, x) _mm256_storeu_ps(p, x)
#define GF_SET1(x) _mm256_set1_ps(x)
#define GF_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define GF_MUL(a, b) _mm256_mul_ps(a, b)
#define GF_ADD(a, b) _mm256_add_ps(a, b)
#define GF_NV(mr) ((mr) == 1 ? 8 : (mr) <= 3 ? 4 : 2)
#include "sgemm.c"

#elif defined(GF_NEON)

#define GF_ISA neon
#define GF_TARGET
#define GF_V 4
#define GF_VEC float32x4_t
#define GF_LOAD(p) vld1q_f32(p)
#define GF_STORE(p, x) vst1q_f32(p, x)
#define GF_SET1(x) vdupq_n_f32(x)
#define GF_FMA(a, b, c) vfmaq_f32(c, a, b)
#define GF_MUL(a, b) vmulq_f32(a, b)
#define GF_ADD(a, b) vaddq_f32(a, b)
#define GF_NV(mr) ((mr) == 1 ? 16 : (mr) == 2 ? 8 : 4)
#include "sgemm.c"

#endif

/* The processor's fused operation, or where it has none the C library's. */
#define GF_ISA portable
#define GF_TARGET
#define GF_V 1
#define GF_VEC float
#define GF_LOAD(p) (*(p))
#define GF_STORE(p, x) (*(p) = (x))
#define GF_SET1(x) (x)
#define GF_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define GF_MUL(a, b) ((a) * (b))
#define GF_ADD(a, b) ((a) + (b))
#define GF_NV(mr) 4
#include "sgemm.c"

static const gf_kernels *const gf_all[] = {
#ifdef GF_X86
	&gf_kernels_avx512, &gf_kernels_avx2,
#elif defined(GF_NEON)
	&gf_kernels_neon,
#endif
	&gf_kernels_portable,
};

static int gf_supported(const gf_kernels *kernels) {
#ifdef GF_X86
	__builtin_cpu_init();
	if (kernels == &gf_kernels_avx512)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	if (kernels == &gf_kernels_avx2)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
	(void)kernels;
#endif
	return 1;
}

static const gf_kernels *gf_chosen;

/* Threads that race here find the same answer. */
static const gf_kernels *gf_choose(void) {
	const gf_kernels *kernels = __atomic_load_n(&gf_chosen, __ATOMIC_RELAXED);
	for (size_t i = 0; !kernels; i++)
		if (gf_supported(gf_all[i])) {
			kernels = gf_all[i];
			__atomic_store_n(&gf_chosen, kernels, __ATOMIC_RELAXED);
		}
	return kernels;
}

/* ---- blocks ------------------------------------------------------------ */

static __thread struct {
	float a[GF_MC * GF_LDA];
	float b[GF_KC * GF_NR];
	float sums[GF_SUMS];
} gf_scratch __attribute__((aligned(64)));

static inline ptrdiff_t gf_min(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }

/* Copies n columns of kc rows, brs apart, to rows of GF_NR floats, with zeros up
 * to a whole vector. */
static void gf_copy(ptrdiff_t kc, ptrdiff_t n, const float *b, ptrdiff_t brs, float *out, int width) {
	const ptrdiff_t zeros = -n & (width - 1);
	if (n == GF_NR) {
		for (ptrdiff_t k = 0; k < kc; k++)
			memcpy(out + k * GF_NR, b + k * brs, GF_NR * sizeof *out);
		return;
	}
	for (ptrdiff_t k = 0; k < kc; k++) {
		float *row = out + k * GF_NR;
		memcpy(row, b + k * brs, (size_t)n * sizeof *out);
		memset(row + n, 0, (size_t)zeros * sizeof *out);
	}
}

/* op(A) has elements a[i*ars + k*acs], op(B) b[k*brs + j*bcs], C c[i*crs + j*ccs];
 * of A's and of B's strides, one each is 1. M, N, K >= 1. */
static void gf_multiply(const gf_kernels *kernels, ptrdiff_t M, ptrdiff_t N, ptrdiff_t K, float alpha,
	const float *a, ptrdiff_t ars, ptrdiff_t acs, const float *b, ptrdiff_t brs, ptrdiff_t bcs,
	float beta, float *c, ptrdiff_t crs, ptrdiff_t ccs) {
	/* Lanes are columns: where there are few, take the transposed product. */
	if (N < 16 && M > N) {
		ptrdiff_t s;
		const float *p;
		s = M, M = N, N = s;
		p = a, a = b, b = p;
		s = ars, ars = bcs, bcs = s;
		s = acs, acs = brs, brs = s;
		s = crs, crs = ccs, ccs = s;
	}
	const int rows = bcs == 1;                  /* B lies by rows */
	const int in_place = rows && M <= GF_MR;    /* and is read once, so need not be copied */
	const int width = kernels->width;
	const ptrdiff_t mc = gf_min(M, GF_MC);
	/* Few rows of A and a B that comes from afar: the memory decides. It is quickest when few of
	 * B's rows, or of its columns where those are adjacent floats, are read side by side. Sizes by
	 * measurement. */
	const int far_b = K * N > GF_NEAR, streamed = far_b && M <= GF_FEW;
	ptrdiff_t kc_max = GF_KC, nr = GF_NR, nc_max = gf_min(GF_SUMS / mc / GF_NR * GF_NR, 4096);
	if (rows && N > 4 * GF_NR && M <= GF_FEW) {
		kc_max = !far_b ? 32 : in_place ? 8 : 16;
	} else if (!rows && streamed) {
		kc_max = 48;
		nr = nc_max = 16;
	} else if (!rows && M <= GF_MR) {
		kc_max = 64;
		nc_max = GF_NR;
	}
	float *const sums = gf_scratch.sums;

	for (ptrdiff_t i0 = 0; i0 < M; i0 += mc) {
		const ptrdiff_t m = gf_min(M - i0, mc), tiles = (m + GF_MR - 1) / GF_MR;
		for (ptrdiff_t j0 = 0; j0 < N; j0 += nc_max) {
			const ptrdiff_t nc = gf_min(N - j0, nc_max);
			for (ptrdiff_t k0 = 0; k0 < K; k0 += kc_max) {
				const ptrdiff_t kc = gf_min(K - k0, kc_max);
				const int first = k0 == 0, last = k0 + kc == K;
				const float *ab = a + i0 * ars + k0 * acs;
				ptrdiff_t abrs = ars, abcs = acs;
				if (m > GF_MR && nc > GF_NR) {
					float *copy = gf_scratch.a;
					if (acs == 1) {
						for (ptrdiff_t i = 0; i < m; i++)
							memcpy(copy + i * GF_LDA, ab + i * ars, (size_t)kc * sizeof *copy);
						abrs = GF_LDA;
					} else {
						for (ptrdiff_t k = 0; k < kc; k++)
							memcpy(copy + k * GF_MC, ab + k * acs, (size_t)m * sizeof *copy);
						abcs = GF_MC;
					}
					ab = copy;
				}
				for (ptrdiff_t jp = 0; jp < nc; jp += nr) {
					const ptrdiff_t n = gf_min(nc - jp, nr);
					const float *bp = b + k0 * brs + (j0 + jp) * bcs;
					ptrdiff_t ldb = brs, whole = n;  /* columns that bp can serve */
					/* How far on the next panel lies, 0 after the last. */
					const ptrdiff_t next = !streamed ? 0 : jp + nr < nc ? nr * bcs : k0 + kc < K ? kc * brs - jp * bcs
						: j0 + nc < N ? nr * bcs - k0 * brs : 0;
					const float *ahead = rows && !in_place && next ? bp + next : NULL;
					if (in_place) {
						whole = n - n % width;
						if (whole < n)
							gf_copy(kc, n - whole, bp + whole, brs, gf_scratch.b + whole, width);
					} else {
						if (rows)
							gf_copy(kc, n, bp, brs, gf_scratch.b, width);
						else
							kernels->transpose(kc, n, bp, bcs, gf_scratch.b, next);
						bp = gf_scratch.b;
						ldb = GF_NR;
					}
					ptrdiff_t i = 0;
					for (ptrdiff_t tile = 0; tile < tiles; tile++) {
						/* Tiles of nearly equal height. */
						const ptrdiff_t mr = (m - i) / (tiles - tile);
						float *t = sums + (jp * m) + i * GF_NR;
						for (ptrdiff_t j = 0; j < n;) {
							int log = 0;
							while (log < 4 && kernels->tile[mr][log + 1] && j + (width << (log + 1)) <= whole)
								log++;
							const ptrdiff_t w = (ptrdiff_t)width << log;
							const float *bt = bp + j;
							ptrdiff_t ldbt = ldb;
							if (j >= whole) {
								bt = gf_scratch.b + j;
								ldbt = GF_NR;
							}
							float *ct = c + (i0 + i) * crs + (j0 + jp + j) * ccs;
							const int direct = last && ccs == 1 && j + w <= n;
							kernels->tile[mr][log](kc, ab + i * abrs, abrs, abcs, bt, ldbt,
								ahead && tile == 0 ? ahead + j : NULL, brs,
								t + j, first, direct ? ct : NULL, crs, alpha, beta);
							if (last && !direct)
								kernels->finish(mr, gf_min(n - j, w), t + j, ct, crs, ccs, alpha, beta);
							j += w;
						}
						i += mr;
					}
				}
			}
		}
	}
}

/* ---- interface --------------------------------------------------------- */

static inline int gf_trans(int t) { return t == GF_TRANS || t == GF_CONJ_TRANS; }

static void gf_sgemm(const gf_kernels *kernels, int layout, int trans_a, int trans_b, int m, int n, int k, float alpha,
	const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc) {
	if (layout != GF_ROW_MAJOR && layout != GF_COL_MAJOR)
		return;
	const int ta = gf_trans(trans_a), tb = gf_trans(trans_b), by_col = layout == GF_COL_MAJOR;
	if ((!ta && trans_a != GF_NO_TRANS) || (!tb && trans_b != GF_NO_TRANS) || m < 0 || n < 0 || k < 0)
		return;
	/* Whether the stored rows run along k, k and n: then a row needs that many floats. */
	const int a_along_k = ta == by_col, b_along_n = tb == by_col;
	const int need_a = a_along_k ? k : m, need_b = b_along_n ? n : k, need_c = by_col ? m : n;
	if (lda < 1 || lda < need_a || ldb < 1 || ldb < need_b || ldc < 1 || ldc < need_c)
		return;
	if (m == 0 || n == 0)
		return;
	const ptrdiff_t crs = by_col ? 1 : ldc, ccs = by_col ? ldc : 1;
	if (k == 0 || alpha == 0) {
		if (beta == 1)
			return;
		for (ptrdiff_t i = 0; i < m; i++)
			for (ptrdiff_t j = 0; j < n; j++) {
				float *x = c + i * crs + j * ccs;
				*x = beta == 0 ? 0 : beta * *x;
			}
		return;
	}
	const ptrdiff_t ars = a_along_k ? lda : 1, acs = a_along_k ? 1 : lda;
	const ptrdiff_t brs = b_along_n ? ldb : 1, bcs = b_along_n ? 1 : ldb;
	if (by_col) /* transposed: rows of C become adjacent floats */
		gf_multiply(kernels, n, m, k, alpha, b, bcs, brs, a, acs, ars, beta, c, ccs, crs);
	else
		gf_multiply(kernels, m, n, k, alpha, a, ars, acs, b, brs, bcs, beta, c, crs, ccs);
}

#ifdef __cplusplus
extern "C" {
#endif

/* The prototype of the C interface to BLAS, with its enumerations as ints. */
__attribute__((visibility("default"))) void cblas_sgemm(int layout, int trans_a, int trans_b, int m, int n, int k, float alpha,
	const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

void cblas_sgemm(int layout, int trans_a, int trans_b, int m, int n, int k, float alpha,
	const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc) {
	gf_sgemm(gf_choose(), layout, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

#ifdef GF_TEST
/* The name of the instruction set of that index that this processor has, or NULL after the last. */
const char *gf_test_isa(int index);
const char *gf_test_isa(int index) {
	for (size_t i = 0; i < sizeof gf_all / sizeof *gf_all; i++)
		if (gf_supported(gf_all[i]) && index-- == 0)
			return gf_all[i]->name;
	return NULL;
}

/* Makes cblas_sgemm use that one; returns whether there is one of this name. */
int gf_test_use(const char *name);
int gf_test_use(const char *name) {
	for (size_t i = 0; i < sizeof gf_all / sizeof *gf_all; i++)
		if (gf_supported(gf_all[i]) && strcmp(gf_all[i]->name, name) == 0) {
			__atomic_store_n(&gf_chosen, gf_all[i], __ATOMIC_RELAXED);
			return 1;
		}
	return 0;
}
#endif

#ifdef __cplusplus
}
#endif

#else /* GF_ISA: one instruction set */

#define GF_TILE(MR, NV) \
	GF_TARGET static void GF_FN(tile_##MR##_##NV)(ptrdiff_t kc, const float *a, ptrdiff_t ars, ptrdiff_t acs, \
		const float *b, ptrdiff_t ldb, const float *ahead, ptrdiff_t ldahead, float *t, int first, float *c, ptrdiff_t crs, float alpha, float beta) { \
		GF_FN(tile_body)(MR, NV, kc, a, ars, acs, b, ldb, ahead, ldahead, t, first, c, crs, alpha, beta); \
	}

/* Always inlined with constant mr and nv: acc lives in registers. */
GF_TARGET static inline __attribute__((always_inline)) void GF_FN(tile_body)(const int mr, const int nv,
	ptrdiff_t kc, const float *a, ptrdiff_t ars, ptrdiff_t acs, const float *b, ptrdiff_t ldb,
	const float *ahead, ptrdiff_t ldahead, float *t, int first, float *c, ptrdiff_t crs, float alpha, float beta) {
	GF_VEC acc[GF_MR][16];
	if (first) {
#pragma GCC unroll 16
		for (int i = 0; i < mr; i++)
#pragma GCC unroll 16
			for (int v = 0; v < nv; v++)
				acc[i][v] = GF_SET1(0.0f);
	} else {
#pragma GCC unroll 16
		for (int i = 0; i < mr; i++)
#pragma GCC unroll 16
			for (int v = 0; v < nv; v++)
				acc[i][v] = GF_LOAD(t + i * GF_NR + v * GF_V);
	}
	const float *a3 = a + 3 * ars;
	for (ptrdiff_t k = 0; k < kc; k++) {
		GF_VEC bv[16];
#pragma GCC unroll 16
		for (int v = 0; v < nv; v++)
			bv[v] = GF_LOAD(b + v * GF_V);
#pragma GCC unroll 16
		for (int i = 0; i < mr; i++) {
			const GF_VEC av = GF_SET1(i < 3 ? a[i * ars] : a3[(i - 3) * ars]);
#pragma GCC unroll 16
			for (int v = 0; v < nv; v++)
				acc[i][v] = GF_FMA(av, bv[v], acc[i][v]);
		}
		if (ahead) {
#pragma GCC unroll 4
			for (int v = 0; v < nv * GF_V; v += 16)
				__builtin_prefetch(ahead + k * ldahead + v);
		}
		a += acs;
		a3 += acs;
		b += ldb;
	}
	if (!c) {
#pragma GCC unroll 16
		for (int i = 0; i < mr; i++)
#pragma GCC unroll 16
			for (int v = 0; v < nv; v++)
				GF_STORE(t + i * GF_NR + v * GF_V, acc[i][v]);
		return;
	}
	const GF_VEC zero = GF_SET1(0.0f), scale = GF_SET1(alpha), keep = GF_SET1(beta);
#pragma GCC unroll 16
	for (int i = 0; i < mr; i++) {
#pragma GCC unroll 16
		for (int v = 0; v < nv; v++) {
			float *p = c + i * crs + v * GF_V;
			GF_VEC r = GF_MUL(scale, GF_ADD(acc[i][v], zero));
			if (beta != 0)
				r = GF_FMA(keep, GF_LOAD(p), r);
			GF_STORE(p, r);
		}
	}
}

#define GF_ROW_OF_TILES(MR) GF_TILE(MR, 1) GF_TILE(MR, 2) GF_TILE(MR, 4)
GF_ROW_OF_TILES(1)
GF_ROW_OF_TILES(2)
GF_ROW_OF_TILES(3)
GF_ROW_OF_TILES(4)
GF_ROW_OF_TILES(5)
GF_ROW_OF_TILES(6)
GF_TILE(1, 8)
GF_TILE(1, 16)
GF_TILE(2, 8)

GF_TARGET static void GF_FN(finish)(ptrdiff_t m, ptrdiff_t n, const float *t, float *c, ptrdiff_t crs, ptrdiff_t ccs, float alpha, float beta) {
	for (ptrdiff_t i = 0; i < m; i++)
		for (ptrdiff_t j = 0; j < n; j++) {
			float *p = c + i * crs + j * ccs, r = alpha * (t[i * GF_NR + j] + 0.0f);
			*p = beta == 0 ? r : __builtin_fmaf(beta, *p, r);
		}
}

#if GF_V >= 8
#define GF_SQUARE 8
/* The 4 by 4 transposes of both halves of the lanes; rows 4 to 7 come in as the upper halves. */
GF_TARGET static inline __attribute__((always_inline)) void GF_FN(square)(const float *low, const float *high, ptrdiff_t bcs, float *out) {
#pragma GCC unroll 2
	for (int h = 0; h < 8; h += 4) {
		__m256 r[4];
#pragma GCC unroll 4
		for (int i = 0; i < 4; i++)
			r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low + i * bcs + h)), _mm_loadu_ps(high + i * bcs + h), 1);
		const __m256 x = _mm256_unpacklo_ps(r[0], r[1]), y = _mm256_unpacklo_ps(r[2], r[3]);
		const __m256 z = _mm256_unpackhi_ps(r[0], r[1]), w = _mm256_unpackhi_ps(r[2], r[3]);
		_mm256_storeu_ps(out + (h + 0) * GF_NR, _mm256_shuffle_ps(x, y, 0x44));
		_mm256_storeu_ps(out + (h + 1) * GF_NR, _mm256_shuffle_ps(x, y, 0xee));
		_mm256_storeu_ps(out + (h + 2) * GF_NR, _mm256_shuffle_ps(z, w, 0x44));
		_mm256_storeu_ps(out + (h + 3) * GF_NR, _mm256_shuffle_ps(z, w, 0xee));
	}
}
#elif GF_V == 4
#define GF_SQUARE 4
static inline __attribute__((always_inline)) void GF_FN(square)(const float *low, const float *high, ptrdiff_t bcs, float *out) {
	const float32x4x2_t x = vtrnq_f32(vld1q_f32(low), vld1q_f32(low + bcs));
	const float32x4x2_t y = vtrnq_f32(vld1q_f32(high), vld1q_f32(high + bcs));
	vst1q_f32(out, vcombine_f32(vget_low_f32(x.val[0]), vget_low_f32(y.val[0])));
	vst1q_f32(out + GF_NR, vcombine_f32(vget_low_f32(x.val[1]), vget_low_f32(y.val[1])));
	vst1q_f32(out + 2 * GF_NR, vcombine_f32(vget_high_f32(x.val[0]), vget_high_f32(y.val[0])));
	vst1q_f32(out + 3 * GF_NR, vcombine_f32(vget_high_f32(x.val[1]), vget_high_f32(y.val[1])));
}
#endif

GF_TARGET static void GF_FN(transpose)(ptrdiff_t kc, ptrdiff_t n, const float *b, ptrdiff_t bcs, float *out, ptrdiff_t ahead) {
	ptrdiff_t j = 0;
#ifdef GF_SQUARE
	for (; j + GF_SQUARE <= n; j += GF_SQUARE) {
		/* Two pointers keep the addresses in registers. */
		const float *low = b + j * bcs, *high = low + GF_SQUARE / 2 * bcs;
		float *to = out + j;
		ptrdiff_t k = 0;
		for (; k + 16 <= kc; k += 16, low += 16, high += 16, to += 16 * GF_NR) {
#pragma GCC unroll 16
			for (int s = 0; s < 16; s += GF_SQUARE)
				GF_FN(square)(low + s, high + s, bcs, to + s * GF_NR);
			if (ahead) {
#pragma GCC unroll 4
				for (int i = 0; i < GF_SQUARE / 2; i++) {
					__builtin_prefetch(low + i * bcs + ahead);
					__builtin_prefetch(high + i * bcs + ahead);
				}
			}
		}
		for (; k < kc; k++)
			for (ptrdiff_t i = j; i < j + GF_SQUARE; i++)
				out[k * GF_NR + i] = b[i * bcs + k];
	}
#else
	(void)ahead;
#endif
	for (; j < n; j++)
		for (ptrdiff_t k = 0; k < kc; k++)
			out[k * GF_NR + j] = b[j * bcs + k];
	for (; j % GF_V; j++)
		for (ptrdiff_t k = 0; k < kc; k++)
			out[k * GF_NR + j] = 0;
}

#define GF_FITS(MR, NV) (GF_NV(MR) >= (NV) ? GF_FN(tile_##MR##_##NV) : NULL)
static const gf_kernels GF_FN(kernels) = {
	GF_STRING(GF_ISA), GF_V,
	{
		{NULL, NULL, NULL, NULL, NULL},
		{GF_FITS(1, 1), GF_FITS(1, 2), GF_FITS(1, 4), GF_FITS(1, 8), GF_FITS(1, 16)},
		{GF_FITS(2, 1), GF_FITS(2, 2), GF_FITS(2, 4), GF_FITS(2, 8), NULL},
		{GF_FITS(3, 1), GF_FITS(3, 2), GF_FITS(3, 4), NULL, NULL},
		{GF_FITS(4, 1), GF_FITS(4, 2), GF_FITS(4, 4), NULL, NULL},
		{GF_FITS(5, 1), GF_FITS(5, 2), GF_FITS(5, 4), NULL, NULL},
		{GF_FITS(6, 1), GF_FITS(6, 2), GF_FITS(6, 4), NULL, NULL},
	},
	GF_FN(transpose), GF_FN(finish),
};

#undef GF_ISA
#undef GF_TARGET
#undef GF_V
#undef GF_VEC
#undef GF_LOAD
#undef GF_STORE
#undef GF_SET1
#undef GF_FMA
#undef GF_MUL
#undef GF_ADD
#undef GF_NV
#undef GF_SQUARE
#undef GF_TILE
#undef GF_FITS
#undef GF_ROW_OF_TILES

#endif
