/* Sixteen floats in one zmm register. See lanes_portable.h for what each function does. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LOOK_UP_WORDS /* bytes_avx512.h */
#define INLINE static inline __attribute__((always_inline))

enum {
    TILE_ROWS = 4,
    TILE_TOKENS = 4,
    INTEGER_ROWS = 4,
    INTEGER_TOKENS = 2,
    DELTA_VECTORS = 8,
    ATTEND_HEADS = 4,
    ATTEND_KEYS = 4,
    ATTEND_VECTORS = 4
};

typedef __m512 vf;

INLINE vf vf_set(float a) { return _mm512_set1_ps(a); }
INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
INLINE vf vf_load_n(const float *p, long n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
INLINE void vf_store_n(float *p, vf a, long n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a); }

INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_min(vf a, vf bound) { return _mm512_min_ps(bound, a); }
INLINE vf vf_max(vf a, vf bound) { return _mm512_max_ps(bound, a); }
INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT); }
INLINE vf vf_if_less(vf a, vf b, vf yes, vf no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
INLINE int vf_any_less(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ) != 0; }
INLINE vf vf_pow2(vf n)
{
    __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
}

INLINE float vf_sum(vf a)
{
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
INLINE vf vf_fold_8(vf a, vf b) /* a's lanes and b's, each onto eight */
{
    return vf_add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
INLINE vf vf_fold_4(const float *p, long step) /* four vectors, each onto four */
{
    const vf a = vf_fold_8(vf_load(p), vf_load(p + 4 * step));
    const vf b = vf_fold_8(vf_load(p + 8 * step), vf_load(p + 12 * step));
    return vf_add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
INLINE vf vf_fold_2(vf a, vf b)
{
    const __m512d c = _mm512_castps_pd(a), d = _mm512_castps_pd(b);
    return vf_add(_mm512_castpd_ps(_mm512_unpacklo_pd(c, d)), _mm512_castpd_ps(_mm512_unpackhi_pd(c, d)));
}
INLINE vf vf_sums(const float *p, long step)
{
    const vf a = vf_fold_2(vf_fold_4(p, step), vf_fold_4(p + step, step));
    const vf b = vf_fold_2(vf_fold_4(p + 2 * step, step), vf_fold_4(p + 3 * step, step));
    return vf_add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}
INLINE float vf_largest(vf a)
{
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

INLINE vf vf_load_bf16(const unsigned char *p)
{
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
INLINE vf vf_load_f16(const unsigned char *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

INLINE float half_value(const unsigned char *p)
{
    unsigned short bits;
    memcpy(&bits, p, sizeof bits);
    return _cvtsh_ss(bits);
}
INLINE vf vf_load_int8(const unsigned char *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
INLINE vf vf_load_fp8(const unsigned char *p)
{
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
    return _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbf80)));
}
INLINE int fp8_nan(const unsigned char *p)
{
    const __m512i nan = _mm512_set1_epi8(0x7f);
    return _mm512_cmpeq_epi8_mask(_mm512_and_si512(_mm512_loadu_si512(p), nan), nan) != 0;
}
INLINE int fp8_nan_16(const unsigned char *p)
{
    const __m128i nan = _mm_set1_epi8(0x7f);
    return _mm_cmpeq_epi8_mask(_mm_and_si128(_mm_loadu_si128((const __m128i *)p), nan), nan) != 0;
}

typedef __m512i nibbles;

INLINE nibbles nibbles_load(const unsigned char *p) { return _mm512_loadu_si512(p); }
INLINE nibbles nibbles_turn(nibbles *a, int v) { return *a = v > 0 ? _mm512_srli_epi32(*a, 4) : *a; }
/* The permutation sees the lowest four bits of each word alone. */
INLINE vf vf_fp4(nibbles a)
{
    const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f,
                                        -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    return _mm512_permutexvar_ps(a, table);
}
INLINE vf vf_int4(nibbles a)
{
    const __m512 table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    return _mm512_permutexvar_ps(a, table);
}

INLINE vf vf_quarters(__m128 scales)
{
    const __m512i quarter = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_permutexvar_ps(quarter, _mm512_castps128_ps512(scales));
}
INLINE vf vf_quarters_e8m0(const unsigned char *p)
{
    int word;
    memcpy(&word, p, sizeof word);
    const __m128i bytes = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(word));
    const __mmask8 some = _mm_cmpneq_epi32_mask(bytes, _mm_set1_epi32(255));
    const __m128i bits = _mm_maskz_max_epi32(some, _mm_slli_epi32(bytes, 23), _mm_set1_epi32(0x00400000));
    return vf_quarters(_mm_castsi128_ps(bits));
}
INLINE vf vf_quarters_half(const unsigned char *p)
{
    return vf_quarters(_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)p)));
}
INLINE vf vf_quarters_bfloat(const unsigned char *p)
{
    const __m128i words = _mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)p));
    return vf_quarters(_mm_castsi128_ps(_mm_slli_epi32(words, 16)));
}
INLINE vf vf_quarters_at(const float *scales) { return vf_quarters(_mm_loadu_ps(scales)); }
INLINE vf vf_load_e8m0(const unsigned char *p)
{
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    const __mmask16 some = _mm512_cmpneq_epi32_mask(bytes, _mm512_set1_epi32(255));
    const __m512i least = _mm512_set1_epi32(0x00400000);
    return _mm512_castsi512_ps(_mm512_maskz_max_epi32(some, _mm512_slli_epi32(bytes, 23), least));
}

typedef __m512i vi;
typedef __m512i vbytes;

INLINE vi vi_zero(void) { return _mm512_setzero_si512(); }
INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE void vi_store(void *p, vi a) { _mm512_storeu_si512(p, a); }
INLINE vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
INLINE vi vi_times_256(vi a) { return _mm512_slli_epi32(a, 8); }
INLINE vbytes vbytes_set(int a) { return _mm512_set1_epi8((char)a); }
INLINE vf vf_from_int(vi a) { return _mm512_cvtepi32_ps(a); }
INLINE vi vi_dot(vi sum, vbytes w, vi x)
{
    return _mm512_dpbusd_epi32(sum, w, x);
}

struct byte_pair {
    vbytes even, odd;
};
INLINE struct byte_pair nibble_bytes(const unsigned char *p)
{
    const __m512i codes = _mm512_loadu_si512(p), low = _mm512_set1_epi8(15);
    return (struct byte_pair){_mm512_and_si512(codes, low), _mm512_and_si512(_mm512_srli_epi16(codes, 4), low)};
}
INLINE struct byte_pair fp4_bytes(const unsigned char *p)
{
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const struct byte_pair codes = nibble_bytes(p);
    return (struct byte_pair){_mm512_shuffle_epi8(table, codes.even), _mm512_shuffle_epi8(table, codes.odd)};
}

INLINE vbytes vbytes_load(const unsigned char *p) { return vi_load(p); }
INLINE vbytes vbytes_signed(const unsigned char *magnitudes, const unsigned char *signs, int zero)
{
    const __m512i bytes = _mm512_loadu_si512(magnitudes), zeros = _mm512_set1_epi8((char)zero);
    uint64_t minus;
    memcpy(&minus, signs, sizeof minus);
    return _mm512_mask_sub_epi8(_mm512_add_epi8(zeros, bytes), _cvtu64_mask64(minus), zeros, bytes);
}
INLINE vbytes vbytes_table(vbytes codes, const unsigned char *table)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), codes);
}
INLINE vbytes vbytes_add(vbytes a, vbytes b) { return _mm512_add_epi8(a, b); }
INLINE vbytes vbytes_quarters(const unsigned char *p)
{
    int four;
    memcpy(&four, p, sizeof four);
    const __m512i quarter = _mm512_setr_epi32(0, 0, 0, 0, 0x01010101, 0x01010101, 0x01010101, 0x01010101, 0x02020202, 0x02020202,
                                              0x02020202, 0x02020202, 0x03030303, 0x03030303, 0x03030303, 0x03030303);
    return _mm512_shuffle_epi8(_mm512_set1_epi32(four), quarter);
}
INLINE vi vi_dot_any(vi sum, vbytes w, vi x) { return _mm512_dpbusd_epi32(sum, w, x); }
INLINE vf vf_pairs_at(const float *p)
{
    const __m512i pair = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(pair, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}
