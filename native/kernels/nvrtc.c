//go:build ignore

/*
 * A cache on disk for NVRTC, linked into libmlxc.so. MLX's CUDA build compiles
 * the kernels that a program brings along in every process anew, a second each;
 * with this file only the first process on a machine waits for them. libmlx.so
 * finds the functions below before those of libnvrtc, because the loader looks
 * up its undefined symbols in the library that was opened first, and that is
 * libmlxc.so. In the CPU build nobody calls them. (The constraint on the first
 * line keeps the go command from compiling this file; it is embedded and built
 * by the installer.)
 *
 * Contract. The caller sees what NVRTC would give: every function passes its
 * arguments on to libnvrtc, whose handles are the only ones, except that a
 * compile whose result is on disk succeeds at once and its machine code, log and
 * lowered names come from there. What the record does not hold (PTX beside a
 * cubin, a name that was not given) is compiled for then. A compile that fails is
 * not kept. Whatever goes wrong with the files, the program is compiled as if
 * there were no cache, and nothing is printed.
 *
 * Key. SHA-256 of all that decides the result: the program's name, text, headers,
 * name expressions and options, NVRTC's version and the size and time of its
 * library; the content of files that the text includes by an absolute path (a
 * long kernel's text is such a file); and for each folder of headers its path and
 * the names, sizes and times of its entries. The headers in there are a million
 * lines, so their content is not read: an installation of MLX or CUDA that is
 * replaced has other times.
 *
 * Files lie in "kernels/compiled" below GODFLASH_CACHE, else XDG_CACHE_HOME or
 * HOME/.cache and "godflash", each named by its key, and hold
 *
 *     magic, key, {log, cubin, PTX, {name, lowered name}...}, SHA-256 of that
 *
 * with lengths before each part. A file is written under another name and then
 * renamed, so no reader sees a part of one. Those unused for longest go when there
 * are more than GF_CACHE_FILES or GF_CACHE_BYTES. They are trusted as much as the
 * libraries installed beside them. GODFLASH_KERNEL_CACHE=off leaves all of this out.
 *
 * What must be compiled shares the headers that MLX puts before every kernel,
 * which take most of the time, so the first compile of a process makes NVRTC
 * precompile them (see gf_precompile).
 *
 * Build: C11 or C++17, GCC or clang, glibc 2.34 or newer. For tests,
 * GF_CACHE_FILES, GF_CACHE_BYTES and GF_PRECOMPILED_BYTES can be given.
 */

#include "store.h"

#include <dlfcn.h>
#include <pthread.h>

enum { GF_SUCCESS = 0, GF_INTERNAL_ERROR = 11 }; /* of nvrtcResult */
enum { GF_LOG, GF_CUBIN, GF_PTX, GF_PARTS };

static const char gf_magic[] = "godflash kernel 1";

/* ---- the real NVRTC -------------------------------------------------------- */

typedef int gf_create_fn(void **, const char *, const char *, int, const char *const *, const char *const *);
typedef int gf_destroy_fn(void **);
typedef int gf_name_fn(void *, const char *);
typedef int gf_compile_fn(void *, int, const char *const *);
typedef int gf_lowered_fn(void *, const char *, const char **);
typedef int gf_size_fn(void *, size_t *);
typedef int gf_get_fn(void *, char *);
typedef int gf_version_fn(int *, int *);
typedef int gf_status_fn(void *);

static struct {
	int found;
	gf_create_fn *create;
	gf_destroy_fn *destroy;
	gf_name_fn *name;
	gf_compile_fn *compile;
	gf_lowered_fn *lowered;
	gf_size_fn *size[GF_PARTS];
	gf_get_fn *get[GF_PARTS];
	gf_status_fn *pch_status; /* NULL: NVRTC before 12.8, which precompiles no headers */
	unsigned char version[GF_DIGEST];
} gf_nvrtc;

static pthread_once_t gf_once = PTHREAD_ONCE_INIT;

static void gf_begin(void) {
	/* By its name, and only if it is loaded, as it is where libmlx.so calls us.
	 * It stays loaded for as long as libmlx.so does. */
	void *lib = dlopen("libnvrtc.so.13", RTLD_LAZY | RTLD_NOLOAD);
	if (!lib) return;
	static const char *const sizes[GF_PARTS] = {"nvrtcGetProgramLogSize", "nvrtcGetCUBINSize", "nvrtcGetPTXSize"};
	static const char *const gets[GF_PARTS] = {"nvrtcGetProgramLog", "nvrtcGetCUBIN", "nvrtcGetPTX"};
	gf_nvrtc.create = (gf_create_fn *)dlsym(lib, "nvrtcCreateProgram");
	gf_nvrtc.destroy = (gf_destroy_fn *)dlsym(lib, "nvrtcDestroyProgram");
	gf_nvrtc.name = (gf_name_fn *)dlsym(lib, "nvrtcAddNameExpression");
	gf_nvrtc.compile = (gf_compile_fn *)dlsym(lib, "nvrtcCompileProgram");
	gf_nvrtc.lowered = (gf_lowered_fn *)dlsym(lib, "nvrtcGetLoweredName");
	gf_nvrtc.pch_status = (gf_status_fn *)dlsym(lib, "nvrtcGetPCHCreateStatus");
	int found = gf_nvrtc.create && gf_nvrtc.destroy && gf_nvrtc.name && gf_nvrtc.compile && gf_nvrtc.lowered;
	for (int i = 0; i < GF_PARTS; i++) {
		gf_nvrtc.size[i] = (gf_size_fn *)dlsym(lib, sizes[i]);
		gf_nvrtc.get[i] = (gf_get_fn *)dlsym(lib, gets[i]);
		found = found && gf_nvrtc.size[i] && gf_nvrtc.get[i];
	}
	gf_version_fn *version = (gf_version_fn *)dlsym(lib, "nvrtcVersion");
	int v[2] = {0, 0};
	Dl_info info;
	struct stat st;
	gf_nvrtc.found = found;
	if (found && version && version(&v[0], &v[1]) == GF_SUCCESS && dladdr((void *)gf_nvrtc.compile, &info) && stat(info.dli_fname, &st) == 0) {
		gf_sha s;
		gf_sha_begin(&s);
		gf_sha_part(&s, v, sizeof v);
		gf_sha_file_state(&s, &st);
		gf_sha_end(&s, gf_nvrtc.version);
		gf_find_folder();
	}
	dlclose(lib);
}

static int gf_ready(void) {
	pthread_once(&gf_once, gf_begin);
	return gf_nvrtc.found;
}

/* ---- programs ---------------------------------------------------------------- */

typedef struct gf_program {
	void *handle;
	gf_sha key;               /* of name, text, headers and name expressions so far */
	int n_names;
	char **names;
	char *shared;             /* the beginning to precompile; NULL: none */
	int n_headers;
	char **headers;           /* texts and names for that, in turn */
	int answered;             /* the last compile was answered from disk, from: */
	unsigned char *record;
	const unsigned char *part[GF_PARTS];
	size_t size[GF_PARTS];    /* zero: not there; without the zero that ends texts */
	const char **lowered;     /* of names, in order */
	int n_options;
	char **options;
	struct gf_program *next;
} gf_program;

static pthread_mutex_t gf_lock = PTHREAD_MUTEX_INITIALIZER; /* of gf_programs */
static gf_program *gf_programs;

static void gf_free_strings(char **list, int n) {
	for (int i = 0; list && i < n; i++) free(list[i]);
	free(list);
}

static char **gf_copy_strings(const char *const *list, int n) {
	char **copy = (char **)calloc((size_t)n + 1, sizeof *copy);
	for (int i = 0; copy && i < n; i++) {
		copy[i] = strdup(list[i]);
		if (!copy[i]) {
			gf_free_strings(copy, i);
			return NULL;
		}
	}
	return copy;
}

/* The program of a handle. Two threads may not use one program at a time, here as with NVRTC. */
static gf_program *gf_find(void *handle) {
	pthread_mutex_lock(&gf_lock);
	gf_program *p = gf_programs;
	while (p && p->handle != handle) p = p->next;
	pthread_mutex_unlock(&gf_lock);
	return p;
}

/* Drops an answer from disk. */
static void gf_forget(gf_program *p) {
	p->answered = 0;
	free(p->record);
	free((void *)p->lowered);
	gf_free_strings(p->options, p->n_options);
	p->record = NULL;
	p->lowered = NULL;
	p->options = NULL;
	p->n_options = 0;
	memset(p->size, 0, sizeof p->size);
}

static void gf_free(gf_program *p) {
	gf_forget(p);
	gf_free_strings(p->names, p->n_names);
	gf_free_strings(p->headers, 2 * p->n_headers);
	free(p->shared);
	free(p);
}

/* Takes the program of a handle out of the list. */
static gf_program *gf_remove(void *handle) {
	pthread_mutex_lock(&gf_lock);
	gf_program **at = &gf_programs;
	while (*at && (*at)->handle != handle) at = &(*at)->next;
	gf_program *p = *at;
	if (p) *at = p->next;
	pthread_mutex_unlock(&gf_lock);
	return p;
}

/* Compiles what was answered from disk, because the answer does not suffice. Lowered
 * names that the caller has are valid until the program ends, so the record stays. */
static void gf_compile_after_all(gf_program *p) {
	(void)gf_nvrtc.compile(p->handle, p->n_options, (const char *const *)p->options);
	p->answered = 0;
}

/* ---- keys ---------------------------------------------------------------------- */

/* Adds the content of each file that a text includes by an absolute path, and of those
 * that these include. */
static void gf_key_includes(gf_sha *s, const char *text, int depth) {
	for (const char *at = text; depth > 0 && (at = strstr(at, "#include \"/")) != NULL;) {
		at += strlen("#include \"");
		size_t n = strcspn(at, "\"\n"), size = 0;
		char *path = strndup(at, n);
		unsigned char *data = path ? gf_read(path, &size, 0) : NULL;
		if (data) {
			gf_sha_part(s, data, size);
			gf_key_includes(s, (const char *)data, depth - 1);
		} else {
			gf_sha_string(s, "unreadable");
		}
		free(data);
		free(path);
		at += n;
	}
}

static int gf_by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

/* Adds the state of a folder of headers. */
static void gf_key_folder(gf_sha *s, const char *path) {
	struct dirent **list = NULL;
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = dir < 0 ? -1 : scandirat(dir, ".", &list, NULL, gf_by_name);
	for (int i = 0; i < n; i++) {
		struct stat st;
		/* The parent's time changes with its other children. */
		if (strcmp(list[i]->d_name, "..") != 0 && fstatat(dir, list[i]->d_name, &st, 0) == 0) {
			gf_sha_string(s, list[i]->d_name);
			gf_sha_file_state(s, &st);
		}
		free(list[i]);
	}
	free(list);
	if (dir >= 0) close(dir);
}

static void gf_key(const gf_program *p, int n, const char *const *options, unsigned char *key) {
	gf_sha s = p->key;
	gf_sha_part(&s, gf_nvrtc.version, GF_DIGEST);
	for (int i = 0; i < n; i++) {
		gf_sha_string(&s, options[i]);
		if (strncmp(options[i], "--include-path=", 15) == 0) gf_key_folder(&s, options[i] + 15);
		if (strncmp(options[i], "-I", 2) == 0) gf_key_folder(&s, options[i] + 2 + (options[i][2] == '='));
	}
	gf_sha_end(&s, key);
}

static void gf_name_of_key(const unsigned char *key, char *name) {
	for (int i = 0; i < GF_DIGEST; i++) snprintf(name + 2 * i, 3, "%02x", key[i]);
}

/* ---- records --------------------------------------------------------------------- */

/* Takes the next part of a record; *end is where the record's parts end. NULL: damaged. */
static const unsigned char *gf_next_part(const unsigned char **at, const unsigned char *end, size_t *size) {
	uint64_t length;
	if ((size_t)(end - *at) < sizeof length + 1) return NULL;
	memcpy(&length, *at, sizeof length);
	const unsigned char *data = *at + sizeof length;
	if (length > (size_t)(end - data) - 1 || data[length] != 0) return NULL;
	*at = data + length + 1;
	*size = (size_t)length;
	return data;
}

/* Answers from the parts of a record; 0: they are not as expected. */
static int gf_answer(gf_program *p, const unsigned char *at, const unsigned char *end) {
	size_t size;
	for (int i = 0; i < GF_PARTS; i++) {
		p->part[i] = gf_next_part(&at, end, &p->size[i]);
		if (!p->part[i]) return 0;
	}
	p->lowered = (const char **)calloc((size_t)p->n_names + 1, sizeof *p->lowered);
	for (int i = 0; p->lowered && i < p->n_names; i++) {
		const char *name = (const char *)gf_next_part(&at, end, &size);
		if (!name || strcmp(name, p->names[i]) != 0) return 0;
		p->lowered[i] = (const char *)gf_next_part(&at, end, &size);
		if (!p->lowered[i]) return 0;
	}
	return p->lowered && at == end;
}

static int gf_load(gf_program *p, const unsigned char *key, int n, const char *const *options) {
	char name[GF_HEX + 1], path[4096];
	size_t size = 0;
	gf_name_of_key(key, name);
	if (!gf_path(path, sizeof path, name)) return 0;
	p->record = gf_read(path, &size, 1);
	if (!p->record) return 0;
	const size_t head = sizeof gf_magic + GF_DIGEST;
	unsigned char digest[GF_DIGEST];
	if (size >= head + GF_DIGEST && memcmp(p->record, gf_magic, sizeof gf_magic) == 0 && memcmp(p->record + sizeof gf_magic, key, GF_DIGEST) == 0) {
		gf_sha s;
		gf_sha_begin(&s);
		gf_sha_add(&s, p->record, size - GF_DIGEST);
		gf_sha_end(&s, digest);
		if (memcmp(digest, p->record + size - GF_DIGEST, GF_DIGEST) == 0 && gf_answer(p, p->record + head, p->record + size - GF_DIGEST)) {
			p->options = gf_copy_strings(options, n);
			p->n_options = n;
			p->answered = p->options != NULL;
			if (p->answered) return 1;
		}
	}
	gf_forget(p);
	return 0;
}

/* Adds what NVRTC has of one kind. Zero: there is none. */
static size_t gf_append_result(gf_buffer *b, gf_program *p, int kind) {
	size_t size = 0;
	if (gf_nvrtc.size[kind](p->handle, &size) != GF_SUCCESS || size > GF_CACHE_BYTES) size = 0;
	char *data = (char *)calloc(size + 1, 1);
	if (!data || (size > 0 && gf_nvrtc.get[kind](p->handle, data) != GF_SUCCESS)) size = 0;
	gf_append_part(b, data, size);
	free(data);
	return size;
}

static void gf_save(gf_program *p, const unsigned char *key) {
	gf_buffer b = {NULL, 0, 0, 0};
	gf_append(&b, gf_magic, sizeof gf_magic);
	gf_append(&b, key, GF_DIGEST);
	gf_append_result(&b, p, GF_LOG);
	/* Of a cubin's program the PTX is rarely asked for. */
	size_t code = gf_append_result(&b, p, GF_CUBIN);
	if (code > 0) {
		gf_append_part(&b, "", 0);
	} else {
		code = gf_append_result(&b, p, GF_PTX);
	}
	int ok = code > 0;
	for (int i = 0; ok && i < p->n_names; i++) {
		const char *lowered = NULL;
		ok = gf_nvrtc.lowered(p->handle, p->names[i], &lowered) == GF_SUCCESS && lowered;
		if (!ok) break;
		gf_append_part(&b, p->names[i], strlen(p->names[i]));
		gf_append_part(&b, lowered, strlen(lowered));
	}
	if (ok && !b.failed) {
		unsigned char digest[GF_DIGEST];
		char name[GF_HEX + 1];
		gf_sha s;
		gf_sha_begin(&s);
		gf_sha_add(&s, b.data, b.size);
		gf_sha_end(&s, digest);
		gf_append(&b, digest, sizeof digest);
		gf_name_of_key(key, name);
		if (!b.failed && b.size <= GF_CACHE_BYTES / 4) {
			gf_write(name, b.data, b.size);
			gf_bound();
		}
	}
	free(b.data);
}

/* ---- precompiled headers --------------------------------------------------------- */

/*
 * MLX puts the same includes before the text of every kernel that a program
 * brings along, and names the program custom_kernel_*. The first time one of
 * those must be compiled, a program of the includes alone is, and NVRTC writes
 * what it parsed to a file; it is used for those that begin with the same includes,
 * under the same options. NVRTC maps that file to an address of this process, so
 * no other can use it. It has 150 MB, and a Go program ends without the functions
 * that would remove it: so it loses its name as soon as it is open, NVRTC gets it
 * as /proc/self/fd/N, and the system frees it when the process ends, however it does.
 *
 * If NVRTC fails with it and succeeds without, it is given up.
 */
enum { GF_PCH_NONE, GF_PCH_READY, GF_PCH_GIVEN_UP };

static struct {
	pthread_mutex_t lock; /* held while it is used, too: NVRTC maps it at one address */
	int state;
	int fd;
	char option[64];
	unsigned char key[GF_DIGEST]; /* of the beginning, the headers and the options */
} gf_pch = {PTHREAD_MUTEX_INITIALIZER, GF_PCH_NONE, -1, "", {0}};

__attribute__((destructor)) static void gf_close_precompiled(void) {
	if (gf_pch.fd >= 0) close(gf_pch.fd);
	gf_pch.fd = -1;
}

/* The length of the lines at a text's beginning that are empty or include headers.
 * A file with an absolute path is not the same for all kernels and ends them. */
static size_t gf_shared_beginning(const char *text) {
	size_t length = 0;
	for (const char *at = text; *at;) {
		size_t n = strcspn(at, "\n");
		int include = strncmp(at, "#include <", 10) == 0 || (strncmp(at, "#include \"", 10) == 0 && at[10] != '/');
		if ((n > 0 && !include) || !at[n]) break;
		at += n + 1;
		if (include) length = (size_t)(at - text);
	}
	return length;
}

static int gf_compile_with(void *handle, int n, const char *const *options, const char *more) {
	const char **list = (const char **)malloc(((size_t)n + 2) * sizeof *list);
	if (!list) return GF_INTERNAL_ERROR;
	for (int i = 0; i < n; i++) list[i] = options[i];
	list[n] = more;
	list[n + 1] = "--pch-messages=false"; /* the log is that of a compile without */
	int result = gf_nvrtc.compile(handle, n + 2, list);
	free((void *)list);
	return result;
}

/* Makes the file; 0: there is none. */
static int gf_precompile(const gf_program *p, int n, const char *const *options) {
	char dir[4096], option[4200];
	if (!gf_make_folder() || !gf_has_room(GF_PRECOMPILED_BYTES) || !gf_path(dir, sizeof dir, "tmp-XXXXXX")) return 0;
	/* NVRTC removes a file that is there before it writes its own, so the name is made ours by a folder. */
	if (!mkdtemp(dir)) return 0;
	snprintf(option, sizeof option, "--create-pch=%s/" GF_PRECOMPILED, dir);
	const char *path = option + strlen("--create-pch=");
	size_t size = strlen(p->shared) + 32;
	char *text = (char *)malloc(size);
	const char **headers = (const char **)calloc(2 * (size_t)p->n_headers + 1, sizeof *headers);
	void *handle = NULL;
	int made = 0;
	if (text && headers) {
		snprintf(text, size, "%snamespace godflash {}\n", p->shared);
		for (int i = 0; i < p->n_headers; i++) {
			headers[i] = p->headers[2 * i];
			headers[p->n_headers + i] = p->headers[2 * i + 1];
		}
		if (gf_nvrtc.create(&handle, text, "shared_headers.cu", p->n_headers, headers, headers + p->n_headers) == GF_SUCCESS) {
			made = gf_compile_with(handle, n, options, option) == GF_SUCCESS && gf_nvrtc.pch_status(handle) == GF_SUCCESS;
			gf_nvrtc.destroy(&handle);
		}
	}
	free(text);
	free((void *)headers);
	if (made) gf_pch.fd = open(path, O_RDONLY | O_CLOEXEC);
	unlink(path);
	rmdir(dir);
	snprintf(gf_pch.option, sizeof gf_pch.option, "--use-pch=/proc/self/fd/%d", gf_pch.fd);
	return gf_pch.fd >= 0;
}

/* Compiles, with precompiled headers where that may be faster. */
static int gf_compile(gf_program *p, int n, const char *const *options) {
	if (!p->shared || !gf_nvrtc.pch_status) return gf_nvrtc.compile(p->handle, n, options);
	unsigned char key[GF_DIGEST];
	gf_sha s;
	gf_sha_begin(&s);
	gf_sha_string(&s, p->shared);
	for (int i = 0; i < 2 * p->n_headers; i++) gf_sha_string(&s, p->headers[i]);
	for (int i = 0; i < n; i++) gf_sha_string(&s, options[i]);
	gf_sha_end(&s, key);

	int result = GF_INTERNAL_ERROR, tried = 0;
	pthread_mutex_lock(&gf_pch.lock);
	if (gf_pch.state == GF_PCH_NONE) {
		gf_pch.state = gf_precompile(p, n, options) ? GF_PCH_READY : GF_PCH_GIVEN_UP;
		memcpy(gf_pch.key, key, sizeof key);
	}
	if (gf_pch.state == GF_PCH_READY && memcmp(gf_pch.key, key, sizeof key) == 0) {
		tried = 1;
		result = gf_compile_with(p->handle, n, options, gf_pch.option);
	}
	if (result != GF_SUCCESS) {
		result = gf_nvrtc.compile(p->handle, n, options);
		if (result == GF_SUCCESS && tried) {
			gf_close_precompiled();
			gf_pch.state = GF_PCH_GIVEN_UP;
		}
	}
	pthread_mutex_unlock(&gf_pch.lock);
	return result;
}

/* ---- what libmlx.so calls ---------------------------------------------------------- */

#ifdef __cplusplus
extern "C" {
#endif

#define GF_EXPORT __attribute__((visibility("default")))

GF_EXPORT int nvrtcCreateProgram(void **handle, const char *text, const char *name, int n_headers, const char *const *headers, const char *const *header_names) {
	if (!gf_ready()) return GF_INTERNAL_ERROR;
	int result = gf_nvrtc.create(handle, text, name, n_headers, headers, header_names);
	if (result != GF_SUCCESS || !*gf_folder) return result;
	gf_program *p = (gf_program *)calloc(1, sizeof *p);
	if (!p) return result;
	p->handle = *handle;
	gf_sha_begin(&p->key);
	gf_sha_string(&p->key, name ? name : "");
	gf_sha_string(&p->key, text);
	gf_sha_part(&p->key, &n_headers, sizeof n_headers);
	for (int i = 0; i < n_headers; i++) {
		gf_sha_string(&p->key, headers[i]);
		gf_sha_string(&p->key, header_names[i]);
	}
	gf_key_includes(&p->key, text, 16);
	size_t shared = name && strncmp(name, "custom_kernel_", 14) == 0 ? gf_shared_beginning(text) : 0;
	if (shared > 0) {
		p->headers = (char **)calloc(2 * (size_t)n_headers + 1, sizeof *p->headers);
		int ok = p->headers != NULL;
		for (int i = 0; ok && i < n_headers; i++) {
			p->n_headers = i + 1;
			p->headers[2 * i] = strdup(headers[i]);
			p->headers[2 * i + 1] = strdup(header_names[i]);
			ok = p->headers[2 * i] && p->headers[2 * i + 1];
		}
		if (ok) p->shared = strndup(text, shared);
	}
	pthread_mutex_lock(&gf_lock);
	p->next = gf_programs;
	gf_programs = p;
	pthread_mutex_unlock(&gf_lock);
	return result;
}

GF_EXPORT int nvrtcDestroyProgram(void **handle) {
	if (!gf_ready()) return GF_INTERNAL_ERROR;
	/* Before NVRTC frees it: another thread may get the same handle then. */
	gf_program *p = handle ? gf_remove(*handle) : NULL;
	if (p) gf_free(p);
	return gf_nvrtc.destroy(handle);
}

GF_EXPORT int nvrtcAddNameExpression(void *handle, const char *name) {
	if (!gf_ready()) return GF_INTERNAL_ERROR;
	gf_program *p = gf_find(handle);
	if (p && p->answered) gf_compile_after_all(p);
	int result = gf_nvrtc.name(handle, name);
	if (!p || result != GF_SUCCESS) return result;
	char **names = (char **)realloc(p->names, ((size_t)p->n_names + 1) * sizeof *names);
	char *copy = strdup(name);
	if (names) p->names = names;
	if (names && copy) {
		names[p->n_names++] = copy;
		gf_sha_string(&p->key, "name");
		gf_sha_string(&p->key, name);
		return result;
	}
	/* A program that is not known in full is NVRTC's alone. */
	free(copy);
	gf_free(gf_remove(handle));
	return result;
}

GF_EXPORT int nvrtcCompileProgram(void *handle, int n, const char *const *options) {
	if (!gf_ready()) return GF_INTERNAL_ERROR;
	gf_program *p = gf_find(handle);
	int valid = p && n >= 0 && (n == 0 || options);
	for (int i = 0; valid && i < n; i++) valid = options[i] != NULL;
	if (p) gf_forget(p);
	if (!valid) return gf_nvrtc.compile(handle, n, options);
	unsigned char key[GF_DIGEST];
	gf_key(p, n, options, key);
	if (gf_load(p, key, n, options)) return GF_SUCCESS;
	int result = gf_compile(p, n, options);
	if (result == GF_SUCCESS) gf_save(p, key);
	return result;
}

GF_EXPORT int nvrtcGetLoweredName(void *handle, const char *name, const char **lowered) {
	if (!gf_ready()) return GF_INTERNAL_ERROR;
	gf_program *p = gf_find(handle);
	if (p && p->answered) {
		for (int i = 0; name && lowered && i < p->n_names; i++) {
			if (strcmp(name, p->names[i]) == 0) {
				*lowered = p->lowered[i];
				return GF_SUCCESS;
			}
		}
		gf_compile_after_all(p);
	}
	return gf_nvrtc.lowered(handle, name, lowered);
}

/* The program, if its answer of this kind comes from disk. */
static gf_program *gf_answered(void *handle, int kind, const void *out) {
	gf_program *p = gf_find(handle);
	if (!p || !p->answered) return NULL;
	if (p->size[kind] > 0 && out) return p;
	gf_compile_after_all(p);
	return NULL;
}

static int gf_get_size(void *handle, int kind, size_t *size) {
	if (!gf_ready()) return GF_INTERNAL_ERROR;
	gf_program *p = gf_answered(handle, kind, size);
	if (!p) return gf_nvrtc.size[kind](handle, size);
	*size = p->size[kind];
	return GF_SUCCESS;
}

static int gf_get(void *handle, int kind, char *out) {
	if (!gf_ready()) return GF_INTERNAL_ERROR;
	gf_program *p = gf_answered(handle, kind, out);
	if (!p) return gf_nvrtc.get[kind](handle, out);
	memcpy(out, p->part[kind], p->size[kind]);
	return GF_SUCCESS;
}

GF_EXPORT int nvrtcGetCUBINSize(void *handle, size_t *size) { return gf_get_size(handle, GF_CUBIN, size); }
GF_EXPORT int nvrtcGetCUBIN(void *handle, char *out) { return gf_get(handle, GF_CUBIN, out); }
GF_EXPORT int nvrtcGetPTXSize(void *handle, size_t *size) { return gf_get_size(handle, GF_PTX, size); }
GF_EXPORT int nvrtcGetPTX(void *handle, char *out) { return gf_get(handle, GF_PTX, out); }
GF_EXPORT int nvrtcGetProgramLogSize(void *handle, size_t *size) { return gf_get_size(handle, GF_LOG, size); }
GF_EXPORT int nvrtcGetProgramLog(void *handle, char *out) { return gf_get(handle, GF_LOG, out); }

#ifdef __cplusplus
}
#endif
