//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

#include "record.h"

#include <dlfcn.h>
#include <string.h>

static void *(*record)(const gf_h *, size_t, const gf_h *, size_t, gf_h, gf_h *, char *, size_t);
static int (*look)(const void *);
static size_t (*count)(const void *);
static size_t (*size)(const void *);
static int (*again)(void *, const gf_h *, size_t, gf_h *, char *, size_t);
static void (*drop)(void *);
static int (*clusters)(void);

static _Thread_local char why[512];

static void find(void *lib, const char *name, void *slot) {
  void *sym = dlsym(lib, name);
  memcpy(slot, &sym, sizeof sym);
}

void gf_record_load(void *lib) {
  find(lib, "gf_record", &record);
  find(lib, "gf_record_state", &look);
  find(lib, "gf_record_launches", &count);
  find(lib, "gf_record_bytes", &size);
  find(lib, "gf_record_run", &again);
  find(lib, "gf_record_free", &drop);
  find(lib, "gf_clusters", &clusters);
}

int gf_records(void) { return record && look && count && size && again && drop; }

int gf_cluster_launches(void) { return gf_on_worker() && clusters && clusters(); }

uintptr_t gf_record_make(const gf_h *in, size_t n_in, const gf_h *out, size_t n_out, gf_h st, gf_h *results) {
  if (gf_on_worker() && gf_records()) return (uintptr_t)record(in, n_in, out, n_out, st, results, why, sizeof why);
  strcpy(why, "the installed libmlxc does not record");
  return 0;
}

int gf_record_look(uintptr_t r) { return look((const void *)r); }
size_t gf_record_count(uintptr_t r) { return count((const void *)r); }
size_t gf_record_size(uintptr_t r) { return size((const void *)r); }

int gf_record_again(uintptr_t r, const gf_h *in, size_t n, gf_h *results) {
  return again((void *)r, in, n, results, why, sizeof why);
}

void gf_record_drop(uintptr_t r) { drop((void *)r); }
const char *gf_record_error(void) { return why; }
