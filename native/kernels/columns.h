/* Activations as integers in the order of their columns, and their dot products with bytes: what ggml_template.h multiplies
 * blocks of ggml with, at one SIMD level.
 *
 * As in quantise_template.h the columns of a panel share a power of two, and each becomes a whole number of 24 bits in
 * three signed bytes. A run of RUN columns takes three planes of digits, most significant first. Behind a panel's runs
 * stand its factor and the sums of its columns, in groups of 32 and of 16, as floats: what minima are multiplied with.
 * Weights that are made unsigned have a minimum too. Panels lie in the order [panel][token]; rows are padded to whole
 * QUADs. */
#include "vbytes.h"

enum {
    RUN = 64,
    QUAD = 4 * RUN,
    RUN_BYTES = DIGITS * RUN,
    PANEL_RUNS = INTEGER_PANEL / RUN,
    SUMS_32 = LANES * (int)sizeof(float),
    SUMS_16 = 2 * SUMS_32,
    TAIL_FLOATS = 4 * LANES, /* behind the runs of a panel: its factor, sixteen sums and thirty-two */
    COLUMN_TOKENS = INTEGER_TOKENS > 1 ? 4 : 1, /* of a tile */
};

INLINE long panel_runs(long columns) { return (columns + QUAD - 1) / QUAD * (QUAD / RUN); }
INLINE long column_bytes(long runs) { return runs * RUN_BYTES + TAIL_FLOATS * (long)sizeof(float); }

/* Tokens of the next tile. */
INLINE long column_tokens(long left) { return left < COLUMN_TOKENS ? 1 : COLUMN_TOKENS; }

/* x [RUN] times `scale`, rounded, -> a run, and the sums of its sixteens -> sums [4]. */
INLINE void quantise_run(const float *x, float scale, signed char *run, int32_t *sums)
{
    int32_t number[RUN];
    for (int j = 0; j < RUN; j++) {
        const float scaled = x[j] * scale;
        number[j] = (int32_t)(scaled + (scaled < 0 ? -0.5f : 0.5f));
    }
    for (int g = 0; g < RUN / 16; g++) {
        sums[g] = 0;
        for (int j = 0; j < 16; j++)
            sums[g] += number[16 * g + j];
    }
    for (int d = DIGITS - 1; d >= 0; d--)
        for (int j = 0; j < RUN; j++) {
            const signed char digit = (signed char)number[j];
            number[j] = (number[j] - digit) >> 8;
            run[d * RUN + j] = digit;
        }
}

/* x [tokens, cols], rows x_stride apart -> panels. */
SHARED void quantise_columns(long tokens, long cols, const float *x, long x_stride, float *out)
{
    signed char *panel = (signed char *)out;
    for (long col = 0; col < cols; col += INTEGER_PANEL)
        for (long t = 0; t < tokens; t++) {
            const long columns = cols - col < INTEGER_PANEL ? cols - col : INTEGER_PANEL, runs = panel_runs(columns);
            const float *const from = x + t * x_stride + col;
            float factor, sums[TAIL_FLOATS] = {0};
            const float scale = panel_scale(from, columns, &factor);
            for (long r = 0; r < runs; r++, panel += RUN_BYTES) {
                const long left = columns - r * RUN;
                const float *here = left > 0 ? from + r * RUN : from;
                float padded[RUN];
                int32_t sixteens[4];
                if (left < RUN || factor != factor) {
                    memset(padded, 0, sizeof padded);
                    if (left > 0 && factor == factor)
                        memcpy(padded, here, (unsigned long)left * sizeof(float));
                    here = padded;
                }
                quantise_run(here, scale, panel, sixteens);
                for (int g = 0; g < 4; g++)
                    sums[2 * LANES + 4 * r + g] = (float)sixteens[g];
                for (int g = 0; g < 2; g++)
                    sums[LANES + 2 * r + g] = (float)(sixteens[2 * g] + sixteens[2 * g + 1]);
            }
            sums[0] = factor / FACTOR_SHIFT;
            memcpy(panel, sums, sizeof sums);
            panel += sizeof sums;
        }
}

/* part[r][t] += row r's run w[r], whose lanes have the factors factor[r], times a run of each token, tokens `stride` bytes
 * apart; the counts are constants. With weights below 64, four products of 24 bits fit into a lane. */
INLINE void dot_run(const vbytes *w, const vf *factor, const signed char *x, long stride, int row_count, int token_count,
                    vf (*part)[COLUMN_TOKENS])
{
    UNROLL for (int t = 0; t < token_count; t++) {
        const signed char *const here = x + t * stride;
        const vi high = vi_load(here), middle = vi_load(here + RUN), low = vi_load(here + 2 * RUN);
        UNROLL for (int r = 0; r < row_count; r++) {
            vi sum = vi_dot(vi_zero(), w[r], high);
            sum = vi_dot(vi_times_256(sum), w[r], middle);
            sum = vi_dot(vi_times_256(sum), w[r], low);
            part[r][t] = vf_fma(vf_from_int(sum), factor[r], part[r][t]);
        }
    }
}

/* What a panel's groups have as minima, [2] for groups of 16, [1] for groups of 32. */
struct minima {
    vf of[2];
};

/* part[r][t] += the minima times the sums of the groups; then sums [row_count][token_count][16] += part times the factor
 * of the panel's activations, whose tail `x` is at. */
INLINE void end_panel(const struct minima *minima, int group, const signed char *x, long stride, int row_count,
                      int token_count, vf (*part)[COLUMN_TOKENS], float *sums)
{
    UNROLL for (int t = 0; t < token_count; t++) {
        const signed char *const tail = x + t * stride;
        float factor;
        memcpy(&factor, tail, sizeof factor);
        UNROLL for (int r = 0; r < row_count; r++) {
            float *const sum = sums + (r * token_count + t) * LANES;
            vf whole = part[r][t];
            if (group == 32)
                whole = vf_fma(minima[r].of[0], vf_load((const float *)(const void *)(tail + SUMS_32)), whole);
            if (group == 16) {
                whole = vf_fma(minima[r].of[0], vf_load((const float *)(const void *)(tail + SUMS_16)), whole);
                whole = vf_fma(minima[r].of[1], vf_load((const float *)(const void *)(tail + SUMS_16) + LANES), whole);
            }
            vf_store(sum, vf_fma(whole, vf_set(factor), vf_load(sum)));
        }
    }
}

/* Rows of a panel, decoded to memory. */
struct decoded_row {
    struct {
        vbytes w;
        vf factor;
    } run[PANEL_RUNS];
    struct minima minima;
};

INLINE void dot_rows(const struct decoded_row *rows, const signed char *x, long runs, int row_count, int token_count,
                     int group, float *sums)
{
    const long stride = column_bytes(runs);
    vf part[INTEGER_ROWS][COLUMN_TOKENS];
    struct minima minima[INTEGER_ROWS];
    UNROLL for (int r = 0; r < row_count; r++) {
        minima[r] = rows[r].minima;
        UNROLL for (int t = 0; t < token_count; t++)
            part[r][t] = vf_set(0);
    }
    for (long i = 0; i < runs; i++) {
        vbytes w[INTEGER_ROWS];
        vf factor[INTEGER_ROWS];
        UNROLL for (int r = 0; r < row_count; r++) {
            w[r] = rows[r].run[i].w;
            factor[r] = rows[r].run[i].factor;
        }
        dot_run(w, factor, x + i * RUN_BYTES, stride, row_count, token_count, part);
    }
    end_panel(minima, group, x + runs * RUN_BYTES, stride, row_count, token_count, part, sums);
}

/* The decoded rows times any number of tokens; sums [tile of tokens][row][token][16]. */
INLINE void dot_decoded(const struct decoded_row *rows, long count, const signed char *x, long runs, long tokens, int group,
                        float *sums)
{
    for (long t = 0, here; t < tokens; t += here, x += here * column_bytes(runs)) {
        here = column_tokens(tokens - t);
        for (long r = 0, step; r < count; r += step) {
            step = r + INTEGER_ROWS <= count ? INTEGER_ROWS : 1;
            if (step == 1 && here == 1)
                dot_rows(rows + r, x, runs, 1, 1, group, sums);
            else if (step == 1)
                dot_rows(rows + r, x, runs, 1, COLUMN_TOKENS, group, sums);
            else if (here == 1)
                dot_rows(rows + r, x, runs, INTEGER_ROWS, 1, group, sums);
            else
                dot_rows(rows + r, x, runs, INTEGER_ROWS, COLUMN_TOKENS, group, sums);
            sums += step * here * LANES;
        }
    }
}

/* x [cols] -> out [cols rounded up to QUAD], in this order. */
SHARED void arrange_columns(long cols, const float *x, float *out)
{
    const long padded = (cols + QUAD - 1) / QUAD * QUAD;
    memcpy(out, x, (unsigned long)cols * sizeof(float));
    memset(out + cols, 0, (unsigned long)(padded - cols) * sizeof(float));
}
