// Vectors of the kernels over packed weights: 64 bytes with AVX-512 VNNI, 32 with AVX2. `EBB_HAS_PACKED_KERNELS`
// is defined where these kernels exist.
#ifndef EBB_PACKED_VECTORS_H
#define EBB_PACKED_VECTORS_H

#include "prefetch.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define EBB_HAS_PACKED_KERNELS

#if defined(__AVX512VNNI__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#define EBB_VEC_BYTES 64
typedef __m512i ebb_vec;
#define EBB_VEC(op)    _mm512_##op
#define _mm512_SET1_64 _mm512_set1_epi64
#define EBB_AND        _mm512_and_si512
#define EBB_OR         _mm512_or_si512
#define EBB_ZERO       _mm512_setzero_si512
static inline ebb_vec ebb_load(const uint8_t * x) { return _mm512_loadu_si512(x); }
#else
#define EBB_VEC_BYTES 32
typedef __m256i ebb_vec;
#define EBB_VEC(op)    _mm256_##op
#define _mm256_SET1_64 _mm256_set1_epi64x
#define EBB_AND        _mm256_and_si256
#define EBB_OR         _mm256_or_si256
#define EBB_ZERO       _mm256_setzero_si256
static inline ebb_vec ebb_load(const uint8_t * x) { return _mm256_loadu_si256((const __m256i *) x); }
#endif

// Keeps the compiler from unpacking weights again for each column.
#define EBB_KEEP(vector) __asm__("" : "+v"(vector))
// Keeps the compiler from holding what it has read through a pointer, which costs more moves than reading it again.
#define EBB_READ_AGAIN(pointer) __asm__("" : "+r"(pointer))

// Calls `multiply(x, s, first_row, num_rows, COLUMNS)` until all rows have met all columns: COLUMNS, a compile-time
// constant up to 8, columns x[] are multiplied by rows from first_row on, and products go to s[]. Rows are taken by as
// many as stay in the second-level cache while all columns pass.
// bytes_packed: the size of `rows_packed` rows, which are packed together
// column(c): the pair of column c's blocks and of where its products go
template <typename COLUMN_BLOCK, typename COLUMN, typename MULTIPLY>
static inline void ebb_for_rows_and_columns(int rows, int rows_packed, size_t bytes_packed, int num_columns, COLUMN && column,
                                            MULTIPLY && multiply) {
    const int fit = std::max(1, (int) ((size_t(256) << 10) / bytes_packed)) * rows_packed;
    for (int row = 0; row < rows; row += fit) {
        const int count = std::min(fit, rows - row);
        int c = 0;
        const auto take = [&](auto columns) {
            const COLUMN_BLOCK * x[columns];
            float * s[columns];
            for (int i = 0; i < columns; i++) {
                const auto [from, to] = column(c + i);
                x[i] = (const COLUMN_BLOCK *) from;
                s[i] = to + row;
            }
            multiply(x, s, row, count, columns);
            c += columns;
        };
        while (c < num_columns) {
            const int left = num_columns - c;
            if (left >= 8) {
                take(std::integral_constant<int, 8>());
            } else if (left >= 6) {
                take(std::integral_constant<int, 6>());
            } else if (left >= 4) {
                take(std::integral_constant<int, 4>());
            } else if (left == 3) {
                take(std::integral_constant<int, 3>());
            } else if (left == 2) {
                take(std::integral_constant<int, 2>());
            } else {
                take(std::integral_constant<int, 1>());
            }
        }
    }
}

#endif  // AVX2, FMA, F16C

#endif  // EBB_PACKED_VECTORS_H
