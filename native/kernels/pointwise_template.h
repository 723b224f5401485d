/* Row normalisation and gated activations at one SIMD level. */

/* x, out [cols], weight [cols] or NULL: out = x * weight / sqrt(mean(x^2) + eps). */
static void rms_norm_row(long cols, const float *x, const float *weight, double eps, float *out)
{
    const long whole = cols / LANES * LANES;
    vf squares[4] = {vf_set(0), vf_set(0), vf_set(0), vf_set(0)};
    for (long j = 0; j < cols; j += 4 * LANES)
        for (int k = 0; k < 4; k++) {
            const long at = j + k * LANES;
            if (at < cols) {
                const vf a = at < whole ? vf_load(x + at) : vf_load_n(x + at, cols - at);
                squares[k] = vf_fma(a, a, squares[k]);
            }
        }
    const vf all = vf_add(vf_add(squares[0], squares[1]), vf_add(squares[2], squares[3]));
    const vf factor = vf_set((float)(1.0 / __builtin_sqrt((double)vf_sum(all) / (double)cols + eps)));
    for (long j = 0; j < whole; j += LANES) {
        const vf a = vf_mul(vf_load(x + j), factor);
        vf_store(out + j, weight ? vf_mul(a, vf_load(weight + j)) : a);
    }
    if (whole < cols) {
        const vf a = vf_mul(vf_load_n(x + whole, cols - whole), factor);
        vf_store_n(out + whole, weight ? vf_mul(a, vf_load_n(weight + whole, cols - whole)) : a, cols - whole);
    }
}

/* One vector of a gated activation; kind is a constant. */
INLINE vf gated_vector(int kind, vf gate, vf up, vf limit, vf alpha)
{
    if (kind == KERNELS_SILU)
        return vf_mul(vf_mul(gate, vf_sigmoid(gate)), up);
    if (kind == KERNELS_GELU_TANH) {
        const vf cube = vf_mul(vf_mul(gate, gate), gate);
        const vf inner = vf_mul(vf_set(0.7978845608f), vf_fma(vf_set(0.044715f), cube, gate));
        return vf_mul(vf_mul(vf_mul(vf_set(0.5f), gate), vf_add(vf_set(1.0f), vf_tanh(inner))), up);
    }
    if (kind == KERNELS_SWIGLU_OAI) {
        gate = vf_min(gate, limit);
        up = vf_max(vf_min(up, limit), vf_sub(vf_set(0.0f), limit));
        return vf_mul(vf_mul(gate, vf_sigmoid(vf_mul(alpha, gate))), vf_add(up, vf_set(1.0f)));
    }
    const vf capped_gate = vf_mul(alpha, vf_tanh(vf_div(gate, alpha)));
    const vf capped_up = vf_mul(limit, vf_tanh(vf_div(up, limit)));
    return vf_mul(vf_mul(capped_gate, vf_sigmoid(gate)), capped_up);
}

INLINE void gated_all(int kind, long count, const float *gate, const float *up, vf limit, vf alpha, float *out)
{
    const long whole = count / LANES * LANES, rest = count - whole;
    for (long i = 0; i < whole; i += LANES)
        vf_store(out + i, gated_vector(kind, vf_load(gate + i), vf_load(up + i), limit, alpha));
    if (rest)
        vf_store_n(out + whole,
                   gated_vector(kind, vf_load_n(gate + whole, rest), vf_load_n(up + whole, rest), limit, alpha),
                   rest);
}

static void gated(int kind, long count, const float *gate, const float *up, float limit, float alpha,
                  float *out)
{
    const vf l = vf_set(limit), a = vf_set(alpha);
    switch (kind) {
    case KERNELS_SILU: gated_all(KERNELS_SILU, count, gate, up, l, a, out); break;
    case KERNELS_GELU_TANH: gated_all(KERNELS_GELU_TANH, count, gate, up, l, a, out); break;
    case KERNELS_SWIGLU_OAI: gated_all(KERNELS_SWIGLU_OAI, count, gate, up, l, a, out); break;
    default: gated_all(KERNELS_SITU, count, gate, up, l, a, out); break;
    }
}
