// Included ahead of ggml's C++ sources. g++ 12 believes that _tile_loadconfig() reads the first 8
// of a configuration's 64 bytes and drops the stores to the others: on processors with AMX the
// first product of matrices then ends in a fault.
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

#define _tile_loadconfig(config) \
  __asm__ volatile("ldtilecfg\t%X0" : : "m"(*reinterpret_cast<const char(*)[64]>(config)))
#endif
