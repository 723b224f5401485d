/* The product of one format at one SIMD level; included once for each with
 *   FORMAT              its name; decode_FORMAT.h or decode_floats.h has defined
 *   FORMAT_BLOCK        columns decoded together, a multiple of 16
 *   struct FORMAT_row   where a row's codes and scales are
 *   FORMAT_row_at(p, i), FORMAT_decode(row, block, w), FORMAT_decode_last(row, block, columns, w)
 * Strips decode into registers and serve few tokens. For more tokens a panel is decoded once to float32 and
 * tiles run over it (tile_template.h). Both fold the columns in the same order, so they agree bit for bit. */

#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
#define NAME(b) PASTE(FORMAT, b)
#define VECTORS (FORMAT_BLOCK / LANES)

/* Rows first.. first + row_count - 1 for tokens token.. token + token_count - 1; both counts are constants. */
INLINE void NAME(strip)(const struct product *p, long first, int row_count, long token, int token_count)
{
    const long blocks = p->cols / FORMAT_BLOCK, rest = p->cols % FORMAT_BLOCK;
    const float *x = p->x + token * p->x_stride;
    struct NAME(row) rows[STRIP_ROWS];
    vf sums[STRIP_ROWS][STRIP_TOKENS], w[VECTORS];
    for (int r = 0; r < row_count; r++) {
        rows[r] = NAME(row_at)(p, first + r);
        for (int t = 0; t < token_count; t++)
            sums[r][t] = vf_set(0);
    }
    for (long block = 0; block < blocks; block++)
        for (int r = 0; r < row_count; r++) {
            NAME(decode)(rows[r], block, w);
            for (int v = 0; v < VECTORS; v++)
                for (int t = 0; t < token_count; t++) {
                    const float *at = x + t * p->x_stride + block * FORMAT_BLOCK + v * LANES;
                    sums[r][t] = vf_fma(w[v], vf_load(at), sums[r][t]);
                }
        }
    for (int r = 0; rest && r < row_count; r++) {
        NAME(decode_last)(rows[r], blocks, rest, w);
        for (int v = 0; v < VECTORS; v++)
            for (int t = 0; t < token_count; t++) {
                const float *at = x + t * p->x_stride + blocks * FORMAT_BLOCK + v * LANES;
                sums[r][t] = vf_fma(w[v], vf_load(at), sums[r][t]);
            }
    }
    for (int r = 0; r < row_count; r++)
        for (int t = 0; t < token_count; t++)
            p->out[(token + t) * p->out_stride + first + r - p->base] = vf_sum(sums[r][t]);
}

INLINE void NAME(strips)(const struct product *p, long first, long last, long token, int token_count)
{
    for (; first + STRIP_ROWS <= last; first += STRIP_ROWS)
        NAME(strip)(p, first, STRIP_ROWS, token, token_count);
    for (; first < last; first++)
        NAME(strip)(p, first, 1, token, token_count);
}

/* Columns col.. of rows first.. -> panel [PANEL_ROWS, PANEL_COLS]; returns how many columns, padded. */
static long NAME(decode_panel)(const struct product *p, long first, long row_count, long col, float *panel)
{
    long block = col / FORMAT_BLOCK, filled = 0;
    vf w[VECTORS];
    for (long r = 0; r < row_count; r++) {
        const struct NAME(row) row = NAME(row_at)(p, first + r);
        filled = 0;
        for (long b = block; filled < PANEL_COLS && b * FORMAT_BLOCK < p->cols; b++) {
            const long columns = p->cols - b * FORMAT_BLOCK;
            if (columns >= FORMAT_BLOCK)
                NAME(decode)(row, b, w);
            else
                NAME(decode_last)(row, b, columns, w);
            for (int v = 0; v < VECTORS; v++)
                vf_store(panel + r * PANEL_COLS + filled + v * LANES, w[v]);
            filled += FORMAT_BLOCK;
        }
    }
    return filled;
}

static void NAME(tiles)(const struct product *p, long first, long last, long token, long token_count,
                        float *scratch)
{
    float *const panel = scratch, *const sums = scratch + PANEL_ROWS * PANEL_COLS;
    for (; first < last; first += PANEL_ROWS) {
        const long row_count = last - first < PANEL_ROWS ? last - first : PANEL_ROWS;
        const long padded_rows = (row_count + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
        memset(panel + row_count * PANEL_COLS, 0,
               (unsigned long)((padded_rows - row_count) * PANEL_COLS) * sizeof(float));
        memset(sums, 0, (unsigned long)(padded_rows * token_count) * LANES * sizeof(float));
        for (long col = 0; col < p->cols; col += PANEL_COLS) {
            const long columns = NAME(decode_panel)(p, first, row_count, col, panel);
            multiply_panel(panel, padded_rows, p->x + token * p->x_stride + col, p->x_stride, token_count,
                           columns, sums);
        }
        for (long r = 0; r < row_count; r++)
            for (long t = 0; t < token_count; t++)
                p->out[(token + t) * p->out_stride + first + r - p->base] =
                    vf_sum(vf_load(sums + (r * token_count + t) * LANES));
    }
}

static void NAME(rows)(const struct product *p, long first, long last, float *scratch)
{
    for (long token = 0; token < p->tokens; token += CHUNK_TOKENS) {
        const long left = p->tokens - token, count = left < CHUNK_TOKENS ? left : CHUNK_TOKENS;
        if (count > STRIP_TOKENS)
            NAME(tiles)(p, first, last, token, count, scratch);
        else if (count == 4)
            NAME(strips)(p, first, last, token, 4);
        else if (count == 3)
            NAME(strips)(p, first, last, token, 3);
        else if (count == 2)
            NAME(strips)(p, first, last, token, 2);
        else
            NAME(strips)(p, first, last, token, 1);
    }
}

/* Rows are decoded a panel at a time and added one after another: an output's order is that of the rows. */
static void NAME(transposed)(const struct product *p, long first, long last, float *panel)
{
    const long padded = (p->cols + FORMAT_BLOCK - 1) / FORMAT_BLOCK * FORMAT_BLOCK;
    for (long t = 0; t < p->tokens; t++)
        memset(p->out + t * p->out_stride, 0, (unsigned long)padded * sizeof(float));
    for (long row = first; row < last; row += PANEL_ROWS) {
        const long row_count = last - row < PANEL_ROWS ? last - row : PANEL_ROWS;
        for (long col = 0; col < p->cols; col += PANEL_COLS) {
            const long columns = NAME(decode_panel)(p, row, row_count, col, panel);
            for (long t = 0; t < p->tokens; t++) {
                const float *x = p->x + t * p->x_stride + row - first;
                float *const out = p->out + t * p->out_stride + col;
                for (long j = 0; j < columns; j += LANES) {
                    vf sum = vf_load(out + j);
                    for (long r = 0; r < row_count; r++)
                        sum = vf_fma(vf_set(x[r]), vf_load(panel + r * PANEL_COLS + j), sum);
                    vf_store(out + j, sum);
                }
            }
        }
    }
}

#undef PASTE_
#undef PASTE
#undef NAME
#undef VECTORS
#undef FORMAT
#undef FORMAT_BLOCK
