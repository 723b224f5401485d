/* Quantised activations times small unsigned integers, at one SIMD level.
 *
 * A lane sums the products of eight columns exactly: with weights up to 24 and activations below 2^23 they stay
 * below 2^31. The sum becomes a float, is multiplied by the factor of its group and added up over a panel of
 * columns; the panel's sum times the factor of its activations is added to the whole. */

enum { PANEL_BLOCKS = INTEGER_PANEL / INTEGER_BLOCK };

INLINE long integer_blocks(long columns) { return (columns + INTEGER_BLOCK - 1) / INTEGER_BLOCK; }

/* Tokens of the next tile. */
INLINE long integer_tokens(long left) { return left < INTEGER_TOKENS ? left : INTEGER_TOKENS; }

/* part[r][t] += row r's block w[r], whose lanes have the factors factor[r], times a block of each token, tokens
 * `stride` bytes apart; row_count and token_count are constants. */
INLINE void dot_block(const struct byte_pair *w, const vf *factor, const signed char *x, long stride, int row_count,
                      int token_count, vf (*part)[INTEGER_TOKENS])
{
    vi sum[INTEGER_ROWS][INTEGER_TOKENS];
    UNROLL for (int d = 0; d < DIGITS; d++) {
        UNROLL for (int t = 0; t < token_count; t++) {
            const vi even = vi_load(x + t * stride + d * INTEGER_BLOCK);
            UNROLL for (int r = 0; r < row_count; r++)
                sum[r][t] = vi_dot(d ? vi_times_256(sum[r][t]) : vi_zero(), w[r].even, even);
        }
        UNROLL for (int t = 0; t < token_count; t++) {
            const vi odd = vi_load(x + t * stride + d * INTEGER_BLOCK + INTEGER_BLOCK / 2);
            UNROLL for (int r = 0; r < row_count; r++)
                sum[r][t] = vi_dot(sum[r][t], w[r].odd, odd);
        }
    }
    UNROLL for (int t = 0; t < token_count; t++) {
        const vi surplus = vi_load(x + t * stride + SURPLUS_AT);
        UNROLL for (int r = 0; r < row_count; r++)
            part[r][t] = vf_fma(vf_from_int(vi_sub(sum[r][t], surplus)), factor[r], part[r][t]);
    }
}

INLINE void clear_part(int row_count, int token_count, vf (*part)[INTEGER_TOKENS])
{
    UNROLL for (int r = 0; r < row_count; r++)
        UNROLL for (int t = 0; t < token_count; t++)
            part[r][t] = vf_set(0);
}

/* sums [row_count][token_count][16] += a panel's sums times the factors of its activations. */
INLINE void add_part(const vf (*part)[INTEGER_TOKENS], const signed char *x, long stride, int row_count,
                     int token_count, float *sums)
{
    UNROLL for (int t = 0; t < token_count; t++) {
        const vf factor = vf_set(panel_factor(x + t * stride));
        UNROLL for (int r = 0; r < row_count; r++) {
            float *const sum = sums + (r * token_count + t) * LANES;
            vf_store(sum, vf_fma(part[r][t], factor, vf_load(sum)));
        }
    }
}

/* A block of a row, decoded to memory. */
struct decoded_block {
    vbytes even, odd;
    vf factor;
};

/* Rows of a panel of decoded blocks, [row][PANEL_BLOCKS], times the tokens of a tile. */
INLINE void dot_tile(const struct decoded_block *rows, const signed char *x, long blocks, int row_count,
                     int token_count, float *sums)
{
    const long stride = blocks * INTEGER_BYTES;
    vf part[INTEGER_ROWS][INTEGER_TOKENS];
    clear_part(row_count, token_count, part);
    for (long b = 0; b < blocks; b++) {
        struct byte_pair w[INTEGER_ROWS];
        vf factor[INTEGER_ROWS];
        UNROLL for (int r = 0; r < row_count; r++) {
            const struct decoded_block *const block = rows + r * PANEL_BLOCKS + b;
            w[r] = (struct byte_pair){block->even, block->odd};
            factor[r] = block->factor;
        }
        dot_block(w, factor, x + b * INTEGER_BYTES, stride, row_count, token_count, part);
    }
    add_part(part, x, stride, row_count, token_count, sums);
}

/* The same for any number of rows and tokens; sums [tile][row][token][16]. */
SHARED void dot_panel(const struct decoded_block *decoded, long rows, const signed char *x, long blocks, long tokens,
                      float *sums)
{
    for (long t = 0; t < tokens; t += INTEGER_TOKENS, x += INTEGER_TOKENS * blocks * INTEGER_BYTES) {
        const int full = tokens - t >= INTEGER_TOKENS;
        for (long r = 0, step; r < rows; r += step) {
            const struct decoded_block *const here = decoded + r * PANEL_BLOCKS;
            step = r + INTEGER_ROWS <= rows ? INTEGER_ROWS : 1;
            if (step == 1 && full)
                dot_tile(here, x, blocks, 1, INTEGER_TOKENS, sums);
            else if (step == 1)
                dot_tile(here, x, blocks, 1, 1, sums);
            else if (full)
                dot_tile(here, x, blocks, INTEGER_ROWS, INTEGER_TOKENS, sums);
            else
                dot_tile(here, x, blocks, INTEGER_ROWS, 1, sums);
            sums += step * (full ? INTEGER_TOKENS : 1) * LANES;
        }
    }
}
