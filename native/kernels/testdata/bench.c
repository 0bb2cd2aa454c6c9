/*
 * Times cblas_sgemm of one or two shared libraries, in GFLOPS of the thread's
 * processor time, best of several:
 *
 *     bench LIBRARY [OTHER]
 *
 * B is K by N stored by rows ("n") or by columns ("t", as the weights of linear
 * layers are). Small M with large K and N is bound by the memory.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef void sgemm(int layout, int trans_a, int trans_b, int m, int n, int k, float alpha,
	const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *fill(size_t n) {
	float *p = (float *)aligned_alloc(64, (n * sizeof *p + 63) / 64 * 64);
	if (!p)
		abort();
	for (size_t i = 0; i < n; i++)
		p[i] = (float)(i % 61) / 61 - 0.5f;
	return p;
}

static double best(sgemm *f, int m, int n, int k, int trans_b, float beta, const float *a, const float *b, float *c) {
	const double flop = 2.0 * m * n * k;
	double least = 1e9;
	const double start = now();
	for (int round = 0; round < 3 || (round < 20 && now() - start < 0.4); round++) {
		const int calls = (int)(2e6 / flop) + 1;
		const double t = now();
		for (int i = 0; i < calls; i++)
			f(101, 111, trans_b ? 112 : 111, m, n, k, 1, a, k, b, trans_b ? k : n, beta, c, n);
		const double spent = (now() - t) / calls;
		if (spent < least)
			least = spent;
		if (now() - start > 3)
			break;
	}
	return least;
}

int main(int argc, char **argv) {
	static const int shapes[][2] = {{64, 64}, {128, 1000}, {256, 640}, {640, 256}, {256, 4096}, {1024, 1024}, {4096, 1024}, {4096, 4096}};
	static const int heights[] = {1, 4, 16, 256};
	sgemm *f[2] = {NULL, NULL};
	for (int i = 0; i < 2 && i + 1 < argc; i++) {
		void *library = dlopen(argv[i + 1], RTLD_NOW);
		if (library)
			*(void **)&f[i] = dlsym(library, "cblas_sgemm");
		if (!f[i]) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
	}
	if (!f[0]) {
		fprintf(stderr, "usage: bench LIBRARY [OTHER]\n");
		return 2;
	}
	float *a = fill(256 * 4096), *b = fill(4096 * 4096), *c = fill(256 * 4096);
	printf("%5s %5s %5s B %10s %9s %9s\n", "M", "K", "N", "us", "GFLOPS", "other");
	for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
		for (int trans = 0; trans < 2; trans++)
			for (int h = 0; h < 4; h++) {
				const int m = heights[h], k = shapes[s][0], n = shapes[s][1];
				const double flop = 2.0 * m * n * k, t = best(f[0], m, n, k, trans, 0, a, b, c);
				printf("%5d %5d %5d %c %10.2f %9.1f", m, k, n, trans ? 't' : 'n', t * 1e6, flop / t * 1e-9);
				if (f[1])
					printf(" %9.1f", flop / best(f[1], m, n, k, trans, 0, a, b, c) * 1e-9);
				printf("\n");
				fflush(stdout);
			}
	printf("rank 1, 64 by 64, beta 1: %.3f us\n", best(f[0], 64, 64, 1, 0, 1, a, b, c) * 1e6);
	return 0;
}
