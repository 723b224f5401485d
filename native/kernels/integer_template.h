/* The product of one format of small integers at one SIMD level, on integer dot products; included once for each,
 * after its row_template.h, with
 *   FORMAT_GROUP         columns that share a scale, 32 or 128
 *   FORMAT_SCALE_BYTES   bytes of a scale
 *   FORMAT_ZERO          what is added to each weight to make it unsigned
 * and, from decode_template.h,
 *   struct byte_pair FORMAT_bytes(codes)   the even and the odd columns of 128 weights, each plus FORMAT_ZERO
 *   void FORMAT_factors(scales, out)       the factors of a panel's groups, over FACTOR_SHIFT; four to a block
 *
 * The float32 way (product_template.h) spends a shift, a permutation and a multiply-add on sixteen products; a dot
 * product of bytes makes sixty-four, and three of them take a whole activation.
 *
 * What is done with the bytes is in dot_template.h, the same for every number of tokens, so the order is always the
 * same. For few tokens the codes are decoded in registers, for more of them once, to memory. */

/* Columns of a panel of one row, padded with zeros. */
struct NAME(row) {
    const unsigned char *codes;
    float factors[LANES];
    unsigned char padded[PANEL_BLOCKS * BLOCK_BYTES];
};

INLINE void NAME(find_row)(const struct product *p, long number, long col, long columns, struct NAME(row) *row)
{
    const unsigned char *codes = (const unsigned char *)p->codes + number * p->code_stride + col * FORMAT_BITS / 8;
    const unsigned char *scales = (const unsigned char *)p->scales + number * p->scale_stride +
                                  col / FORMAT_GROUP * FORMAT_SCALE_BYTES;
    unsigned char groups[LANES * FORMAT_SCALE_BYTES];
    if (columns < INTEGER_PANEL) {
        memset(groups, 0, sizeof groups);
        memcpy(groups, scales, (unsigned long)((columns + FORMAT_GROUP - 1) / FORMAT_GROUP * FORMAT_SCALE_BYTES));
        memset(row->padded, 0, sizeof row->padded);
        memcpy(row->padded, codes, (unsigned long)(columns * FORMAT_BITS + 7) / 8);
        codes = row->padded;
        scales = groups;
    }
    row->codes = codes;
    NAME(factors)(scales, row->factors);
}

INLINE vf NAME(block_factor)(const struct NAME(row) *row, long block)
{
    const float *const at = row->factors + 4 * block;
    return FORMAT_GROUP == INTEGER_BLOCK ? vf_set(*at) : vf_quarters_at(at);
}

/* Columns col.. of rows first.. times the tokens of a tile; both counts are constants. Asks for the codes `ahead`
 * bytes on as product_template.h does. What the codes become is also left in `decoded`, [row][PANEL_BLOCKS], unless
 * that is NULL. */
INLINE void NAME(tile)(const struct product *p, long first, int row_count, long col, long columns,
                       const signed char *x, int token_count, long ahead, float *sums,
                       struct decoded_block *decoded)
{
    const long blocks = integer_blocks(columns), stride = blocks * INTEGER_BYTES;
    struct NAME(row) rows[INTEGER_ROWS];
    vf part[INTEGER_ROWS][INTEGER_TOKENS];
    UNROLL for (int r = 0; r < row_count; r++)
        NAME(find_row)(p, first + r, col, columns, &rows[r]);
    clear_part(row_count, token_count, part);
    for (long b = 0; b < blocks; b++) {
        struct byte_pair w[INTEGER_ROWS];
        vf factor[INTEGER_ROWS];
        UNROLL for (int r = 0; r < row_count; r++) {
            w[r] = NAME(bytes)(rows[r].codes + b * BLOCK_BYTES);
            __builtin_prefetch(rows[r].codes + b * BLOCK_BYTES + ahead, 0, 2);
            factor[r] = NAME(block_factor)(&rows[r], b);
            if (decoded)
                decoded[r * PANEL_BLOCKS + b] = (struct decoded_block){w[r].even, w[r].odd, factor[r]};
        }
        dot_block(w, factor, x + b * INTEGER_BYTES, stride, row_count, token_count, part);
    }
    add_part(part, x, stride, row_count, token_count, sums);
}

/* A panel of few rows times few tokens. */
static void NAME(few)(const struct product *p, long first, long last, long col, long columns, const signed char *x,
                      long tokens, float *sums)
{
    const long ahead = (last - first) * p->code_stride;
    if (last - first == INTEGER_ROWS && tokens == INTEGER_TOKENS)
        NAME(tile)(p, first, INTEGER_ROWS, col, columns, x, INTEGER_TOKENS, ahead, sums, NULL);
    else if (last - first == INTEGER_ROWS)
        NAME(tile)(p, first, INTEGER_ROWS, col, columns, x, 1, ahead, sums, NULL);
    else if (tokens == INTEGER_TOKENS)
        NAME(tile)(p, first, 1, col, columns, x, INTEGER_TOKENS, ahead, sums, NULL);
    else
        NAME(tile)(p, first, 1, col, columns, x, 1, ahead, sums, NULL);
}

/* A panel times many tokens: the first tiles of tokens leave the decoded codes in memory for the others. */
static void NAME(many)(const struct product *p, long first, long last, long col, long columns, const signed char *x,
                       long tokens, float *sums)
{
    struct decoded_block decoded[PANEL_ROWS * PANEL_BLOCKS], *to = decoded;
    const long ahead = codes_ahead(p, first, last, col, columns, FORMAT_BITS);
    long row = first;
    for (; row + INTEGER_ROWS <= last; row += INTEGER_ROWS, to += INTEGER_ROWS * PANEL_BLOCKS)
        NAME(tile)(p, row, INTEGER_ROWS, col, columns, x, INTEGER_TOKENS, ahead,
                   sums + (row - first) * INTEGER_TOKENS * LANES, to);
    for (; row < last; row++, to += PANEL_BLOCKS)
        NAME(tile)(p, row, 1, col, columns, x, INTEGER_TOKENS, ahead, sums + (row - first) * INTEGER_TOKENS * LANES,
                   to);
    dot_panel(decoded, last - first, x + INTEGER_TOKENS * integer_blocks(columns) * INTEGER_BYTES,
              integer_blocks(columns), tokens - INTEGER_TOKENS, sums + (last - first) * INTEGER_TOKENS * LANES);
}

static void NAME(rows)(const struct product *p, long first, long last, float *sums)
{
    for (long token = 0; token < p->tokens; token += CHUNK_TOKENS) {
        const long tokens = chunk_tokens(p->tokens, token);
        const int many = tokens >= 2 * INTEGER_TOKENS;
        for (long row = first, next; row < last; row = next) {
            next = row + (many ? PANEL_ROWS : INTEGER_ROWS);
            if (next > last)
                next = many ? last : row + 1;
            const long rows = next - row;
            memset(sums, 0, (unsigned long)(rows * tokens) * LANES * sizeof(float));
            for (long col = 0; col < p->cols; col += INTEGER_PANEL) {
                const long columns = p->cols - col < INTEGER_PANEL ? p->cols - col : INTEGER_PANEL;
                const long token_bytes = integer_blocks(columns) * INTEGER_BYTES;
                const signed char *const x = (const signed char *)(p->x + p->tokens * col) + token * token_bytes;
                if (many)
                    NAME(many)(p, row, next, col, columns, x, tokens, sums);
                for (long t = 0; !many && t < tokens; t += INTEGER_TOKENS)
                    NAME(few)(p, row, next, col, columns, x + t * token_bytes, integer_tokens(tokens - t),
                              sums + t * rows * LANES);
            }
            for (long t = 0; t < tokens; t += INTEGER_TOKENS)
                store_tile(sums + t * rows * LANES, rows, integer_tokens(tokens - t),
                           p->out + (token + t) * p->out_stride + row - p->base, p->out_stride);
        }
    }
}

static void NAME(integers)(long tokens, long cols, const float *x, long x_stride, float *out)
{
    quantise(FORMAT_ZERO, tokens, cols, x, x_stride, out);
}

#undef FORMAT_GROUP
#undef FORMAT_ZERO
#undef FORMAT_SCALE_BYTES
#undef PASTE_
#undef PASTE
#undef NAME
#undef VECTORS
#undef BLOCK_BYTES
#undef CODE_BYTES
#undef FORMAT
#undef FORMAT_BLOCK
#undef FORMAT_BITS
#undef FORMAT_SCALED
