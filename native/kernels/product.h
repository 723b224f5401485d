/* What product.c, heads.c and networks.c share: layouts, and memory that the threads of one call divide. */
#ifndef URINGINFER_PRODUCT_H
#define URINGINFER_PRODUCT_H

#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_thread_num() 0
#endif

#include "simd.h"

/* Below this many multiplications one thread is faster than waking another. */
enum { SMALL_PRODUCT = 1 << 17 };

/* `count` floats at a multiple of 64 bytes, for free(); NULL without memory. */
static inline float *new_floats(long count)
{
    const unsigned long nbytes = ((unsigned long)count * sizeof(float) + 63) / 64 * 64;
    return aligned_alloc(64, nbytes ? nbytes : 64);
}

/* `cols` rounded up to whole blocks. */
static inline long padded_cols(const struct format_ops *form, long cols)
{
    return (cols + form->block - 1) / form->block * form->block;
}

/* Rows that a thread takes at a time: enough turns that a thread which loses its processor for a while does
 * not hold up the others, in whole panels. */
static inline long rows_per_turn(long rows, int threads)
{
    const long wanted = (rows / (8L * threads) + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
    return wanted < PANEL_ROWS ? PANEL_ROWS : wanted > 256 ? 256 : wanted;
}

/* A product with the weight described, and nothing yet to multiply it with. */
static inline struct product new_product(const struct format_ops *form, const struct kernels_matrix *matrix,
                                         const void *data, long tokens)
{
    const long cols = matrix->cols, group = matrix->group;
    const unsigned char *const bytes = data;
    return (struct product){
        .cols = cols,
        .tokens = tokens,
        .group = group,
        .code_stride = (cols + form->row_block - 1) / form->row_block * form->row_bytes,
        .scale_stride = (cols + group - 1) / group * form->scale_bytes,
        .scale_rows = form->square ? group : 1,
        .codes = bytes + matrix->sections[0],
        .scales = bytes + matrix->sections[1],
        .more = bytes + matrix->sections[2],
    };
}

static inline int is_arranged(const struct format_ops *form, long cols, long x_stride)
{
    return form->integers || padded_cols(form, cols) != cols || x_stride != cols;
}

static inline int is_packed(const struct format_ops *form, long tokens) { return !form->integers && tokens > 1; }

/* Floats of scratch that a thread needs for a product. */
static inline long scratch_floats(long tokens) { return PANEL_ROWS * chunk_tokens(tokens, 0) * LANES; }

/* Floats that `prepare` needs. */
static inline long input_floats(const struct format_ops *form, long tokens, long cols, long x_stride)
{
    const long tails = (cols + INTEGER_PANEL - 1) / INTEGER_PANEL * form->tail;
    return tokens * (padded_cols(form, cols) * (is_arranged(form, cols, x_stride) + is_packed(form, tokens)) + tails);
}

/* Floats that a call with a whole matrix allocates; `kernels_product_bytes` announces them. */
static inline long product_floats(const struct format_ops *form, int team, long tokens, long cols)
{
    return team * scratch_floats(tokens) + input_floats(form, tokens, cols, cols);
}

/* Floats that a thread of a call with a block for each head takes, either way. */
static inline long head_floats(const struct format_ops *form, long tokens, long heads, long cols)
{
    return scratch_floats(tokens) + input_floats(form, tokens, cols, heads * cols);
}

static inline long transposed_floats(const struct format_ops *form, long tokens, long cols)
{
    return TRANSPOSED_SCRATCH + tokens * padded_cols(form, cols);
}

/* x [tokens, cols], rows x_stride apart, as a product wants it: arranged or cut into integers, and packed;
 * `room` has input_floats. */
static inline const float *prepare(const struct simd_ops *ops, const struct format_ops *form, long tokens,
                                   long cols, const float *x, long x_stride, float *room)
{
    const long padded = padded_cols(form, cols);
    if (is_arranged(form, cols, x_stride)) {
        if (form->integers)
            form->integers(tokens, cols, x, x_stride, room);
        for (long t = 0; !form->integers && t < tokens; t++)
            form->arrange(cols, x + t * x_stride, room + t * padded);
        x = room;
        room += tokens * padded;
    }
    if (!is_packed(form, tokens))
        return x;
    for (long token = 0; token < tokens; token += CHUNK_TOKENS)
        ops->pack_tokens(chunk_tokens(tokens, token), padded, x + token * padded, padded, room + token * padded);
    return room;
}

static inline void set_input(struct product *p, const struct format_ops *form, const float *input)
{
    p->x = input;
    p->x_stride = padded_cols(form, p->cols);
}

#endif
