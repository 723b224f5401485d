/* How blocks of ggml's formats with grids become bytes, at one SIMD level. A grid's entry is eight, or four, magnitudes. */
#include "block_bytes.h"

#define EIGHT_STEPS(of, c) {of(c, 0), of(c, 1), of(c, 2), of(c, 3), of(c, 4), of(c, 5), of(c, 6), of(c, 7)}
#define FOUR_STEPS(of, c) {of(c, 0), of(c, 1), of(c, 2), of(c, 3)}
#define IQ2_STEP(c, k) (8 + 17 * ((c) >> 2 * (k) & 3) + ((c) >> 2 * (k) & 3) / 2)         /* 8, 25, 43 */
#define IQ1_STEP(c, k) (1 + 8 * ((c) >> 2 * (k) & 3))                                     /* 8 (-1, 0, 1) + 9 */
#define IQ3_XXS_STEP(c, k) (4 + 8 * ((c) >> 3 * (k) & 7) + ((c) >> 3 * (k) & 7) / 7 * 2)  /* 4, 12, ... 52, 62 */
#define IQ3_S_STEP(c, k) (1 + 2 * ((c) >> 3 * (k) & 7))                                   /* 1, 3, ... 15 */
#define GRID(name, count, size) static const unsigned char name##_grid[count][size]
#define IQ2(a, b, c, d) \
    EIGHT_STEPS(IQ2_STEP, a), EIGHT_STEPS(IQ2_STEP, b), EIGHT_STEPS(IQ2_STEP, c), EIGHT_STEPS(IQ2_STEP, d)
#define IQ1(a, b, c, d) \
    EIGHT_STEPS(IQ1_STEP, a), EIGHT_STEPS(IQ1_STEP, b), EIGHT_STEPS(IQ1_STEP, c), EIGHT_STEPS(IQ1_STEP, d)
#define IQ3_XXS(a, b, c, d) \
    FOUR_STEPS(IQ3_XXS_STEP, a), FOUR_STEPS(IQ3_XXS_STEP, b), FOUR_STEPS(IQ3_XXS_STEP, c), FOUR_STEPS(IQ3_XXS_STEP, d)
#define IQ3_S(a, b, c, d) \
    FOUR_STEPS(IQ3_S_STEP, a), FOUR_STEPS(IQ3_S_STEP, b), FOUR_STEPS(IQ3_S_STEP, c), FOUR_STEPS(IQ3_S_STEP, d)
#include "iq_grids.h"

/* Signs of eight columns out of seven bits: their number is even. */
#define EVEN(s) ((s) | (0x6996 >> (((s) ^ (s) >> 4) & 15) & 1) << 7)
#define EVEN_4(s) EVEN(s), EVEN((s) + 1), EVEN((s) + 2), EVEN((s) + 3)
#define EVEN_16(s) EVEN_4(s), EVEN_4((s) + 4), EVEN_4((s) + 8), EVEN_4((s) + 12)
static const unsigned char even_signs[128] = {EVEN_16(0),  EVEN_16(16), EVEN_16(32), EVEN_16(48),
                                              EVEN_16(64), EVEN_16(80), EVEN_16(96), EVEN_16(112)};

/* Octet number o, 0 to 15, of a half lies at place o / 2 of one vector, in the order of runs of 8. */
INLINE unsigned char *octet_of(struct half *to, int o) { return to->bytes[o % 2] + o / 2 * 8; }
INLINE unsigned char *signs_of(struct half *to, int o) { return to->signs[o % 2] + o / 2; }

INLINE void iq2_xxs_half(const unsigned char *block, long half, struct half *to)
{
    const float d = half_value(block);
    UNROLL_16 for (int g = 0; g < 4; g++) {
        const unsigned char *const at = block + 2 + 8 * (4 * half + g);
        const uint32_t word = word_at(at + 4);
        UNROLL_16 for (int o = 0; o < 4; o++) {
            memcpy(octet_of(to, 4 * g + o), iq2_xxs_grid[at[o]], 8);
            *signs_of(to, 4 * g + o) = even_signs[word >> 7 * o & 127];
        }
        set_pair(to, g, d * (0.5f + (float)(word >> 28)) * 0.25f);
    }
}

/* The factors of groups of 16 out of nibbles. */
INLINE void iq2_factors(float d, const unsigned char *scales, struct half *to)
{
    UNROLL_16 for (int g = 0; g < 8; g++)
        to->factors[g] = d * (0.5f + (float)(scales[g / 2] >> 4 * (g % 2) & 15)) * 0.25f * OVER_SHIFT;
}

INLINE void iq2_xs_half(const unsigned char *block, long half, struct half *to)
{
    UNROLL_16 for (int o = 0; o < 16; o++) {
        const uint32_t word = short_at(block + 2 + 2 * (16 * half + o));
        memcpy(octet_of(to, o), iq2_xs_grid[word & 511], 8);
        *signs_of(to, o) = even_signs[word >> 9];
    }
    iq2_factors(half_value(block), block + 66 + 4 * half, to);
}

INLINE void iq2_s_half(const unsigned char *block, long half, struct half *to)
{
    const unsigned char *const low = block + 2 + 16 * half, *const high = block + 66 + 4 * half;
    UNROLL_16 for (int o = 0; o < 16; o++) {
        memcpy(octet_of(to, o), iq2_s_grid[low[o] | (high[o / 4] >> 2 * (o % 4) & 3) << 8], 8);
        *signs_of(to, o) = low[32 + o];
    }
    iq2_factors(half_value(block), block + 74 + 4 * half, to);
}

INLINE void iq3_xxs_half(const unsigned char *block, long half, struct half *to)
{
    const unsigned char *const at = block + 2 + 32 * half;
    const float d = half_value(block);
    UNROLL_16 for (int g = 0; g < 4; g++) {
        const uint32_t word = word_at(block + 66 + 4 * (4 * half + g));
        UNROLL_16 for (int o = 4 * g; o < 4 * g + 4; o++) {
            memcpy(octet_of(to, o), iq3_xxs_grid[at[2 * o]], 4);
            memcpy(octet_of(to, o) + 4, iq3_xxs_grid[at[2 * o + 1]], 4);
            *signs_of(to, o) = even_signs[word >> 7 * (o % 4) & 127];
        }
        set_pair(to, g, d * (0.5f + (float)(word >> 28)) * 0.5f);
    }
}

INLINE void iq3_s_half(const unsigned char *block, long half, struct half *to)
{
    const unsigned char *const at = block + 2 + 32 * half, *const high = block + 66 + 4 * half;
    const unsigned char *const signs = block + 74 + 16 * half, *const scales = block + 106 + 2 * half;
    const float d = half_value(block);
    UNROLL_16 for (int o = 0; o < 16; o++) {
        const uint32_t ninth = (uint32_t)high[o / 4] >> 2 * (o % 4);
        memcpy(octet_of(to, o), iq3_s_grid[at[2 * o] | (ninth & 1) << 8], 4);
        memcpy(octet_of(to, o) + 4, iq3_s_grid[at[2 * o + 1] | (ninth & 2) << 7], 4);
        *signs_of(to, o) = signs[o];
    }
    UNROLL_16 for (int g = 0; g < 4; g++)
        set_pair(to, g, d * (float)(1 + 2 * (scales[g / 2] >> 4 * (g % 2) & 15)));
}

/* An entry of IQ1's grid, all eight more by one, or where `less` is 1 less by one: an eighth, in the steps of entries. */
INLINE void put_iq1(struct half *to, int o, uint32_t index, uint32_t less)
{
    uint64_t entry;
    memcpy(&entry, iq1_grid[index], sizeof entry);
    entry += 0x0101010101010101u - less * (uint64_t)0x0202020202020202u;
    memcpy(octet_of(to, o), &entry, sizeof entry);
}

INLINE void iq1_s_half(const unsigned char *block, long half, struct half *to)
{
    const unsigned char *const low = block + 2 + 16 * half;
    const float d = half_value(block) * 0.125f;
    UNROLL_16 for (int g = 0; g < 4; g++) {
        const uint32_t high = short_at(block + 34 + 2 * (4 * half + g));
        UNROLL_16 for (int o = 0; o < 4; o++)
            put_iq1(to, 4 * g + o, low[4 * g + o] | (high >> 3 * o & 7) << 8, high >> 15);
        set_pair(to, g, d * (float)(2 * (high >> 12 & 7) + 1));
    }
}

INLINE void iq1_m_half(const unsigned char *block, long half, struct half *to)
{
    const unsigned char *const low = block + 16 * half, *const high = block + 32 + 8 * half, *const scales = block + 48;
    const uint16_t bits = (uint16_t)(short_at(scales) >> 12 | (short_at(scales + 2) >> 12) << 4 |
                                     (short_at(scales + 4) >> 12) << 8 | (short_at(scales + 6) >> 12) << 12);
    const float d = half_value((const unsigned char *)&bits) * 0.125f;
    UNROLL_16 for (int o = 0; o < 16; o++) {
        const uint32_t nibble = high[o / 2] >> 4 * (o % 2);
        put_iq1(to, o, low[o] | (nibble & 7) << 8, nibble >> 3 & 1);
    }
    UNROLL_16 for (int g = 0; g < 8; g++) {
        const uint32_t word = short_at(scales + 2 * (2 * half + g / 4));
        to->factors[g] = d * (float)(2 * (word >> 3 * (g % 4) & 7) + 1) * OVER_SHIFT;
    }
}

SIGNED_BYTES(iq2_xxs, 43) PAIRS(iq2_xxs)
SIGNED_BYTES(iq2_xs, 43) PAIRS(iq2_xs)
SIGNED_BYTES(iq2_s, 43) PAIRS(iq2_s)
SIGNED_BYTES(iq3_xxs, 62) PAIRS(iq3_xxs)
SIGNED_BYTES(iq3_s, 15) PAIRS(iq3_s)
READY_BYTES(iq1_s) PAIRS(iq1_s)
READY_BYTES(iq1_m) PAIRS(iq1_m)
