/* Logistic function, softmax, L2 normalisation, decays and attention over blocks, split over threads. */
#include <errno.h>
#include <stdlib.h>

#include "simd.h"

/* Below this many elements one thread is faster than waking another. */
enum { SMALL_ARRAY = 1 << 15, SIGMOID_TURN = 1 << 12 };

void kernels_sigmoid(int simd, int threads, long count, const float *x, float *out)
{
    const struct simd_ops *const ops = simd_ops(simd);
#pragma omp parallel for num_threads(threads) if (count >= SMALL_ARRAY)
    for (long i = 0; i < count; i += SIGMOID_TURN)
        ops->sigmoid(count - i < SIGMOID_TURN ? count - i : SIGMOID_TURN, x + i, out + i);
}

void kernels_softmax(int simd, int threads, long rows, long cols, const float *x, float *out)
{
    const struct simd_ops *const ops = simd_ops(simd);
#pragma omp parallel for num_threads(threads) if (rows * cols >= SMALL_ARRAY)
    for (long i = 0; i < rows; i++)
        ops->softmax_row(cols, x + i * cols, out + i * cols);
}

void kernels_l2_norm(int simd, int threads, long rows, long cols, const float *x, double eps, double scale,
                     float *out)
{
    const struct simd_ops *const ops = simd_ops(simd);
#pragma omp parallel for num_threads(threads) if (rows * cols >= SMALL_ARRAY)
    for (long i = 0; i < rows; i++)
        ops->l2_norm_row(cols, x + i * cols, eps, scale, out + i * cols);
}

void kernels_forget_gate(int simd, int threads, long tokens, long heads, long size, const float *z,
                         const float *bias, const float *rate, int bounded, float bound, float *out)
{
    const struct simd_ops *const ops = simd_ops(simd);
#pragma omp parallel for num_threads(threads) if (tokens * heads * size >= SMALL_ARRAY)
    for (long i = 0; i < tokens * heads; i++)
        ops->forget_gate_row(size, z + i * size, bias + i % heads * size, rate[i % heads], bounded, bound,
                             out + i * size);
}

int kernels_attention_residual(int simd, int threads, long count, long tokens, long width,
                               const float *const *sources, const float *query, double eps, float *out)
{
    const struct simd_ops *const ops = simd_ops(simd);
    float *const shares = malloc((unsigned long)(tokens * count) * sizeof(float));
    if (!shares)
        return -ENOMEM;
#pragma omp parallel for num_threads(threads) if (tokens * count * width >= SMALL_ARRAY)
    for (long t = 0; t < tokens; t++)
        ops->attention_residual_token(count, width, sources, t * width, query, eps, shares + t * count,
                                      out + t * width);
    free(shares);
    return 0;
}
