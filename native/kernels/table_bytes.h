/* How blocks of ggml's formats with small tables become bytes, at one SIMD level. */
#include "block_bytes.h"

INLINE void iq4_nl_half(const unsigned char *block, long half, struct half *to)
{
    (void)half;
    UNROLL_16 for (int g = 0; g < 4; g++) {
        memcpy(to->bytes[0] + 16 * g, block + 18 * g + 2, 16);
        set_pair(to, g, half_value(block + 18 * g));
    }
}

INLINE void iq4_xs_half(const unsigned char *block, long half, struct half *to)
{
    const uint32_t high = short_at(block + 2) >> 8 * half, low = short_at(block + 4 + 2 * half);
    const float d = half_value(block);
    memcpy(to->bytes[0], block + 8 + 64 * half, 64);
    UNROLL_16 for (int g = 0; g < 4; g++)
        set_pair(to, g, d * (float)((int)((low >> 4 * g & 15) | (high >> 2 * g & 3) << 4) - 32));
}

/* An unsigned E4M3 scale for E2M1 values that are counted twice; ggml takes 127 for zero. */
INLINE float half_e4m3(unsigned char code)
{
    const uint32_t bits = (uint32_t)(code & 0x7f) << 20;
    float value;
    memcpy(&value, &bits, sizeof value);
    return code == 0x7f ? 0 : value * 0x1p119f;
}

INLINE void nvfp4_half(const unsigned char *block, long half, struct half *to)
{
    (void)half;
    UNROLL_16 for (int g = 0; g < 8; g++)
        to->factors[g] = half_e4m3(block[36 * (g / 4) + g % 4]) * OVER_SHIFT;
    memcpy(to->bytes[0], block + 4, 32);
    memcpy(to->bytes[0] + 32, block + 40, 32);
}

/* Bytes that vectors of any processor hold. */
typedef unsigned char v16b __attribute__((vector_size(16)));

INLINE v16b v16b_at(const unsigned char *p)
{
    v16b a;
    memcpy(&a, p, sizeof a);
    return a;
}

INLINE void tq2_0_half(const unsigned char *block, long half, struct half *to)
{
    UNROLL_16 for (int j = 0; j < 32; j += 16) {
        v16b codes = v16b_at(block + 32 * half + j);
        UNROLL_16 for (int k = 0; k < 4; k++, codes >>= 2) {
            const v16b two = codes & 3;
            memcpy(to->bytes[k / 2] + k % 2 * 32 + j, &two, sizeof two);
        }
    }
    to->factors[0] = half_value(block + 64) * OVER_SHIFT;
}

/* What is left of sixteen codes after k of the threes in them: times 3^k, as bytes. A three is that times 3, over 256. */
INLINE v16b after_threes(v16b codes, int k)
{
    for (int i = 0; i < k; i++)
        codes += codes + codes;
    return codes;
}
INLINE void put_threes(v16b left, unsigned char *to)
{
    const v16b threes = (v16b)(left > 85) + (v16b)(left > 170), result = -threes;
    memcpy(to, &result, sizeof result);
}
INLINE void tq1_0_half(const unsigned char *block, long half, struct half *to)
{
    unsigned char *const bytes = (unsigned char *)to->bytes;
    UNROLL_16 for (int j = 0; j < 32; j += 16)
        UNROLL_16 for (int k = 0; k < 4; k++)
            if (half == 0)
                put_threes(after_threes(v16b_at(block + j), k), bytes + 32 * k + j);
            else if (k == 0)
                put_threes(after_threes(v16b_at(block + j), 4), bytes + j);
    if (half == 1) {
        unsigned char last[16];
        for (int k = 0, power = 1; k < 4; k++, power *= 3)
            for (int j = 0; j < 4; j++)
                last[4 * k + j] = (unsigned char)(block[48 + j] * power);
        UNROLL_16 for (int k = 0; k < 5; k++)
            put_threes(after_threes(v16b_at(block + 32), k), bytes + 32 + 16 * k);
        put_threes(v16b_at(last), bytes + 112);
    }
    to->factors[0] = half_value(block + 52) * OVER_SHIFT;
}

READY_BYTES(tq1_0) ALIKE(tq1_0)
READY_BYTES(tq2_0) ALIKE(tq2_0)

INLINE struct byte_pair iq4_nl_bytes(const struct half *half)
{
    static const unsigned char table[16] = {0, 23, 44, 62, 78, 92, 105, 117, 128, 140, 152, 165, 180, 196, 216, 240};
    const struct byte_pair codes = nibble_bytes(half->bytes[0]);
    return (struct byte_pair){vbytes_table(codes.even, table), vbytes_table(codes.odd, table)};
}
INLINE struct byte_pair iq4_xs_bytes(const struct half *half) { return iq4_nl_bytes(half); }
INLINE struct byte_pair nvfp4_bytes(const struct half *half) { return fp4_bytes(half->bytes[0]); }
PAIRS(iq4_nl) PAIRS(iq4_xs) PAIRS(nvfp4)
