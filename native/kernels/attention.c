/* Attention: tokens and heads split over threads. */
#include <stddef.h>

#include "simd.h"

/* Below this many multiplications one thread is faster than waking another. */
enum { SMALL_ATTENTION = 1 << 16 };

static void attend(int simd, int threads, long tokens, const struct attention *a)
{
    const struct simd_ops *const ops = simd_ops(simd);
    const long shared = a->heads / a->groups, chunks = (shared + HEAD_CHUNK - 1) / HEAD_CHUNK;
    const long tasks = tokens * a->groups * chunks;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) \
    if (tokens * a->heads * (a->start + tokens) * (a->size + a->value_size) >= SMALL_ATTENTION)
    for (long task = 0; task < tasks; task++) {
        const long chunk = task % chunks, group = task / chunks % a->groups, token = task / chunks / a->groups;
        const long first = group * shared + chunk * HEAD_CHUNK, end = (group + 1) * shared;
        ops->attention_heads(a, token, first, first + HEAD_CHUNK < end ? first + HEAD_CHUNK : end);
    }
}

void kernels_attention(int simd, int threads, long tokens, long heads, long groups, long capacity, long size,
                       long value_size, long start, long window, float scale, const float *q,
                       const float *keys, const float *values, const float *sinks, float *out)
{
    const struct attention a = {heads, groups, capacity, size, value_size, value_size, start, window,
                                scale, q,      keys,     values, sinks,    out};
    attend(simd, threads, tokens, &a);
}

void kernels_latent_attention(int simd, int threads, long tokens, long heads, long capacity, long width,
                              long rank, long start, float scale, const float *q, const float *cache, float *out)
{
    const struct attention a = {heads, 1, capacity, width, rank, width, start, 0, scale, q, cache, cache, NULL, out};
    attend(simd, threads, tokens, &a);
}
