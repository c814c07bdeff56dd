// Products of Q4_K, Q5_K and Q6_K weights, packed by eight rows (block_q4_Kx8 and its like), with any
// number of columns, for AVX2 and for AVX-512 with VNNI. Weights and scales are unpacked once for up to
// eight columns. A column has the same bits in any number of columns (super_block.h).
//
// The layout interleaves rows in groups of 8 bytes, so that a vector holds 8 weights of each of
// eight rows (AVX-512) or of four (AVX2), and is multiplied by 8 numbers of a column.
#ifndef EBB_PACKED_K_QUANTS_H
#define EBB_PACKED_K_QUANTS_H

#include "packed_vectors.h"
#include "super_block.h"

#if defined(EBB_HAS_PACKED_KERNELS)

static const int ebb_vecs_of_rows = 64 / EBB_VEC_BYTES;  // vectors that hold eight rows

// The same 8 numbers of a column for each row.
static inline ebb_vec ebb_broadcast_8(const int8_t * x) {
    int64_t numbers;
    memcpy(&numbers, x, sizeof(numbers));
    return EBB_VEC(SET1_64)(numbers);
}

// Adds products of weights with 8 numbers of a column to `sum`: four lanes of 16 bits a row.
static inline ebb_vec ebb_dot_16(ebb_vec sum, ebb_vec weights, ebb_vec numbers) {
    return EBB_VEC(add_epi16)(sum, EBB_VEC(maddubs_epi16)(weights, numbers));
}

// Adds scaled sums of 16 bits to `total`: two lanes of 32 bits a row.
static inline ebb_vec ebb_scale(ebb_vec total, ebb_vec sum, ebb_vec scales) {
#if EBB_VEC_BYTES == 64
    return _mm512_dpwssd_epi32(total, sum, scales);
#else
    return _mm256_add_epi32(total, _mm256_madd_epi16(sum, scales));
#endif
}

// The scales of vector `part` of rows, as ebb_scale() takes them with sums of ebb_dot_16().
// scales: eight bytes, one a row
static inline ebb_vec ebb_spread_16(__m128i scales, int part) {
#if EBB_VEC_BYTES == 64
    (void) part;
    const __m256i four_times = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6,
                                                7, 7, 7, 7);
    return _mm512_cvtepi8_epi16(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(scales), four_times));
#else
    const __m128i four_times = part == 0 ? _mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3)
                                         : _mm_setr_epi8(4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(scales, four_times));
#endif
}

// Computes the same for weights of up to five bits that are not negative. With VNNI a row has two lanes of 32 bits, of
// which ebb_scale() takes the lower halves.
static inline ebb_vec ebb_dot(ebb_vec sum, ebb_vec weights, ebb_vec numbers) {
#if EBB_VEC_BYTES == 64
    return _mm512_dpbusd_epi32(sum, weights, numbers);
#else
    return ebb_dot_16(sum, weights, numbers);
#endif
}

static inline ebb_vec ebb_spread(__m128i scales, int part) {
#if EBB_VEC_BYTES == 64
    (void) part;
    return _mm512_cvtepu8_epi32(_mm_shuffle_epi8(scales, _mm_setr_epi8(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7)));
#else
    return ebb_spread_16(scales, part);
#endif
}

// How many ebb_dot() of weights up to `largest` fit into 16 signed bits.
static constexpr int ebb_dots_that_fit(int largest) {
    return 32767 / (largest * 127 * (EBB_VEC_BYTES == 64 ? 4 : 2));
}

// Adds the products of eight rows' pairs of 8-bit numbers and one pair of 16 bits. 8 rows, 32 bits each
static inline __m256i ebb_add_pairs(__m256i total, __m128i first, __m128i second, const int16_t * pair) {
    int32_t both;
    memcpy(&both, pair, sizeof(both));
    const __m256i rows = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(first, second));
    return _mm256_add_epi32(total, _mm256_madd_epi16(rows, _mm256_set1_epi32(both)));
}

// Sums over a super-block of eight rows and a column.
struct ebb_block_sums {
    ebb_vec products[ebb_vecs_of_rows];
    __m256i offsets;  // Q4_K, Q5_K: minima times sums of the column; Q6_K: scales times them
};

// Scales and minima of two sub-blocks; each half of the result has eight scales and then eight minima.
// packed: 12 bytes a sub-block
static inline __m256i ebb_unpack_scales(const uint8_t * packed) {
    // The second load begins 4 bytes early, so that the last one ends with the scales.
    const __m128i first  = _mm_loadu_si128((const __m128i *) packed);
    const __m128i second = _mm_srli_si128(_mm_loadu_si128((const __m128i *) (packed + 8)), 4);
    const __m256i both   = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
    // words 0 and 1: six bits of rows 0 to 3 and the high two of rows 4 to 7; word 2: the low four of these
    const __m256i rows_0_3  = _mm256_and_si256(both, _mm256_set1_epi8(0x3f));
    const __m256i high_bits = _mm256_and_si256(_mm256_srli_epi32(both, 2), _mm256_set1_epi8(0x30));
    const __m256i low_bits  = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_shuffle_epi32(both, _MM_SHUFFLE(2, 2, 2, 2)), _mm256_setr_epi32(0, 4, 0, 0, 0, 4, 0, 0)),
        _mm256_set1_epi8(0x0f));
    return _mm256_unpacklo_epi32(rows_0_3, _mm256_or_si256(high_bits, low_bits));
}

static inline ebb_vec ebb_high_bits(const block_q4_Kx8 &, int) { return EBB_ZERO(); }
static inline ebb_vec ebb_high_bits(const block_q5_Kx8 & w, int offset) { return ebb_load(w.qh + offset); }

// Adds the products of the weights of a sub-block with numbers of all columns, from number `at` on. DOT: ebb_dot() or
// ebb_dot_16(), FIT of which fit into 16 bits
template <auto DOT, int FIT, int COLUMNS, int VECS>
static inline void ebb_add_sub_block(const ebb_vec (&weights)[ebb_vecs_of_rows][VECS], const ebb_vec (&scales)[ebb_vecs_of_rows],
                                     const block_q8_K * const * x, int at, ebb_block_sums * sums) {
    for (int c = 0; c < COLUMNS; c++) {
        const int8_t * q8 = x[c]->qs + at;
        ebb_vec sum[ebb_vecs_of_rows];
        for (int i = 0; i < VECS; i++) {
            const ebb_vec numbers = ebb_broadcast_8(q8 + i * 8);
            for (int part = 0; part < ebb_vecs_of_rows; part++) {
                sum[part] = DOT(i % FIT == 0 ? EBB_ZERO() : sum[part], weights[part][i], numbers);
                if (i % FIT == FIT - 1 || i == VECS - 1) {
                    sums[c].products[part] = ebb_scale(sums[c].products[part], sum[part], scales[part]);
                }
            }
        }
    }
}

// Q4_K and Q5_K: sub-blocks of 32, taken in pairs: the low and the high halves of bytes.
template <typename BLOCK, int COLUMNS>
static inline void ebb_sum_block(const BLOCK & w, const block_q8_K * const * x, ebb_block_sums * sums, int ahead) {
    constexpr bool five_bits = std::is_same_v<BLOCK, block_q5_Kx8>;
    constexpr int fit = ebb_dots_that_fit(five_bits ? 31 : 15);
    const ebb_vec nibble = EBB_VEC(set1_epi8)(0x0f), bit_4 = EBB_VEC(set1_epi8)(0x10);
    int16_t x_sums[COLUMNS][8];  // by sub-block
    for (int c = 0; c < COLUMNS; c++) {
        const __m128i * by_16 = (const __m128i *) x[c]->bsums;
        _mm_storeu_si128((__m128i *) x_sums[c], _mm_hadd_epi16(_mm_loadu_si128(by_16), _mm_loadu_si128(by_16 + 1)));
    }
    for (int pair = 0; pair < 4; pair++) {
        const uint8_t * qs = w.qs + pair * 256;
        for (int line = 0; line < 4; line++) {
            EBB_PREFETCH_ROW(qs + line * 64, ahead);
        }
        const __m256i unpacked = ebb_unpack_scales(w.scales + pair * 24);
        const __m128i first  = _mm256_castsi256_si128(unpacked);
        const __m128i second = _mm256_extracti128_si256(unpacked, 1);
        const auto add_half = [&](auto which) __attribute__((always_inline)) {
            constexpr int half = which;
            ebb_vec weights[ebb_vecs_of_rows][4], scales[ebb_vecs_of_rows];
            for (int part = 0; part < ebb_vecs_of_rows; part++) {
                scales[part] = ebb_spread(half == 0 ? first : second, part);
                for (int i = 0; i < 4; i++) {
                    const ebb_vec packed = ebb_load(qs + i * 64 + part * 32);
                    ebb_vec & bytes = weights[part][i];
                    bytes = EBB_AND(half == 0 ? packed : EBB_VEC(srli_epi16)(packed, 4), nibble);
                    if (five_bits) {
                        const ebb_vec bits = EBB_VEC(srli_epi16)(ebb_high_bits(w, i * 64 + part * 32), 2 * pair);
                        bytes = EBB_OR(bytes, EBB_AND(EBB_VEC(slli_epi16)(bits, half == 0 ? 4 : 3), bit_4));
                    }
                    EBB_KEEP(bytes);
                }
            }
            ebb_add_sub_block<ebb_dot, fit, COLUMNS>(weights, scales, x, pair * 64 + half * 32, sums);
        };
        add_half(std::integral_constant<int, 0>());
        add_half(std::integral_constant<int, 1>());
        for (int c = 0; c < COLUMNS; c++) {
            sums[c].offsets = ebb_add_pairs(sums[c].offsets, _mm_srli_si128(first, 8), _mm_srli_si128(second, 8), x_sums[c] + pair * 2);
        }
    }
}

// Q6_K: sub-blocks of 16, whose weights are the lower or upper halves of bytes and two bits of others.
template <int BITS> static inline ebb_vec ebb_bits_4_5(ebb_vec two_bits) {
    const ebb_vec bits_4_5 = EBB_VEC(set1_epi8)(0x30);
    if (BITS < 4) {
        return EBB_AND(EBB_VEC(slli_epi16)(two_bits, 4 - BITS), bits_4_5);
    }
    return EBB_AND(EBB_VEC(srli_epi16)(two_bits, BITS - 4), bits_4_5);
}

// Puts `ql` and `qh` in the order of their use: reads that jump within a block are slower by a half.
static void ebb_order_q6_k(block_q6_Kx8 & w) {
    static_assert(offsetof(block_q6_Kx8, qh) == offsetof(block_q6_Kx8, ql) + sizeof(w.ql), "ql and qh are one range");
    uint8_t lines[24][64];
    for (int i = 0; i < 4; i++) {
        const int low = i / 2 * 8 + i % 2 * 2, high = 16 + i * 2;
        const int order[6] = { low, low + 1, low + 4, low + 5, high, high + 1 };
        for (int k = 0; k < 6; k++) {
            memcpy(lines[i * 6 + k], w.ql + order[k] * 64, 64);
        }
    }
    memcpy(w.ql, lines, sizeof(lines));
}

template <typename BLOCK, int COLUMNS>
static inline void ebb_sum_block_q6_k(const BLOCK & w, const block_q8_K * const * x, ebb_block_sums * sums, int ahead) {
    const ebb_vec nibble = EBB_VEC(set1_epi8)(0x0f);
    for (int half = 0; half < 2; half++) {
        for (int j = 0; j < 2; j++) {
            const uint8_t * q = w.ql + (half * 2 + j) * 384;
            for (int line = 0; line < 6; line++) {
                EBB_PREFETCH_ROW(q + line * 64, ahead);
            }
            const int8_t * scales = w.scales + (half * 8 + j) * 8;
            const auto add_sub_block = [&](auto which) __attribute__((always_inline)) {
                constexpr int i = which;
                const int line = i % 2 * 2;
                ebb_vec weights[ebb_vecs_of_rows][2], scale[ebb_vecs_of_rows];
                for (int part = 0; part < ebb_vecs_of_rows; part++) {
                    scale[part] = ebb_spread_16(_mm_loadl_epi64((const __m128i *) (scales + i * 16)), part);
                    for (int k = 0; k < 2; k++) {
                        const ebb_vec packed = ebb_load(q + (line + k) * 64 + part * 32);
                        const ebb_vec low = EBB_AND(i < 2 ? packed : EBB_VEC(srli_epi16)(packed, 4), nibble);
                        weights[part][k] = EBB_OR(low, ebb_bits_4_5<2 * i>(ebb_load(q + (4 + k) * 64 + part * 32)));
                        EBB_KEEP(weights[part][k]);
                    }
                }
                ebb_add_sub_block<ebb_dot_16, 2, COLUMNS>(weights, scale, x, half * 128 + j * 16 + i * 32, sums);
            };
            add_sub_block(std::integral_constant<int, 0>());
            add_sub_block(std::integral_constant<int, 1>());
            add_sub_block(std::integral_constant<int, 2>());
            add_sub_block(std::integral_constant<int, 3>());
        }
    }
    for (int i = 0; i < QK_K / 16; i += 2) {
        const __m128i first  = _mm_loadl_epi64((const __m128i *) (w.scales + i * 8));
        const __m128i second = _mm_loadl_epi64((const __m128i *) (w.scales + i * 8 + 8));
        for (int c = 0; c < COLUMNS; c++) {
            sums[c].offsets = ebb_add_pairs(sums[c].offsets, first, second, x[c]->bsums + i);
        }
    }
}

// Writes `rows` products, a multiple of eight, to each of s[0 .. COLUMNS].
template <typename BLOCK, int COLUMNS>
static void ebb_multiply_packed(int blocks, float * const * s, const BLOCK * weights, const block_q8_K * const * x, int rows) {
    constexpr bool six_bits = std::is_same_v<BLOCK, block_q6_Kx8>;
    const int ahead = ebb_prefetch_row_bytes();
    for (int row = 0; row < rows; row += 8, weights += blocks) {
        __m256 product[COLUMNS];
        for (int c = 0; c < COLUMNS; c++) {
            product[c] = _mm256_setzero_ps();
        }
        for (int b = 0; b < blocks; b++) {
            const BLOCK & w = weights[b];
            const block_q8_K * columns[COLUMNS];
            ebb_block_sums sums[COLUMNS];
            for (int c = 0; c < COLUMNS; c++) {
                columns[c] = x[c] + b;
                sums[c].offsets = _mm256_setzero_si256();
                for (int part = 0; part < ebb_vecs_of_rows; part++) {
                    sums[c].products[part] = EBB_ZERO();
                }
            }
            if constexpr (six_bits) {
                ebb_sum_block_q6_k<BLOCK, COLUMNS>(w, columns, sums, ahead);
            } else {
                ebb_sum_block<BLOCK, COLUMNS>(w, columns, sums, ahead);
            }
            const __m256 d = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) w.d));
            for (int c = 0; c < COLUMNS; c++) {
#if EBB_VEC_BYTES == 64
                const __m256i rows_0_3 = _mm512_castsi512_si256(sums[c].products[0]);
                const __m256i rows_4_7 = _mm512_extracti64x4_epi64(sums[c].products[0], 1);
#else
                const __m256i rows_0_3 = sums[c].products[0];
                const __m256i rows_4_7 = sums[c].products[1];
#endif
                __m256i by_row = _mm256_permute4x64_epi64(_mm256_hadd_epi32(rows_0_3, rows_4_7), _MM_SHUFFLE(3, 1, 2, 0));
                if (six_bits) {
                    by_row = _mm256_sub_epi32(by_row, _mm256_slli_epi32(sums[c].offsets, 5));  // weights are 32 less
                }
                const __m256 column_d = _mm256_set1_ps(columns[c]->d);
                product[c] = _mm256_fmadd_ps(_mm256_mul_ps(d, column_d), _mm256_cvtepi32_ps(by_row), product[c]);
                if constexpr (!six_bits) {
                    const __m256 dmin = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) w.dmin));
                    product[c] = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, column_d), _mm256_cvtepi32_ps(sums[c].offsets), product[c]);
                }
            }
        }
        for (int c = 0; c < COLUMNS; c++) {
            _mm256_storeu_ps(s[c] + row, product[c]);
        }
    }
}

// column: as of ebb_for_rows_and_columns()
template <typename BLOCK, typename COLUMN>
static void ebb_multiply_packed(int n, const void * weights, int rows, int num_columns, COLUMN && column) {
    const int blocks = n / QK_K;
    const auto * w = (const BLOCK *) weights;
    ebb_for_rows_and_columns<block_q8_K>(rows, 8, blocks * sizeof(BLOCK), num_columns, column,
                                         [&](auto * x, auto * s, int row, int count, auto columns) {
        ebb_multiply_packed<BLOCK, columns>(blocks, s, w + (int64_t) row / 8 * blocks, x, count);
    });
}

#endif  // EBB_HAS_PACKED_KERNELS

#endif  // EBB_PACKED_K_QUANTS_H
