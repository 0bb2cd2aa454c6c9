// Kernels launched again: what native/kernels/relaunch.cpp adds to libmlxc of the CUDA build.
#ifndef GODFLASH_RECORD_H
#define GODFLASH_RECORD_H

#include "shim.h"

// Looks the functions up in the opened libmlxc, which need not have them.
void gf_record_load(void *lib);
int gf_records(void);
int gf_cluster_launches(void);

// See relaunch.cpp; the results are n_out handles. Where it fails, gf_record_error has the text.
uintptr_t gf_record_make(const gf_h *in, size_t n_in, const gf_h *out, size_t n_out, gf_h st, gf_h *results);
int gf_record_look(uintptr_t record);
size_t gf_record_count(uintptr_t record);
size_t gf_record_size(uintptr_t record);
int gf_record_again(uintptr_t record, const gf_h *in, size_t n, gf_h *results);
void gf_record_drop(uintptr_t record);
const char *gf_record_error(void);

#endif
