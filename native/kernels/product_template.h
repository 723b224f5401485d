/* The product of one format at one SIMD level; included once for each, after its row_template.h.
 * A scaled block is summed unscaled, from zero, then times its factors added to the whole.
 * Strips decode into registers and serve few tokens. For more tokens a panel is decoded once to float32 and
 * tiles run over it (tile_template.h). Both add up in the same order, so they agree bit for bit. */

/* The rows' sums [row_count][token_count] += block number `block`; its codes are codes[r], of which
 * `columns` columns count. The same block of the next rows is asked for: into the second-level cache, since
 * requests for the first level wait in line with the loads. */
INLINE void NAME(strip_block)(const struct product *p, const unsigned char *const *codes,
                              const struct coded_row *rows, int row_count, const float *x, int token_count,
                              long block, long columns, vf (*sums)[STRIP_TOKENS])
{
    struct NAME(block) left[STRIP_ROWS];
    vf part[STRIP_ROWS][STRIP_TOKENS];
    for (int r = 0; r < row_count; r++) {
        left[r] = NAME(load)(codes[r]);
        for (long at = 0; at < BLOCK_BYTES; at += 64)
            __builtin_prefetch(codes[r] + at + row_count * p->code_stride, 0, 2);
        for (int t = 0; t < token_count; t++)
            part[r][t] = FORMAT_SCALED ? vf_set(0) : sums[r][t];
    }
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) {
        vf w[STRIP_ROWS];
        for (int r = 0; r < row_count; r++)
            w[r] = NAME(next)(&left[r], v);
        for (int t = 0; t < token_count; t++) {
            const vf activation = vf_load(x + t * p->x_stride + block * FORMAT_BLOCK + v * LANES);
            for (int r = 0; r < row_count; r++)
                part[r][t] = vf_fma(w[r], activation, part[r][t]);
        }
    }
    for (int r = 0; r < row_count; r++) {
        const vf scale = NAME(scale)(p, rows[r].scales, codes[r], block, columns);
        for (int t = 0; t < token_count; t++)
            sums[r][t] = FORMAT_SCALED ? vf_fma(part[r][t], scale, sums[r][t]) : part[r][t];
    }
}

/* Rows first.. first + row_count - 1 for tokens token.. token + token_count - 1; both counts are constants. */
INLINE void NAME(strip)(const struct product *p, long first, int row_count, long token, int token_count)
{
    const long blocks = p->cols / FORMAT_BLOCK, rest = p->cols % FORMAT_BLOCK;
    const float *x = p->x + token * p->x_stride;
    struct coded_row rows[STRIP_ROWS];
    const unsigned char *codes[STRIP_ROWS];
    vf sums[STRIP_ROWS][STRIP_TOKENS];
    for (int r = 0; r < row_count; r++) {
        rows[r] = coded_row(p, first + r);
        codes[r] = rows[r].codes;
        for (int t = 0; t < token_count; t++)
            sums[r][t] = vf_set(0);
    }
    for (long block = 0; block < blocks; block++) {
        NAME(strip_block)(p, codes, rows, row_count, x, token_count, block, FORMAT_BLOCK, sums);
        for (int r = 0; r < row_count; r++)
            codes[r] += BLOCK_BYTES;
    }
    if (rest) {
        unsigned char padded[STRIP_ROWS][BLOCK_BYTES] = {{0}};
        for (int r = 0; r < row_count; r++) {
            memcpy(padded[r], codes[r], (unsigned long)(rest * FORMAT_BITS + 7) / 8);
            codes[r] = padded[r];
        }
        NAME(strip_block)(p, codes, rows, row_count, x, token_count, blocks, rest, sums);
    }
    for (int r = 0; r < row_count; r++)
        for (int t = 0; t < token_count; t++)
            p->out[(token + t) * p->out_stride + first + r - p->base] = vf_sum(sums[r][t]);
}

INLINE void NAME(strips)(const struct product *p, long first, long last, long token, int token_count)
{
    const int fitting = STRIP_SUMS / token_count, many = fitting < STRIP_ROWS ? fitting : STRIP_ROWS;
    const int row_count = many > 1 ? many : 1;
    for (; first + row_count <= last; first += row_count)
        NAME(strip)(p, first, row_count, token, token_count);
    for (; row_count > 1 && first < last; first++)
        NAME(strip)(p, first, 1, token, token_count);
}

/* Columns col.. of rows first.. -> a panel, and the factors of its blocks, as multiply_panel wants them. */
static long NAME(decode_panel)(const struct product *p, long first, long row_count, long col, float *panel,
                               float *scales)
{
    long columns = 0;
    if (row_count % TILE_ROWS) {
        memset(panel, 0, PANEL_ROWS * PANEL_COLS * sizeof(float));
        memset(scales, 0, PANEL_ROWS * PANEL_COLS * sizeof(float));
    }
    for (long r = 0; r < row_count; r++) {
        const long tile = r / TILE_ROWS * TILE_ROWS * PANEL_COLS, within = r % TILE_ROWS * LANES;
        columns = NAME(decode_row)(p, coded_row(p, first + r), col, panel + tile + within,
                                   scales + tile / VECTORS + within, TILE_ROWS * LANES);
    }
    return columns;
}

/* The codes of the panel after (first, col), so that they are on their way while this one is multiplied. */
static struct ahead NAME(ahead)(const struct product *p, long first, long last, long col)
{
    const unsigned char *from = coded_row(p, first).codes + (col + PANEL_COLS) * FORMAT_BITS / 8;
    if (col + PANEL_COLS >= p->cols) {
        first += PANEL_ROWS;
        from = coded_row(p, first).codes;
    }
    const long rows = last - first < 0 ? 0 : last - first < PANEL_ROWS ? last - first : PANEL_ROWS;
    return (struct ahead){from, p->code_stride, rows, PANEL_COLS * FORMAT_BITS / 8};
}

static void NAME(tiles)(const struct product *p, long first, long last, long token, long token_count,
                        float *scratch)
{
    float *const panel = scratch, *const scales = panel + PANEL_ROWS * PANEL_COLS;
    float *const sums = scales + PANEL_ROWS * PANEL_COLS;
    for (; first < last; first += PANEL_ROWS) {
        const long row_count = last - first < PANEL_ROWS ? last - first : PANEL_ROWS;
        const long padded_rows = (row_count + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
        memset(sums, 0, (unsigned long)(padded_rows * token_count) * LANES * sizeof(float));
        for (long col = 0; col < p->cols; col += PANEL_COLS) {
            const struct ahead next = NAME(ahead)(p, first, last, col);
            const struct panel_product now = {
                .panel = panel,
                .scales = scales,
                .rows = padded_rows,
                .columns = NAME(decode_panel)(p, first, row_count, col, panel, scales),
                .packed = p->packed + token * p->x_stride,
                .tokens = token_count,
                .cols = p->x_stride,
                .col = col,
                .sums = sums,
            };
            if (!FORMAT_SCALED)
                multiply_panel(&now, &next);
            else if (VECTORS == 1)
                multiply_panel_scaled_1(&now, &next);
            else
                multiply_panel_scaled_8(&now, &next);
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
        const long count = chunk_tokens(p->tokens, token);
        if (count > STRIP_TOKENS) {
            NAME(tiles)(p, first, last, token, count, scratch);
            continue;
        }
        switch (count) {
#define STRIPS(n) \
    case n: NAME(strips)(p, first, last, token, n <= STRIP_TOKENS ? n : STRIP_TOKENS); break;
        STRIPS(1)
        STRIPS(2)
        STRIPS(3)
        STRIPS(4)
        STRIPS(5)
        STRIPS(6)
        STRIPS(7)
        STRIPS(8)
#undef STRIPS
        }
    }
}

#undef PASTE_
#undef PASTE
#undef NAME
#undef VECTORS
#undef BLOCK_BYTES
#undef FORMAT
#undef FORMAT_BLOCK
#undef FORMAT_BITS
#undef FORMAT_SCALED
