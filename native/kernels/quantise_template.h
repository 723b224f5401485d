/* Activations as integers, at one SIMD level: what integer_template.h multiplies small integers with.
 *
 * The columns of a panel share a power of two that makes the largest of them a number of 23 bits and a sign; each
 * column is rounded to a whole number, so that the error is at most about 2^-23 of the panel's largest magnitude. The
 * number is cut into DIGITS signed bytes, since dot products take bytes. A block of INTEGER_BLOCK columns takes
 * INTEGER_BYTES, which is what it took as floats:
 *   DIGITS planes, most significant first, of the even columns' digits and then the odd columns';
 *   sixteen int32: what a lane has too much because weights are made unsigned by adding `zero`;
 *   one float: the factor of the panel, times FACTOR_SHIFT, which the weights' factors are divided by so that
 *   neither overflows where their product would not. A panel with an infinity or a NaN has the factor NaN.
 * Blocks lie in the order [panel][token][block]. */

enum {
    INTEGER_BLOCK = 128,
    DIGITS = 3,
    INTEGER_BYTES = INTEGER_BLOCK * (int)sizeof(float),
    SURPLUS_AT = DIGITS * INTEGER_BLOCK,
    FACTOR_AT = SURPLUS_AT + LANES * (int)sizeof(int32_t),
    LARGEST_INTEGER = 0x7f7f7f, /* the largest that three signed bytes can hold */
};
#define FACTOR_SHIFT 0x1p20f

INLINE float panel_factor(const signed char *panel)
{
    float factor;
    memcpy(&factor, panel + FACTOR_AT, sizeof factor);
    return factor;
}

/* The bits of the largest magnitude of x [count]; from 0x7f800000 on it is not finite. */
SHARED uint32_t largest_bits(const float *x, long count)
{
    uint32_t largest = 0;
    for (long j = 0; j < count; j++) {
        uint32_t bits;
        memcpy(&bits, x + j, sizeof bits);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* x [INTEGER_BLOCK] times `scale`, rounded, -> a block without its factor. */
SHARED void quantise_block(const float *x, float scale, int zero, signed char *block)
{
    int32_t number[INTEGER_BLOCK];
    for (int j = 0; j < INTEGER_BLOCK; j++) {
        const float scaled = x[j] * scale;
        number[j] = (int32_t)(scaled + (scaled < 0 ? -0.5f : 0.5f));
    }
    for (int d = DIGITS - 1; d >= 0; d--) {
        signed char digit[INTEGER_BLOCK], *const plane = block + d * INTEGER_BLOCK;
        for (int j = 0; j < INTEGER_BLOCK; j++) {
            digit[j] = (signed char)number[j];
            number[j] = (number[j] - digit[j]) >> 8;
        }
        for (int j = 0; j < INTEGER_BLOCK / 2; j++) {
            plane[j] = digit[2 * j];
            plane[j + INTEGER_BLOCK / 2] = digit[2 * j + 1];
        }
    }
    const vbytes zeros = vbytes_set(zero);
    vi surplus = vi_zero();
    for (int at = 0; at < DIGITS * INTEGER_BLOCK; at += INTEGER_BLOCK) {
        surplus = vi_dot(vi_times_256(surplus), zeros, vi_load(block + at));
        surplus = vi_dot(surplus, zeros, vi_load(block + at + INTEGER_BLOCK / 2));
    }
    vi_store(block + SURPLUS_AT, surplus);
}

/* What x [columns], at most a panel, is multiplied by before it is rounded, and the panel's factor. */
INLINE float panel_scale(const float *x, long columns, float *factor)
{
    const uint32_t bits = largest_bits(x, columns);
    const int finite = bits < 0x7f800000;
    /* The largest magnitude is below 2^(exponent - 126); below 2^-99 it is treated as if it were that. */
    const uint32_t exponent = bits >> 23 > 27 ? bits >> 23 : 27, scale_bits = (276 - exponent) << 23;
    float largest, scale;
    memcpy(&largest, &bits, sizeof largest);
    memcpy(&scale, &scale_bits, sizeof scale);
    if (largest * scale > LARGEST_INTEGER)
        scale *= 0.5f;
    *factor = finite ? FACTOR_SHIFT / scale : __builtin_nanf("");
    return scale;
}

/* x [columns], at most a panel, -> its blocks. */
SHARED void quantise_panel(const float *x, long columns, int zero, signed char *panel)
{
    float factor;
    const float scale = panel_scale(x, columns, &factor);
    const int finite = factor == factor;
    for (long col = 0; col < columns; col += INTEGER_BLOCK, panel += INTEGER_BYTES) {
        float padded[INTEGER_BLOCK] = {0};
        const long count = columns - col < INTEGER_BLOCK ? columns - col : INTEGER_BLOCK;
        if (finite)
            memcpy(padded, x + col, (unsigned long)count * sizeof(float));
        quantise_block(padded, scale, zero, panel);
        memcpy(panel + FACTOR_AT, &factor, sizeof factor);
    }
}

/* x [tokens, cols], rows x_stride apart -> out, tokens * (cols rounded up to INTEGER_BLOCK) floats. */
SHARED void quantise(int zero, long tokens, long cols, const float *x, long x_stride, float *out)
{
    signed char *panel = (signed char *)out;
    for (long col = 0; col < cols; col += INTEGER_PANEL) {
        const long columns = cols - col < INTEGER_PANEL ? cols - col : INTEGER_PANEL;
        for (long t = 0; t < tokens; t++) {
            quantise_panel(x + t * x_stride + col, columns, zero, panel);
            panel += (columns + INTEGER_BLOCK - 1) / INTEGER_BLOCK * INTEGER_BYTES;
        }
    }
}
