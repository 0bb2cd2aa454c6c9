/*
 * Stands for libnvrtc.so.13 in the tests of nvrtc.c. Its machine code is a
 * function of all that NVRTC's depends on, precompiled headers excepted, and each
 * compile adds a line to the file that FAKE_CALLS names:
 *
 *     compile NAME OPTION...
 *
 * A text with "#error" does not compile. FAKE_VERSION is the minor version;
 * FAKE_PCH is "create" or "use" to fail at that.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
	char *text, *name, *all;
	char *names[16], *lowered[16];
	int n_names, done, status, pch;
	char log[256];
	char code[2][100000]; /* cubin, PTX */
	size_t size[2];
} program;

static char *join(char *a, const char *b) {
	char *out = (char *)calloc(strlen(a) + strlen(b) + 2, 1);
	strcat(strcat(strcpy(out, a), "|"), b);
	free(a);
	return out;
}

int nvrtcVersion(int *major, int *minor) {
	const char *v = getenv("FAKE_VERSION");
	*major = 13;
	*minor = v ? atoi(v) : 0;
	return 0;
}

int nvrtcCreateProgram(program **out, const char *text, const char *name, int n, const char *const *headers, const char *const *names) {
	program *p = (program *)calloc(1, sizeof *p);
	p->text = strdup(text);
	p->name = strdup(name);
	p->all = join(strdup(text), name);
	for (int i = 0; i < n; i++) p->all = join(join(p->all, headers[i]), names[i]);
	p->pch = 13;
	*out = p;
	return 0;
}

static void clear(program *p) {
	for (int i = 0; i < p->n_names; i++) {
		free(p->lowered[i]);
		p->lowered[i] = NULL;
	}
}

int nvrtcDestroyProgram(program **p) {
	clear(*p);
	for (int i = 0; i < (*p)->n_names; i++) free((*p)->names[i]);
	free((*p)->text);
	free((*p)->name);
	free((*p)->all);
	free(*p);
	*p = NULL;
	return 0;
}

int nvrtcAddNameExpression(program *p, const char *name) {
	if (p->done) return 8;
	p->names[p->n_names++] = strdup(name);
	return 0;
}

static int precompiled(program *p, const char *option) {
	const char *fail = getenv("FAKE_PCH");
	char have[4096] = "";
	if (strncmp(option, "--create-pch=", 13) == 0) {
		int fd = open(option + 13, O_WRONLY | O_CREAT | O_EXCL, 0666);
		int ok = fd >= 0 && write(fd, p->text, strlen(p->text)) > 0 && !(fail && strcmp(fail, "create") == 0);
		if (fd >= 0) close(fd);
		p->pch = ok ? 0 : 15;
		return ok;
	}
	int fd = open(option + 10, O_RDONLY);
	int ok = fd >= 0 && read(fd, have, sizeof have - 1) > 0 && !(fail && strcmp(fail, "use") == 0);
	if (fd >= 0) close(fd);
	char *end = strstr(have, "namespace");
	return ok && end && strncmp(have, p->text, (size_t)(end - have)) == 0;
}

int nvrtcCompileProgram(program *p, int n, const char *const *options) {
	char line[8192];
	char *all = strdup(p->all);
	int ok = !strstr(p->text, "#error"), v[2], ptx = 0, messages = 0;
	nvrtcVersion(&v[0], &v[1]);
	int length = snprintf(line, sizeof line, "compile %s", p->name);
	for (int i = 0; i < n; i++) {
		if (strcmp(options[i], "--pch-messages=false") == 0) continue;
		length += snprintf(line + length, sizeof line - (size_t)length, " %s", options[i]);
		if (strstr(options[i], "-pch=")) {
			messages = i + 1 == n;
			ok = precompiled(p, options[i]) && ok;
		} else {
			all = join(all, options[i]);
		}
		ptx = ptx || strstr(options[i], "compute_");
	}
	line[length++] = '\n';
	int fd = open(getenv("FAKE_CALLS"), O_WRONLY | O_CREAT | O_APPEND, 0666);
	if (write(fd, line, (size_t)length) != length) abort();
	close(fd);
	clear(p);
	p->done = 1;
	p->status = ok ? 0 : 6;
	snprintf(p->log, sizeof p->log, ok ? "a remark%s" : "error%s: %.200s", messages ? " on precompiled headers" : "", p->text);
	memset(p->size, 0, sizeof p->size);
	for (int k = 0; ok && k < 2; k++) {
		unsigned long long h = 1469598103934665603ull + (unsigned)(v[1] * 2 + k);
		for (int i = 0; i <= p->n_names; i++) {
			for (const char *c = i < p->n_names ? p->names[i] : all; *c; c++) h = (h ^ (unsigned char)*c) * 1099511628211ull;
		}
		p->size[k] = k == 0 && ptx ? 0 : 50000 + h % 50000;
		for (size_t i = 0; i < p->size[k]; i++) {
			h = h * 6364136223846793005ull + 1442695040888963407ull;
			p->code[k][i] = (char)(h >> 56);
		}
	}
	for (int i = 0; ok && i < p->n_names; i++) {
		p->lowered[i] = join(strdup("_Z"), p->names[i]);
	}
	free(all);
	return p->status;
}

int nvrtcGetLoweredName(program *p, const char *name, const char **out) {
	if (!p->done) return 9;
	for (int i = 0; i < p->n_names; i++) {
		if (p->lowered[i] && strcmp(name, p->names[i]) == 0) {
			*out = p->lowered[i];
			return 0;
		}
	}
	return 10;
}

static int size(program *p, int k, size_t *out) {
	*out = p->size[k];
	return p->done && p->status == 0 ? 0 : 4;
}

static int get(program *p, int k, char *out) {
	memcpy(out, p->code[k], p->size[k]);
	return p->done && p->status == 0 ? 0 : 4;
}

int nvrtcGetCUBINSize(program *p, size_t *out) { return size(p, 0, out); }
int nvrtcGetCUBIN(program *p, char *out) { return get(p, 0, out); }
int nvrtcGetPTXSize(program *p, size_t *out) { return size(p, 1, out); }
int nvrtcGetPTX(program *p, char *out) { return get(p, 1, out); }

int nvrtcGetProgramLogSize(program *p, size_t *out) {
	*out = strlen(p->log) + 1;
	return 0;
}

int nvrtcGetProgramLog(program *p, char *out) {
	strcpy(out, p->log);
	return 0;
}

int nvrtcGetPCHCreateStatus(program *p) { return p->pch; }
