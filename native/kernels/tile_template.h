/* Float32 tiles: a panel of decoded weights times some tokens, at one SIMD level. */

/* sums[r, t] (16 lanes each, token_stride vectors from row to row) += w[r, j] * x[t, j] lane by lane over
 * `columns` (a multiple of 16) columns; token_count is a constant up to TILE_TOKENS. */
INLINE void tile(const float *w, const float *x, long x_stride, long columns, float *sums, long token_stride,
                 int token_count)
{
    vf acc[TILE_ROWS][TILE_TOKENS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int t = 0; t < token_count; t++)
            acc[r][t] = vf_load(sums + (r * token_stride + t) * LANES);
    for (long j = 0; j < columns; j += LANES) {
        vf weights[TILE_ROWS];
        for (int r = 0; r < TILE_ROWS; r++)
            weights[r] = vf_load(w + r * PANEL_COLS + j);
        for (int t = 0; t < token_count; t++) {
            const vf activation = vf_load(x + t * x_stride + j);
            for (int r = 0; r < TILE_ROWS; r++)
                acc[r][t] = vf_fma(weights[r], activation, acc[r][t]);
        }
    }
    for (int r = 0; r < TILE_ROWS; r++)
        for (int t = 0; t < token_count; t++)
            vf_store(sums + (r * token_stride + t) * LANES, acc[r][t]);
}

/* panel [rows, PANEL_COLS] (rows a multiple of TILE_ROWS) and x [tokens, columns] -> added to
 * sums [rows, tokens, 16]. */
static void multiply_panel(const float *panel, long rows, const float *x, long x_stride, long tokens,
                           long columns, float *sums)
{
    for (long t = 0; t < tokens; t += TILE_TOKENS)
        for (long r = 0; r < rows; r += TILE_ROWS) {
            const float *w = panel + r * PANEL_COLS, *at = x + t * x_stride;
            float *to = sums + (r * tokens + t) * LANES;
            switch (tokens - t < TILE_TOKENS ? tokens - t : TILE_TOKENS) {
            case 1: tile(w, at, x_stride, columns, to, tokens, 1); break;
#define TILE_CASE(n) \
    case n: tile(w, at, x_stride, columns, to, tokens, n <= TILE_TOKENS ? n : TILE_TOKENS); break;
            TILE_CASE(2)
            TILE_CASE(3)
            TILE_CASE(4)
            TILE_CASE(5)
            TILE_CASE(6)
#undef TILE_CASE
            }
        }
}
