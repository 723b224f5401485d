/* Bytes of ggml's blocks brought into the order of their columns, at one SIMD level: 64 columns to a vector. A quarter is
 * sixteen of its bytes. What each function does is said at the portable ones. */

#if defined(LEVEL_AVX512)
INLINE vbytes vb_load(const unsigned char *p) { return _mm512_loadu_si512(p); }
INLINE vbytes vb_twice(const unsigned char *p) { return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p)); }
INLINE vbytes vb_pairs(const unsigned char *a, const unsigned char *b)
{
    const __m512i both = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)a));
    return _mm512_mask_broadcast_i32x4(both, 0xff00, _mm_loadu_si128((const __m128i *)b));
}
INLINE vbytes vb_shifted(vbytes v, int a, int b, int c, int d)
{
    return _mm512_srlv_epi64(v, _mm512_setr_epi64(a, a, b, b, c, c, d, d));
}
INLINE vbytes vb_and(vbytes v, int byte) { return _mm512_and_si512(v, _mm512_set1_epi8((char)byte)); }
INLINE vbytes vb_or_bits(vbytes w, vbytes v, int first, int second, int mask)
{
    const __m512i right = _mm512_mask_set1_epi64(_mm512_set1_epi64(first & 63), 0xf0, second & 63);
    return _mm512_ternarylogic_epi64(w, _mm512_rorv_epi64(v, right), _mm512_set1_epi8((char)mask), 0xf8);
}
INLINE vbytes vb_plus_where(vbytes w, uint64_t mask, int amount)
{
    return _mm512_mask_add_epi8(w, mask, w, _mm512_set1_epi8((char)amount));
}
INLINE vbytes vb_table(vbytes codes, const unsigned char *table)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), codes);
}
INLINE vf vf_bytes(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)); }
INLINE vf vf_from_halves(__m128i a, __m128i b)
{
    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1));
}
#define X86_SCALES
INLINE vf vf_halves_at(const float *p)
{
    const __m512i half = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    double both;
    memcpy(&both, p, sizeof both);
    return _mm512_permutevar_ps(_mm512_castpd_ps(_mm512_set1_pd(both)), half);
}
INLINE vf vf_fourths_at(const float *p) /* permuting within quarters takes half as long as across them */
{
    const __m512i quarter = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_permutevar_ps(_mm512_broadcast_f32x4(_mm_loadu_ps(p)), quarter);
}
INLINE vf vf_each_eight(__m128 four, int a, int b)
{
    const __m512i place = _mm512_mask_set1_epi32(_mm512_set1_epi32(a), 0xff00, b);
    return _mm512_permutexvar_ps(place, _mm512_castps128_ps512(four));
}

#elif defined(LEVEL_AVX2)
INLINE vbytes vb_load(const unsigned char *p) { return vi_load(p); }
INLINE vbytes vb_twice(const unsigned char *p)
{
    const __m256i half = _mm256_loadu_si256((const __m256i *)p);
    return EACH_INT(half, half);
}
INLINE __m256i sixteen_twice(const unsigned char *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}
INLINE vbytes vb_pairs(const unsigned char *a, const unsigned char *b)
{
    return EACH_INT(sixteen_twice(a), sixteen_twice(b));
}
INLINE vbytes vb_shifted(vbytes v, int a, int b, int c, int d)
{
    return EACH_INT(_mm256_srlv_epi64(v.lo, _mm256_setr_epi64x(a, a, b, b)),
                    _mm256_srlv_epi64(v.hi, _mm256_setr_epi64x(c, c, d, d)));
}
INLINE vbytes vb_and(vbytes v, int byte)
{
    const __m256i all = _mm256_set1_epi8((char)byte);
    return EACH_INT(_mm256_and_si256(v.lo, all), _mm256_and_si256(v.hi, all));
}
INLINE __m256i or_bits_half(__m256i w, __m256i v, int right, int mask)
{
    const __m256i turned = right < 0 ? _mm256_slli_epi64(v, -right) : _mm256_srli_epi64(v, right);
    return _mm256_or_si256(w, _mm256_and_si256(turned, _mm256_set1_epi8((char)mask)));
}
INLINE vbytes vb_or_bits(vbytes w, vbytes v, int first, int second, int mask)
{
    return EACH_INT(or_bits_half(w.lo, v.lo, first, mask), or_bits_half(w.hi, v.hi, second, mask));
}
INLINE __m256i plus_where_half(__m256i w, uint32_t mask, int amount)
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3,
                                            3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i picked = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int)mask), spread), bit);
    const __m256i is_set = _mm256_cmpeq_epi8(picked, bit);
    return _mm256_add_epi8(w, _mm256_and_si256(is_set, _mm256_set1_epi8((char)amount)));
}
INLINE vbytes vb_plus_where(vbytes w, uint64_t mask, int amount)
{
    return EACH_INT(plus_where_half(w.lo, (uint32_t)mask, amount), plus_where_half(w.hi, (uint32_t)(mask >> 32), amount));
}
INLINE vbytes vb_table(vbytes codes, const unsigned char *table)
{
    const __m256i both = sixteen_twice(table);
    return EACH_INT(_mm256_shuffle_epi8(both, codes.lo), _mm256_shuffle_epi8(both, codes.hi));
}
INLINE vf vf_bytes(__m128i bytes)
{
    return EACH(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))));
}
INLINE vf vf_from_halves(__m128i a, __m128i b) { return EACH(_mm256_cvtph_ps(a), _mm256_cvtph_ps(b)); }
#define X86_SCALES
INLINE vf vf_halves_at(const float *p) { return EACH(_mm256_broadcast_ss(p), _mm256_broadcast_ss(p + 1)); }
INLINE vf vf_fourths_at(const float *p) { return vf_quarters_at(p); }
INLINE vf vf_each_eight(__m128 four, int a, int b)
{
    const __m256 all = _mm256_castps128_ps256(four);
    return EACH(_mm256_permutevar8x32_ps(all, _mm256_set1_epi32(a)), _mm256_permutevar8x32_ps(all, _mm256_set1_epi32(b)));
}

#else
#define EACH_BYTE(expression)        \
    do {                             \
        vbytes result;               \
        for (int i = 0; i < 64; i++) \
            result.at[i] = (unsigned char)(expression); \
        return result;               \
    } while (0)

/* 64 bytes; 32 bytes twice; 16 bytes twice from each of two places. */
INLINE vbytes vb_load(const unsigned char *p) { EACH_BYTE(p[i]); }
INLINE vbytes vb_twice(const unsigned char *p) { EACH_BYTE(p[i % 32]); }
INLINE vbytes vb_pairs(const unsigned char *a, const unsigned char *b) { EACH_BYTE(i < 32 ? a[i % 16] : b[i % 16]); }
/* Bytes to the right by a, b, c and d bits in the four quarters; what comes in from above is anything. */
INLINE vbytes vb_shifted(vbytes v, int a, int b, int c, int d)
{
    EACH_BYTE(v.at[i] >> (i < 16 ? a : i < 32 ? b : i < 48 ? c : d));
}
INLINE vbytes vb_and(vbytes v, int byte) { EACH_BYTE(v.at[i] & byte); }
/* w, and what `mask` takes of v's bytes, shifted to the right by `first` bits in the first half, `second` in the second;
 * to the left if that is negative. */
INLINE vbytes vb_or_bits(vbytes w, vbytes v, int first, int second, int mask)
{
    EACH_BYTE(w.at[i] | (((i < 32 ? first : second) < 0 ? v.at[i] << -(i < 32 ? first : second)
                                                        : v.at[i] >> (i < 32 ? first : second)) & mask));
}
/* w, plus `amount` where the column's bit of the mask is set. */
INLINE vbytes vb_plus_where(vbytes w, uint64_t mask, int amount) { EACH_BYTE(w.at[i] + (mask >> i & 1 ? amount : 0)); }
/* What sixteen bytes have at places below 16. */
INLINE vbytes vb_table(vbytes codes, const unsigned char *table) { EACH_BYTE(table[codes.at[i] & 15]); }
/* Sixteen unsigned bytes as floats, given as words; their low nibbles; their high ones. */
INLINE vf vf_bytes(const unsigned char *bytes, int shift, int mask)
{
    float wide[16];
    for (int i = 0; i < 16; i++)
        wide[i] = (float)(bytes[i] >> shift & mask);
    return vf_load(wide);
}
INLINE vf vf_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    const uint32_t words[4] = {a, b, c, d};
    return vf_bytes((const unsigned char *)words, 0, 255);
}
INLINE vf vf_low_nibbles(const unsigned char *p) { return vf_bytes(p, 0, 15); }
INLINE vf vf_high_nibbles(const unsigned char *p) { return vf_bytes(p, 4, 15); }
/* Half floats `step` bytes apart. */
INLINE vf vf_halves_every(const unsigned char *p, long step)
{
    float wide[16];
    for (int i = 0; i < 16; i++)
        wide[i] = half_value(p + i * step);
    return vf_load(wide);
}
/* Two floats, each for eight lanes. */
INLINE vf vf_halves_at(const float *p)
{
    float wide[16];
    for (int i = 0; i < 16; i++)
        wide[i] = p[i / 8];
    return vf_load(wide);
}
INLINE vf vf_fourths_at(const float *p) { return vf_quarters_at(p); }
/* Pairs of half floats at a, for the lower eight lanes, and at b. */
INLINE void vf_two_pairs(const unsigned char *a, const unsigned char *b, vf *first, vf *second)
{
    *first = vf_halves_at((float[2]){half_value(a), half_value(b)});
    *second = vf_halves_at((float[2]){half_value(a + 2), half_value(b + 2)});
}
#endif

#ifdef X86_SCALES
INLINE vf vf_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return vf_bytes(_mm_setr_epi32((int)a, (int)b, (int)c, (int)d));
}
INLINE vf vf_low_nibbles(const unsigned char *p)
{
    return vf_bytes(_mm_and_si128(_mm_loadu_si128((const __m128i *)p), _mm_set1_epi8(15)));
}
INLINE vf vf_high_nibbles(const unsigned char *p)
{
    return vf_bytes(_mm_and_si128(_mm_srli_epi16(_mm_loadu_si128((const __m128i *)p), 4), _mm_set1_epi8(15)));
}
INLINE void vf_two_pairs(const unsigned char *a, const unsigned char *b, vf *first, vf *second)
{
    int low, high;
    memcpy(&low, a, sizeof low);
    memcpy(&high, b, sizeof high);
    const __m128 four = _mm_cvtph_ps(_mm_setr_epi32(low, high, 0, 0));
    *first = vf_each_eight(four, 0, 2);
    *second = vf_each_eight(four, 1, 3);
}
INLINE short short_of(const unsigned char *p)
{
    short word;
    memcpy(&word, p, sizeof word);
    return word;
}
/* Through registers: a load of what several stores have just written waits for all of them. */
INLINE __m128i eight_shorts(const unsigned char *p, long step)
{
    return _mm_setr_epi16(short_of(p), short_of(p + step), short_of(p + 2 * step), short_of(p + 3 * step),
                          short_of(p + 4 * step), short_of(p + 5 * step), short_of(p + 6 * step), short_of(p + 7 * step));
}
INLINE vf vf_halves_every(const unsigned char *p, long step)
{
    return vf_from_halves(eight_shorts(p, step), eight_shorts(p + 8 * step, step));
}
#endif
