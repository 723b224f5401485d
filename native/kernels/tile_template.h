/* How the tokens of a product are dealt to tiles, at one SIMD level: a tile is a few rows times a few tokens, whose
 * sums stay in registers.
 *
 * Activations and sums lie in the order in which a tile walks over them, [tile][columns / 16][token][16] and
 * [tile][row][token][16], so that it reads one stream of each whatever the strides of the matrices were. */

/* How many tiles `tokens` are dealt to, and how many of them tile i takes. */
static long tile_count(long tokens) { return (tokens + TILE_TOKENS - 1) / TILE_TOKENS; }
static long tile_tokens(long tokens, long i)
{
    const long n = tile_count(tokens);
    return tokens / n + (i < tokens % n);
}

/* x [tokens, cols], rows x_stride apart -> packed [tile][cols / 16][token][16]; cols a multiple of 16. */
SHARED void pack_tokens(long tokens, long cols, const float *x, long x_stride, float *packed)
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

/* Sums [rows][tokens][16], folded -> out[t * stride + r]. Sixteen rows of a token are folded and stored together:
 * one by one, folding took an eighth of a product of 4096 columns. */
SHARED void store_tile(const float *sums, long rows, long tokens, float *out, long stride)
{
    for (long t = 0; t < tokens; t++, out += stride) {
        long r = 0;
        for (; r + LANES <= rows; r += LANES)
            vf_store(out + r, vf_sums(sums + (r * tokens + t) * LANES, tokens * LANES));
        for (; r < rows; r++)
            out[r] = vf_sum(vf_load(sums + (r * tokens + t) * LANES));
    }
}
