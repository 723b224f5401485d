/* The logistic function, softmax, L2 normalisation, decays and attention over blocks, at one SIMD level. */

/* x [count] -> out [count], 1 / (1 + exp(-x)). */
static void sigmoid(long count, const float *x, float *out)
{
    const long whole = count / LANES * LANES, rest = count - whole;
    for (long i = 0; i < whole; i += LANES)
        vf_store(out + i, vf_sigmoid(vf_load(x + i)));
    if (rest)
        vf_store_n(out + whole, vf_sigmoid(vf_load_n(x + whole, rest)), rest);
}

/* x [cols] -> out [cols], exp(x - largest) over their sum, which is taken lane by lane. */
static void softmax_row(long cols, const float *x, float *out)
{
    float largest = x[0];
    for (long j = 1; j < cols; j++)
        largest = x[j] > largest ? x[j] : largest;
    const long whole = cols / LANES * LANES, rest = cols - whole;
    const vf top = vf_set(largest);
    vf sum = vf_set(0);
    for (long j = 0; j < whole; j += LANES) {
        const vf e = vf_exp(vf_sub(vf_load(x + j), top));
        vf_store(out + j, e);
        sum = vf_add(sum, e);
    }
    if (rest) {
        vf_store_n(out + whole, vf_exp(vf_sub(vf_load_n(x + whole, rest), top)), rest);
        sum = vf_add(sum, vf_load_n(out + whole, rest));
    }
    const float total = vf_sum(sum);
    for (long j = 0; j < cols; j++)
        out[j] /= total;
}

/* x [cols] -> out [cols], x * scale / sqrt(sum(x^2) + eps). */
static void l2_norm_row(long cols, const float *x, double eps, double scale, float *out)
{
    const float factor = (float)(scale / __builtin_sqrt((double)dot(x, x, cols) + eps));
    for (long j = 0; j < cols; j++)
        out[j] = x[j] * factor;
}

/* ln(1 + exp(x)) as max(x, 0) + ln(1 + e) with e = exp(-|x|); the logarithm by its series in e / (2 + e). */
INLINE vf vf_softplus(vf x)
{
    const vf minus = vf_sub(vf_set(0), x);
    const vf e = vf_exp(vf_min(x, minus));
    const vf s = vf_div(e, vf_add(vf_set(2.0f), e)), z = vf_mul(s, s);
    vf p = vf_set(1.0f / 15.0f);
    p = vf_fma(p, z, vf_set(1.0f / 13.0f));
    p = vf_fma(p, z, vf_set(1.0f / 11.0f));
    p = vf_fma(p, z, vf_set(1.0f / 9.0f));
    p = vf_fma(p, z, vf_set(1.0f / 7.0f));
    p = vf_fma(p, z, vf_set(1.0f / 5.0f));
    p = vf_fma(p, z, vf_set(1.0f / 3.0f));
    p = vf_fma(p, z, vf_set(1.0f));
    return vf_fma(vf_add(s, s), p, vf_max(x, vf_set(0)));
}

/* z, bias [size] of one head -> out [size]: exp(-rate * softplus(z + bias)), or, if bounded,
 * exp(bound * sigmoid(rate * (z + bias))). */
static void forget_gate_row(long size, const float *z, const float *bias, float rate, int bounded, float bound,
                            float *out)
{
    for (long j = 0; j < size; j += LANES) {
        const long count = size - j < LANES ? size - j : LANES;
        const vf raw = vf_add(vf_load_n(z + j, count), vf_load_n(bias + j, count));
        const vf exponent = bounded ? vf_mul(vf_set(bound), vf_sigmoid(vf_mul(vf_set(rate), raw)))
                                    : vf_mul(vf_set(-rate), vf_softplus(raw));
        vf_store_n(out + j, vf_exp(exponent), count);
    }
}

/* One token's `count` sources [width], given by pointers, and query [width] -> out [width]: softmax of the
 * dot products of s / sqrt(mean(s^2) + eps) with the query, and the mixture of the raw sources.
 * shares [count] is scratch. */
static void attention_residual_token(long count, long width, const float *const *sources, long offset,
                                     const float *query, double eps, float *shares, float *out)
{
    for (long s = 0; s < count; s++) {
        const float *const source = sources[s] + offset;
        const double square = (double)dot(source, source, width) / (double)width;
        shares[s] = (float)((double)dot(source, query, width) / __builtin_sqrt(square + eps));
    }
    softmax_row(count, shares, shares);
    memset(out, 0, (unsigned long)width * sizeof(float));
    const float keep = 1.0f;
    for (long s = 0; s < count; s++)
        mix_heads(shares + s, sources[s] + offset, 1, width, &keep, out, width, 1, ALONE_WIDE);
}
