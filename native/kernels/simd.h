/* The seam between the public functions, which split work over threads, and their serial inner parts, which
 * exist once for each SIMD level. */
#ifndef URINGINFER_SIMD_H
#define URINGINFER_SIMD_H

#include <stdint.h>

#include "formats.h"
#include "kernels.h"

enum {
    LANES = 16,         /* floats in an accumulator, at every level */
    CHUNK_TOKENS = 64,  /* tokens that meet a panel before the next one */
    PANEL_ROWS = 16,    /* rows, */
    PANEL_COLS = 2048,  /* and columns, that many tokens meet one tile of tokens after another */
    INTEGER_PANEL = 512, /* columns whose activations share a power of two (quantise_template.h) */
    HEAD_CHUNK = 8,     /* heads that share one walk over the cache */
    MAX_TAPS = 16,      /* of a short convolution */
    TRANSPOSED_SCRATCH = 2 * PANEL_COLS /* floats that a thread needs for a product with the transpose */
};

/* The number of each format, and how many there are. */
#define NUMBER(name) FORMAT_##name,
enum { KERNELS_FORMATS(NUMBER) FORMATS };
#undef NUMBER

/* What belongs to a level: NAME_LEVEL. */
#define AT_LEVEL_OF(name, level) name##_##level
#define AT_LEVEL_(name, level) AT_LEVEL_OF(name, level)
#define AT_LEVEL(name) AT_LEVEL_(name, LEVEL)
#define FORMAT_OPS(name) AT_LEVEL(name##_ops)
#define FORMAT_OPS_OF(name) FORMAT_OPS(name)

/* Before a loop over the elements of a small array of vectors whose count is a constant: only what GCC unrolls
 * early does it keep in registers; what it unrolls by itself comes too late, and the array lies on the stack. */
#define UNROLL _Pragma("GCC unroll 8")

/* One product: a weight, and tokens to multiply it with. x is padded with zeros to whole blocks of the format and
 * each chunk of tokens packed as pack_tokens leaves it; or it is what `integers` makes of it. */
struct product {
    long cols, tokens;
    long group;        /* columns that share a scale */
    long code_stride, scale_stride; /* bytes from one row of codes, of scales, to the next */
    long scale_rows;   /* rows that share a row of scales */
    const void *codes, *scales, *more; /* the first three sections */
    const float *x;
    long x_stride;
    float *out;
    long out_stride;
    long base; /* the row whose products go to out[0] */
};

struct format_ops {
    long block;               /* columns that are decoded together */
    long row_block, row_bytes; /* a row of the first section: columns of its units, and bytes of one */
    long tail;                /* floats behind each panel of a token that `integers` makes */
    int scale_bytes;          /* of a scale in the second section, if there is one */
    int square;               /* whether a scale is for `group` rows as well as columns */
    /* x [cols] -> out [cols rounded up to block], in the order in which decoded columns come. */
    void (*arrange)(long cols, const float *x, float *out);
    /* x [tokens, cols], rows x_stride apart -> out [tokens * (padded cols, and the tails)], cut into integers
     * (quantise_template.h, columns.h);
     * NULL where `rows` wants floats. */
    void (*integers)(long tokens, long cols, const float *x, long x_stride, float *out);
    /* Rows first <= i < last for all tokens; scratch: PANEL_ROWS * CHUNK_TOKENS * LANES floats, or as many as
     * there are tokens where they are fewer, aligned to 64 bytes. */
    void (*rows)(const struct product *p, long first, long last, float *scratch);
    /* The transpose of those rows: x [tokens, last - first] -> out [tokens, cols], padded and in the order of
     * decoded columns; scratch: TRANSPOSED_SCRATCH floats. */
    void (*transposed)(const struct product *p, long first, long last, float *scratch);
};

/* Tokens in the chunk that begins at `token`. */
static inline long chunk_tokens(long tokens, long token)
{
    return tokens - token < CHUNK_TOKENS ? tokens - token : CHUNK_TOKENS;
}

struct attention {
    long heads, groups, capacity, size, value_size, value_stride, start, window;
    float scale;
    const float *q, *keys, *values, *sinks;
    float *out;
};

struct delta {
    long tokens, heads, keys, values;
    const float *q, *k, *v, *beta, *decay;
    float *state, *out;
};

/* The serial inner parts at one SIMD level. */
struct simd_ops {
    const struct format_ops *formats[FORMATS];
    /* x [tokens, cols], rows x_stride apart -> the same as a product of floats wants it; cols a multiple of 16. */
    void (*pack_tokens)(long tokens, long cols, const float *x, long x_stride, float *packed);
    void (*rms_norm_row)(long cols, const float *x, const float *weight, double eps, float *out);
    void (*gated)(int kind, long count, const float *gate, const float *up, float limit, float alpha,
                  float *out);
    /* Heads first <= h < last (at most HEAD_CHUNK, all of one group) of one token. */
    void (*attention_heads)(const struct attention *a, long token, long first, long last);
    /* What follows is described where it is defined: gates_template.h, recurrent_template.h. */
    void (*sigmoid)(long count, const float *x, float *out);
    void (*softmax_row)(long cols, const float *x, float *out);
    void (*l2_norm_row)(long cols, const float *x, double eps, double scale, float *out);
    void (*forget_gate_row)(long size, const float *z, const float *bias, float rate, int bounded, float bound,
                            float *out);
    void (*attention_residual_token)(long count, long width, const float *const *sources, long offset,
                                     const float *query, double eps, float *shares, float *out);
    void (*causal_conv_lanes)(long tokens, long channels, long count, long channel, const float *x,
                              float *history, const float *taps, float *out);
    void (*delta_head)(const struct delta *d, long head);
    /* vq_template.h */
    void (*vq_table)(const float *x, const float *turned, float inverse, int planes, unsigned char *to);
    void (*vq_look_up)(long count, long rows, const unsigned char *indices, const unsigned char *tables,
                       uint32_t *sums);
    void (*vq_search)(int stages, const float *vectors, const float *codebook, const float *half_norms,
                      unsigned char *chosen);
};

extern const struct simd_ops simd_portable;
#if defined(__x86_64__)
extern const struct simd_ops simd_avx2;
extern const struct simd_ops simd_avx512;
#endif

/* The inner parts for a level that kernels_simd_supported allows. */
const struct simd_ops *simd_ops(int simd);

#endif
