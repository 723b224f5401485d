/* Halves of matrices whose codes are nibbles of neighbouring columns and whose scales lie in sections of their own, at one
 * SIMD level: for FORMAT_SECTIONS of bytes_template.h, in runs of 1. Factors and biases come over FACTOR_SHIFT. */

/* The 64 bytes of nibbles of a half; what a row has no more is zero. */
INLINE const unsigned char *half_nibbles(const struct product *p, long row, long half, unsigned char *padded)
{
    const unsigned char *const codes = (const unsigned char *)p->codes + row * p->code_stride + half * 64;
    const long left = p->code_stride - half * 64;
    if (left >= 64)
        return codes;
    memset(padded, 0, 64);
    memcpy(padded, codes, (unsigned long)left);
    return padded;
}

/* Groups have 32, 64 or 128 columns: how many a row has. */
INLINE int group_shift(const struct product *p) { return (p->group > 32) + (p->group > 64); }
INLINE long row_groups(const struct product *p) { return (p->cols + p->group - 1) >> (5 + group_shift(p)); }

/* Numbers of two bytes, one for each group of a row -> those of the four quarters of a half, and of its lanes; zero beyond
 * the row. They are put in place in a register: written to memory one by one they could not be read at once. */
INLINE vf quarter_numbers(const struct product *p, const void *section, long row, long half, int bfloats)
{
    const int shift = group_shift(p);
    const long groups = row_groups(p), first = (4 * half) >> shift, count = 4 >> shift, left = groups - first;
    const unsigned char *const at = (const unsigned char *)section + 2 * (row * groups + first);
    uint64_t numbers = 0;
    if (left >= count && shift == 0)
        memcpy(&numbers, at, 8);
    else if (left >= count && shift == 1)
        numbers = (uint64_t)(at[0] | at[1] << 8) * 0x10001 | (uint64_t)(at[2] | at[3] << 8) * 0x1000100000000;
    else if (left >= count)
        numbers = (uint64_t)(at[0] | at[1] << 8) * 0x1000100010001;
    else
        for (int k = 0; k < 4 && (k >> shift) < left; k++)
            numbers |= (uint64_t)(at[2 * (k >> shift)] | at[2 * (k >> shift) + 1] << 8) << 16 * k;
    const unsigned char *const quarters = (const unsigned char *)&numbers;
    return vf_mul(bfloats ? vf_quarters_bfloat(quarters) : vf_quarters_half(quarters), vf_set(1 / FACTOR_SHIFT));
}

/* Nibbles, one for each group of a row -> bytes of the four quarters of a half. */
INLINE uint32_t quarter_nibbles(const struct product *p, const void *section, long row, long half)
{
    const int shift = group_shift(p);
    const long groups = row_groups(p), first = (4 * half) >> shift;
    const unsigned char *const at = (const unsigned char *)section + row * ((groups + 1) / 2) + first / 2;
    if (shift == 2)
        return (uint32_t)(at[0] >> 4 * (first % 2) & 15) * 0x01010101;
    if (shift == 1)
        return (uint32_t)(at[0] & 15) * 0x0101 | (uint32_t)(at[0] >> 4) * 0x01010000;
    const uint32_t more = first + 2 < groups ? at[1] : 0;
    return (at[0] & 15u) | (at[0] >> 4) << 8 | (more & 15) << 16 | more >> 4 << 24;
}

INLINE void find_scaled(const struct product *p, long row, long half, int bfloats, struct bytes_half *to)
{
    unsigned char padded[64];
    set_half(to, nibble_bytes(half_nibbles(p, row, half, padded)), quarter_numbers(p, p->scales, row, half, bfloats));
}
/* With zero points, a code becomes code - zero + 15. */
INLINE void find_with_zeros(const struct product *p, long row, long half, int bfloats, struct bytes_half *to)
{
    const uint32_t added = 0x0f0f0f0f - quarter_nibbles(p, p->more, row, half);
    find_scaled(p, row, half, bfloats, to);
    const vbytes all = vbytes_quarters((const unsigned char *)&added);
    to->even = vbytes_add(to->even, all);
    to->odd = vbytes_add(to->odd, all);
}
INLINE void find_with_biases(const struct product *p, long row, long half, int bfloats, struct bytes_half *to)
{
    find_scaled(p, row, half, bfloats, to);
    to->bias = quarter_numbers(p, p->more, row, half, bfloats);
}
#define FOUND(name, find, bfloats)                                                                          \
    INLINE void name##_found(const struct product *p, long row, long half, struct bytes_half *to) \
    {                                                                                                       \
        find(p, row, half, bfloats, to);                                                                    \
    }
FOUND(q4_f16, find_scaled, 0)
FOUND(q4_bf16, find_scaled, 1)
FOUND(q4_f16_zeros, find_with_zeros, 0)
FOUND(q4_bf16_zeros, find_with_zeros, 1)
FOUND(q4_f16_biases, find_with_biases, 0)
FOUND(q4_bf16_biases, find_with_biases, 1)

/* E2M1 codes, counted twice, with an E4M3 scale for 16 columns, which a number of the row is multiplied with or divides. */
INLINE void find_nvfp4(const struct product *p, long row, long half, int divides, struct bytes_half *to)
{
    const long groups = (p->cols + 15) / 16, left = groups - 8 * half;
    const unsigned char *codes = (const unsigned char *)p->scales + row * groups + 8 * half;
    unsigned char padded[64], few[16] = {0};
    float factor, scales[LANES];
    memcpy(&factor, (const unsigned char *)p->more + row * 4, sizeof factor);
    if (left < 16) {
        memcpy(few, codes, left < 8 ? (unsigned long)left : 8);
        codes = few;
    }
    const vf values = vf_mul(vf_load_fp8(codes), vf_set(256));
    const vf whole = divides ? vf_div(values, vf_set(factor)) : vf_mul(values, vf_set(factor));
    vf_store(scales, vf_mul(whole, vf_set(0.5f / FACTOR_SHIFT)));
    for (int g = 0; g < 8 && fp8_nan_16(codes); g++)
        if ((codes[g] & 0x7f) == 0x7f)
            scales[g] = __builtin_nanf("");
    set_half(to, fp4_bytes(half_nibbles(p, row, half, padded)), vf_pairs_at(scales));
}
FOUND(nvfp4_times, find_nvfp4, 0)
FOUND(nvfp4_over, find_nvfp4, 1)
