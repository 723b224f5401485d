/* Products: padding of the activations, and rows split over threads. */
#include <errno.h>

#include "product.h"

/* Threads that take part in a product. */
static int team_of(int threads, const struct kernels_matrix *matrix, long tokens)
{
    return matrix->rows * matrix->cols * tokens < SMALL_PRODUCT ? 1 : threads;
}

int kernels_matmul(int simd, int threads, const struct kernels_matrix *matrix, const void *data, long tokens,
                   const float *x, float *out, long out_stride)
{
    const struct simd_ops *const ops = simd_ops(simd);
    const struct format_ops *const form = ops->formats[matrix->format];
    const long rows = matrix->rows, cols = matrix->cols;
    const int team = team_of(threads, matrix, tokens);
    const long turn = rows_per_turn(rows, team), turns = (rows + turn - 1) / turn;
    const long each = scratch_floats(tokens);
    float *const scratch = new_floats(product_floats(form, team, tokens, cols));
    if (!scratch)
        return -ENOMEM;
    struct product p = new_product(form, matrix, data, tokens);
    set_input(&p, form, prepare(ops, form, tokens, cols, x, cols, scratch + team * each));
    p.out = out;
    p.out_stride = out_stride;
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
    for (long i = 0; i < turns; i++)
        form->rows(&p, i * turn, i * turn + turn < rows ? i * turn + turn : rows,
                   scratch + omp_get_thread_num() * each);
    free(scratch);
    return 0;
}

long kernels_product_bytes(int simd, int threads, int format, long cols, long tokens, int by_heads)
{
    const struct format_ops *const form = simd_ops(simd)->formats[format];
    long floats = product_floats(form, threads, tokens, cols);
    if (by_heads) {
        const long plain = threads * head_floats(form, tokens, 2, cols);
        const long transposed = threads * transposed_floats(form, tokens, cols) + 2 * padded_cols(form, cols);
        floats = floats < plain ? plain : floats;
        floats = floats < transposed ? transposed : floats;
    }
    return floats * (long)sizeof(float) + 64;
}
