/* What several of ggml's blocks have in common, at one SIMD level. */
#include "level.h"

#include "quantise_template.h"
#include "tile_template.h"
#include "columns.h"

/* The nibbles of 32 bytes: the low ones, then the high ones; and of sixteen bytes at each of two places. */
INLINE vbytes nibbles_of_32(const unsigned char *p) { return vb_and(vb_shifted(vb_twice(p), 0, 0, 4, 4), 15); }
INLINE vbytes nibbles_of_16(const unsigned char *a, const unsigned char *b)
{
    return vb_and(vb_shifted(vb_pairs(a, b), 0, 4, 0, 4), 15);
}

/* Pairs of bits of 32 bytes: those from `bit` on, then those above. */
INLINE vbytes pairs_of_bits(const unsigned char *p, int bit)
{
    return vb_and(vb_shifted(vb_twice(p), bit, bit, bit + 2, bit + 2), 3);
}

/* Eight scales and eight minima, of six bits each, out of twelve bytes: two words of scales, two of minima. */
struct six_bits {
    uint32_t scales[2], minima[2];
};
INLINE struct six_bits six_bits(const unsigned char *p)
{
    uint32_t word[3];
    memcpy(word, p, sizeof word);
    return (struct six_bits){
        {word[0] & 0x3f3f3f3f, (word[2] & 0x0f0f0f0f) | (word[0] >> 2 & 0x30303030)},
        {word[1] & 0x3f3f3f3f, (word[2] >> 4 & 0x0f0f0f0f) | (word[1] >> 2 & 0x30303030)},
    };
}

/* Scales and minima of the two blocks of a panel of Q4_K or Q5_K, `bytes` apart. */
INLINE void open_six_bits(const unsigned char *codes, long bytes, float *factors, float *minima)
{
    const struct six_bits one = six_bits(codes + 4), other = six_bits(codes + bytes + 4);
    vf scale, minimum;
    vf_two_pairs(codes, codes + bytes, &scale, &minimum);
    const vf scales = vf_words(one.scales[0], one.scales[1], other.scales[0], other.scales[1]);
    const vf lows = vf_words(one.minima[0], one.minima[1], other.minima[0], other.minima[1]);
    vf_store(factors, vf_mul(scales, scale));
    vf_store(minima, vf_mul(lows, vf_sub(vf_set(0), minimum)));
}

/* Half floats at the start of sixteen blocks, `bytes` apart. */
INLINE void open_halves(const unsigned char *codes, long bytes, float *out)
{
    vf_store(out, vf_halves_every(codes, bytes));
}

/* A word of bits for each of two blocks, as a mask of 64 columns. */
INLINE uint64_t two_words(const unsigned char *a, const unsigned char *b)
{
    uint32_t low, high;
    memcpy(&low, a, sizeof low);
    memcpy(&high, b, sizeof high);
    return (uint64_t)high << 32 | low;
}
