/*
 * Checks cblas_sgemm against the chain that sgemm.c promises, bit for bit, under
 * every instruction set of this processor:
 *
 *     check SEED COUNT
 *
 * prints one line per fault (the first few) and exits with 1 if there was any.
 * Matrices end at an unreadable page, and what lies between rows is checked.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif
void cblas_sgemm(int layout, int trans_a, int trans_b, int m, int n, int k, float alpha,
	const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
const char *gf_test_isa(int index);
int gf_test_use(const char *name);
#ifdef __cplusplus
}
#endif

static uint64_t state;
static unsigned next(void) { /* xorshift64* */
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (unsigned)((state * 2685821657736338717ull) >> 32);
}
static int below(int n) { return (int)(next() % (unsigned)n); }

static float uniform(void) { return (float)((int)(next() >> 8) - (1 << 23)) / (float)(1 << 23); }

/* kind 0: ordinary; 1: wide exponents; 2: with infinities, NaN, denormals and zeros;
 * 3: products that vanish and leave zeros of either sign. */
static float value(int kind) {
	static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-45f, -1e-40f, 1e-30f, -1e-30f, 3e38f, -3e38f, 1.0f};
	if (kind == 1)
		return ldexpf(uniform(), below(100) - 50);
	if (kind == 2 && below(6) == 0)
		return odd[below(sizeof odd / sizeof *odd)];
	return kind == 3 ? uniform() * 1e-25f : uniform();
}

/* Room for n floats that ends where reading and writing is not allowed. */
#define ROOM (1 << 21)
static float *place(int which, size_t n) {
	static char *base[8];
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = ROOM * sizeof(float);
	if (n > ROOM) {
		fprintf(stderr, "a matrix of %zu floats\n", n);
		exit(2);
	}
	if (!base[which]) {
		base[which] = (char *)mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (base[which] == (char *)MAP_FAILED || mprotect(base[which] + bytes, page, PROT_NONE) != 0) {
			perror("mmap");
			exit(2);
		}
	}
	return (float *)(base[which] + bytes) - n;
}

static int same(float x, float y) { return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y)); }

static int faults;
static void fault(const char *isa, const char *what, int i, int j, float got, float want) {
	if (faults++ < 10)
		printf("%s: %s at %d,%d: %a, want %a\n", isa, what, i, j, (double)got, (double)want);
}

typedef struct {
	int layout, ta, tb, m, n, k, lda, ldb, ldc;
	float alpha, beta;
} problem;

static size_t extent(int rows, int cols, int ld) { return rows == 0 || cols == 0 ? 0 : (size_t)(rows - 1) * (size_t)ld + (size_t)cols; }
static int along(int layout, int trans) { return (layout == 102) == (trans != 111); } /* stored rows are the operand's rows */
static size_t at(int row_wise, int i, int j, int ld) { return row_wise ? (size_t)i * (size_t)ld + (size_t)j : (size_t)j * (size_t)ld + (size_t)i; }

static void call(const problem *p, const float *a, const float *b, float *c) {
	cblas_sgemm(p->layout, p->ta, p->tb, p->m, p->n, p->k, p->alpha, a, p->lda, b, p->ldb, p->beta, c, p->ldc);
}

static int pick(const int *sizes, int n) { return sizes[below(n)]; }

static void random_problem(problem *p) {
	static const int small[] = {0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 15, 16, 17, 31, 33, 64, 97};
	static const int large[] = {1, 2, 16, 48, 49, 63, 64, 65, 96, 97, 127, 130, 192, 255, 256, 257, 300, 513, 640};
	static const float scales[] = {1, 1, 1, 0, 0, -1, 0.5f, 0.3f, -1.7f};
	static const int trans[] = {111, 112, 113};
	const int ns = sizeof small / sizeof *small, nl = sizeof large / sizeof *large;
	p->layout = 101 + below(2);
	p->ta = trans[below(3)];
	p->tb = trans[below(3)];
	/* Two of the three sizes may be large. */
	const int keep = below(4);
	p->m = keep == 0 || keep == 3 ? pick(small, ns) : pick(large, nl);
	p->n = keep == 1 || keep == 3 ? pick(small, ns) : pick(large, nl);
	p->k = keep == 2 || keep == 3 ? pick(small, ns) : pick(large, nl);
	p->alpha = scales[below(9)];
	p->beta = scales[below(9)];
	const int slack = below(2);
	const int a_cols = along(p->layout, p->ta) ? p->k : p->m, b_cols = along(p->layout, p->tb) ? p->n : p->k;
	const int c_cols = p->layout == 101 ? p->n : p->m;
	p->lda = (a_cols > 1 ? a_cols : 1) + slack * below(9);
	p->ldb = (b_cols > 1 ? b_cols : 1) + slack * below(9);
	p->ldc = (c_cols > 1 ? c_cols : 1) + slack * below(9);
}

static void expect(const problem *p, const float *a, const float *b, float *c) {
	const int ra = along(p->layout, p->ta), rb = along(p->layout, p->tb), rc = p->layout == 101;
	for (int i = 0; i < p->m; i++)
		for (int j = 0; j < p->n; j++) {
			float *x = c + at(rc, i, j, p->ldc);
			if (p->k == 0 || p->alpha == 0) {
				*x = p->beta == 1 ? *x : p->beta == 0 ? 0 : p->beta * *x;
				continue;
			}
			float s = 0;
			for (int k = 0; k < p->k; k++)
				s = fmaf(a[at(ra, i, k, p->lda)], b[at(rb, k, j, p->ldb)], s);
			s = p->alpha * (s + 0.0f);
			*x = p->beta == 0 ? s : fmaf(p->beta, *x, s);
		}
}

static void check_random(void) {
	problem p;
	random_problem(&p);
	const int kind = below(4);
	const int ra = along(p.layout, p.ta), rb = along(p.layout, p.tb), rc = p.layout == 101;
	const size_t na = ra ? extent(p.m, p.k, p.lda) : extent(p.k, p.m, p.lda);
	const size_t nb = rb ? extent(p.k, p.n, p.ldb) : extent(p.n, p.k, p.ldb);
	const size_t nc = rc ? extent(p.m, p.n, p.ldc) : extent(p.n, p.m, p.ldc);
	float *a = place(0, na), *b = place(1, nb), *start = place(2, nc), *want = place(3, nc), *c = place(4, nc);
	for (size_t i = 0; i < na; i++)
		a[i] = value(kind);
	for (size_t i = 0; i < nb; i++)
		b[i] = value(kind);
	for (size_t i = 0; i < nc; i++)
		start[i] = p.beta == 0 && below(2) ? NAN : value(kind);
	memcpy(want, start, nc * sizeof *want);
	expect(&p, a, b, want);
	const char *isa;
	for (int s = 0; (isa = gf_test_isa(s)); s++) {
		gf_test_use(isa);
		memcpy(c, start, nc * sizeof *c);
		call(&p, a, b, c);
		for (size_t i = 0; i < nc; i++)
			if (!same(c[i], want[i])) {
				char what[160];
				snprintf(what, sizeof what, "layout %d trans %d %d M %d N %d K %d ld %d %d %d alpha %g beta %g", p.layout, p.ta, p.tb,
					p.m, p.n, p.k, p.lda, p.ldb, p.ldc, (double)p.alpha, (double)p.beta);
				fault(isa, what, (int)(i / (size_t)p.ldc), (int)(i % (size_t)p.ldc), c[i], want[i]);
				break;
			}
	}
}

/* A block of rows equals its single rows; columns equal their places elsewhere; zeros after K change nothing. */
static void check_invariance(void) {
	const int m = 1 + below(40), n = 1 + below(300), k = 1 + below(600), pad = 1 + below(40), tb = 111 + below(2);
	const int kp = k + pad, ldb = tb == 111 ? n : kp;
	float *a = place(0, (size_t)m * (size_t)kp), *b = place(1, (size_t)n * (size_t)kp);
	float *c = place(2, (size_t)m * (size_t)n), *d = place(3, (size_t)m * (size_t)n);
	const int kind = below(4) == 0 ? 3 : below(2);
	for (int i = 0; i < m; i++)
		for (int l = 0; l < kp; l++)
			a[(size_t)i * (size_t)kp + (size_t)l] = l < k ? value(kind) : 0;
	for (int j = 0; j < n; j++)
		for (int l = 0; l < kp; l++)
			b[at(tb == 111, l, j, ldb)] = l < k ? value(kind) : 0;
	const char *isa;
	for (int s = 0; (isa = gf_test_isa(s)); s++) {
		gf_test_use(isa);
		cblas_sgemm(101, 111, tb, m, n, k, 1, a, kp, b, ldb, 0, c, n);
		for (int i = 0; i < m; i++)
			cblas_sgemm(101, 111, tb, 1, n, k, 1, a + (size_t)i * (size_t)kp, kp, b, ldb, 0, d + (size_t)i * (size_t)n, n);
		for (int i = 0; i < m * n; i++)
			if (!same(c[i], d[i])) {
				fault(isa, "a row alone and in a block", i / n, i % n, d[i], c[i]);
				break;
			}
		cblas_sgemm(101, 111, tb, m, n, kp, 1, a, kp, b, ldb, 0, d, n);
		for (int i = 0; i < m * n; i++)
			if (!same(c[i], d[i])) {
				fault(isa, "with zeros after K", i / n, i % n, d[i], c[i]);
				break;
			}
		const int j0 = below(n);
		cblas_sgemm(101, 111, tb, m, n - j0, k, 1, a, kp, b + at(tb == 111, 0, j0, ldb), ldb, 0, d, n);
		for (int i = 0; i < m * (n - j0); i++)
			if (!same(c[i / (n - j0) * n + j0 + i % (n - j0)], d[i / (n - j0) * n + i % (n - j0)])) {
				fault(isa, "columns elsewhere", i / (n - j0), i % (n - j0), d[i / (n - j0) * n + i % (n - j0)], c[i / (n - j0) * n + j0 + i % (n - j0)]);
				break;
			}
	}
}

/* Invalid arguments leave C alone, and A and B, here NULL, too. */
static void check_invalid(void) {
	static const problem ok = {101, 111, 111, 4, 5, 6, 6, 5, 5, 1, 0};
	for (int which = 0; which < 15; which++) {
		problem p = ok;
		switch (which) {
		case 0: p.layout = 100; break;
		case 1: p.layout = 103; break;
		case 2: p.ta = 110; break;
		case 3: p.tb = 114; break;
		case 4: p.m = -1; break;
		case 5: p.n = -1; break;
		case 6: p.k = -1; break;
		case 7: p.lda = 5; break;
		case 8: p.ldb = 4; break;
		case 9: p.ldc = 4; break;
		case 10: p.layout = 102; p.lda = 3; p.ldb = 6; break;
		case 11: p.layout = 102; p.ldb = 5; break;
		case 12: p.layout = 102; p.ldb = 6; p.ldc = 3; break;
		case 13: p.ta = 112; p.lda = 3; break;
		case 14: p.k = 0; p.m = 4; p.lda = 0; break;
		}
		float c[64], want[64];
		for (int i = 0; i < 64; i++)
			c[i] = want[i] = uniform();
		call(&p, NULL, NULL, c);
		if (memcmp(c, want, sizeof c) != 0)
			fault("invalid arguments", "case", which, 0, c[0], want[0]);
	}
}

int main(int argc, char **argv) {
	if (argc != 3) {
		fprintf(stderr, "usage: check SEED COUNT\n");
		return 2;
	}
	state = strtoull(argv[1], NULL, 10) * 2654435769u + 88172645463325252ull;
	const int count = atoi(argv[2]);
	/* The first call chooses the instruction set: the first of the list. */
	check_invalid();
	for (int i = 0; i < count; i++) {
		check_random();
		if (i % 4 == 0)
			check_invariance();
		if (faults > 10)
			break;
	}
	const char *isa;
	for (int s = 0; (isa = gf_test_isa(s)); s++)
		printf("checked %s\n", isa);
	printf("%d problems, %d faults\n", count, faults);
	return faults != 0;
}
