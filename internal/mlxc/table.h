// The function pointers of mlxc.h, which gf_load fills.
#ifndef GODFLASH_TABLE_H
#define GODFLASH_TABLE_H

#include "mlxc.h"
#include "shim.h"

#define MLXC_DECLARE(result, name, params) extern result(*p_##name) params __attribute__((visibility("hidden")));
MLXC_FUNCTIONS(MLXC_DECLARE)

#endif
