/* The rows of one format as floats, at one SIMD level, and the product with their transpose; included once for
 * each format, before its product_template.h or integer_template.h, with
 *   FORMAT          its name
 *   FORMAT_BLOCK    columns decoded together, a multiple of 16
 *   FORMAT_BITS     bits of a code
 *   FORMAT_SCALED   whether a block has scales
 *   FORMAT_UNIT, FORMAT_UNIT_BYTES   where codes and scales are stored together: columns and bytes of such a unit
 * and, from decode_template.h,
 *   struct FORMAT_block FORMAT_load(codes)   a block's codes
 *   vf FORMAT_next(&block, v)                its v-th sixteen values, unscaled; asked for in turn
 *   vf FORMAT_scale(p, scales, codes, block, columns)   the factor of each lane in that block */

#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
#define NAME(b) PASTE(FORMAT, b)
#define VECTORS (FORMAT_BLOCK / LANES)
#ifdef FORMAT_UNIT
#define CODE_BYTES(columns) (((columns) + FORMAT_UNIT - 1) / FORMAT_UNIT * FORMAT_UNIT_BYTES)
#else
#define CODE_BYTES(columns) (((columns) * FORMAT_BITS + 7) / 8)
#endif
#define BLOCK_BYTES CODE_BYTES(FORMAT_BLOCK)

/* Columns col.. (at most PANEL_COLS) of one row: unscaled values to `to`, `step` floats from one vector to
 * the next; a factor for each block to `scales`, `step` floats apart as well. Returns the padded columns. */
INLINE long NAME(decode_row)(const struct product *p, struct coded_row row, long col, float *to, float *scales,
                             long step)
{
    const long left = p->cols - col < PANEL_COLS ? p->cols - col : PANEL_COLS;
    const unsigned char *codes = row.codes + CODE_BYTES(col);
    long block = col / FORMAT_BLOCK, done = 0;
    for (; done < left; done += FORMAT_BLOCK, block++) {
        unsigned char padded[BLOCK_BYTES];
        if (left - done < FORMAT_BLOCK) {
            memset(padded, 0, sizeof padded);
            memcpy(padded, codes, (unsigned long)CODE_BYTES(left - done));
            codes = padded;
        }
        struct NAME(block) codes_left = NAME(load)(codes);
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++, to += step)
            vf_store(to, NAME(next)(&codes_left, v));
        if (FORMAT_SCALED) {
            vf_store(scales, NAME(scale)(p, row.scales, codes, block, left - done));
            scales += step;
        }
        codes += BLOCK_BYTES;
    }
    return done;
}

/* out [tokens, cols], padded and in the order of decoded columns, = x [tokens, last - first] times the rows;
 * the rows are added in rising order. */
static void NAME(transposed)(const struct product *p, long first, long last, float *scratch)
{
    float *const values = scratch, *const scales = values + PANEL_COLS;
    for (long t = 0; t < p->tokens; t++)
        memset(p->out + t * p->out_stride, 0, (unsigned long)p->out_stride * sizeof(float));
    for (long row = first; row < last; row++)
        for (long col = 0; col < p->cols; col += PANEL_COLS) {
            const long columns = NAME(decode_row)(p, coded_row(p, row), col, values, scales, LANES);
            for (long j = 0; FORMAT_SCALED && j < columns; j += LANES)
                vf_store(values + j, vf_mul(vf_load(values + j), vf_load(scales + j / FORMAT_BLOCK * LANES)));
            for (long t = 0; t < p->tokens; t++) {
                const vf x = vf_set(p->x[t * p->x_stride + row - first]);
                float *const out = p->out + t * p->out_stride + col;
                for (long j = 0; j < columns; j += LANES)
                    vf_store(out + j, vf_fma(x, vf_load(values + j), vf_load(out + j)));
            }
        }
}
