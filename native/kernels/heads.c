/* Products in which each head has its own rows of one weight: heads split over threads. */
#include <errno.h>
#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_thread_num() 0
#endif

#include "simd.h"

/* Below this many multiplications one thread is faster than waking another. */
enum { SMALL_PRODUCT = 1 << 17 };

static float *new_floats(long count)
{
    const unsigned long nbytes = ((unsigned long)count * sizeof(float) + 63) / 64 * 64;
    return aligned_alloc(64, nbytes ? nbytes : 64);
}

int kernels_matmul_heads(int simd, int threads, int format, long heads, long per_head, long offset, long rows,
                         long cols, const void *codes, const void *scales, long tokens, const float *x,
                         float *out)
{
    const struct format_ops *const ops = &simd_ops(simd)->formats[format];
    const long padded = (cols + ops->block - 1) / ops->block * ops->block;
    const int team = heads * rows * cols * tokens < SMALL_PRODUCT ? 1 : threads;
    const long each = PRODUCT_SCRATCH + tokens * padded;
    float *const scratch = new_floats(team * each);
    if (!scratch)
        return -ENOMEM;
#pragma omp parallel num_threads(team)
    {
        float *const mine = scratch + (long)omp_get_thread_num() * each, *const arranged = mine + PRODUCT_SCRATCH;
#pragma omp for schedule(dynamic, 1)
        for (long h = 0; h < heads; h++) {
            const long first = h * per_head + offset;
            for (long t = 0; t < tokens; t++)
                ops->arrange(cols, x + (t * heads + h) * cols, arranged + t * padded);
            const struct product p = {heads * per_head, cols,           tokens,       codes, scales, arranged,
                                      padded,           out + h * rows, heads * rows, first};
            ops->rows(&p, first, first + rows, mine);
        }
    }
    free(scratch);
    return 0;
}

int kernels_matmul_heads_transposed(int simd, int threads, int format, long heads, long per_head, long offset,
                                    long rows, long cols, const void *codes, const void *scales, long tokens,
                                    const float *x, float *out)
{
    const struct format_ops *const ops = &simd_ops(simd)->formats[format];
    const long padded = (cols + ops->block - 1) / ops->block * ops->block;
    const int team = heads * rows * cols * tokens < SMALL_PRODUCT ? 1 : threads;
    const long each = PRODUCT_SCRATCH + tokens * padded;
    float *const scratch = new_floats(team * each + 2 * padded);
    if (!scratch)
        return -ENOMEM;
    /* Where decoded column i belongs: the columns' numbers from one on, arranged like activations. */
    float *const numbers = scratch + team * each, *const places = numbers + padded;
    for (long j = 0; j < padded; j++)
        numbers[j] = (float)(j + 1);
    ops->arrange(cols, numbers, places);
#pragma omp parallel num_threads(team)
    {
        float *const mine = scratch + (long)omp_get_thread_num() * each, *const sums = mine + PRODUCT_SCRATCH;
#pragma omp for schedule(dynamic, 1)
        for (long h = 0; h < heads; h++) {
            const long first = h * per_head + offset;
            const struct product p = {heads * per_head, cols, tokens, codes,  scales, x + h * rows,
                                      heads * rows,     sums, padded, first};
            ops->transposed(&p, first, first + rows, mine);
            for (long t = 0; t < tokens; t++)
                for (long j = 0; j < padded; j++)
                    if (places[j] > 0)
                        out[(t * heads + h) * cols + (long)places[j] - 1] = sums[t * padded + j];
        }
    }
    free(scratch);
    return 0;
}
