/* Short convolutions and the gated delta rule at one SIMD level. */

/* 16 channels (or fewer) from `channel` of x [tokens, channels] through their filters taps [channels, count],
 * with history [count - 1, channels] in front of x -> silu in out; the history moves on. */
static void causal_conv_lanes(long tokens, long channels, long count, long channel, const float *x,
                              float *history, const float *taps, float *out)
{
    const long lanes = channels - channel < LANES ? channels - channel : LANES, past = count - 1;
    vf filters[MAX_TAPS];
    for (long i = 0; i < count; i++) {
        float tap[LANES];
        for (long c = 0; c < lanes; c++)
            tap[c] = taps[(channel + c) * count + i];
        filters[i] = vf_load_n(tap, lanes);
    }
    for (long t = 0; t < tokens; t++) {
        vf sum = vf_set(0);
        for (long i = 0; i < count; i++) {
            const long at = t + i - past;
            const float *from = at < 0 ? history + (past + at) * channels : x + at * channels;
            sum = vf_fma(filters[i], vf_load_n(from + channel, lanes), sum);
        }
        vf_store_n(out + t * channels + channel, vf_mul(sum, vf_sigmoid(sum)), lanes);
    }
    for (long i = 0; i < past; i++) {
        const long at = i + tokens - past;
        const float *from = at < 0 ? history + (past + at) * channels : x + at * channels;
        vf_store_n(history + i * channels + channel, vf_load_n(from + channel, lanes), lanes);
    }
}

/* Value columns `column`.. (`vectors` of 16, or `rest` alone) of one head's state [keys, values], for all
 * tokens in order. A token reads S' = decay * S once for u = S'^T k and p = S'^T q, which gives the output of
 * the corrected state, p + (k . q) delta with delta = beta (v - u), before S' + k delta^T is written. */
INLINE void delta_columns(const struct delta *d, long head, long column, int vectors, long rest)
{
    const long keys = d->keys, values = d->values;
    float *const state = d->state + head * keys * values + column;
    for (long t = 0; t < d->tokens; t++) {
        const long row = t * d->heads + head;
        const float *q = d->q + row * keys, *k = d->k + row * keys, *decay = d->decay + row * keys;
        const float *v = d->v + row * values + column;
        float *const out = d->out + row * values + column;
        vf recalled[DELTA_VECTORS], read[DELTA_VECTORS], delta[DELTA_VECTORS];
        for (int i = 0; i < vectors; i++)
            recalled[i] = read[i] = vf_set(0);
        for (long key = 0; key < keys; key++) {
            const vf kept = vf_set(decay[key]), mine = vf_set(k[key]), asked = vf_set(q[key]);
            for (int i = 0; i < vectors; i++) {
                const float *at = state + key * values + i * LANES;
                const vf s = vf_mul(rest ? vf_load_n(at, rest) : vf_load(at), kept);
                recalled[i] = vf_fma(mine, s, recalled[i]);
                read[i] = vf_fma(asked, s, read[i]);
            }
        }
        const vf beta = vf_set(d->beta[row]), match = vf_set(dot(k, q, keys));
        for (int i = 0; i < vectors; i++) {
            const vf value = rest ? vf_load_n(v, rest) : vf_load(v + i * LANES);
            delta[i] = vf_mul(beta, vf_sub(value, recalled[i]));
            const vf result = vf_fma(match, delta[i], read[i]);
            if (rest)
                vf_store_n(out, result, rest);
            else
                vf_store(out + i * LANES, result);
        }
        for (long key = 0; key < keys; key++) {
            const vf kept = vf_set(decay[key]), mine = vf_set(k[key]);
            for (int i = 0; i < vectors; i++) {
                float *const at = state + key * values + i * LANES;
                const vf s = vf_mul(rest ? vf_load_n(at, rest) : vf_load(at), kept);
                const vf corrected = vf_fma(mine, delta[i], s);
                if (rest)
                    vf_store_n(at, corrected, rest);
                else
                    vf_store(at, corrected);
            }
        }
    }
}

static void delta_head(const struct delta *d, long head)
{
    long column = 0;
    for (; column + DELTA_VECTORS * LANES <= d->values; column += DELTA_VECTORS * LANES)
        delta_columns(d, head, column, DELTA_VECTORS, 0);
    for (; column + LANES <= d->values; column += LANES)
        delta_columns(d, head, column, 1, 0);
    if (column < d->values)
        delta_columns(d, head, column, 1, d->values - column);
}
