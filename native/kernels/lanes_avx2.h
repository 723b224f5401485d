/* Sixteen floats in two ymm registers. See lanes_portable.h for what each function does. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum {
    TILE_ROWS = 2,
    TILE_TOKENS = 2,
    INTEGER_ROWS = 2,
    INTEGER_TOKENS = 1,
    DELTA_VECTORS = 2,
    ATTEND_HEADS = 2,
    ATTEND_KEYS = 2,
    ATTEND_VECTORS = 2
};

typedef struct {
    __m256 lo, hi;
} vf;

#define EACH(expression_lo, expression_hi) ((vf){expression_lo, expression_hi})

INLINE vf vf_set(float a) { return EACH(_mm256_set1_ps(a), _mm256_set1_ps(a)); }
INLINE vf vf_load(const float *p) { return EACH(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
INLINE void vf_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
INLINE vf vf_load_n(const float *p, long n)
{
    float padded[16] = {0};
    memcpy(padded, p, (unsigned long)n * sizeof(float));
    return vf_load(padded);
}
INLINE void vf_store_n(float *p, vf a, long n)
{
    float padded[16];
    vf_store(padded, a);
    memcpy(p, padded, (unsigned long)n * sizeof(float));
}

INLINE vf vf_add(vf a, vf b) { return EACH(_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)); }
INLINE vf vf_sub(vf a, vf b) { return EACH(_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)); }
INLINE vf vf_mul(vf a, vf b) { return EACH(_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)); }
INLINE vf vf_div(vf a, vf b) { return EACH(_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)); }
INLINE vf vf_fma(vf a, vf b, vf c)
{
    return EACH(_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}
INLINE vf vf_min(vf a, vf bound)
{
    return EACH(_mm256_min_ps(bound.lo, a.lo), _mm256_min_ps(bound.hi, a.hi));
}
INLINE vf vf_max(vf a, vf bound)
{
    return EACH(_mm256_max_ps(bound.lo, a.lo), _mm256_max_ps(bound.hi, a.hi));
}
INLINE vf vf_round(vf a)
{
    return EACH(_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE vf vf_if_less(vf a, vf b, vf yes, vf no)
{
    return EACH(_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
                _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)));
}
INLINE int vf_any_less(vf a, vf b)
{
    const __m256 lo = _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), hi = _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ);
    return _mm256_movemask_ps(_mm256_or_ps(lo, hi)) != 0;
}
INLINE __m256 pow2_half(__m256 n)
{
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}
INLINE vf vf_pow2(vf n) { return EACH(pow2_half(n.lo), pow2_half(n.hi)); }

INLINE float vf_sum(vf a)
{
    __m256 b = _mm256_add_ps(a.lo, a.hi);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
INLINE vf vf_sums(const float *p, long step)
{
    float sums[16];
    for (int i = 0; i < 16; i++)
        sums[i] = vf_sum(vf_load(p + i * step));
    return vf_load(sums);
}
INLINE float vf_largest(vf a)
{
    __m256 b = _mm256_max_ps(a.lo, a.hi);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

INLINE __m256 bf16_half(__m128i bits)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
INLINE vf vf_load_bf16(const unsigned char *p)
{
    return EACH(bf16_half(_mm_loadu_si128((const __m128i *)p)),
                bf16_half(_mm_loadu_si128((const __m128i *)(p + 16))));
}
INLINE vf vf_load_f16(const unsigned char *p)
{
    return EACH(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 16))));
}

INLINE float half_value(const unsigned char *p)
{
    unsigned short bits;
    memcpy(&bits, p, sizeof bits);
    return _cvtsh_ss(bits);
}
INLINE vf vf_load_int8(const unsigned char *p)
{
    const __m128i codes = _mm_loadu_si128((const __m128i *)p);
    return EACH(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8))));
}
INLINE vf vf_load_fp8(const unsigned char *p)
{
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbf80));
    return EACH(_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
                _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)));
}

INLINE int fp8_nan_16(const unsigned char *p)
{
    const __m128i nan = _mm_set1_epi8(0x7f), codes = _mm_loadu_si128((const __m128i *)p);
    return _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_and_si128(codes, nan), nan)) != 0;
}
INLINE int fp8_nan_32(const unsigned char *p)
{
    const __m256i nan = _mm256_set1_epi8(0x7f), codes = _mm256_loadu_si256((const __m256i *)p);
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(codes, nan), nan)) != 0;
}
INLINE int fp8_nan(const unsigned char *p) { return fp8_nan_32(p) | fp8_nan_32(p + 32); }

typedef struct {
    __m256i lo, hi;
} nibbles;

INLINE nibbles nibbles_load(const unsigned char *p)
{
    return (nibbles){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 32))};
}
INLINE nibbles nibbles_turn(nibbles *a, int v)
{
    if (v > 0)
        *a = (nibbles){_mm256_srli_epi32(a->lo, 4), _mm256_srli_epi32(a->hi, 4)};
    return *a;
}
INLINE __m256 fp4_half(__m256i words)
{
    /* The permutation sees the lowest three bits, the magnitude; bit 3 goes to where floats have the sign. */
    const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    const __m256 sign = _mm256_castsi256_ps(_mm256_slli_epi32(words, 28));
    return _mm256_xor_ps(_mm256_permutevar8x32_ps(magnitudes, words), _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}
INLINE vf vf_fp4(nibbles a) { return EACH(fp4_half(a.lo), fp4_half(a.hi)); }
INLINE __m256 int4_half(__m256i words)
{
    const __m256i code = _mm256_and_si256(words, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(code, _mm256_set1_epi32(8)));
}
INLINE vf vf_int4(nibbles a) { return EACH(int4_half(a.lo), int4_half(a.hi)); }

INLINE vf vf_quarters(__m128 scales)
{
    const __m256 both = _mm256_castps128_ps256(scales);
    return EACH(_mm256_permutevar8x32_ps(both, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1)),
                _mm256_permutevar8x32_ps(both, _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3)));
}
INLINE vf vf_quarters_e8m0(const unsigned char *p)
{
    int word;
    memcpy(&word, p, sizeof word);
    const __m128i bytes = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(word));
    const __m128i zero = _mm_cmpeq_epi32(bytes, _mm_set1_epi32(255));
    const __m128i bits = _mm_max_epi32(_mm_slli_epi32(bytes, 23), _mm_set1_epi32(0x00400000));
    return vf_quarters(_mm_castsi128_ps(_mm_andnot_si128(zero, bits)));
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
INLINE __m256 e8m0_half(const unsigned char *p)
{
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    const __m256i zero = _mm256_cmpeq_epi32(bytes, _mm256_set1_epi32(255));
    const __m256i bits = _mm256_max_epi32(_mm256_slli_epi32(bytes, 23), _mm256_set1_epi32(0x00400000));
    return _mm256_castsi256_ps(_mm256_andnot_si256(zero, bits));
}
INLINE vf vf_load_e8m0(const unsigned char *p) { return EACH(e8m0_half(p), e8m0_half(p + 8)); }

typedef struct {
    __m256i lo, hi;
} vi;
typedef vi vbytes;

#define EACH_INT(expression_lo, expression_hi) ((vi){expression_lo, expression_hi})

INLINE vi vi_zero(void) { return EACH_INT(_mm256_setzero_si256(), _mm256_setzero_si256()); }
INLINE vi vi_load(const void *p)
{
    const __m256i *const halves = p;
    return EACH_INT(_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1));
}
INLINE void vi_store(void *p, vi a)
{
    __m256i *const halves = p;
    _mm256_storeu_si256(halves, a.lo);
    _mm256_storeu_si256(halves + 1, a.hi);
}
INLINE vi vi_sub(vi a, vi b) { return EACH_INT(_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)); }
INLINE vi vi_times_256(vi a) { return EACH_INT(_mm256_slli_epi32(a.lo, 8), _mm256_slli_epi32(a.hi, 8)); }
INLINE vbytes vbytes_set(int a) { return EACH_INT(_mm256_set1_epi8((char)a), _mm256_set1_epi8((char)a)); }
INLINE vf vf_from_int(vi a) { return EACH(_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)); }
INLINE __m256i dot_half(__m256i sum, __m256i w, __m256i x)
{
    const __m256i pairs = _mm256_maddubs_epi16(w, x);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
INLINE vi vi_dot(vi sum, vbytes w, vi x)
{
    return EACH_INT(dot_half(sum.lo, w.lo, x.lo), dot_half(sum.hi, w.hi, x.hi));
}

struct byte_pair {
    vbytes even, odd;
};
INLINE struct byte_pair nibble_bytes(const unsigned char *p)
{
    const nibbles codes = nibbles_load(p);
    const __m256i low = _mm256_set1_epi8(15);
    return (struct byte_pair){
        EACH_INT(_mm256_and_si256(codes.lo, low), _mm256_and_si256(codes.hi, low)),
        EACH_INT(_mm256_and_si256(_mm256_srli_epi16(codes.lo, 4), low),
                 _mm256_and_si256(_mm256_srli_epi16(codes.hi, 4), low)),
    };
}
INLINE struct byte_pair fp4_bytes(const unsigned char *p)
{
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const struct byte_pair codes = nibble_bytes(p);
    return (struct byte_pair){
        EACH_INT(_mm256_shuffle_epi8(table, codes.even.lo), _mm256_shuffle_epi8(table, codes.even.hi)),
        EACH_INT(_mm256_shuffle_epi8(table, codes.odd.lo), _mm256_shuffle_epi8(table, codes.odd.hi)),
    };
}

INLINE vbytes vbytes_load(const unsigned char *p) { return vi_load(p); }
INLINE __m256i signed_half(const unsigned char *magnitudes, const unsigned char *signs, int zero)
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3,
                                            3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    int word;
    memcpy(&word, signs, sizeof word);
    const __m256i picked = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(word), spread), bit);
    const __m256i minus = _mm256_cmpeq_epi8(picked, bit), bytes = _mm256_loadu_si256((const __m256i *)magnitudes);
    return _mm256_add_epi8(_mm256_set1_epi8((char)zero), _mm256_sub_epi8(_mm256_xor_si256(bytes, minus), minus));
}
INLINE vbytes vbytes_signed(const unsigned char *magnitudes, const unsigned char *signs, int zero)
{
    return EACH_INT(signed_half(magnitudes, signs, zero), signed_half(magnitudes + 32, signs + 4, zero));
}
INLINE vbytes vbytes_table(vbytes codes, const unsigned char *table)
{
    const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return EACH_INT(_mm256_shuffle_epi8(both, codes.lo), _mm256_shuffle_epi8(both, codes.hi));
}
INLINE vbytes vbytes_add(vbytes a, vbytes b)
{
    return EACH_INT(_mm256_add_epi8(a.lo, b.lo), _mm256_add_epi8(a.hi, b.hi));
}
INLINE vbytes vbytes_quarters(const unsigned char *p)
{
    return EACH_INT(_mm256_set_m128i(_mm_set1_epi8((char)p[1]), _mm_set1_epi8((char)p[0])),
                    _mm256_set_m128i(_mm_set1_epi8((char)p[3]), _mm_set1_epi8((char)p[2])));
}
/* Bytes of both operands as words, the even ones and the odd ones apart: no product of bytes is cut off. */
INLINE __m256i dot_any_half(__m256i sum, __m256i w, __m256i x)
{
    const __m256i even = _mm256_and_si256(w, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(w, 8);
    const __m256i x_even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), x_odd = _mm256_srai_epi16(x, 8);
    return _mm256_add_epi32(_mm256_add_epi32(sum, _mm256_madd_epi16(even, x_even)), _mm256_madd_epi16(odd, x_odd));
}
INLINE vi vi_dot_any(vi sum, vbytes w, vi x)
{
    return EACH_INT(dot_any_half(sum.lo, w.lo, x.lo), dot_any_half(sum.hi, w.hi, x.hi));
}
INLINE vf vf_pairs_at(const float *p)
{
    const __m256 eight = _mm256_loadu_ps(p);
    return EACH(_mm256_permutevar8x32_ps(eight, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
                _mm256_permutevar8x32_ps(eight, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7)));
}
