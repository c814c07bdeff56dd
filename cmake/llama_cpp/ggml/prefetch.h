// Prefetches of weights in products whose speed is bounded by memory latency: a core has too few reads
// under way to use its share of the memory's bandwidth. A prefetch changes no result, and one past the
// end of a buffer is harmless.
//
// The distances were chosen by `ebb-bench products` on an Intel Xeon with AMX and an AMD EPYC
// (docs/figures/performance.md).
#ifndef EBB_PREFETCH_H
#define EBB_PREFETCH_H

#if defined(__x86_64__)

#include <immintrin.h>

// Kernels over packed tiles of 16 rows (amx/mmq.cpp): `size` is the size of a tile, so that the next
// tile's line is read while this tile's line is used. Two tiles ahead is 8 % slower.
#define EBB_PREFETCH_NEXT_TILE(line, size) _mm_prefetch((const char *) (line) + (size), _MM_HINT_T1)

// Kernels over one row, or over eight interleaved rows, which run through memory in order. On Intel
// reading 8 KiB ahead made ggml's kernels 18 % faster. AMD's own prefetchers keep up with the memory, and
// prefetches at any distance make these kernels up to two times slower: there is none.
static inline int ebb_prefetch_row_bytes(void) {
    return __builtin_cpu_is("intel") ? 8192 : 0;
}
#define EBB_PREFETCH_ROW(line, ahead)                                      \
    do {                                                                   \
        if (ahead) {                                                       \
            _mm_prefetch((const char *) (line) + (ahead), _MM_HINT_T1);    \
        }                                                                  \
    } while (0)

#endif  // x86-64

#endif  // EBB_PREFETCH_H
