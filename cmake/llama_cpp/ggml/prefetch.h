// Prefetches of weights in products whose speed is bounded by memory latency: one core has too few
// reads under way to use its share of memory bandwidth, and the hardware prefetcher does not follow the
// jumps between packed rows. A prefetch changes no result, and one past the end of a buffer is harmless.
//
// The distances were chosen by measurement (docs/figures/performance.md).
#ifndef EBB_PREFETCH_H
#define EBB_PREFETCH_H

#if defined(__x86_64__)

#include <immintrin.h>

// Kernels over packed tiles of 16 rows (amx/mmq.cpp): `size` is the size of a tile, so that the next
// tile's line is read while this tile's line is used. Two tiles ahead is 8 % slower.
#define EBB_PREFETCH_NEXT_TILE(line, size) _mm_prefetch((const char *) (line) + (size), _MM_HINT_T1)

// Kernels over one row, or over eight interleaved rows, which run through memory in order.
#define EBB_PREFETCH_ROW_BYTES 8192
#define EBB_PREFETCH_ROW(line) \
    _mm_prefetch((const char *) (line) + EBB_PREFETCH_ROW_BYTES, _MM_HINT_T1)

#endif  // x86-64

#endif  // EBB_PREFETCH_H
