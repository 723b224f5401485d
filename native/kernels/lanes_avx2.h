/* Sixteen floats in two ymm registers. See lanes_portable.h for what each function does. */
#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { STRIP_ROWS = 2, TILE_ROWS = 2, TILE_TOKENS = 2, DELTA_VECTORS = 2 };

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
