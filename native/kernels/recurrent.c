/* Short convolutions, split over channels, and the delta rule, split over heads. */
#include "simd.h"

/* Below this many multiplications one thread is faster than waking another. */
enum { SMALL_STATE = 1 << 15 };

void kernels_causal_conv(int simd, int threads, long tokens, long channels, long count, const float *x,
                         float *history, const float *taps, float *out)
{
    const struct simd_ops *const ops = simd_ops(simd);
#pragma omp parallel for num_threads(threads) if (tokens * channels * count >= SMALL_STATE)
    for (long channel = 0; channel < channels; channel += LANES)
        ops->causal_conv_lanes(tokens, channels, count, channel, x, history, taps, out);
}

void kernels_delta_rule(int simd, int threads, long tokens, long heads, long keys, long values, const float *q,
                        const float *k, const float *v, const float *beta, const float *decay, float *state,
                        float *out)
{
    const struct simd_ops *const ops = simd_ops(simd);
    const struct delta d = {tokens, heads, keys, values, q, k, v, beta, decay, state, out};
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) \
    if (tokens * heads * keys * values >= SMALL_STATE)
    for (long head = 0; head < heads; head++)
        ops->delta_head(&d, head);
}
