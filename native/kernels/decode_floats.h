/* How rows of bf16, f16 and f32 are found and decoded: sixteen columns at a time. */

#define FLOAT_FORMAT(name, width, load)                                                                     \
    struct name##_row {                                                                                     \
        const unsigned char *codes;                                                                         \
    };                                                                                                      \
    INLINE struct name##_row name##_row_at(const struct product *p, long row)                               \
    {                                                                                                       \
        return (struct name##_row){(const unsigned char *)p->codes + row * p->cols * (width)};             \
    }                                                                                                       \
    INLINE void name##_decode(struct name##_row row, long block, vf *w)                                     \
    {                                                                                                       \
        w[0] = load(row.codes + block * LANES * (width));                                                   \
    }                                                                                                       \
    INLINE void name##_decode_last(struct name##_row row, long block, long columns, vf *w)                  \
    {                                                                                                       \
        unsigned char padded[LANES * (width)] = {0};                                                        \
        memcpy(padded, row.codes + block * LANES * (width), (unsigned long)(columns * (width)));            \
        w[0] = load(padded);                                                                                \
    }

INLINE vf vf_load_f32(const unsigned char *p)
{
    vf a;
    memcpy(&a, p, sizeof a);
    return a;
}

FLOAT_FORMAT(bf16, 2, vf_load_bf16)
FLOAT_FORMAT(f16, 2, vf_load_f16)
FLOAT_FORMAT(f32, 4, vf_load_f32)

/* Decoded columns come in their own order; x is only padded. */
static void arrange_plain(long cols, const float *x, float *out)
{
    const long padded = (cols + LANES - 1) / LANES * LANES;
    memcpy(out, x, (unsigned long)cols * sizeof(float));
    memset(out + cols, 0, (unsigned long)(padded - cols) * sizeof(float));
}
