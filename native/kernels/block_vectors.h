/* What whole blocks are decoded with in AVX-512: for FORMAT_BLOCKS and FORMAT_VECTORS of bytes_template.h. */

INLINE __m512i eight_bytes(int a, int b, int c, int d, int e, int f, int g, int h)
{
    const uint32_t low = (uint32_t)a | (uint32_t)b << 8 | (uint32_t)c << 16 | (uint32_t)d << 24;
    const uint32_t high = (uint32_t)e | (uint32_t)f << 8 | (uint32_t)g << 16 | (uint32_t)h << 24;
    return _mm512_set1_epi64((long long)((uint64_t)high << 32 | low));
}
/* Factors of eight groups of 32, of sixteen groups of 16, of a block -> of the lanes of each half. */
INLINE void set_lanes(__m512 factors, int groups, struct bytes_half *to)
{
    const __m512i lanes = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i first = groups == 8 ? _mm512_srli_epi32(lanes, 1) : lanes;
    to[0].factor = _mm512_permutexvar_ps(first, factors);
    to[1].factor = _mm512_permutexvar_ps(_mm512_add_epi32(first, _mm512_set1_epi32(groups / 2)), factors);
}
/* (bias + times * number) * d * more, as ggml rounds it. */
INLINE __m512 scaled_numbers(__m512i numbers, float bias, float times, float d, float more)
{
    const __m512 wide = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(numbers), vf_set(times)), vf_set(bias));
    return _mm512_mul_ps(_mm512_mul_ps(wide, vf_set(d * OVER_SHIFT)), vf_set(more));
}
/* Sixteen nibbles of eight bytes, the low one first. */
INLINE __m512i sixteen_nibbles(const unsigned char *p)
{
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)p), low = _mm_set1_epi8(15);
    const __m128i both = _mm_unpacklo_epi8(_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low));
    return _mm512_cvtepu8_epi32(both);
}

INLINE __m512i in_four(__m128i a, __m128i b, __m128i c, __m128i d)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(b, a)), _mm256_set_m128i(d, c), 1);
}
