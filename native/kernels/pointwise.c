/* Normalisation, gated activations and rotation: split over threads where there is enough to do. */
#include "simd.h"

/* Below this many elements one thread is faster than waking another. */
enum { SMALL_ARRAY = 1 << 15, GATED_TURN = 1 << 12 };

void kernels_rms_norm(int simd, int threads, long rows, long cols, const float *x, const float *weight,
                      double eps, float *out)
{
    const struct simd_ops *const ops = simd_ops(simd);
#pragma omp parallel for num_threads(threads) if (rows * cols >= SMALL_ARRAY)
    for (long i = 0; i < rows; i++)
        ops->rms_norm_row(cols, x + i * cols, weight, eps, out + i * cols);
}

void kernels_gated(int simd, int threads, int kind, long count, const float *gate, const float *up,
                   float limit, float alpha, float *out)
{
    const struct simd_ops *const ops = simd_ops(simd);
#pragma omp parallel for num_threads(threads) if (count >= SMALL_ARRAY)
    for (long i = 0; i < count; i += GATED_TURN)
        ops->gated(kind, count - i < GATED_TURN ? count - i : GATED_TURN, gate + i, up + i, limit, alpha,
                   out + i);
}

static void rotate_head(long half, int interleaved, float *x, const float *cos, const float *sin)
{
    const long step = interleaved ? 2 : 1, partner = interleaved ? 1 : half;
    for (long i = 0; i < half; i++) {
        const float a = x[i * step], b = x[i * step + partner];
        x[i * step] = a * cos[i] - b * sin[i];
        x[i * step + partner] = b * cos[i] + a * sin[i];
    }
}

void kernels_rotary(int threads, long tokens, long heads, long size, long half, int interleaved, float *x,
                    const float *cos, const float *sin)
{
#pragma omp parallel for num_threads(threads) if (tokens * heads * half >= SMALL_ARRAY)
    for (long t = 0; t < tokens; t++)
        for (long h = 0; h < heads; h++)
            rotate_head(half, interleaved, x + (t * heads + h) * size, cos + t * half, sin + t * half);
}
