/* Activations and dot products for formats whose codes are looked up (bytes_template.h), at one SIMD level.
 *
 * A half is 128 columns in two vectors of 64 bytes, lane i of both together eight columns that share a factor. In which
 * order the columns come, a run says: the first vector has the first `run` columns of every two runs, the second the others.
 *
 *   run 16    columns 0-15, 32-47, ...     with 16-31, 48-63, ...    what a shift leaves of nibbles in blocks of 32
 *   run 8     columns 0-7, 16-23, ...      with 8-15, 24-31, ...     entries of grids; groups of 16 stay together
 *   run 64    columns 0-63                 with 64-127               where all 128 share a factor
 *   run 1     the even columns             with the odd ones         nibbles of neighbours in a byte
 *
 * Activations are quantised as in quantise_template.h, in that order. Wide weights sum the top plane apart, and the
 * surplus that a block holds is that of the other two planes. */

/* What a half of a block consists of, before it is bytes: looked up magnitudes or codes, 64 for each vector; the signs of
 * eight columns to a byte; and the factors of groups of 16 columns, or where all are alike, the first alone. */
struct half {
    unsigned char bytes[2][64];
    unsigned char signs[2][8];
    float factors[8];
};

/* A half, decoded: the unsigned weights of both vectors, the factor of each lane, and where groups have biases, that too. */
struct bytes_half {
    vbytes even, odd;
    vf factor, bias;
};
INLINE void set_half(struct bytes_half *to, struct byte_pair pair, vf factor)
{
    to->even = pair.even;
    to->odd = pair.odd;
    to->factor = factor;
}

/* The column at `place`, below 64, of a half's first vector; that of the second comes `run` later. */
INLINE long run_column(long run, long place) { return place / run * 2 * run + place % run; }

/* x [columns] of a panel, times `scale`, rounded, -> a block without its factor; what is beyond `columns` is zero. */
SHARED void quantise_half(long run, int zero, int wide, const float *x, long columns, float scale, signed char *block)
{
    int32_t number[2][INTEGER_BLOCK / 2];
    float padded[INTEGER_BLOCK] = {0};
    memcpy(padded, x, (unsigned long)columns * sizeof(float));
    for (long start = 0; start < INTEGER_BLOCK / 2; start += run)
        for (int second = 0; second < 2; second++)
            for (long j = 0; j < run; j++) {
                const float scaled = padded[2 * start + second * run + j] * scale;
                number[second][start + j] = (int32_t)(scaled + (scaled < 0 ? -0.5f : 0.5f));
            }
    for (int d = DIGITS - 1; d >= 0; d--)
        for (int second = 0; second < 2; second++)
            for (int j = 0; j < INTEGER_BLOCK / 2; j++) {
                const signed char digit = (signed char)number[second][j];
                number[second][j] = (number[second][j] - digit) >> 8;
                block[d * INTEGER_BLOCK + second * (INTEGER_BLOCK / 2) + j] = digit;
            }
    const vbytes zeros = vbytes_set(zero);
    vi surplus = vi_zero();
    for (int at = wide * INTEGER_BLOCK; at < DIGITS * INTEGER_BLOCK; at += INTEGER_BLOCK) {
        surplus = vi_dot(vi_times_256(surplus), zeros, vi_load(block + at));
        surplus = vi_dot(surplus, zeros, vi_load(block + at + INTEGER_BLOCK / 2));
    }
    vi_store(block + SURPLUS_AT, surplus);
}

/* As `quantise`, the columns in the order of `run`. */
INLINE void quantise_runs(long run, int zero, int wide, long tokens, long cols, const float *x, long x_stride, float *out)
{
    signed char *block = (signed char *)out;
    for (long col = 0; col < cols; col += INTEGER_PANEL) {
        const long columns = cols - col < INTEGER_PANEL ? cols - col : INTEGER_PANEL;
        for (long t = 0; t < tokens; t++) {
            const float *const panel = x + t * x_stride + col;
            float factor;
            const float scale = panel_scale(panel, columns, &factor);
            for (long at = 0; at < columns; at += INTEGER_BLOCK, block += INTEGER_BYTES) {
                const long left = columns - at < INTEGER_BLOCK ? columns - at : INTEGER_BLOCK;
                quantise_half(run, zero, wide, panel + at, factor == factor ? left : 0, scale, block);
                memcpy(block + FACTOR_AT, &factor, sizeof factor);
            }
        }
    }
}

/* vi_dot, or where weights made unsigned reach 128 and more, as their zero tells, vi_dot_any. */
INLINE vi bytes_dot(int zero, vi sum, vbytes w, vi x) { return zero < 64 ? vi_dot(sum, w, x) : vi_dot_any(sum, w, x); }

/* part[r][t] += row r's half times a block of each token; the numbers behind `stride` are constants.
 * With biases, what stands as the surplus is the sum of the activations. */
INLINE void bytes_block(const struct bytes_half *const *rows, const signed char *x, long stride, int row_count,
                        int token_count, int zero, int wide, int biased, vf (*part)[INTEGER_TOKENS])
{
    UNROLL for (int t = 0; t < token_count; t++) {
        const signed char *const here = x + t * stride;
        vi first[DIGITS], second[DIGITS];
        UNROLL for (int d = 0; d < DIGITS; d++) {
            first[d] = vi_load(here + d * INTEGER_BLOCK);
            second[d] = vi_load(here + d * INTEGER_BLOCK + INTEGER_BLOCK / 2);
        }
        const vi surplus = vi_load(here + SURPLUS_AT);
        const vbytes zeros = vbytes_set(zero);
        const vi top_surplus =
            wide ? vi_dot(vi_dot(vi_zero(), zeros, first[0]), zeros, second[0]) : vi_zero();
        UNROLL for (int r = 0; r < row_count; r++) {
            const vbytes a = rows[r]->even, b = rows[r]->odd;
            vi sum = vi_zero();
            vf value;
            UNROLL for (int d = wide; d < DIGITS; d++) {
                sum = bytes_dot(zero, d > wide ? vi_times_256(sum) : sum, a, first[d]);
                sum = bytes_dot(zero, sum, b, second[d]);
            }
            value = vf_from_int(biased ? sum : vi_sub(sum, surplus));
            if (wide) {
                const vi top = bytes_dot(zero, bytes_dot(zero, vi_zero(), a, first[0]), b, second[0]);
                value = vf_fma(vf_from_int(vi_sub(top, top_surplus)), vf_set(65536), value);
            }
            part[r][t] = vf_fma(value, rows[r]->factor, part[r][t]);
            if (biased)
                part[r][t] = vf_fma(vf_from_int(surplus), rows[r]->bias, part[r][t]);
        }
    }
}

/* Rows of a panel of decoded blocks times the tokens of a tile, as dot_tile. */
INLINE void bytes_tile(const struct bytes_half *rows, const signed char *x, long blocks, int row_count, int token_count,
                       int zero, int wide, int biased, float *sums)
{
    const long stride = blocks * INTEGER_BYTES;
    vf part[INTEGER_ROWS][INTEGER_TOKENS];
    clear_part(row_count, token_count, part);
    for (long b = 0; b < blocks; b++) {
        const struct bytes_half *here[INTEGER_ROWS];
        UNROLL for (int r = 0; r < row_count; r++)
            here[r] = rows + r * PANEL_BLOCKS + b;
        bytes_block(here, x + b * INTEGER_BYTES, stride, row_count, token_count, zero, wide, biased, part);
    }
    add_part(part, x, stride, row_count, token_count, sums);
}

/* The same for any number of rows and tokens; sums [tile][row][token][16]. */
INLINE void bytes_panel(const struct bytes_half *decoded, long rows, const signed char *x, long blocks, long tokens,
                        int zero, int wide, int biased, float *sums)
{
    for (long t = 0; t < tokens; t += INTEGER_TOKENS, x += INTEGER_TOKENS * blocks * INTEGER_BYTES) {
        const int full = tokens - t >= INTEGER_TOKENS;
        for (long r = 0, step; r < rows; r += step) {
            const struct bytes_half *const here = decoded + r * PANEL_BLOCKS;
            step = r + INTEGER_ROWS <= rows ? INTEGER_ROWS : 1;
            if (step == 1 && full)
                bytes_tile(here, x, blocks, 1, INTEGER_TOKENS, zero, wide, biased, sums);
            else if (step == 1)
                bytes_tile(here, x, blocks, 1, 1, zero, wide, biased, sums);
            else if (full)
                bytes_tile(here, x, blocks, INTEGER_ROWS, INTEGER_TOKENS, zero, wide, biased, sums);
            else
                bytes_tile(here, x, blocks, INTEGER_ROWS, 1, zero, wide, biased, sums);
            sums += step * (full ? INTEGER_TOKENS : 1) * LANES;
        }
    }
}

/* The weights of a half in the order of the columns. */
SHARED void half_values(const struct bytes_half *half, long run, int zero, int biased, float *values)
{
    unsigned char bytes[2][64];
    float factors[LANES], biases[LANES] = {0};
    memcpy(bytes[0], &half->even, sizeof bytes[0]);
    memcpy(bytes[1], &half->odd, sizeof bytes[1]);
    vf_store(factors, half->factor);
    if (biased)
        vf_store(biases, half->bias);
    for (int second = 0; second < 2; second++)
        for (long j = 0; j < 64; j++)
            values[run_column(run, j) + second * run] =
                (float)(bytes[second][j] - zero) * (factors[j / 4] * FACTOR_SHIFT) + biases[j / 4] * FACTOR_SHIFT;
}
