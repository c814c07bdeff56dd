// Products of weights in blocks of 32 (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, IQ4_XS, MXFP4), packed by sixteen rows,
// with any number of columns, for AVX2 and for AVX-512 with VNNI. Weights are unpacked once for up to eight columns. A column
// has the same bits in any number of columns: the sum over a block is an integer, and is then added by
//
//   product = fma(d * column_d, sum, product)
//   product = fma(m, column_d * column_sum, product)    types that have minima
//
// The layout interleaves rows in groups of 4 bytes, so that a lane of 32 bits belongs to one row. A line of 64 bytes
// holds bytes 4i to 4i + 3 of the blocks of all sixteen rows.
#ifndef EBB_PACKED_BLOCKS_H
#define EBB_PACKED_BLOCKS_H

#include "packed_vectors.h"

#if defined(EBB_HAS_PACKED_KERNELS)

static const int ebb_packed_rows = 16;
static const int ebb_block_parts = 64 / EBB_VEC_BYTES;                // vectors that hold sixteen rows
static const int ebb_part_rows   = ebb_packed_rows / ebb_block_parts;  // rows, hence lanes of 32 bits, of a vector

#if EBB_VEC_BYTES == 64
typedef __m512 ebb_floats;
#define EBB_STORE_FLOATS _mm512_storeu_ps
static inline ebb_floats ebb_load_halves(const ggml_half * x) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) x)); }
#else
typedef __m256 ebb_floats;
#define EBB_STORE_FLOATS _mm256_storeu_ps
static inline ebb_floats ebb_load_halves(const ggml_half * x) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) x)); }
#endif

// A block of a column, quantized to 8 bits.
struct ebb_column_block {
    float d;
    union {
        int32_t offset;    // types without minima: the sum of `qs` times minus the bias of the weights
        float   minimum;   // types with minima: the sum of `qs` times `d`
    };
    int8_t qs[32];
};

// Sixteen blocks of BLOCK, one a row. Weights are unpacked to bytes of 0 to 255 that are `bias` too large; AVX2 has no
// product of such large bytes, and unpacks weights whose bias is 128 to signed bytes.
template <typename BLOCK> struct ebb_packed;

struct ebb_packed_base {
    static constexpr int  bias = 0;
    static constexpr int  sub_blocks = 1;  // of 32 weights each
    static constexpr bool has_minima = false;
    static constexpr bool has_signs  = false;
};

struct ebb_packed_scaled : ebb_packed_base {
    ggml_half d[16];

    ebb_floats scales(int /* sub_block */, int part) const { return ebb_load_halves(d + part * 8); }
};

struct ebb_packed_with_minima : ebb_packed_scaled {
    static constexpr bool has_minima = true;
    ggml_half m[16];

    template <typename BLOCK> void pack_scales(int row, const BLOCK & block) {
        d[row] = block.GGML_COMMON_AGGR_U.GGML_COMMON_AGGR_S.d;
        m[row] = block.GGML_COMMON_AGGR_U.GGML_COMMON_AGGR_S.m;
    }
    ebb_floats minima(int part) const { return ebb_load_halves(m + part * 8); }
};

template <typename BASE> struct ebb_packed_signed : BASE {
    static constexpr int  bias = EBB_VEC_BYTES == 64 ? 128 : 0;
    static constexpr bool has_signs = EBB_VEC_BYTES == 32;
};

// The bytes of each row's `qs`, interleaved. size: of one row's
static inline void ebb_interleave_4(uint8_t * out, int row, const void * qs, int size) {
    for (int i = 0; i < size / 4; i++) {
        memcpy(out + i * 64 + row * 4, (const char *) qs + i * 4, 4);
    }
}

// A byte's halves: weights 4i to 4i + 3 and 16 + 4i to 19 + 4i.
static inline void ebb_unpack_nibbles(const uint8_t * qs, int part, ebb_vec * out) {
    const ebb_vec nibble = EBB_VEC(set1_epi8)(0x0f);
    for (int i = 0; i < 4; i++) {
        const ebb_vec packed = ebb_load(qs + i * 64 + part * 32);
        out[i]     = EBB_AND(packed, nibble);
        out[4 + i] = EBB_AND(EBB_VEC(srli_epi16)(packed, 4), nibble);
    }
}

// The fifth bits of four weights of sixteen rows are 64 bits in a row, in the order of the bytes of a vector.
static inline void ebb_interleave_bits(uint8_t * out, int row, const uint8_t * qh) {
    uint32_t bits;
    memcpy(&bits, qh, sizeof(bits));
    for (int i = 0; i < 8; i++) {
        out[i * 8 + row / 2] |= ((bits >> (4 * i)) & 15) << (row % 2 * 4);
    }
}

static inline void ebb_add_fifth_bits(const uint8_t * qh, int part, ebb_vec * out) {
    for (int i = 0; i < 8; i++) {
#if EBB_VEC_BYTES == 64
        (void) part;
        uint64_t bits;
        memcpy(&bits, qh + i * 8, sizeof(bits));
        out[i] = _mm512_mask_add_epi8(out[i], bits, out[i], _mm512_set1_epi8(16));
#else
        int32_t bits;
        memcpy(&bits, qh + i * 8 + part * 4, sizeof(bits));
        const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                                                                            2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
        const __m256i bit    = _mm256_set1_epi64x((long long) 0x8040201008040201);
        const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
        out[i] = _mm256_or_si256(out[i], _mm256_and_si256(is_set, _mm256_set1_epi8(16)));
#endif
    }
}

template <> struct ebb_packed<block_q4_0> : ebb_packed_scaled {
    static constexpr int bias = 8;
    uint8_t qs[256];

    void pack(int row, const block_q4_0 & block) {
        d[row] = block.d;
        ebb_interleave_4(qs, row, block.qs, 16);
    }
    void unpack(int /* sub_block */, int part, ebb_vec * out) const { ebb_unpack_nibbles(qs, part, out); }
};

template <> struct ebb_packed<block_q4_1> : ebb_packed_with_minima {
    uint8_t qs[256];

    void pack(int row, const block_q4_1 & block) {
        pack_scales(row, block);
        ebb_interleave_4(qs, row, block.qs, 16);
    }
    void unpack(int /* sub_block */, int part, ebb_vec * out) const { ebb_unpack_nibbles(qs, part, out); }
};

struct ebb_five_bits {
    uint8_t qh[64];
    uint8_t qs[256];

    template <typename BLOCK> void pack(int row, const BLOCK & block) {
        ebb_interleave_bits(qh, row, block.qh);
        ebb_interleave_4(qs, row, block.qs, 16);
    }
    void unpack(int part, ebb_vec * out) const {
        ebb_unpack_nibbles(qs, part, out);
        ebb_add_fifth_bits(qh, part, out);
    }
};

template <> struct ebb_packed<block_q5_0> : ebb_packed_scaled {
    static constexpr int bias = 16;
    ebb_five_bits q;

    void pack(int row, const block_q5_0 & block) {
        d[row] = block.d;
        q.pack(row, block);
    }
    void unpack(int /* sub_block */, int part, ebb_vec * out) const { q.unpack(part, out); }
};

template <> struct ebb_packed<block_q5_1> : ebb_packed_with_minima {
    ebb_five_bits q;

    void pack(int row, const block_q5_1 & block) {
        pack_scales(row, block);
        q.pack(row, block);
    }
    void unpack(int /* sub_block */, int part, ebb_vec * out) const { q.unpack(part, out); }
};

template <> struct ebb_packed<block_q8_0> : ebb_packed_signed<ebb_packed_scaled> {
    uint8_t qs[512];

    void pack(int row, const block_q8_0 & block) {
        uint8_t biased[32];
        for (int i = 0; i < 32; i++) {
            biased[i] = (uint8_t) (block.qs[i] + bias);
        }
        d[row] = block.d;
        ebb_interleave_4(qs, row, biased, 32);
    }
    void unpack(int /* sub_block */, int part, ebb_vec * out) const {
        for (int i = 0; i < 8; i++) {
            out[i] = ebb_load(qs + i * 64 + part * 32);
        }
    }
};

// Types whose four bits are indices of a table of signed values.
static inline void ebb_unpack_table(const uint8_t * qs, int part, const int8_t * values, int bias, ebb_vec * out) {
    const __m128i biased = _mm_add_epi8(_mm_loadu_si128((const __m128i *) values), _mm_set1_epi8((char) bias));
#if EBB_VEC_BYTES == 64
    const __m512i table = _mm512_broadcast_i32x4(biased);
#else
    const __m256i table = _mm256_broadcastsi128_si256(biased);
#endif
    ebb_unpack_nibbles(qs, part, out);
    for (int i = 0; i < 8; i++) {
        out[i] = EBB_VEC(shuffle_epi8)(table, out[i]);
    }
}

template <> struct ebb_packed<block_iq4_nl> : ebb_packed_signed<ebb_packed_scaled> {
    uint8_t qs[256];

    void pack(int row, const block_iq4_nl & block) {
        d[row] = block.d;
        ebb_interleave_4(qs, row, block.qs, 16);
    }
    void unpack(int /* sub_block */, int part, ebb_vec * out) const { ebb_unpack_table(qs, part, kvalues_iq4nl, bias, out); }
};

template <> struct ebb_packed<block_mxfp4> : ebb_packed_signed<ebb_packed_base> {
    uint8_t e[16];
    uint8_t qs[256];

    void pack(int row, const block_mxfp4 & block) {
        e[row] = block.e;
        ebb_interleave_4(qs, row, block.qs, 16);
    }
    void unpack(int /* sub_block */, int part, ebb_vec * out) const { ebb_unpack_table(qs, part, kvalues_mxfp4, bias, out); }
    // Half of 2^(e - 127), as GGML_E8M0_TO_FP32_HALF() gives: the table's values are doubled.
    ebb_floats scales(int /* sub_block */, int part) const {
#if EBB_VEC_BYTES == 64
        const __m512i exponents = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) (e + part * 8)));
        const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(exponents, _mm512_set1_epi32(1)), 23);
        const __m512i small  = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), exponents);
        return _mm512_castsi512_ps(_mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(exponents, _mm512_set1_epi32(2)), normal, small));
#else
        const __m256i exponents = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *) (e + part * 8)));
        const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponents, _mm256_set1_epi32(1)), 23);
        const __m256i small  = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), exponents);
        return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), exponents)));
#endif
    }
};

template <> struct ebb_packed<block_iq4_xs> : ebb_packed_signed<ebb_packed_scaled> {
    static constexpr int sub_blocks = QK_K / 32;
    uint8_t   scales_l[sub_blocks / 2][16];  // the low four bits of two sub-blocks' scales
    uint8_t   scales_h[sub_blocks / 4][16];  // the high two bits of four
    uint8_t   qs[sub_blocks][256];

    void pack(int row, const block_iq4_xs & block) {
        d[row] = block.d;
        for (int i = 0; i < sub_blocks / 2; i++) {
            scales_l[i][row] = block.scales_l[i];
        }
        for (int i = 0; i < sub_blocks / 4; i++) {
            scales_h[i][row] = (uint8_t) (block.scales_h >> (8 * i));
        }
        for (int i = 0; i < sub_blocks; i++) {
            ebb_interleave_4(qs[i], row, block.qs + i * 16, 16);
        }
    }
    void unpack(int sub_block, int part, ebb_vec * out) const { ebb_unpack_table(qs[sub_block], part, kvalues_iq4nl, bias, out); }
    ebb_floats scales(int sub_block, int part) const {
        // Shifts of words carry bits of a neighbour's byte, which the masks take away.
        const __m128i low  = _mm_loadu_si128((const __m128i *) scales_l[sub_block / 2]);
        const __m128i high = _mm_loadu_si128((const __m128i *) scales_h[sub_block / 4]);
        const __m128i low_bits  = _mm_and_si128(_mm_srl_epi16(low, _mm_cvtsi32_si128(sub_block % 2 * 4)), _mm_set1_epi8(15));
        const __m128i high_bits = _mm_and_si128(_mm_srl_epi16(high, _mm_cvtsi32_si128(sub_block % 4 * 2)), _mm_set1_epi8(3));
        const __m128i scale = _mm_sub_epi8(_mm_or_si128(low_bits, _mm_slli_epi16(high_bits, 4)), _mm_set1_epi8(32));
#if EBB_VEC_BYTES == 64
        const __m512i wide = _mm512_cvtepi8_epi32(scale);
#else
        const __m256i wide = _mm256_cvtepi8_epi32(part == 0 ? scale : _mm_srli_si128(scale, 8));
#endif
        return EBB_VEC(mul_ps)(ebb_packed_scaled::scales(sub_block, part), EBB_VEC(cvtepi32_ps)(wide));
    }
};

// Rows of `blocks` blocks each, to `rows / 16 * blocks` packed ones. rows: a multiple of sixteen
template <typename BLOCK>
static void ebb_pack_rows(ebb_packed<BLOCK> * out, const BLOCK * in, int64_t rows, int64_t blocks) {
    static_assert(sizeof(ebb_packed<BLOCK>) == 16 * sizeof(BLOCK), "packed rows take the room of the others");
    for (int64_t row = 0; row < rows; row += ebb_packed_rows, in += ebb_packed_rows * blocks) {
        for (int64_t b = 0; b < blocks; b++, out++) {
            memset((void *) out, 0, sizeof(*out));
            for (int r = 0; r < ebb_packed_rows; r++) {
                out->pack(r, in[r * blocks + b]);
            }
        }
    }
}

// Quantizes n numbers of a column, a multiple of 32.
template <typename BLOCK>
static void ebb_quantize_column(const float * x, ebb_column_block * out, int64_t n) {
    const __m256 sign_bit = _mm256_set1_ps(-0.0f);
    for (int64_t b = 0; b < n / 32; b++, x += 32, out++) {
        __m256 v[4];
        __m256 largest = _mm256_setzero_ps();
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + i * 8);
            largest = _mm256_max_ps(_mm256_andnot_ps(sign_bit, v[i]), largest);
        }
        __m128 largest_4 = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
        largest_4 = _mm_max_ps(largest_4, _mm_movehl_ps(largest_4, largest_4));
        const float amax = _mm_cvtss_f32(_mm_max_ss(largest_4, _mm_movehdup_ps(largest_4)));
        const __m256 factor = _mm256_set1_ps(amax != 0.0f ? 127.0f / amax : 0.0f);
        __m256i q[4];
        __m256i sums = _mm256_setzero_si256();
        for (int i = 0; i < 4; i++) {
            q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], factor));
            sums = _mm256_add_epi32(sums, q[i]);
        }
        const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        _mm256_storeu_si256((__m256i *) out->qs, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
        __m128i sum_4 = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        sum_4 = _mm_add_epi32(sum_4, _mm_shuffle_epi32(sum_4, _MM_SHUFFLE(1, 0, 3, 2)));
        const int sum = _mm_cvtsi128_si32(_mm_add_epi32(sum_4, _mm_shuffle_epi32(sum_4, _MM_SHUFFLE(2, 3, 0, 1))));
        out->d = amax / 127.0f;
        if (ebb_packed<BLOCK>::has_minima) {
            out->minimum = out->d * (float) sum;
        } else {
            out->offset = -ebb_packed<BLOCK>::bias * sum;
        }
    }
}

// The sums of one block of a column over the rows of a vector.
template <typename BLOCK> static inline ebb_vec ebb_sum_block_of_32(const ebb_vec * weights, const ebb_column_block & x) {
    using packed = ebb_packed<BLOCK>;
    ebb_vec sum = packed::has_minima ? EBB_ZERO() : EBB_VEC(set1_epi32)(x.offset);
#if EBB_VEC_BYTES == 64
    for (int i = 0; i < 8; i++) {
        int32_t numbers;
        memcpy(&numbers, x.qs + i * 4, sizeof(numbers));
        sum = _mm512_dpbusd_epi32(sum, weights[i], _mm512_set1_epi32(numbers));
    }
#else
    // Weights below 32: sums of eight products of at most 31 * 127 fit into 16 bits.
    __m256i sum_16 = EBB_ZERO();
    for (int i = 0; i < 8; i++) {
        int32_t bytes;
        memcpy(&bytes, x.qs + i * 4, sizeof(bytes));
        const __m256i numbers = _mm256_set1_epi32(bytes);
        if (packed::has_signs) {
            sum_16 = _mm256_maddubs_epi16(_mm256_sign_epi8(weights[i], weights[i]), _mm256_sign_epi8(numbers, weights[i]));
        } else {
            sum_16 = _mm256_add_epi16(sum_16, _mm256_maddubs_epi16(weights[i], numbers));
        }
        if (packed::has_signs || i % 4 == 3) {
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(sum_16, _mm256_set1_epi16(1)));
            sum_16 = EBB_ZERO();
        }
    }
#endif
    return sum;
}

// Writes `rows` products to each of s[0 .. COLUMNS].
template <typename BLOCK, int COLUMNS>
static inline void ebb_multiply_blocks(int blocks, float * const * s, const ebb_packed<BLOCK> * weights,
                                       const ebb_column_block * const * x, int rows, int ahead) {
    using packed = ebb_packed<BLOCK>;
    for (int row = 0; row < rows; row += ebb_packed_rows, weights += blocks) {
        ebb_floats product[ebb_block_parts][COLUMNS];
        for (int part = 0; part < ebb_block_parts; part++) {
            for (int c = 0; c < COLUMNS; c++) {
                product[part][c] = EBB_VEC(setzero_ps)();
            }
        }
        for (int b = 0; b < blocks; b++) {
            const packed & w = weights[b];
            for (int sub_block = 0; sub_block < packed::sub_blocks; sub_block++) {
                for (size_t line = 0; line < sizeof(packed) / packed::sub_blocks; line += 64) {
                    EBB_PREFETCH_ROW((const char *) &w + sub_block * (sizeof(packed) / packed::sub_blocks) + line, ahead);
                }
                for (int part = 0; part < ebb_block_parts; part++) {
                    ebb_vec unpacked[8];
                    w.unpack(sub_block, part, unpacked);
                    if (COLUMNS > 2) {
                        for (ebb_vec & weights : unpacked) {
                            EBB_KEEP(weights);
                        }
                    }
                    const ebb_floats d = w.scales(sub_block, part);
                    for (int c = 0; c < COLUMNS; c++) {
                        const ebb_column_block * place = x[c] + b * packed::sub_blocks + sub_block;
                        if (COLUMNS > 2) {
                            EBB_READ_AGAIN(place);  // for each part: the numbers of all columns do not fit into registers
                        }
                        const ebb_column_block & column = *place;
                        ebb_floats & total = product[part][c];
                        const ebb_floats sum = EBB_VEC(cvtepi32_ps)(ebb_sum_block_of_32<BLOCK>(unpacked, column));
                        total = EBB_VEC(fmadd_ps)(EBB_VEC(mul_ps)(d, EBB_VEC(set1_ps)(column.d)), sum, total);
                        if constexpr (packed::has_minima) {
                            total = EBB_VEC(fmadd_ps)(w.minima(part), EBB_VEC(set1_ps)(column.minimum), total);
                        }
                    }
                }
            }
        }
        for (int part = 0; part < ebb_block_parts; part++) {
            for (int c = 0; c < COLUMNS; c++) {
                EBB_STORE_FLOATS(s[c] + row + part * ebb_part_rows, product[part][c]);
            }
        }
    }
}

// column: as of ebb_for_rows_and_columns()
template <typename BLOCK, typename COLUMN>
static void ebb_multiply_blocks(int n, const void * weights, int rows, int num_columns, COLUMN && column) {
    const int blocks = n / (32 * ebb_packed<BLOCK>::sub_blocks);
    const int ahead = ebb_prefetch_row_bytes();
    const auto * w = (const ebb_packed<BLOCK> *) weights;
    ebb_for_rows_and_columns<ebb_column_block>(rows, ebb_packed_rows, blocks * sizeof(*w), num_columns, column,
                                               [&](auto * x, auto * s, int row, int count, auto columns) {
        ebb_multiply_blocks<BLOCK, columns>(blocks, s, w + (int64_t) row / ebb_packed_rows * blocks, x, count, ahead);
    });
}

#endif  // EBB_HAS_PACKED_KERNELS

#endif  // EBB_PACKED_BLOCKS_H
