/* Products: padding of the activations, and rows split over threads. */
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

/* Rows that a thread takes at a time: enough turns that a thread which loses its processor for a while does
 * not hold up the others, in whole panels. */
static long rows_per_turn(long rows, int threads)
{
    const long wanted = (rows / (8L * threads) + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
    return wanted < PANEL_ROWS ? PANEL_ROWS : wanted > 256 ? 256 : wanted;
}

int kernels_matmul(int simd, int threads, int format, long rows, long cols, const void *codes,
                   const void *scales, long tokens, const float *x, float *out, long out_stride)
{
    const struct format_ops *const ops = &simd_ops(simd)->formats[format];
    const long padded = (cols + ops->block - 1) / ops->block * ops->block;
    const int team = rows * cols * tokens < SMALL_PRODUCT ? 1 : threads;
    const long turn = rows_per_turn(rows, team), turns = (rows + turn - 1) / turn;
    float *arranged = NULL, *scratch = NULL;
    struct product p = {rows, cols, tokens, codes, scales, x, cols, out, out_stride, 0};

    if (padded != cols || ops->arranged) {
        arranged = new_floats(tokens * padded);
        if (!arranged)
            return -ENOMEM;
        for (long t = 0; t < tokens; t++)
            ops->arrange(cols, x + t * cols, arranged + t * padded);
        p.x = arranged;
        p.x_stride = padded;
    }
    if (tokens > STRIP_TOKENS) {
        scratch = new_floats((long)team * PRODUCT_SCRATCH);
        if (!scratch) {
            free(arranged);
            return -ENOMEM;
        }
    }
#pragma omp parallel num_threads(team)
    {
        float *const mine = scratch ? scratch + (long)omp_get_thread_num() * PRODUCT_SCRATCH : NULL;
#pragma omp for schedule(dynamic, 1)
        for (long i = 0; i < turns; i++)
            ops->rows(&p, i * turn, i * turn + turn < rows ? i * turn + turn : rows, mine);
    }
    free(arranged);
    free(scratch);
    return 0;
}
