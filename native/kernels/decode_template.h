/* Where the rows of a packed weight are and how each format's codes become floats, at one SIMD level. */

struct coded_row {
    const unsigned char *codes, *scales;
};

INLINE struct coded_row coded_row(const struct product *p, long row)
{
    const unsigned char *const codes = p->codes, *const scales = p->scales;
    return (struct coded_row){codes + row * p->code_stride, scales + row / p->scale_rows * p->scale_stride};
}

/* Bytes from the codes of a panel to those that will be wanted after them: its next columns, or after the last the
 * first ones of the next rows. */
INLINE long codes_ahead(const struct product *p, long first, long last, long col, long columns, int bits)
{
    return col + columns < p->cols ? columns * bits / 8 : (last - first) * p->code_stride - col * bits / 8;
}

/* Formats of whole bytes: sixteen codes are loaded and converted at a time, in the order of the columns. */
#define BYTES_FORMAT(name, width, load)                             \
    struct name##_block {                                           \
        const unsigned char *at;                                    \
    };                                                              \
    INLINE struct name##_block name##_load(const unsigned char *at) \
    {                                                               \
        return (struct name##_block){at};                           \
    }                                                               \
    INLINE vf name##_next(struct name##_block *block, int v)        \
    {                                                               \
        return load(block->at + v * LANES * (width));               \
    }

INLINE vf vf_load_f32(const unsigned char *p)
{
    vf a;
    memcpy(&a, p, sizeof a);
    return a;
}

BYTES_FORMAT(bf16, 2, vf_load_bf16)
BYTES_FORMAT(f16, 2, vf_load_f16)
BYTES_FORMAT(f32, 4, vf_load_f32)
BYTES_FORMAT(fp8, 1, vf_load_fp8)
BYTES_FORMAT(fp8_small, 1, vf_load_fp8)
BYTES_FORMAT(q8, 1, vf_load_int8)
BYTES_FORMAT(q8_g32, 1, vf_load_int8)

/* The factors of a block's lanes, from the scales of its row; the last block has less than all columns. */
#define SCALE(name, value)                                                                                 \
    INLINE vf name##_scale(const struct product *p, const unsigned char *scales, const unsigned char *codes, \
                           long block, long columns)                                                       \
    {                                                                                                      \
        (void)p, (void)scales, (void)codes, (void)block, (void)columns;                                    \
        return value;                                                                                      \
    }

/* fp8 values come times 2^-8, and NaN codes as numbers: the factor of a block that has one is a NaN. */
INLINE vf fp8_factor(const unsigned char *scale, int nan)
{
    float factor;
    memcpy(&factor, scale, sizeof factor);
    return vf_set(nan ? __builtin_nanf("") : factor * 256.0f);
}

SCALE(bf16, vf_set(1))
SCALE(f16, vf_set(1))
SCALE(f32, vf_set(1))
SCALE(fp8, fp8_factor(scales + 4 * block, fp8_nan(codes) | fp8_nan(codes + 64)))
SCALE(fp8_small, fp8_factor(scales + 4 * (block * LANES / p->group), fp8_nan_16(codes)))
SCALE(q8, vf_set(half_value(scales + 2 * block)))
SCALE(q8_g32, vf_set(half_value(scales + 2 * (block * LANES / p->group))))

/* Formats of nibbles: 64 bytes are sixteen words of eight columns; the k-th vector takes the k-th nibble of
 * each word, so that one shift serves sixteen columns. */
#define NIBBLES_FORMAT(name, convert)                               \
    struct name##_block {                                           \
        nibbles words;                                              \
    };                                                              \
    INLINE struct name##_block name##_load(const unsigned char *at) \
    {                                                               \
        return (struct name##_block){nibbles_load(at)};             \
    }                                                               \
    INLINE vf name##_next(struct name##_block *block, int v)        \
    {                                                               \
        return convert(nibbles_turn(&block->words, v));             \
    }

NIBBLES_FORMAT(mxfp4, vf_fp4)
NIBBLES_FORMAT(q4, vf_int4)
NIBBLES_FORMAT(q4_g32, vf_int4)

/* Four groups of 32 columns to a block, whose scales take `width` bytes each; those beyond `columns` are zero. */
#define QUARTERS(name, width, convert)                                                              \
    INLINE vf name##_quarters(const unsigned char *scales, long columns)                            \
    {                                                                                               \
        unsigned char groups[4 * (width)] = {0};                                                    \
        memcpy(groups, scales, columns >= 128 ? 4 * (width) : (columns + 31) / 32 * (width));       \
        return convert(groups);                                                                     \
    }

QUARTERS(mxfp4, 1u, vf_quarters_e8m0)
QUARTERS(q4_g32, 2u, vf_quarters_half)
SCALE(mxfp4, mxfp4_quarters(scales + 4 * block, columns))
SCALE(q4_g32, q4_g32_quarters(scales + 8 * block, columns))
SCALE(q4, vf_set(half_value(scales + 2 * block)))

/* What integer_template.h wants of them: E2M1 codes as twice their values plus 12, factors half as large. */
INLINE struct byte_pair mxfp4_bytes(const unsigned char *codes) { return fp4_bytes(codes); }
INLINE struct byte_pair q4_bytes(const unsigned char *codes) { return nibble_bytes(codes); }
INLINE struct byte_pair q4_g32_bytes(const unsigned char *codes) { return nibble_bytes(codes); }
INLINE void mxfp4_factors(const unsigned char *scales, float *out)
{
    vf_store(out, vf_mul(vf_load_e8m0(scales), vf_set(0.5f / FACTOR_SHIFT)));
}
INLINE void q4_factors(const unsigned char *scales, float *out)
{
    vf_store(out, vf_mul(vf_quarters_half(scales), vf_set(1 / FACTOR_SHIFT)));
}
INLINE void q4_g32_factors(const unsigned char *scales, float *out)
{
    vf_store(out, vf_mul(vf_load_f16(scales), vf_set(1 / FACTOR_SHIFT)));
}

/* x [cols] -> out [cols rounded up to 16 or 128] in the order of the decoded columns. */
SHARED void arrange_plain_to(long block, long cols, const float *x, float *out)
{
    const long padded = (cols + block - 1) / block * block;
    memcpy(out, x, (unsigned long)cols * sizeof(float));
    memset(out + cols, 0, (unsigned long)(padded - cols) * sizeof(float));
}
SHARED void arrange_lanes(long cols, const float *x, float *out) { arrange_plain_to(LANES, cols, x, out); }
SHARED void arrange_blocks(long cols, const float *x, float *out) { arrange_plain_to(128, cols, x, out); }
SHARED void arrange_nibbles(long cols, const float *x, float *out)
{
    for (long block = 0; block < cols; block += 128)
        for (long k = 0; k < 8; k++)
            for (long i = 0; i < LANES; i++) {
                const long column = block + 8 * i + k;
                out[block + k * LANES + i] = column < cols ? x[column] : 0.0f;
            }
}
