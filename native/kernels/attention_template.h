/* Softmax attention of a few heads of one token over the cache, at one SIMD level.
 *
 * Positions are taken in blocks counted from the first visible one, with a running maximum (as in
 * FlashAttention): one walk over the cache, no buffer of the context's length, and an order that depends on
 * the token's position alone. Heads that share keys take turns inside a block, while it is in the cache. */

enum { POSITIONS = 64 };

/* a, b [size] -> their dot product. */
INLINE float dot(const float *a, const float *b, long size)
{
    const long whole = size / LANES * LANES;
    vf sum = vf_set(0);
    for (long j = 0; j < whole; j += LANES)
        sum = vf_fma(vf_load(a + j), vf_load(b + j), sum);
    if (whole < size)
        sum = vf_fma(vf_load_n(a + whole, size - whole), vf_load_n(b + whole, size - whole), sum);
    return vf_sum(sum);
}

/* out [size] = out * keep + sum_c weights[c] * values[c, :] for count values, `stride` floats apart. */
INLINE void mix_columns(const float *weights, const float *values, long count, long stride, float keep,
                        float *out, long column, int vectors, long rest)
{
    vf sums[4];
    for (int v = 0; v < vectors; v++) {
        const float *from = out + column + v * LANES;
        sums[v] = vf_mul(rest ? vf_load_n(from, rest) : vf_load(from), vf_set(keep));
    }
    for (long c = 0; c < count; c++) {
        const vf weight = vf_set(weights[c]);
        for (int v = 0; v < vectors; v++) {
            const float *from = values + c * stride + column + v * LANES;
            sums[v] = vf_fma(weight, rest ? vf_load_n(from, rest) : vf_load(from), sums[v]);
        }
    }
    for (int v = 0; v < vectors; v++) {
        float *to = out + column + v * LANES;
        if (rest)
            vf_store_n(to, sums[v], rest);
        else
            vf_store(to, sums[v]);
    }
}

static void mix(const float *weights, const float *values, long count, long stride, long size, float keep,
                float *out)
{
    long column = 0;
    for (; column + 4 * LANES <= size; column += 4 * LANES)
        mix_columns(weights, values, count, stride, keep, out, column, 4, 0);
    for (; column + LANES <= size; column += LANES)
        mix_columns(weights, values, count, stride, keep, out, column, 1, 0);
    if (column < size)
        mix_columns(weights, values, count, stride, keep, out, column, 1, size - column);
}

/* scores [POSITIONS], of which `count` are valid and the rest -inf -> exp(scores - top), returns their sum. */
INLINE float exponentials(float *scores, float top)
{
    vf sum = vf_set(0);
    for (int c = 0; c < POSITIONS; c += LANES) {
        const vf e = vf_exp(vf_sub(vf_load(scores + c), vf_set(top)));
        vf_store(scores + c, e);
        sum = vf_add(sum, e);
    }
    return vf_sum(sum);
}

INLINE float exp_one(float x)
{
    float lanes[LANES];
    vf_store(lanes, vf_exp(vf_set(x)));
    return lanes[0];
}

static void attention_heads(const struct attention *a, long token, long first, long last)
{
    const long group = first / (a->heads / a->groups), end = a->start + token + 1;
    const long begin = a->window > 0 && end > a->window ? end - a->window : 0;
    const float *q = a->q + token * a->heads * a->size;
    float *out = a->out + token * a->heads * a->value_size;
    float top[HEAD_CHUNK], total[HEAD_CHUNK], scores[POSITIONS];
    for (long h = first; h < last; h++) {
        top[h - first] = a->sinks ? a->sinks[h] : -__builtin_inff();
        total[h - first] = a->sinks ? 1.0f : 0.0f;
        memset(out + h * a->value_size, 0, (unsigned long)a->value_size * sizeof(float));
    }
    for (long position = begin; position < end; position += POSITIONS) {
        const long count = end - position < POSITIONS ? end - position : POSITIONS;
        const float *keys = a->keys + (group * a->capacity + position) * a->size;
        const float *values = a->values + (group * a->capacity + position) * a->value_stride;
        for (long h = first; h < last; h++) {
            float *const my_top = top + (h - first), *const my_total = total + (h - first);
            vf largest = vf_set(*my_top);
            for (long c = 0; c < POSITIONS; c++)
                scores[c] = c < count ? dot(q + h * a->size, keys + c * a->size, a->size) * a->scale
                                      : -__builtin_inff();
            for (int c = 0; c < POSITIONS; c += LANES)
                largest = vf_max(vf_load(scores + c), largest);
            const float new_top = vf_largest(largest), keep = exp_one(*my_top - new_top);
            *my_total = *my_total * keep + exponentials(scores, new_top);
            *my_top = new_top;
            mix(scores, values, count, a->value_stride, a->value_size, keep, out + h * a->value_size);
        }
    }
    for (long h = first; h < last; h++)
        for (long j = 0; j < a->value_size; j++)
            out[h * a->value_size + j] /= total[h - first];
}
