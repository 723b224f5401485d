/* exp, tanh and the logistic function, sixteen at a time; polynomials from Cephes (expf, tanhf). The relative
 * error stays below 3e-7. An element's result depends on its value alone. */

INLINE vf vf_exp(vf x)
{
    x = vf_max(vf_min(x, vf_set(89.0f)), vf_set(-104.0f)); /* infinity above, zero below */
    const vf n = vf_round(vf_mul(x, vf_set(1.44269504f)));
    const vf r = vf_fma(n, vf_set(2.12194440e-4f), vf_fma(n, vf_set(-0.693359375f), x));
    vf p = vf_set(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    p = vf_add(vf_fma(p, vf_mul(r, r), r), vf_set(1.0f));
    /* 2^n in two factors: n reaches from -150 to 128, where one alone would not be a normal number. */
    const vf half = vf_round(vf_mul(n, vf_set(0.5f)));
    return vf_mul(vf_mul(p, vf_pow2(half)), vf_pow2(vf_sub(n, half)));
}

INLINE vf vf_sigmoid(vf x)
{
    return vf_div(vf_set(1.0f), vf_add(vf_set(1.0f), vf_exp(vf_sub(vf_set(0.0f), x))));
}

INLINE vf vf_tanh(vf x)
{
    const vf magnitude = vf_max(x, vf_sub(vf_set(0.0f), x));
    const vf z = vf_mul(x, x);
    vf p = vf_set(-5.70498872745e-3f);
    p = vf_fma(p, z, vf_set(2.06390887954e-2f));
    p = vf_fma(p, z, vf_set(-5.37397155531e-2f));
    p = vf_fma(p, z, vf_set(1.33314422036e-1f));
    p = vf_fma(p, z, vf_set(-3.33332819422e-1f));
    const vf small = vf_fma(vf_mul(p, z), x, x);
    const vf e = vf_exp(vf_add(magnitude, magnitude));
    const vf large = vf_sub(vf_set(1.0f), vf_div(vf_set(2.0f), vf_add(e, vf_set(1.0f))));
    const vf signed_large = vf_if_less(x, vf_set(0.0f), vf_sub(vf_set(0.0f), large), large);
    return vf_if_less(magnitude, vf_set(0.625f), small, signed_large);
}
