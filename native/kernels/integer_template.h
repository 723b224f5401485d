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
 * A lane sums the products of eight columns exactly: with weights up to 24 and activations below 2^23 they stay
 * below 2^31. The sum becomes a float, is multiplied by the factor of its group and added up over a panel
 * of columns; the panel's sum times the factor of its activations is added to the whole. One function does this for
 * every number of tokens, so the order is always the same. */

#define PANEL_BLOCKS (PANEL_COLS / INTEGER_BLOCK)

/* sums [row_count][row_step][16] += `blocks` blocks of a panel: each row's codes and factors, and quantised
 * activations, tokens `stride` bytes apart. The counts are constants. Asks for the codes `ahead` bytes on
 * as product_template.h does. */
INLINE void NAME(panel)(const unsigned char *const *codes, const float (*factors)[LANES], const signed char *x,
                        long stride, long blocks, long ahead, int row_count, int token_count,
                        float *sums, long row_step)
{
    vf part[INTEGER_ROWS][INTEGER_TOKENS];
    for (int r = 0; r < row_count; r++)
        for (int t = 0; t < token_count; t++)
            part[r][t] = vf_set(0);
    for (long b = 0; b < blocks; b++) {
        struct byte_pair w[INTEGER_ROWS];
        vf factor[INTEGER_ROWS];
        for (int r = 0; r < row_count; r++) {
            const float *const at = factors[r] + 4 * b;
            w[r] = NAME(bytes)(codes[r] + b * BLOCK_BYTES);
            __builtin_prefetch(codes[r] + b * BLOCK_BYTES + ahead, 0, 2);
            factor[r] = FORMAT_GROUP == INTEGER_BLOCK ? vf_set(*at) : vf_quarters_at(at);
        }
        const signed char *const block = x + b * INTEGER_BYTES;
        vi sum[INTEGER_ROWS][INTEGER_TOKENS];
        for (int d = 0; d < DIGITS; d++) {
            for (int t = 0; t < token_count; t++) {
                const vi even = vi_load(block + t * stride + d * INTEGER_BLOCK);
                for (int r = 0; r < row_count; r++)
                    sum[r][t] = vi_dot(d ? vi_times_256(sum[r][t]) : vi_zero(), w[r].even, even);
            }
            for (int t = 0; t < token_count; t++) {
                const vi odd = vi_load(block + t * stride + d * INTEGER_BLOCK + INTEGER_BLOCK / 2);
                for (int r = 0; r < row_count; r++)
                    sum[r][t] = vi_dot(sum[r][t], w[r].odd, odd);
            }
        }
        for (int t = 0; t < token_count; t++) {
            const vi surplus = vi_load(block + t * stride + SURPLUS_AT);
            for (int r = 0; r < row_count; r++)
                part[r][t] = vf_fma(vf_from_int(vi_sub(sum[r][t], surplus)), factor[r], part[r][t]);
        }
    }
    for (int t = 0; t < token_count; t++) {
        const vf factor = vf_set(panel_factor(x + t * stride));
        for (int r = 0; r < row_count; r++) {
            float *const sum = sums + (r * row_step + t) * LANES;
            vf_store(sum, vf_fma(part[r][t], factor, vf_load(sum)));
        }
    }
}

/* The same for all tokens of a chunk; sums [row_count, tokens, 16] in memory. */
INLINE void NAME(panel_tokens)(const unsigned char *const *codes, const float (*factors)[LANES],
                               const signed char *x, long blocks, long ahead, int row_count, long tokens,
                               float *sums)
{
    const long stride = blocks * INTEGER_BYTES;
    long t = 0;
    for (; t + INTEGER_TOKENS <= tokens; t += INTEGER_TOKENS)
        NAME(panel)(codes, factors, x + t * stride, stride, blocks, ahead, row_count, INTEGER_TOKENS,
                    sums + t * LANES, tokens);
    for (; t < tokens; t++)
        NAME(panel)(codes, factors, x + t * stride, stride, blocks, ahead, row_count, 1, sums + t * LANES, tokens);
}

/* Panel col.. of rows first.. (row_count, a constant) for `tokens` tokens from number `token` on. */
INLINE void NAME(row_panel)(const struct product *p, long first, int row_count, long col, long token, long tokens,
                            float *sums)
{
    const long columns = p->cols - col < PANEL_COLS ? p->cols - col : PANEL_COLS;
    const long blocks = (columns + INTEGER_BLOCK - 1) / INTEGER_BLOCK;
    const long some_groups = (columns + FORMAT_GROUP - 1) / FORMAT_GROUP;
    const signed char *const x = (const signed char *)(p->x + p->tokens * col) + token * blocks * INTEGER_BYTES;
    const unsigned char *codes[INTEGER_ROWS];
    float factors[INTEGER_ROWS][LANES];
    unsigned char padded[INTEGER_ROWS][PANEL_BLOCKS * BLOCK_BYTES];
    for (int r = 0; r < row_count; r++) {
        codes[r] = (const unsigned char *)p->codes + (first + r) * p->code_stride + col * FORMAT_BITS / 8;
        const unsigned char *scales = (const unsigned char *)p->scales + (first + r) * p->scale_stride +
                                      col / FORMAT_GROUP * FORMAT_SCALE_BYTES;
        unsigned char groups[LANES * FORMAT_SCALE_BYTES];
        if (columns < PANEL_COLS) {
            memset(groups, 0, sizeof groups);
            memcpy(groups, scales, (unsigned long)(some_groups * FORMAT_SCALE_BYTES));
            memset(padded[r], 0, sizeof padded[r]);
            memcpy(padded[r], codes[r], (unsigned long)(columns * FORMAT_BITS + 7) / 8);
            codes[r] = padded[r];
            scales = groups;
        }
        NAME(factors)(scales, factors[r]);
    }
    NAME(panel_tokens)(codes, factors, x, blocks, row_count * p->code_stride, row_count, tokens, sums);
}

static void NAME(rows)(const struct product *p, long first, long last, float *scratch)
{
    for (long token = 0; token < p->tokens; token += CHUNK_TOKENS) {
        const long tokens = chunk_tokens(p->tokens, token);
        const long group = tokens > INTEGER_TOKENS ? PANEL_ROWS : INTEGER_ROWS;
        for (long from = first; from < last; from += group) {
            const long to = from + group < last ? from + group : last;
            memset(scratch, 0, (unsigned long)((to - from) * tokens) * LANES * sizeof(float));
            for (long col = 0; col < p->cols; col += PANEL_COLS) {
                float *sums = scratch;
                long row = from;
                for (; row + INTEGER_ROWS <= to; row += INTEGER_ROWS, sums += INTEGER_ROWS * tokens * LANES)
                    NAME(row_panel)(p, row, INTEGER_ROWS, col, token, tokens, sums);
                for (; row < to; row++, sums += tokens * LANES)
                    NAME(row_panel)(p, row, 1, col, token, tokens, sums);
            }
            for (long r = from; r < to; r++)
                for (long t = 0; t < tokens; t++)
                    p->out[(token + t) * p->out_stride + r - p->base] =
                        vf_sum(vf_load(scratch + ((r - from) * tokens + t) * LANES));
        }
    }
}

static void NAME(integers)(long tokens, long cols, const float *x, long x_stride, float *out)
{
    quantise(FORMAT_ZERO, tokens, cols, x, x_stride, out);
}

#undef PANEL_BLOCKS
#undef FORMAT_GROUP
#undef FORMAT_ZERO
#undef FORMAT_SCALE_BYTES
#undef PASTE_
#undef PASTE
#undef NAME
#undef VECTORS
#undef BLOCK_BYTES
#undef FORMAT
#undef FORMAT_BLOCK
#undef FORMAT_BITS
#undef FORMAT_SCALED
