/*
 * Compiles programs through NVRTC, as libmlx.so does, and prints what came of them:
 *
 *     check LIBRARY STEP...
 *
 * opens LIBRARY as package mlxc opens libmlxc.so, and walks through the steps, each
 * KEY=VALUE: "name", "text", "header", "expression" and "option" describe the program;
 * "compile=N" compiles it in N threads at once and prints what the first got, if
 * all got the same; "ptx=" asks for its PTX, "unknown=" for a name that was not given and
 * "late=" gives a name after the compile.
 *
 * With -DUSER this is the library that calls NVRTC, in the place of libmlx.so.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef USER

int main(int argc, char **argv) {
	void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*run)(int, char **) = lib ? (int (*)(int, char **))dlsym(lib, "run") : NULL;
	if (!run) {
		fprintf(stderr, "%s\n", lib || argc > 1 ? dlerror() : "no library given");
		return 2;
	}
	int status = run(argc - 2, argv + 2);
	dlclose(lib);
	return status;
}

#else

int nvrtcCreateProgram(void **, const char *, const char *, int, const char *const *, const char *const *);
int nvrtcDestroyProgram(void **);
int nvrtcAddNameExpression(void *, const char *);
int nvrtcCompileProgram(void *, int, const char *const *);
int nvrtcGetLoweredName(void *, const char *, const char **);
int nvrtcGetCUBINSize(void *, size_t *);
int nvrtcGetCUBIN(void *, char *);
int nvrtcGetPTXSize(void *, size_t *);
int nvrtcGetPTX(void *, char *);
int nvrtcGetProgramLogSize(void *, size_t *);
int nvrtcGetProgramLog(void *, char *);

enum { MOST = 16 };

static struct {
	const char *name, *text, *headers[MOST], *names[MOST], *expressions[MOST], *options[MOST];
	int n_headers, n_expressions, n_options, ptx, unknown, late;
} in;

typedef int size_fn(void *, size_t *);
typedef int get_fn(void *, char *);

/* Prints a checksum of what is got, and what is no longer than a line as it is. */
static void print(FILE *out, const char *what, void *handle, size_fn *size, get_fn *get) {
	size_t n = 0;
	int status = size(handle, &n);
	char *data = (char *)calloc(n + 1, 1);
	if (status == 0) status = get(handle, data);
	unsigned h = 2166136261u;
	for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)data[i]) * 16777619u;
	fprintf(out, "%s: %d, %zu bytes, %08x%s%s\n", what, status, n, h, n < 300 ? " " : "", n < 300 ? data : "");
	free(data);
}

static void *compile(void *arg) {
	size_t size;
	FILE *out = open_memstream((char **)arg, &size);
	void *handle = NULL;
	fprintf(out, "create: %d\n", nvrtcCreateProgram(&handle, in.text, in.name, in.n_headers, in.headers, in.names));
	for (int i = 0; i < in.n_expressions; i++) fprintf(out, "expression: %d\n", nvrtcAddNameExpression(handle, in.expressions[i]));
	fprintf(out, "compile: %d\n", nvrtcCompileProgram(handle, in.n_options, in.options));
	if (in.late) fprintf(out, "late: %d\n", nvrtcAddNameExpression(handle, "late"));
	print(out, "log", handle, nvrtcGetProgramLogSize, nvrtcGetProgramLog);
	const char *lowered[MOST];
	for (int i = in.n_expressions - 1; i >= 0; i--) {
		lowered[i] = "";
		fprintf(out, "lowered: %d\n", nvrtcGetLoweredName(handle, in.expressions[i], &lowered[i]));
	}
	if (in.unknown) {
		const char *none = "";
		int status = nvrtcGetLoweredName(handle, "unknown", &none);
		fprintf(out, "unknown: %d %s\n", status, none);
	}
	if (in.ptx) print(out, "ptx", handle, nvrtcGetPTXSize, nvrtcGetPTX);
	else print(out, "cubin", handle, nvrtcGetCUBINSize, nvrtcGetCUBIN);
	for (int i = 0; i < in.n_expressions; i++) fprintf(out, "name: %s\n", lowered[i]); /* valid until the program ends */
	int destroyed = nvrtcDestroyProgram(&handle);
	fprintf(out, "destroy: %d %d\n", destroyed, handle == NULL);
	fclose(out);
	return NULL;
}

__attribute__((visibility("default"))) int run(int n, char **steps) {
	for (int i = 0; i < n; i++) {
		char *value = strchr(steps[i], '=') + 1;
		switch (*steps[i]) {
		case 'n': in.name = value; break;
		case 't': in.text = value; break;
		case 'h': in.names[in.n_headers] = "h"; in.headers[in.n_headers++] = value; break;
		case 'e': in.expressions[in.n_expressions++] = value; break;
		case 'o': in.options[in.n_options++] = value; break;
		case 'p': in.ptx = 1; break;
		case 'u': in.unknown = 1; break;
		case 'l': in.late = 1; break;
		case 'c': {
			pthread_t threads[MOST];
			char *out[MOST];
			int count = atoi(value), same = 1;
			for (int k = 0; k < count; k++) pthread_create(&threads[k], NULL, compile, &out[k]);
			for (int k = 0; k < count; k++) pthread_join(threads[k], NULL);
			for (int k = 1; k < count; k++) same = same && strcmp(out[k], out[0]) == 0;
			fputs(same ? out[0] : "threads differ\n", stdout);
			for (int k = 0; k < count; k++) free(out[k]);
			break;
		}
		default: return 2;
		}
	}
	return 0;
}

#endif
