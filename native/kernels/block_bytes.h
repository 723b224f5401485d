/* What stored blocks are read with, at one SIMD level: for FORMAT_COPIED of bytes_template.h. Factors come over
 * FACTOR_SHIFT. */

#define OVER_SHIFT (1 / FACTOR_SHIFT)
#define UNROLL_16 _Pragma("GCC unroll 16")


INLINE uint32_t word_at(const unsigned char *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}
INLINE uint32_t short_at(const unsigned char *p)
{
    uint16_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

INLINE void set_pair(struct half *to, int pair, float factor)
{
    to->factors[2 * pair] = to->factors[2 * pair + 1] = factor * OVER_SHIFT;
}

/* Magnitudes with signs, ready bytes, and nibbles that are looked up. */
#define SIGNED_BYTES(name, zero)                                                                     \
    INLINE struct byte_pair name##_bytes(const struct half *half)                                    \
    {                                                                                                \
        return (struct byte_pair){vbytes_signed(half->bytes[0], half->signs[0], zero),               \
                                  vbytes_signed(half->bytes[1], half->signs[1], zero)};              \
    }
#define READY_BYTES(name)                                         \
    INLINE struct byte_pair name##_bytes(const struct half *half) \
    {                                                             \
        return (struct byte_pair){vbytes_load(half->bytes[0]), vbytes_load(half->bytes[1])}; \
    }
#define PAIRS(name) \
    INLINE vf name##_lanes(const struct half *half) { return vf_pairs_at(half->factors); }
#define ALIKE(name) \
    INLINE vf name##_lanes(const struct half *half) { return vf_set(half->factors[0]); }
