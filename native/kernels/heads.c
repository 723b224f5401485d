/* Products in which each head has its own rows of one weight: heads split over threads. */
#include <errno.h>

#include "product.h"

int kernels_matmul_heads(int simd, int threads, const struct kernels_matrix *matrix, const void *data, long heads,
                         long offset, long rows, long tokens, const float *x, float *out)
{
    const struct simd_ops *const ops = simd_ops(simd);
    const struct format_ops *const form = ops->formats[matrix->format];
    const long cols = matrix->cols, per_head = matrix->rows / heads;
    const long own = scratch_floats(tokens), each = head_floats(form, tokens, heads, cols);
    const int team = heads * rows * cols * tokens < SMALL_PRODUCT ? 1 : threads;
    float *const scratch = new_floats(team * each);
    if (!scratch)
        return -ENOMEM;
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
    for (long h = 0; h < heads; h++) {
        float *const mine = scratch + omp_get_thread_num() * each;
        struct product p = new_product(form, matrix, data, tokens);
        set_input(&p, form, prepare(ops, form, tokens, cols, x + h * cols, heads * cols, mine + own));
        p.out = out + h * rows;
        p.out_stride = heads * rows;
        p.base = h * per_head + offset;
        form->rows(&p, p.base, p.base + rows, mine);
    }
    free(scratch);
    return 0;
}

int kernels_matmul_heads_transposed(int simd, int threads, const struct kernels_matrix *matrix, const void *data,
                                    long heads, long offset, long rows, long tokens, const float *x, float *out)
{
    const struct format_ops *const form = simd_ops(simd)->formats[matrix->format];
    const long cols = matrix->cols, per_head = matrix->rows / heads;
    const long padded = padded_cols(form, cols), each = transposed_floats(form, tokens, cols);
    const int team = heads * rows * cols * tokens < SMALL_PRODUCT ? 1 : threads;
    float *const scratch = new_floats(team * each + 2 * padded);
    if (!scratch)
        return -ENOMEM;
    /* Where decoded column i belongs: the columns' numbers from one on, arranged like activations. */
    float *const numbers = scratch + team * each, *const places = numbers + padded;
    for (long j = 0; j < padded; j++)
        numbers[j] = (float)(j + 1);
    form->arrange(cols, numbers, places);
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
    for (long h = 0; h < heads; h++) {
        float *const mine = scratch + omp_get_thread_num() * each, *const sums = mine + TRANSPOSED_SCRATCH;
        struct product p = new_product(form, matrix, data, tokens);
        p.x = x + h * rows;
        p.x_stride = heads * rows;
        p.out = sums;
        p.out_stride = padded;
        p.base = h * per_head + offset;
        form->transposed(&p, p.base, p.base + rows, mine);
        for (long t = 0; t < tokens; t++)
            for (long j = 0; j < padded; j++)
                if (places[j] > 0)
                    out[(t * heads + h) * cols + (long)places[j] - 1] = sums[t * padded + j];
    }
    free(scratch);
    return 0;
}
