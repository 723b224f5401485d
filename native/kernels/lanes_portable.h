/* Sixteen floats in four vectors of four, which any processor with GCC's or Clang's vector types can hold
 * (SSE2, NEON, or plain registers). This file says what each function of a lanes_*.h does; multiplication
 * and addition here round one by one, in the other two they are fused. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* What the registers hold at once: rows and tokens of a tile, the same where weights are integers, vectors of a row of
 * the delta rule's state, heads of attention and the keys, or vectors of a value, that they meet. */
enum {
    TILE_ROWS = 2,
    TILE_TOKENS = 4,
    INTEGER_ROWS = 2,
    INTEGER_TOKENS = 1,
    DELTA_VECTORS = 1,
    ATTEND_HEADS = 1,
    ATTEND_KEYS = 1,
    ATTEND_VECTORS = 4
};

typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));
typedef struct {
    v4f q[4];
} vf;

#define EACH(expression)            \
    do {                            \
        vf result;                  \
        for (int k = 0; k < 4; k++) \
            result.q[k] = expression; \
        return result;              \
    } while (0)

INLINE vf vf_set(float a) { EACH(((v4f){a, a, a, a})); }

/* 16 floats from or to memory of any alignment; *_n: only the first 0 <= n < 16, the rest zero or untouched. */
INLINE vf vf_load(const float *p)
{
    vf a;
    memcpy(&a, p, sizeof a);
    return a;
}
INLINE void vf_store(float *p, vf a) { memcpy(p, &a, sizeof a); }
INLINE vf vf_load_n(const float *p, long n)
{
    vf a = {{{0}}};
    memcpy(&a, p, (unsigned long)n * sizeof(float));
    return a;
}
INLINE void vf_store_n(float *p, vf a, long n) { memcpy(p, &a, (unsigned long)n * sizeof(float)); }

INLINE vf vf_add(vf a, vf b) { EACH(a.q[k] + b.q[k]); }
INLINE vf vf_sub(vf a, vf b) { EACH(a.q[k] - b.q[k]); }
INLINE vf vf_mul(vf a, vf b) { EACH(a.q[k] * b.q[k]); }
INLINE vf vf_div(vf a, vf b) { EACH(a.q[k] / b.q[k]); }
INLINE vf vf_fma(vf a, vf b, vf c) { EACH(a.q[k] * b.q[k] + c.q[k]); }

INLINE v4f select4(v4i mask, v4f yes, v4f no) { return (v4f)(((v4i)yes & mask) | ((v4i)no & ~mask)); }

/* a < b ? yes : no in each lane. */
INLINE vf vf_if_less(vf a, vf b, vf yes, vf no) { EACH(select4(a.q[k] < b.q[k], yes.q[k], no.q[k])); }
/* Whether a < b in any lane. */
INLINE int vf_any_less(vf a, vf b)
{
    v4i any = a.q[0] < b.q[0];
    for (int k = 1; k < 4; k++)
        any |= a.q[k] < b.q[k];
    return (any[0] | any[1] | any[2] | any[3]) != 0;
}
/* The smaller, the larger of a and bound; a NaN in a stays. */
INLINE vf vf_min(vf a, vf bound) { return vf_if_less(bound, a, bound, a); }
INLINE vf vf_max(vf a, vf bound) { return vf_if_less(a, bound, bound, a); }

/* To the nearest integer, ties to even, for |a| < 2^22. */
INLINE vf vf_round(vf a)
{
    const v4f shift = {12582912.0f, 12582912.0f, 12582912.0f, 12582912.0f};
    EACH((a.q[k] + shift) - shift);
}
/* 2^n for integers -126 <= n <= 127. */
INLINE vf vf_pow2(vf n)
{
    vf result;
    for (int k = 0; k < 4; k++) {
        v4i e;
        for (int i = 0; i < 4; i++)
            e[i] = (int32_t)n.q[k][i];
        result.q[k] = (v4f)((e + 127) << 23);
    }
    return result;
}

/* The sum of the lanes: halves folded onto each other until one is left. */
INLINE float vf_sum(vf a)
{
    v4f b = (a.q[0] + a.q[2]) + (a.q[1] + a.q[3]);
    return (b[0] + b[2]) + (b[1] + b[3]);
}
/* The sums of the lanes of sixteen vectors, `step` floats apart, each as vf_sum adds them. */
INLINE vf vf_sums(const float *p, long step)
{
    float sums[16];
    for (int i = 0; i < 16; i++)
        sums[i] = vf_sum(vf_load(p + i * step));
    return vf_load(sums);
}
/* The largest lane; without a NaN among them. */
INLINE float vf_largest(vf a)
{
    float largest = a.q[0][0];
    for (int i = 1; i < 16; i++)
        largest = a.q[i / 4][i % 4] > largest ? a.q[i / 4][i % 4] : largest;
    return largest;
}

/* 16 bfloat16, 16 half floats, exactly. */
INLINE vf vf_load_bf16(const unsigned char *p)
{
    uint16_t bits[16];
    uint32_t wide[16];
    memcpy(bits, p, sizeof bits);
    for (int i = 0; i < 16; i++)
        wide[i] = (uint32_t)bits[i] << 16;
    vf a;
    memcpy(&a, wide, sizeof a);
    return a;
}
INLINE vf vf_load_f16(const unsigned char *p)
{
    uint16_t bits[16];
    float wide[16];
    memcpy(bits, p, sizeof bits);
    for (int i = 0; i < 16; i++) {
        uint32_t magnitude = bits[i] & 0x7fffu, sign = (uint32_t)(bits[i] >> 15) << 31, result;
        float value;
        memcpy(&value, &(uint32_t){magnitude << 13}, sizeof value);
        value *= 0x1p112f; /* moves the exponent's bias from 15 to 127, denormals too */
        memcpy(&result, &value, sizeof result);
        if (magnitude >= 0x7c00)
            result = 0x7f800000u | magnitude << 13;
        result |= sign;
        memcpy(&wide[i], &result, sizeof result);
    }
    return vf_load(wide);
}

/* The half float at p. */
INLINE float half_value(const unsigned char *p)
{
    unsigned char lanes[32] = {0};
    memcpy(lanes, p, 2);
    return vf_load_f16(lanes).q[0][0];
}

/* 16 signed bytes. */
INLINE vf vf_load_int8(const unsigned char *p)
{
    int8_t codes[16];
    float wide[16];
    memcpy(codes, p, sizeof codes);
    for (int i = 0; i < 16; i++)
        wide[i] = codes[i];
    return vf_load(wide);
}

/* 16 E4M3 codes, times 2^-8: sign and magnitude are moved to where a half float has them. */
INLINE vf vf_load_fp8(const unsigned char *p)
{
    uint16_t half[16];
    for (int i = 0; i < 16; i++)
        half[i] = (uint16_t)((p[i] & 0x80u) << 8 | (p[i] & 0x7fu) << 7);
    return vf_load_f16((const unsigned char *)half);
}
/* Whether one of 64, of 16 E4M3 codes is a NaN. */
INLINE int fp8_nan_of(const unsigned char *p, int count)
{
    int found = 0;
    for (int i = 0; i < count; i++)
        found |= (p[i] & 0x7f) == 0x7f;
    return found;
}
INLINE int fp8_nan(const unsigned char *p) { return fp8_nan_of(p, 64); }
INLINE int fp8_nan_16(const unsigned char *p) { return fp8_nan_of(p, 16); }

/* 64 bytes, sixteen little-endian words of eight nibbles; turn v (they must be asked for from 0 to 7) makes
 * nibble v the lowest of each word. */
typedef struct {
    unsigned char bytes[64];
    int turn;
} nibbles;

INLINE nibbles nibbles_load(const unsigned char *p)
{
    nibbles a;
    memcpy(a.bytes, p, 64);
    a.turn = 0;
    return a;
}
INLINE nibbles nibbles_turn(nibbles *a, int v)
{
    a->turn = v;
    return *a;
}
INLINE vf nibbles_table(const nibbles *a, const float *table)
{
    float values[16];
    for (int i = 0; i < 16; i++)
        values[i] = table[a->bytes[4 * i + a->turn / 2] >> 4 * (a->turn % 2) & 15];
    return vf_load(values);
}

/* The lowest nibble of each word as an E2M1 value, as a number less eight. */
INLINE vf vf_fp4(nibbles a)
{
    static const float table[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    return nibbles_table(&a, table);
}
INLINE vf vf_int4(nibbles a)
{
    static const float table[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    return nibbles_table(&a, table);
}

/* Four scales, each for four neighbouring lanes: E8M0 bytes (255 is zero), half floats, bfloat16. */
INLINE vf vf_quarters(const float *scales)
{
    EACH(((v4f){scales[k], scales[k], scales[k], scales[k]}));
}
INLINE vf vf_quarters_e8m0(const unsigned char *p)
{
    float scales[4];
    for (int k = 0; k < 4; k++) {
        const uint32_t bits = p[k] == 255 ? 0 : p[k] == 0 ? 0x00400000u : (uint32_t)p[k] << 23;
        memcpy(&scales[k], &bits, sizeof bits);
    }
    return vf_quarters(scales);
}
INLINE vf vf_quarters_half(const unsigned char *p)
{
    return vf_quarters((float[4]){half_value(p), half_value(p + 2), half_value(p + 4), half_value(p + 6)});
}
INLINE vf vf_quarters_bfloat(const unsigned char *p)
{
    unsigned char lanes[32] = {0};
    memcpy(lanes, p, 8);
    const vf all = vf_load_bf16(lanes);
    return vf_quarters((float[4]){all.q[0][0], all.q[0][1], all.q[0][2], all.q[0][3]});
}
INLINE vf vf_quarters_at(const float *scales) { return vf_quarters(scales); }

/* Sixteen E8M0 scales (255 is zero). */
INLINE vf vf_load_e8m0(const unsigned char *p)
{
    uint32_t bits[16];
    for (int i = 0; i < 16; i++)
        bits[i] = p[i] == 255 ? 0 : p[i] == 0 ? 0x00400000u : (uint32_t)p[i] << 23;
    vf a;
    memcpy(&a, bits, sizeof a);
    return a;
}

/* Sixteen int32, and 64 unsigned bytes, four to each of those lanes. */
typedef struct {
    int32_t at[16];
} vi;
typedef struct {
    unsigned char at[64];
} vbytes;

INLINE vi vi_zero(void) { return (vi){{0}}; }
INLINE vi vi_load(const void *p)
{
    vi a;
    memcpy(&a, p, sizeof a);
    return a;
}
INLINE void vi_store(void *p, vi a) { memcpy(p, &a, sizeof a); }
INLINE vi vi_sub(vi a, vi b)
{
    for (int i = 0; i < 16; i++)
        a.at[i] -= b.at[i];
    return a;
}
INLINE vi vi_times_256(vi a)
{
    for (int i = 0; i < 16; i++)
        a.at[i] *= 256;
    return a;
}
INLINE vbytes vbytes_set(int a)
{
    vbytes b;
    memset(&b, a, sizeof b);
    return b;
}
/* Each lane plus the sum of the products of its four unsigned bytes w and its four signed bytes x; w below 128, so
 * that two products fit into 16 bits. */
INLINE vi vi_dot(vi sum, vbytes w, vi x)
{
    signed char bytes[64];
    memcpy(bytes, &x, sizeof bytes);
    for (int i = 0; i < 64; i++)
        sum.at[i / 4] += w.at[i] * bytes[i];
    return sum;
}
INLINE vf vf_from_int(vi a)
{
    float wide[16];
    for (int i = 0; i < 16; i++)
        wide[i] = (float)a.at[i];
    return vf_load(wide);
}

/* The low and the high nibbles of 64 bytes; the same as E2M1 codes, twice their values plus 12. */
struct byte_pair {
    vbytes even, odd;
};
INLINE struct byte_pair nibble_bytes(const unsigned char *p)
{
    struct byte_pair pair;
    for (int i = 0; i < 64; i++) {
        pair.even.at[i] = p[i] & 15;
        pair.odd.at[i] = p[i] >> 4;
    }
    return pair;
}
INLINE struct byte_pair fp4_bytes(const unsigned char *p)
{
    static const unsigned char table[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    struct byte_pair pair;
    for (int i = 0; i < 64; i++) {
        pair.even.at[i] = table[p[i] & 15];
        pair.odd.at[i] = table[p[i] >> 4];
    }
    return pair;
}

/* 64 bytes. */
INLINE vbytes vbytes_load(const unsigned char *p)
{
    vbytes a;
    memcpy(&a, p, sizeof a);
    return a;
}
/* 64 magnitudes with the signs of eight bytes of bits, each plus `zero`. */
INLINE vbytes vbytes_signed(const unsigned char *magnitudes, const unsigned char *signs, int zero)
{
    vbytes a;
    for (int i = 0; i < 64; i++)
        a.at[i] = (unsigned char)(signs[i / 8] >> i % 8 & 1 ? zero - magnitudes[i] : zero + magnitudes[i]);
    return a;
}
/* Each code below 16 becomes what the table says. */
INLINE vbytes vbytes_table(vbytes codes, const unsigned char *table)
{
    for (int i = 0; i < 64; i++)
        codes.at[i] = table[codes.at[i]];
    return codes;
}
INLINE vbytes vbytes_add(vbytes a, vbytes b)
{
    for (int i = 0; i < 64; i++)
        a.at[i] = (unsigned char)(a.at[i] + b.at[i]);
    return a;
}
/* Four bytes, each for sixteen neighbours. */
INLINE vbytes vbytes_quarters(const unsigned char *p)
{
    vbytes a;
    for (int i = 0; i < 64; i++)
        a.at[i] = p[i / 16];
    return a;
}
/* vi_dot for any unsigned bytes w. */
INLINE vi vi_dot_any(vi sum, vbytes w, vi x) { return vi_dot(sum, w, x); }
/* Eight floats, each for two neighbouring lanes. */
INLINE vf vf_pairs_at(const float *p)
{
    float pairs[16];
    for (int i = 0; i < 16; i++)
        pairs[i] = p[i / 2];
    return vf_load(pairs);
}
