// How kernels add a super-block of K-quants or IQ-quants (256 weights) to the product of a row and a
// column: the sum over the super-block is an integer, hence exact in any order, and is then added by
//
//   product = fma(d * column_d, sum, product)
//   product = fma(-(dmin * column_d), sum_of_mins, product)    types that have minima
//
// Kernels for one column (vec_dot, gemv) and for many (tiled) share this order, so that a column has the
// same bits however many columns a product has. ggml's own kernels differ by rounding: they keep partial
// sums in eight float lanes for one column, and in one for many.
#ifndef EBB_SUPER_BLOCK_H
#define EBB_SUPER_BLOCK_H

#if defined(__AVX2__)

#include <immintrin.h>

// The sum of eight integers, in lane 0.
static inline __m128i ebb_sum_8(__m256i x) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(2, 3, 0, 1)));
}

// Lane 0 of a * b + c. Explicit, since what a compiler fuses by itself differs from kernel to kernel.
static inline __m128 ebb_fma_1(float a, __m128 b, __m128 c) {
#if defined(__FMA__)
    return _mm_fmadd_ss(_mm_set_ss(a), b, c);
#else
    return _mm_add_ss(_mm_mul_ss(_mm_set_ss(a), b), c);
#endif
}

// scale: d * column_d
static inline __m128 ebb_add_super_block(__m128 product, float scale, __m256i sums) {
    return ebb_fma_1(scale, _mm_cvtepi32_ps(ebb_sum_8(sums)), product);
}

// min_scale: -(dmin * column_d)
static inline __m128 ebb_add_super_block_with_mins(__m128 product, float scale, __m256i sums, float min_scale,
                                                   __m128i sums_of_mins) {
    const __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    const __m128i pairs = _mm_hadd_epi32(s, sums_of_mins);
    const __m128 both = _mm_cvtepi32_ps(_mm_hadd_epi32(pairs, pairs));
    product = ebb_fma_1(scale, both, product);
    return ebb_fma_1(min_scale, _mm_movehdup_ps(both), product);
}

#endif  // AVX2

#endif  // EBB_SUPER_BLOCK_H
