/* Softmax attention of a few heads of one token over the cache, at one SIMD level.
 *
 * Positions are taken in blocks counted from the first visible one, with a running maximum (as in
 * FlashAttention): one walk over the cache, no buffer of the context's length, and an order that depends on
 * the token's position alone. Heads that share keys walk together: ATTEND_HEADS of them meet ATTEND_KEYS keys,
 * or ATTEND_VECTORS vectors of a value, in registers, and a head that is left over meets ALONE_WIDE. Each pair
 * has an accumulator of its own, so which heads walk together does not show. */

/* Scores of one head lie POSITIONS apart from the next one's. */
enum { POSITIONS = 64, ALONE_WIDE = 4 };

/* LANES columns, or the last `rest`, of q [heads, size] times those of keys [wide, size], added to sums; heads
 * and wide are constants. */
INLINE void score_step(const float *q, const float *keys, long size, int heads, int wide, long rest,
                       vf (*sums)[ALONE_WIDE])
{
    vf query[ATTEND_HEADS];
    for (int h = 0; h < heads; h++)
        query[h] = rest ? vf_load_n(q + h * size, rest) : vf_load(q + h * size);
    for (int c = 0; c < wide; c++) {
        const vf key = rest ? vf_load_n(keys + c * size, rest) : vf_load(keys + c * size);
        for (int h = 0; h < heads; h++)
            sums[h][c] = vf_fma(query[h], key, sums[h][c]);
    }
}

/* q [heads, size], keys [wide, size] -> their products, times scale; heads and wide are constants. */
INLINE void score_tile(const float *q, const float *keys, long size, float scale, int heads, int wide,
                       float *scores)
{
    const long whole = size / LANES * LANES;
    vf sums[ATTEND_HEADS][ALONE_WIDE];
    for (int h = 0; h < heads; h++)
        for (int c = 0; c < wide; c++)
            sums[h][c] = vf_set(0);
    for (long j = 0; j < whole; j += LANES)
        score_step(q + j, keys + j, size, heads, wide, 0, sums);
    if (whole < size)
        score_step(q + whole, keys + whole, size, heads, wide, size - whole, sums);
    for (int h = 0; h < heads; h++)
        for (int c = 0; c < wide; c++)
            scores[h * POSITIONS + c] = vf_sum(sums[h][c]) * scale;
}

/* The scores of `heads` heads for `count` keys; heads is a constant, wide the keys that meet at once. */
INLINE void score_heads(const float *q, const float *keys, long count, long size, float scale, int heads,
                        int wide, float *scores)
{
    long c = 0;
    for (; c + wide <= count; c += wide)
        score_tile(q, keys + c * size, size, scale, heads, wide, scores + c);
    for (; c < count; c++)
        score_tile(q, keys + c * size, size, scale, heads, 1, scores + c);
}

/* a, b [size] -> their dot product. */
INLINE float dot(const float *a, const float *b, long size)
{
    float product;
    score_tile(a, b, size, 1.0f, 1, 1, &product);
    return product;
}

/* Columns of out [heads, size], `wide` vectors of them or the last `rest`: out = out * keep[h] +
 * sum_c weights[h, c] * values[c, :] for count values, `stride` floats apart. heads and wide are constants. */
INLINE void mix_tile(const float *weights, const float *values, long count, long stride,
                     const float *keep, float *out, long size, int heads, int wide, long rest)
{
    vf sums[ATTEND_HEADS][ALONE_WIDE], weight[ATTEND_HEADS];
    for (int h = 0; h < heads; h++)
        for (int v = 0; v < wide; v++) {
            const float *from = out + h * size + v * LANES;
            sums[h][v] = vf_mul(rest ? vf_load_n(from, rest) : vf_load(from), vf_set(keep[h]));
        }
    for (long c = 0; c < count; c++) {
        const float *from = values + c * stride;
        for (int h = 0; h < heads; h++)
            weight[h] = vf_set(weights[h * POSITIONS + c]);
        for (int v = 0; v < wide; v++) {
            const vf value = rest ? vf_load_n(from, rest) : vf_load(from + v * LANES);
            for (int h = 0; h < heads; h++)
                sums[h][v] = vf_fma(weight[h], value, sums[h][v]);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int v = 0; v < wide; v++) {
            float *to = out + h * size + v * LANES;
            if (rest)
                vf_store_n(to, sums[h][v], rest);
            else
                vf_store(to, sums[h][v]);
        }
}

/* All columns of `heads` heads. */
INLINE void mix_heads(const float *weights, const float *values, long count, long stride,
                      const float *keep, float *out, long size, int heads, int wide)
{
    long j = 0;
    for (; j + wide * LANES <= size; j += wide * LANES)
        mix_tile(weights, values + j, count, stride, keep, out + j, size, heads, wide, 0);
    for (; j + LANES <= size; j += LANES)
        mix_tile(weights, values + j, count, stride, keep, out + j, size, heads, 1, 0);
    if (j < size)
        mix_tile(weights, values + j, count, stride, keep, out + j, size, heads, 1, size - j);
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
    const long group = first / (a->heads / a->groups), end = a->start + token + 1, heads = last - first;
    const long begin = a->window > 0 && end > a->window ? end - a->window : 0;
    const float *const q = a->q + (token * a->heads + first) * a->size;
    float *const out = a->out + (token * a->heads + first) * a->value_size;
    float top[HEAD_CHUNK], total[HEAD_CHUNK], keep[HEAD_CHUNK], scores[HEAD_CHUNK * POSITIONS];
    for (long h = 0; h < heads; h++) {
        top[h] = a->sinks ? a->sinks[first + h] : -__builtin_inff();
        total[h] = a->sinks ? 1.0f : 0.0f;
    }
    memset(out, 0, (unsigned long)(heads * a->value_size) * sizeof(float));
    for (long position = begin; position < end; position += POSITIONS) {
        const long count = end - position < POSITIONS ? end - position : POSITIONS;
        const float *const keys = a->keys + (group * a->capacity + position) * a->size;
        const float *const values = a->values + (group * a->capacity + position) * a->value_stride;
        long h = 0;
        for (; h + ATTEND_HEADS <= heads; h += ATTEND_HEADS)
            score_heads(q + h * a->size, keys, count, a->size, a->scale, ATTEND_HEADS, ATTEND_KEYS,
                        scores + h * POSITIONS);
        for (; h < heads; h++)
            score_heads(q + h * a->size, keys, count, a->size, a->scale, 1, ALONE_WIDE, scores + h * POSITIONS);
        for (h = 0; h < heads; h++) {
            float *const mine = scores + h * POSITIONS;
            vf largest = vf_set(top[h]);
            for (long c = count; c < POSITIONS; c++)
                mine[c] = -__builtin_inff();
            for (int c = 0; c < POSITIONS; c += LANES)
                largest = vf_max(vf_load(mine + c), largest);
            const float new_top = vf_largest(largest);
            keep[h] = exp_one(top[h] - new_top);
            total[h] = total[h] * keep[h] + exponentials(mine, new_top);
            top[h] = new_top;
        }
        for (h = 0; h + ATTEND_HEADS <= heads; h += ATTEND_HEADS)
            mix_heads(scores + h * POSITIONS, values, count, a->value_stride, keep + h, out + h * a->value_size,
                      a->value_size, ATTEND_HEADS, ATTEND_VECTORS);
        for (; h < heads; h++)
            mix_heads(scores + h * POSITIONS, values, count, a->value_stride, keep + h, out + h * a->value_size,
                      a->value_size, 1, ALONE_WIDE);
    }
    for (long h = 0; h < heads; h++)
        for (long j = 0; j < a->value_size; j++)
            out[h * a->value_size + j] /= total[h];
}
