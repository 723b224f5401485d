/* The product of one format at one SIMD level; included once for each, after its row_template.h.
 * A tile of a few rows and tokens takes the codes through registers, where they become floats; decoding once for
 * all tokens, into memory, was slower (docs/lessons.md). A scaled block is summed unscaled, from zero, then times
 * its factors added to the whole. One function does this for every number of tokens, so the order is always the
 * same. */

/* sums [row_count][token_count] += block number `block`; its codes are codes[r], of which `columns` columns
 * count; x [VECTORS][token_count][16]. The codes `ahead` bytes on are asked for: into the second-level cache,
 * since requests for the first level wait in line with the loads. */
INLINE void NAME(tile_block)(const struct product *p, const unsigned char *const *codes,
                             const struct coded_row *rows, int row_count, const float *x, int token_count,
                             long block, long columns, long ahead, vf (*sums)[TILE_TOKENS])
{
    struct NAME(block) left[TILE_ROWS];
    vf part[TILE_ROWS][TILE_TOKENS];
    UNROLL for (int r = 0; r < row_count; r++) {
        left[r] = NAME(load)(codes[r]);
        for (long at = 0; at < BLOCK_BYTES; at += 64)
            __builtin_prefetch(codes[r] + at + ahead, 0, 2);
        UNROLL for (int t = 0; t < token_count; t++)
            part[r][t] = FORMAT_SCALED ? vf_set(0) : sums[r][t];
    }
    UNROLL for (int v = 0; v < VECTORS; v++) {
        vf w[TILE_ROWS];
        UNROLL for (int r = 0; r < row_count; r++)
            w[r] = NAME(next)(&left[r], v);
        UNROLL for (int t = 0; t < token_count; t++) {
            const vf activation = vf_load(x + (v * token_count + t) * LANES);
            UNROLL for (int r = 0; r < row_count; r++)
                part[r][t] = vf_fma(w[r], activation, part[r][t]);
        }
    }
    UNROLL for (int r = 0; r < row_count; r++) {
        const vf scale = NAME(scale)(p, rows[r].scales, codes[r], block, columns);
        UNROLL for (int t = 0; t < token_count; t++)
            sums[r][t] = FORMAT_SCALED ? vf_fma(part[r][t], scale, sums[r][t]) : part[r][t];
    }
}

/* to [row_count][token_count][16] += columns col.. (`columns` of them) of rows first.. times x [vectors]
 * [token_count][16]; both counts are constants. */
INLINE void NAME(tile)(const struct product *p, long first, int row_count, long col, long columns, const float *x,
                       int token_count, long ahead, float *to)
{
    const long rest = columns % FORMAT_BLOCK, end = (col + columns) / FORMAT_BLOCK;
    struct coded_row rows[TILE_ROWS];
    const unsigned char *codes[TILE_ROWS];
    vf sums[TILE_ROWS][TILE_TOKENS];
    UNROLL for (int r = 0; r < row_count; r++) {
        rows[r] = coded_row(p, first + r);
        codes[r] = rows[r].codes + CODE_BYTES(col);
        UNROLL for (int t = 0; t < token_count; t++)
            sums[r][t] = vf_load(to + (r * token_count + t) * LANES);
    }
    for (long block = col / FORMAT_BLOCK; block < end; block++, x += FORMAT_BLOCK * token_count) {
        NAME(tile_block)(p, codes, rows, row_count, x, token_count, block, FORMAT_BLOCK, ahead, sums);
        UNROLL for (int r = 0; r < row_count; r++)
            codes[r] += BLOCK_BYTES;
    }
    if (rest) {
        unsigned char padded[TILE_ROWS][BLOCK_BYTES] = {{0}};
        UNROLL for (int r = 0; r < row_count; r++) {
            memcpy(padded[r], codes[r], (unsigned long)CODE_BYTES(rest));
            codes[r] = padded[r];
        }
        NAME(tile_block)(p, codes, rows, row_count, x, token_count, end, rest, 0, sums);
    }
    UNROLL for (int r = 0; r < row_count; r++)
        UNROLL for (int t = 0; t < token_count; t++)
            vf_store(to + (r * token_count + t) * LANES, sums[r][t]);
}

/* Rows first.. last - 1 times the tokens of tile number i of n; sums [rows, token_count, 16]. Each of the tiles asks
 * for what comes `ahead` bytes after some of the rows: the first alone would have to wait for memory. */
INLINE void NAME(tiles)(const struct product *p, long first, long last, long col, long columns, const float *x,
                        int token_count, long i, long n, long ahead, float *sums)
{
    for (long row = first, step; row < last; row += step, sums += step * token_count * LANES) {
        const long here = (row - first) * n / PANEL_ROWS == i ? ahead : 0;
        step = row + TILE_ROWS <= last ? TILE_ROWS : 1;
        if (step == TILE_ROWS)
            NAME(tile)(p, row, TILE_ROWS, col, columns, x, token_count, here, sums);
        else
            NAME(tile)(p, row, 1, col, columns, x, token_count, here, sums);
    }
}

/* The same for all tokens of a chunk, packed as pack_tokens leaves them. */
static void NAME(panel)(const struct product *p, long first, long last, long col, long columns, const float *x,
                        long tokens, float *sums)
{
    const long step = codes_ahead(p, first, last, col, columns, FORMAT_BITS), tiles = tile_count(tokens);
    for (long t = 0, i = 0; t < tokens; t += tile_tokens(tokens, i), i++) {
        const float *const here = x + t * p->x_stride;
        float *const to = sums + t * (last - first) * LANES;
        _Static_assert(TILE_TOKENS <= 4, "one of TILES for each number of tokens");
        switch (tile_tokens(tokens, i)) {
#define TILES(n)                                                                                       \
    case n:                                                                                            \
        if (n <= TILE_TOKENS)                                                                          \
            NAME(tiles)(p, first, last, col, columns, here + col * n, n, i, tiles, step, to);          \
        break;
        TILES(1)
        TILES(2)
        TILES(3)
        TILES(4)
#undef TILES
        }
    }
}

static void NAME(rows)(const struct product *p, long first, long last, float *sums)
{
    for (long token = 0; token < p->tokens; token += CHUNK_TOKENS) {
        const long tokens = chunk_tokens(p->tokens, token), single = tokens <= TILE_TOKENS;
        const long panel_rows = single ? TILE_ROWS : PANEL_ROWS, panel_cols = single ? p->cols : PANEL_COLS;
        for (long from = first; from < last; from += panel_rows) {
            const long to = from + panel_rows < last ? from + panel_rows : last;
            memset(sums, 0, (unsigned long)((to - from) * tokens) * LANES * sizeof(float));
            for (long col = 0; col < p->cols; col += panel_cols)
                NAME(panel)(p, from, to, col, p->cols - col < panel_cols ? p->cols - col : panel_cols,
                            p->x + token * p->x_stride, tokens, sums);
            for (long t = 0, i = 0; t < tokens; t += tile_tokens(tokens, i), i++)
                store_tile(sums + t * (to - from) * LANES, to - from, tile_tokens(tokens, i),
                           p->out + (token + t) * p->out_stride + from - p->base, p->out_stride);
        }
    }
}

#undef PASTE_
#undef PASTE
#undef NAME
#undef VECTORS
#undef BLOCK_BYTES
#undef CODE_BYTES
#undef FORMAT_UNIT
#undef FORMAT_UNIT_BYTES
#undef FORMAT
#undef FORMAT_BLOCK
#undef FORMAT_BITS
#undef FORMAT_SCALED
