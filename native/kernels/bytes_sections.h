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

/* Groups have 32, 64 or 128 columns. How many a row has, and which of them the quarter of a half belongs to, -1 beyond the
 * row. */
INLINE int group_shift(const struct product *p) { return (p->group > 32) + (p->group > 64); }
INLINE long row_groups(const struct product *p) { return (p->cols + p->group - 1) >> (5 + group_shift(p)); }
INLINE long quarter_group(const struct product *p, long half, int quarter)
{
    return half * 128 + quarter * 32 < p->cols ? (4 * half + quarter) >> group_shift(p) : -1;
}

/* Numbers of two bytes, one for each group of a row -> those of the lanes of a half. */
INLINE vf quarter_numbers(const struct product *p, const void *section, long row, long half, int bfloats)
{
    const unsigned char *const at = (const unsigned char *)section + row * row_groups(p) * 2;
    unsigned char quarters[32] = {0};
    float numbers[LANES];
    UNROLL for (int k = 0; k < 4; k++) {
        const long group = quarter_group(p, half, k);
        if (group >= 0)
            memcpy(quarters + 2 * k, at + 2 * group, 2);
    }
    vf_store(numbers, bfloats ? vf_load_bf16(quarters) : vf_load_f16(quarters));
    return vf_mul(vf_quarters_at(numbers), vf_set(1 / FACTOR_SHIFT));
}

INLINE void find_scaled(const struct product *p, long row, long half, int bfloats, struct bytes_half *to)
{
    unsigned char padded[64];
    set_half(to, nibble_bytes(half_nibbles(p, row, half, padded)), quarter_numbers(p, p->scales, row, half, bfloats));
}
/* With zero points, a code becomes code - zero + 15. */
INLINE void find_with_zeros(const struct product *p, long row, long half, int bfloats, struct bytes_half *to)
{
    const long groups = row_groups(p);
    const unsigned char *const zeros = (const unsigned char *)p->more + row * ((groups + 1) / 2);
    unsigned char added[4];
    find_scaled(p, row, half, bfloats, to);
    UNROLL for (int k = 0; k < 4; k++) {
        const long group = quarter_group(p, half, k);
        added[k] = group < 0 ? 0 : (unsigned char)(15 - (zeros[group / 2] >> 4 * (group % 2) & 15));
    }
    const vbytes all = vbytes_quarters(added);
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
    unsigned char padded[64], codes[16] = {0};
    float factor, scales[LANES];
    memcpy(&factor, (const unsigned char *)p->more + row * 4, sizeof factor);
    memcpy(codes, (const unsigned char *)p->scales + row * groups + 8 * half, left < 8 ? (unsigned long)left : 8);
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
