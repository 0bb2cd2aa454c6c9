/*
 * What nvrtc.c needs to keep records on disk: SHA-256, reading and writing of
 * whole files, the folder and its bounds. C and C++ alike.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define GF_PRECOMPILED "headers" /* in a temporary folder of its own */

#ifndef GF_CACHE_FILES
#define GF_CACHE_FILES 4000
#endif
#ifndef GF_CACHE_BYTES
#define GF_CACHE_BYTES (512ll << 20)
#endif
#ifndef GF_PRECOMPILED_BYTES
#define GF_PRECOMPILED_BYTES (256ll << 20) /* at most: NVRTC's memory for them */
#endif

enum { GF_DIGEST = 32, GF_HEX = 2 * GF_DIGEST }; /* bytes of a digest, and of its name */

/* ---- SHA-256 (FIPS 180-4) ----------------------------------------------- */

typedef struct {
	uint32_t state[8];
	uint64_t length;
	unsigned char block[64];
} gf_sha;

static void gf_sha_begin(gf_sha *s) {
	static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
	memcpy(s->state, first, sizeof first);
	s->length = 0;
}

static uint32_t gf_rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void gf_sha_block(uint32_t *state, const unsigned char *in) {
	static const uint32_t k[64] = {
		0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
		0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
		0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
		0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
		0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
		0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
		0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
		0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
	};
	uint32_t w[64], v[8];
	for (int i = 0; i < 16; i++) {
		w[i] = (uint32_t)in[4 * i] << 24 | (uint32_t)in[4 * i + 1] << 16 | (uint32_t)in[4 * i + 2] << 8 | in[4 * i + 3];
	}
	for (int i = 16; i < 64; i++) {
		uint32_t a = w[i - 15], b = w[i - 2];
		w[i] = w[i - 16] + (gf_rotate(a, 7) ^ gf_rotate(a, 18) ^ a >> 3) + w[i - 7] + (gf_rotate(b, 17) ^ gf_rotate(b, 19) ^ b >> 10);
	}
	memcpy(v, state, sizeof v);
	for (int i = 0; i < 64; i++) {
		uint32_t a = v[0], e = v[4];
		uint32_t x = v[7] + (gf_rotate(e, 6) ^ gf_rotate(e, 11) ^ gf_rotate(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
		uint32_t y = (gf_rotate(a, 2) ^ gf_rotate(a, 13) ^ gf_rotate(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
		memmove(v + 1, v, 7 * sizeof *v);
		v[4] += x;
		v[0] = x + y;
	}
	for (int i = 0; i < 8; i++) state[i] += v[i];
}

static void gf_sha_add(gf_sha *s, const void *data, size_t n) {
	const unsigned char *in = (const unsigned char *)data;
	while (n > 0) {
		size_t at = s->length % 64, take = 64 - at < n ? 64 - at : n;
		memcpy(s->block + at, in, take);
		s->length += take;
		in += take;
		n -= take;
		if (at + take == 64) gf_sha_block(s->state, s->block);
	}
}

static void gf_sha_end(gf_sha *s, unsigned char *digest) {
	uint64_t bits = s->length * 8;
	gf_sha_add(s, "\x80", 1);
	while (s->length % 64 != 56) gf_sha_add(s, "", 1);
	unsigned char tail[8];
	for (int i = 0; i < 8; i++) tail[i] = (unsigned char)(bits >> (56 - 8 * i));
	gf_sha_add(s, tail, 8);
	for (int i = 0; i < GF_DIGEST; i++) digest[i] = (unsigned char)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* What goes into a key has its length before it, so that no two lists of parts agree. */
static void gf_sha_part(gf_sha *s, const void *data, size_t n) {
	uint64_t length = n;
	gf_sha_add(s, &length, sizeof length);
	gf_sha_add(s, data, n);
}

static void gf_sha_string(gf_sha *s, const char *text) { gf_sha_part(s, text, strlen(text)); }

static void gf_sha_file_state(gf_sha *s, const struct stat *st) {
	int64_t v[3] = {(int64_t)st->st_size, (int64_t)st->st_mtim.tv_sec, (int64_t)st->st_mtim.tv_nsec};
	gf_sha_part(s, v, sizeof v);
}

/* ---- files --------------------------------------------------------------- */

typedef struct {
	unsigned char *data;
	size_t size, room;
	int failed; /* of memory: once set, nothing is added */
} gf_buffer;

static void gf_append(gf_buffer *b, const void *data, size_t n) {
	if (b->failed || n == 0) return;
	if (n > b->room - b->size) {
		size_t room = b->size + n + (b->size + n) / 2;
		unsigned char *grown = (unsigned char *)realloc(b->data, room);
		if (!grown) {
			b->failed = 1;
			return;
		}
		b->data = grown;
		b->room = room;
	}
	memcpy(b->data + b->size, data, n);
	b->size += n;
}

/* A part of a record: its length, its bytes and a zero, which ends texts. */
static void gf_append_part(gf_buffer *b, const void *data, size_t n) {
	uint64_t length = n;
	gf_append(b, &length, sizeof length);
	gf_append(b, data, n);
	gf_append(b, "", 1);
}

/* Reads a regular file whole, with a zero after it. NULL: it cannot be read.
 * touch makes it the file used last. */
static unsigned char *gf_read(const char *path, size_t *size, int touch) {
	/* O_NONBLOCK: a pipe of that name must not hold us up. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) return NULL;
	struct stat st;
	unsigned char *data = NULL;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= GF_CACHE_BYTES) {
		*size = (size_t)st.st_size;
		data = (unsigned char *)malloc(*size + 1);
	}
	size_t have = 0;
	while (data && have < *size) {
		ssize_t n = read(fd, data + have, *size - have);
		if (n < 0 && errno == EINTR) continue;
		if (n <= 0) {
			free(data);
			data = NULL;
		} else {
			have += (size_t)n;
		}
	}
	if (data) data[*size] = 0;
	if (data && touch) (void)futimens(fd, NULL); /* where only others may write, the order stays */
	close(fd);
	return data;
}

static char gf_folder[3072]; /* of the records; empty: no cache */

/* Finds the folder by the rule of the Go package internal/dist. */
static void gf_find_folder(void) {
	const char *off = getenv("GODFLASH_KERNEL_CACHE"), *dir = getenv("GODFLASH_CACHE"), *middle = "", *below = "";
	char here[1024] = "";
	if (off && strcmp(off, "off") == 0) return;
	if (dir && *dir) {
		if (*dir != '/') {
			if (!getcwd(here, sizeof here)) return;
			middle = "/";
		}
	} else if ((dir = getenv("XDG_CACHE_HOME")) && *dir) {
		if (*dir != '/') return;
		below = "/godflash";
	} else if ((dir = getenv("HOME")) && *dir) {
		below = "/.cache/godflash";
	} else {
		return;
	}
	int n = snprintf(gf_folder, sizeof gf_folder, "%s%s%s%s/kernels/compiled", here, middle, dir, below);
	if (n < 0 || n >= (int)sizeof gf_folder) *gf_folder = 0;
}

/* Makes the folder and those above it, for nobody else to read. */
static int gf_make_folder(void) {
	char path[sizeof gf_folder];
	memcpy(path, gf_folder, sizeof path);
	for (char *at = path + 1; *at; at++) {
		if (*at != '/') continue;
		*at = 0;
		if (mkdir(path, 0700) != 0 && errno != EEXIST && access(path, F_OK) != 0) return 0;
		*at = '/';
	}
	return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* Whether a file of n bytes may be written, so that a limit does not end the
 * process by a signal, and leaves as many bytes free as it takes. */
static int gf_has_room(uint64_t n) {
	struct rlimit limit;
	struct statvfs fs;
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < n) return 0;
	return statvfs(gf_folder, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize >= 2 * n;
}

static int gf_path(char *out, size_t room, const char *name) {
	int n = snprintf(out, room, "%s/%s", gf_folder, name);
	return n > 0 && n < (int)room;
}

/* Puts a file in place at once. */
static void gf_write(const char *name, const void *data, size_t n) {
	char path[4096], temporary[4096];
	if (!gf_make_folder() || !gf_has_room(n)) return;
	if (!gf_path(path, sizeof path, name) || !gf_path(temporary, sizeof temporary, "tmp-XXXXXX")) return;
	int fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0) return;
	const char *at = (const char *)data;
	int ok = 1;
	while (ok && n > 0) {
		ssize_t done = write(fd, at, n);
		if (done < 0 && errno == EINTR) continue;
		ok = done > 0;
		if (ok) {
			at += done;
			n -= (size_t)done;
		}
	}
	if (close(fd) != 0) ok = 0;
	if (!ok || rename(temporary, path) != 0) unlink(temporary);
}

typedef struct {
	char name[GF_HEX + 1];
	struct timespec used;
	int64_t bytes;
} gf_entry;

static int gf_older(const void *a, const void *b) {
	const struct timespec *x = &((const gf_entry *)a)->used, *y = &((const gf_entry *)b)->used;
	if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
	return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

/* Removes a file that was to become a record, or a folder for precompiled headers. */
static void gf_remove_temporary(int dir, const char *name) {
	char path[300];
	if (unlinkat(dir, name, 0) == 0) return;
	snprintf(path, sizeof path, "%s/" GF_PRECOMPILED, name);
	unlinkat(dir, path, 0);
	unlinkat(dir, name, AT_REMOVEDIR);
}

/* Keeps the folder within its bounds, and removes what killed processes left.
 * Files of other names are not ours and stay. */
static void gf_bound(void) {
	DIR *dir = opendir(gf_folder);
	if (!dir) return;
	gf_buffer list = {NULL, 0, 0, 0};
	int64_t bytes = 0;
	time_t now = time(NULL);
	for (struct dirent *d = readdir(dir); d; d = readdir(dir)) {
		struct stat st;
		if (fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
		if (strncmp(d->d_name, "tmp-", 4) == 0) {
			if (now - st.st_mtim.tv_sec > 3600) gf_remove_temporary(dirfd(dir), d->d_name);
			continue;
		}
		if (strlen(d->d_name) != GF_HEX || strspn(d->d_name, "0123456789abcdef") != GF_HEX || !S_ISREG(st.st_mode)) continue;
		gf_entry e;
		memset(&e, 0, sizeof e);
		strcpy(e.name, d->d_name);
		e.used = st.st_mtim;
		e.bytes = st.st_size;
		bytes += e.bytes;
		gf_append(&list, &e, sizeof e);
	}
	size_t n = list.size / sizeof(gf_entry);
	if (n > GF_CACHE_FILES || bytes > GF_CACHE_BYTES) {
		gf_entry *e = (gf_entry *)(void *)list.data;
		qsort(e, n, sizeof *e, gf_older);
		for (; n > GF_CACHE_FILES || bytes > GF_CACHE_BYTES; n--, e++) {
			unlinkat(dirfd(dir), e->name, 0);
			bytes -= e->bytes;
		}
	}
	free(list.data);
	closedir(dir);
}
