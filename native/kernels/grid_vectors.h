/* How blocks of the formats with grids become bytes with AVX-512: the indices of a block are looked up at once, in tables
 * of words that hold an entry's steps, two (IQ3: three) bits each; permutations of two registers look up 64 words. What is
 * what in a block is told by grid_bytes.h. */
#include "block_vectors.h"


#define GRID(name, count, size) static const uint16_t name##_words[count]
#define IQ2(a, b, c, d) a, b, c, d
#define IQ1(a, b, c, d) a, b, c, d
#define IQ3_XXS(a, b, c, d) a, b, c, d
#define IQ3_S(a, b, c, d) a, b, c, d
#include "iq_grids.h"

/* The words that the low 6 to 11 bits of each index choose. */
INLINE __m512i words_6(const uint16_t *table, __m512i index)
{
    return _mm512_permutex2var_epi16(_mm512_loadu_si512(table), index, _mm512_loadu_si512(table + 32));
}
#define WORDS(bits, fewer)                                                                                         \
    INLINE __m512i words_##bits(const uint16_t *table, __m512i index)                                              \
    {                                                                                                              \
        const __mmask32 upper = _mm512_test_epi16_mask(index, _mm512_set1_epi16(1 << fewer));                      \
        return _mm512_mask_blend_epi16(upper, words_##fewer(table, index), words_##fewer(table + (1 << fewer), index)); \
    }
WORDS(7, 6)
WORDS(8, 7)
WORDS(9, 8)
WORDS(10, 9)

/* Which words a vector of a half takes, in the order of runs of 8: of 32 octets each word four times, of 64 quads twice. */
#define OCTETS(o) o, o, o, o, o + 2, o + 2, o + 2, o + 2, o + 4, o + 4, o + 4, o + 4, o + 6, o + 6, o + 6, o + 6, o + 8, \
    o + 8, o + 8, o + 8, o + 10, o + 10, o + 10, o + 10, o + 12, o + 12, o + 12, o + 12, o + 14, o + 14, o + 14, o + 14
#define QUADS(q) q, q, q + 1, q + 1, q + 4, q + 4, q + 5, q + 5, q + 8, q + 8, q + 9, q + 9, q + 12, q + 12, q + 13, \
    q + 13, q + 16, q + 16, q + 17, q + 17, q + 20, q + 20, q + 21, q + 21, q + 24, q + 24, q + 25, q + 25, q + 28, \
    q + 28, q + 29, q + 29
static const uint16_t octet_words[4][32] = {{OCTETS(0)}, {OCTETS(1)}, {OCTETS(16)}, {OCTETS(17)}};
static const uint16_t quad_words[2][32] = {{QUADS(0)}, {QUADS(2)}};

INLINE __m512i every_four(int a, int b, int c, int d)
{
    const long long four = (long long)d << 48 | (long long)c << 32 | (long long)b << 16 | a;
    return _mm512_set1_epi64(four);
}

/* Steps of two bits of the octets of vector v, 0 to 3, of a block -> a byte each. */
INLINE __m512i octet_steps(__m512i words, int v)
{
    const __m512i mine = _mm512_permutexvar_epi16(_mm512_loadu_si512(octet_words[v]), words);
#ifdef LOOK_UP_BYTES
    return _mm512_multishift_epi64_epi8(eight_bytes(0, 2, 4, 6, 8, 10, 12, 14), mine);
#else
    const __m512i pairs = _mm512_and_si512(_mm512_srlv_epi16(mine, every_four(0, 4, 8, 12)), _mm512_set1_epi16(15));
    return _mm512_ternarylogic_epi32(pairs, _mm512_slli_epi16(pairs, 6), _mm512_set1_epi8(3), 0xa8);
#endif
}
/* Steps of three bits of the quads of a half -> a byte each. */
INLINE __m512i quad_steps(__m512i words, int second)
{
    const __m512i mine = _mm512_permutexvar_epi16(_mm512_loadu_si512(quad_words[second]), words);
#ifdef LOOK_UP_BYTES
    return _mm512_multishift_epi64_epi8(eight_bytes(0, 3, 6, 9, 32, 35, 38, 41), mine);
#else
    const __m512i pairs = _mm512_and_si512(_mm512_srlv_epi16(mine, every_four(0, 6, 0, 6)), _mm512_set1_epi16(63));
    return _mm512_ternarylogic_epi32(pairs, _mm512_slli_epi16(pairs, 5), _mm512_set1_epi8(7), 0xa8);
#endif
}

/* What steps look up in tables of eight bytes: magnitudes added to the zero, or taken from it. */
INLINE vbytes with_signs(__m512i steps, uint64_t minus, __m512i above, __m512i below)
{
#ifdef LOOK_UP_BYTES
    return _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(steps, above), _cvtu64_mask64(minus), steps, below);
#else
    return _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(above, steps), _cvtu64_mask64(minus), below, steps);
#endif
}

/* Sign bits of octets in their order -> those of the four vectors. */
struct block_signs {
    uint64_t of[4];
};
INLINE struct block_signs in_vectors(__m256i signs)
{
    const __m256i apart = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8, 10, 12, 14, 1,
                                           3, 5, 7, 9, 11, 13, 15);
    struct block_signs result;
    _mm256_storeu_si256((__m256i *)result.of, _mm256_shuffle_epi8(signs, apart));
    return result;
}
/* Seven bits to a byte, the eighth makes their number even. */
INLINE __m256i evened(__m256i sevens)
{
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i folded = _mm256_xor_si256(sevens, _mm256_srli_epi16(sevens, 4));
    return _mm256_or_si256(sevens, _mm256_shuffle_epi8(odd, _mm256_and_si256(folded, _mm256_set1_epi8(15))));
}
/* The lowest 28 bits of eight words. */
INLINE __m256i signs_of_words(__m256i words)
{
#ifdef LOOK_UP_BYTES
    const __m512i spread = _mm512_multishift_epi64_epi8(eight_bytes(0, 7, 14, 21, 0, 0, 0, 0), _mm512_cvtepu32_epi64(words));
    const __m512i packed = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0), spread);
    const __m256i bytes = _mm512_castsi512_si256(packed);
#else
    const __m512i shifts = _mm512_setr_epi32(0, 7, 14, 21, 0, 7, 14, 21, 0, 7, 14, 21, 0, 7, 14, 21);
    const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i both = _mm512_castsi256_si512(words);
    const __m512i low = _mm512_srlv_epi32(_mm512_permutexvar_epi32(first, both), shifts);
    const __m512i high =
        _mm512_srlv_epi32(_mm512_permutexvar_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(4)), both), shifts);
    const __m256i bytes = _mm256_set_m128i(_mm512_cvtepi32_epi8(high), _mm512_cvtepi32_epi8(low));
#endif
    return evened(_mm256_and_si256(bytes, _mm256_set1_epi8(127)));
}

INLINE __m512i wide_bytes(const unsigned char *p) { return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)p)); }

INLINE void iq2_vectors(__m512i words, __m256i signs, struct bytes_half *to)
{
    const __m512i above = eight_bytes(51, 68, 86, 0, 51, 68, 86, 0), below = eight_bytes(35, 18, 0, 0, 35, 18, 0, 0);
    const struct block_signs minus = in_vectors(signs);
    UNROLL for (int half = 0; half < 2; half++) {
        to[half].even = with_signs(octet_steps(words, 2 * half), minus.of[2 * half], above, below);
        to[half].odd = with_signs(octet_steps(words, 2 * half + 1), minus.of[2 * half + 1], above, below);
    }
}

INLINE void iq2_xxs_block(const unsigned char *block, struct bytes_half *to)
{
    const __m512i all = _mm512_loadu_si512(block + 2);
    const __m512i twice = _mm512_setr_epi32(0, 0x10001, 0x40004, 0x50005, 0x80008, 0x90009, 0xc000c, 0xd000d, 0x100010, 0x110011,
                                            0x140014, 0x150015, 0x180018, 0x190019, 0x1c001c, 0x1d001d);
    const __m512i index = _mm512_srlv_epi16(_mm512_permutexvar_epi16(twice, all), every_four(0, 8, 0, 8));
    const __m256i words = _mm512_cvtepi64_epi32(_mm512_srli_epi64(all, 32));
    iq2_vectors(words_8(iq2_xxs_words, index), signs_of_words(words), to);
    const __m512i scales = _mm512_castsi256_si512(_mm256_srli_epi32(words, 28));
    set_lanes(scaled_numbers(scales, 0.5f, 1, half_value(block), 0.25f), 8, to);
}

INLINE void iq2_xs_block(const unsigned char *block, struct bytes_half *to)
{
    const __m512i all = _mm512_loadu_si512(block + 2);
    const __m256i sevens = _mm512_cvtepi16_epi8(_mm512_srli_epi16(all, 9));
    iq2_vectors(words_9(iq2_xs_words, all), evened(sevens), to);
    set_lanes(scaled_numbers(sixteen_nibbles(block + 66), 0.5f, 1, half_value(block), 0.25f), 16, to);
}

/* Bytes p[0..7], each for four octets: its bits from 0, 2, 4 and 6 on are the index's from the ninth on. */
INLINE __m512i four_octets(__m128i bytes_or_words)
{
    const __m512i four = _mm512_setr_epi32(0, 0, 0x10001, 0x10001, 0x20002, 0x20002, 0x30003, 0x30003, 0x40004, 0x40004, 0x50005,
                                           0x50005, 0x60006, 0x60006, 0x70007, 0x70007);
    return _mm512_permutexvar_epi16(four, _mm512_castsi128_si512(bytes_or_words));
}

INLINE void iq2_s_block(const unsigned char *block, struct bytes_half *to)
{
    const __m512i high = four_octets(_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(block + 66))));
    const __m512i upper = _mm512_and_si512(_mm512_sllv_epi16(high, every_four(8, 6, 4, 2)), _mm512_set1_epi16(0x300));
    const __m512i index = _mm512_or_si512(wide_bytes(block + 2), upper);
    iq2_vectors(words_10(iq2_s_words, index), _mm256_loadu_si256((const __m256i *)(block + 34)), to);
    set_lanes(scaled_numbers(sixteen_nibbles(block + 74), 0.5f, 1, half_value(block), 0.25f), 16, to);
}

INLINE void iq3_vectors(const __m512i *words, __m256i signs, __m512i above, __m512i below, struct bytes_half *to)
{
    const struct block_signs minus = in_vectors(signs);
    UNROLL for (int half = 0; half < 2; half++) {
        to[half].even = with_signs(quad_steps(words[half], 0), minus.of[2 * half], above, below);
        to[half].odd = with_signs(quad_steps(words[half], 1), minus.of[2 * half + 1], above, below);
    }
}

INLINE void iq3_xxs_block(const unsigned char *block, struct bytes_half *to)
{
    const __m256i signs = _mm256_loadu_si256((const __m256i *)(block + 66));
    const __m512i words[2] = {words_8(iq3_xxs_words, wide_bytes(block + 2)), words_8(iq3_xxs_words, wide_bytes(block + 34))};
    const __m512i above = eight_bytes(66, 74, 82, 90, 98, 106, 114, 124), below = eight_bytes(58, 50, 42, 34, 26, 18, 10, 0);
    iq3_vectors(words, signs_of_words(signs), above, below, to);
    const __m512i scales = _mm512_castsi256_si512(_mm256_srli_epi32(signs, 28));
    set_lanes(scaled_numbers(scales, 0.5f, 1, half_value(block), 0.5f), 8, to);
}

INLINE void iq3_s_block(const unsigned char *block, struct bytes_half *to)
{
    const __m512i ninth = _mm512_set1_epi16(256);
    __m512i words[2];
    UNROLL for (int half = 0; half < 2; half++) {
        const __m512i low = wide_bytes(block + 2 + 32 * half);
        words[half] = words_9(iq3_s_words, _mm512_mask_add_epi16(low, word_at(block + 66 + 4 * half), low, ninth));
    }
    const __m512i above = eight_bytes(16, 18, 20, 22, 24, 26, 28, 30), below = eight_bytes(14, 12, 10, 8, 6, 4, 2, 0);
    iq3_vectors(words, _mm256_loadu_si256((const __m256i *)(block + 74)), above, below, to);
    unsigned char scales[8] = {0};
    memcpy(scales, block + 106, 4);
    set_lanes(scaled_numbers(sixteen_nibbles(scales), 1, 2, half_value(block), 1), 8, to);
}

/* IQ1's grid is too large for that: its 64 registers of words would be loaded for each block. So entries are copied, each by
 * its index; four of them are made at once, as the words of a number: low bytes, and three bits each of `high`. */
INLINE uint64_t four_indices(const unsigned char *low, uint32_t high)
{
    return _pdep_u64(word_at(low), 0x00ff00ff00ff00ff) | _pdep_u64(high, 0x0700070007000700);
}
INLINE __m128i two_entries(uint64_t four, int second)
{
    const __m128i first = _mm_loadl_epi64((const __m128i *)iq1_grid[(uint16_t)(four >> 16 * second)]);
    const unsigned char *const other = iq1_grid[(uint16_t)(four >> (16 * second + 32))];
    return _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(first), (const __m64 *)other));
}
/* The entries of one vector of a half, whose indices these are. */
INLINE __m512i iq1_entries(const uint64_t *four, int second)
{
    return in_four(two_entries(four[0], second), two_entries(four[1], second), two_entries(four[2], second),
                   two_entries(four[3], second));
}

INLINE void iq1_s_block(const unsigned char *block, struct bytes_half *to)
{
    const __m128i high = _mm_loadu_si128((const __m128i *)(block + 34));
    const __m128i ones = _mm_or_si128(_mm_srai_epi16(high, 15), _mm_set1_epi16(1)), bytes = _mm_packs_epi16(ones, ones);
    uint64_t four[8];
    unsigned char more[16]; /* 1, or -1 where all is less by an eighth */
    _mm_storeu_si128((__m128i *)more, bytes);
    UNROLL for (int g = 0; g < 8; g++)
        four[g] = four_indices(block + 2 + 4 * g, short_at(block + 34 + 2 * g));
    UNROLL for (int half = 0; half < 2; half++) {
        const __m512i eighth = vbytes_quarters(more + 4 * half);
        to[half].even = _mm512_add_epi8(iq1_entries(four + 4 * half, 0), eighth);
        to[half].odd = _mm512_add_epi8(iq1_entries(four + 4 * half, 1), eighth);
    }
    const __m128i threes = _mm_and_si128(_mm_srli_epi16(high, 12), _mm_set1_epi16(7));
    set_lanes(scaled_numbers(_mm512_cvtepu16_epi32(_mm256_castsi128_si256(threes)), 1, 2, half_value(block), 0.125f), 8, to);
}

/* Of eight bytes with two octets each: one more, or one less where an octet's bit of `bits` says so. */
INLINE __m512i eighth_less(__m512i entries, uint64_t eight, uint64_t bits)
{
    const uint64_t less = _pdep_u64(_pext_u64(eight, bits), 0x0101010101010101) * 255;
    const __m512i one = _mm512_set1_epi8(1);
    return _mm512_mask_sub_epi8(_mm512_add_epi8(entries, one), _cvtu64_mask64(less), entries, one);
}

INLINE void iq1_m_block(const unsigned char *block, struct bytes_half *to)
{
    UNROLL for (int half = 0; half < 2; half++) {
        const unsigned char *const high = block + 32 + 8 * half;
        const uint64_t eight = (uint64_t)word_at(high + 4) << 32 | word_at(high);
        uint64_t four[4];
        UNROLL for (int g = 0; g < 4; g++)
            four[g] = four_indices(block + 16 * half + 4 * g, (uint32_t)_pext_u64(eight >> 16 * g & 0xffff, 0x7777));
        to[half].even = eighth_less(iq1_entries(four, 0), eight, 0x0808080808080808);
        to[half].odd = eighth_less(iq1_entries(four, 1), eight, 0x8080808080808080);
    }
    const uint64_t scales = (uint64_t)word_at(block + 52) << 32 | word_at(block + 48);
    const uint16_t half = (uint16_t)((scales >> 12 & 0xf) | (scales >> 24 & 0xf0) | (scales >> 36 & 0xf00) |
                                     (scales >> 48 & 0xf000));
    const __m512i four = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i shifts = _mm512_setr_epi32(0, 3, 6, 9, 0, 3, 6, 9, 0, 3, 6, 9, 0, 3, 6, 9);
    const __m128i words = _mm_cvtepu16_epi32(_mm_cvtsi64_si128((long long)scales));
    const __m512i threes = _mm512_srlv_epi32(_mm512_permutexvar_epi32(four, _mm512_castsi128_si512(words)), shifts);
    set_lanes(scaled_numbers(_mm512_and_si512(threes, _mm512_set1_epi32(7)), 1, 2,
                             half_value((const unsigned char *)&half), 0.125f), 16, to);
}
