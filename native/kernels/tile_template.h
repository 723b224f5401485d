/* Float32 tiles: a panel of decoded weights times packed tokens, at one SIMD level.
 *
 * Both operands lie in the order in which a tile walks over them, [tile][columns / 16][row or token][16], so
 * that it reads two streams whatever the strides of the matrices were. */

/* A panel [rows / TILE_ROWS][PANEL_COLS / 16][TILE_ROWS][16] (rows a multiple of TILE_ROWS), of which
 * `columns` count, the factors of its blocks [rows / TILE_ROWS][PANEL_COLS / block][TILE_ROWS][16], and what
 * it meets: columns col.. of packed tokens, `cols` wide. The products are added to sums [rows, tokens, 16]. */
struct panel_product {
    const float *panel, *scales;
    long rows, columns;
    const float *packed;
    long tokens, cols, col;
    float *sums;
};

/* sums[r, t] (token_stride vectors from row to row) += w[r, j] * x[t, j] lane by lane; token_count is a
 * constant up to TILE_TOKENS. */
INLINE void tile(const float *w, const float *x, long columns, float *sums, long token_stride, int token_count)
{
    vf acc[TILE_ROWS][TILE_TOKENS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int t = 0; t < token_count; t++)
            acc[r][t] = vf_load(sums + (r * token_stride + t) * LANES);
    for (long j = 0; j < columns; j += LANES) {
        vf weights[TILE_ROWS];
        for (int r = 0; r < TILE_ROWS; r++)
            weights[r] = vf_load(w + r * LANES);
        for (int t = 0; t < token_count; t++) {
            const vf activation = vf_load(x + t * LANES);
            for (int r = 0; r < TILE_ROWS; r++)
                acc[r][t] = vf_fma(weights[r], activation, acc[r][t]);
        }
        w += TILE_ROWS * LANES;
        x += token_count * LANES;
    }
    for (int r = 0; r < TILE_ROWS; r++)
        for (int t = 0; t < token_count; t++)
            vf_store(sums + (r * token_stride + t) * LANES, acc[r][t]);
}

/* The same where blocks of 16 * vectors columns have factors: a block is summed from zero, then scaled. */
INLINE void scaled_tile(const float *w, const float *scales, const float *x, long columns, int vectors,
                        float *sums, long token_stride, int token_count)
{
    for (long j = 0; j < columns; j += vectors * LANES) {
        vf acc[TILE_ROWS][TILE_TOKENS];
        for (int r = 0; r < TILE_ROWS; r++)
            for (int t = 0; t < token_count; t++)
                acc[r][t] = vf_set(0);
        for (int v = 0; v < vectors; v++) {
            vf weights[TILE_ROWS];
            for (int r = 0; r < TILE_ROWS; r++)
                weights[r] = vf_load(w + r * LANES);
            for (int t = 0; t < token_count; t++) {
                const vf activation = vf_load(x + t * LANES);
                for (int r = 0; r < TILE_ROWS; r++)
                    acc[r][t] = vf_fma(weights[r], activation, acc[r][t]);
            }
            w += TILE_ROWS * LANES;
            x += token_count * LANES;
        }
        for (int r = 0; r < TILE_ROWS; r++) {
            const vf scale = vf_load(scales + r * LANES);
            for (int t = 0; t < token_count; t++) {
                float *const to = sums + (r * token_stride + t) * LANES;
                vf_store(to, vf_fma(acc[r][t], scale, vf_load(to)));
            }
        }
        scales += TILE_ROWS * LANES;
    }
}

/* How many tiles `tokens` are dealt to, and how many of them tile i takes. */
static long tile_count(long tokens) { return (tokens + TILE_TOKENS - 1) / TILE_TOKENS; }
static long tile_tokens(long tokens, long i)
{
    const long n = tile_count(tokens);
    return tokens / n + (i < tokens % n);
}

/* x [tokens, cols], rows x_stride apart -> packed [tile][cols / 16][token][16]; cols a multiple of 16. */
static void pack_tokens(long tokens, long cols, const float *x, long x_stride, float *packed)
{
    for (long i = 0; i < tile_count(tokens); i++) {
        const long count = tile_tokens(tokens, i);
        for (long t = 0; t < count; t++)
            for (long j = 0; j < cols / LANES; j++)
                vf_store(packed + (j * count + t) * LANES, vf_load(x + t * x_stride + j * LANES));
        x += count * x_stride;
        packed += count * cols;
    }
}

/* Bytes that will be wanted next: `rows` runs of `nbytes`, `stride` bytes apart. Touching a line too many at
 * the end of a row is harmless: a prefetch never faults. */
struct ahead {
    const unsigned char *from;
    long stride, rows, nbytes;
};

/* Asks for part i of n of rows first.. first + TILE_ROWS - 1. */
INLINE void prefetch(const struct ahead *next, long first, long i, long n)
{
    for (long r = first; r < first + TILE_ROWS && r < next->rows; r++)
        for (long at = next->nbytes * i / n / 64 * 64; at < next->nbytes * (i + 1) / n; at += 64)
            __builtin_prefetch(next->from + r * next->stride + at, 0, 3);
}

/* One tile of one kind: vectors is 0 without factors, else a block's columns / 16; both are constants. */
INLINE void one_tile(const struct panel_product *p, long row, long token, int token_count, int vectors)
{
    const float *const w = p->panel + row * PANEL_COLS;
    const float *const x = p->packed + token * p->cols + p->col * token_count;
    float *const to = p->sums + (row * p->tokens + token) * LANES;
    if (vectors == 0)
        tile(w, x, p->columns, to, p->tokens, token_count);
    else
        scaled_tile(w, p->scales + row * PANEL_COLS / vectors, x, p->columns, vectors, to, p->tokens,
                    token_count);
}

INLINE void multiply(const struct panel_product *p, const struct ahead *next, int vectors)
{
    const long tiles = tile_count(p->tokens);
    for (long i = 0, t = 0; i < tiles; t += tile_tokens(p->tokens, i), i++)
        for (long r = 0; r < p->rows; r += TILE_ROWS) {
            prefetch(next, r, i, tiles);
            switch (tile_tokens(p->tokens, i)) {
#define TILE_CASE(n) \
    case n: one_tile(p, r, t, n <= TILE_TOKENS ? n : TILE_TOKENS, vectors); break;
            TILE_CASE(1)
            TILE_CASE(2)
            TILE_CASE(3)
            TILE_CASE(4)
            TILE_CASE(5)
            TILE_CASE(6)
#undef TILE_CASE
            }
        }
}

static void multiply_panel(const struct panel_product *p, const struct ahead *next) { multiply(p, next, 0); }
static void multiply_panel_scaled_1(const struct panel_product *p, const struct ahead *next)
{
    multiply(p, next, 1);
}
static void multiply_panel_scaled_8(const struct panel_product *p, const struct ahead *next)
{
    multiply(p, next, 8);
}
