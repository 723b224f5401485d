/* How blocks of ggml's formats with small tables become bytes in AVX-512. */
#include "block_vectors.h"

/* The threes 0, 1 or 2 of bytes that are what is left of a code. */
INLINE vbytes threes(__m512i left)
{
    const __m512i one = _mm512_set1_epi8(1);
    const __mmask64 some = _mm512_cmpgt_epu8_mask(left, _mm512_set1_epi8(85));
    const __mmask64 two = _mm512_cmpgt_epu8_mask(left, _mm512_set1_epi8((char)170));
    const __m512i result = _mm512_maskz_mov_epi8(some, one);
    return _mm512_mask_add_epi8(result, two, result, one);
}
INLINE void tq1_0_block(const unsigned char *block, struct bytes_half *to)
{
    __m256i left = _mm256_loadu_si256((const __m256i *)block), wide[5];
    __m128i right = _mm_loadu_si128((const __m128i *)(block + 32)), narrow[5];
    uint32_t last = word_at(block + 48), quads[4];
    for (int k = 0; k < 5; k++) {
        wide[k] = left;
        narrow[k] = right;
        left = _mm256_add_epi8(left, _mm256_add_epi8(left, left));
        right = _mm_add_epi8(right, _mm_add_epi8(right, right));
    }
    for (int k = 0; k < 4; k++) {
        quads[k] = last;
        const uint32_t even = last & 0xff00ff, odd = last >> 8 & 0xff00ff;
        last = (even * 3 & 0xff00ff) | (odd * 3 & 0xff00ff) << 8;
    }
    to[0].even = threes(_mm512_inserti64x4(_mm512_castsi256_si512(wide[0]), wide[1], 1));
    to[0].odd = threes(_mm512_inserti64x4(_mm512_castsi256_si512(wide[2]), wide[3], 1));
    to[1].even = threes(_mm512_inserti64x4(_mm512_castsi256_si512(wide[4]), _mm256_set_m128i(narrow[1], narrow[0]), 1));
    to[1].odd = threes(in_four(narrow[2], narrow[3], narrow[4], _mm_loadu_si128((const __m128i *)quads)));
    to[0].factor = to[1].factor = vf_set(half_value(block + 52) * OVER_SHIFT);
}
INLINE void tq2_0_block(const unsigned char *block, struct bytes_half *to)
{
    UNROLL for (int half = 0; half < 2; half++) {
        const __m512i codes = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(block + 32 * half)));
        const __m512i two = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(2), 1), low = _mm512_set1_epi8(3);
        to[half].even = _mm512_and_si512(_mm512_srlv_epi16(codes, two), low);
        to[half].odd = _mm512_and_si512(_mm512_srlv_epi16(_mm512_srli_epi16(codes, 4), two), low);
        to[half].factor = vf_set(half_value(block + 64) * OVER_SHIFT);
    }
}

/* The same for formats of nibbles, a half at a time. */
INLINE struct byte_pair looked_up(__m512i codes, __m128i table)
{
    const __m512i wide = _mm512_broadcast_i32x4(table), low = _mm512_set1_epi8(15);
    return (struct byte_pair){_mm512_shuffle_epi8(wide, _mm512_and_si512(codes, low)),
                              _mm512_shuffle_epi8(wide, _mm512_and_si512(_mm512_srli_epi16(codes, 4), low))};
}
INLINE __m128i iq4_table(void)
{
    return _mm_setr_epi8(0, 23, 44, 62, 78, 92, 105, 117, -128, -116, -104, -91, -76, -60, -40, -16);
}
INLINE void iq4_nl_vectors(const unsigned char *block, struct bytes_half *to)
{
    __m128i codes[4];
    UNROLL for (int g = 0; g < 4; g++)
        codes[g] = _mm_loadu_si128((const __m128i *)(block + 18 * g + 2));
    const struct byte_pair pair = looked_up(in_four(codes[0], codes[1], codes[2], codes[3]), iq4_table());
    const uint64_t halves = short_at(block) | short_at(block + 18) << 16 | (uint64_t)short_at(block + 36) << 32 |
                            (uint64_t)short_at(block + 54) << 48;
    const __m128 scales = _mm_mul_ps(_mm_cvtph_ps(_mm_cvtsi64_si128((long long)halves)), _mm_set1_ps(OVER_SHIFT));
    set_half(to, pair, vf_quarters(scales));
}
INLINE void iq4_xs_block(const unsigned char *block, struct bytes_half *to)
{
    const __m256i nibbles = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28), pairs = _mm256_srli_epi32(nibbles, 1);
    const __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32((int)word_at(block + 4)), nibbles);
    const __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32((int)short_at(block + 2)), pairs);
    const __m256i six = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)),
                                        _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4));
    set_lanes(scaled_numbers(_mm512_castsi256_si512(six), -32, 1, half_value(block), 1), 8, to);
    UNROLL for (int half = 0; half < 2; half++) {
        const struct byte_pair pair = looked_up(_mm512_loadu_si512(block + 8 + 64 * half), iq4_table());
        to[half].even = pair.even, to[half].odd = pair.odd;
    }
}
INLINE void nvfp4_vectors(const unsigned char *block, struct bytes_half *to)
{
    const __m256i first = _mm256_loadu_si256((const __m256i *)(block + 4));
    const __m512i codes = _mm512_inserti64x4(_mm512_castsi256_si512(first), _mm256_loadu_si256((const __m256i *)(block + 40)), 1);
    const struct byte_pair pair = looked_up(codes, _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const uint64_t scales = word_at(block) | (uint64_t)word_at(block + 36) << 32;
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)scales)), seven = _mm256_set1_epi32(127);
    const __m256i bits = _mm256_slli_epi32(_mm256_and_si256(bytes, seven), 20);
    const __mmask8 some = _mm256_cmpneq_epi32_mask(bytes, seven);
    const __m256 factors = _mm256_maskz_mul_ps(some, _mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p119f * OVER_SHIFT));
    const __m512i pairs = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    set_half(to, pair, _mm512_permutexvar_ps(pairs, _mm512_castps256_ps512(factors)));
}
