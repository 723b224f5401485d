/* The product of one of ggml's formats at one SIMD level; included once for each, after columns.h, with
 *   FORMAT          its name
 *   FORMAT_COLS     columns of a stored block, 32 or 256
 *   FORMAT_BYTES    bytes of a stored block
 *   FORMAT_ZERO     what is added to each weight to make it unsigned, below 64
 *   FORMAT_GROUP    columns that share a factor, 16 or 32
 *   FORMAT_MINIMA   whether groups have a minimum
 * and
 *   void FORMAT_open(codes, factors, minima)   of a panel's blocks: a factor for each group, and a minimum;
 *                                              -> float [32] both
 *   vbytes FORMAT_run(codes, run)              the weights of run number `run`, 0 to 3, of a quad, plus FORMAT_ZERO
 *
 * For one token the codes are decoded in registers, for more of them once, to memory; what is done with the bytes is in
 * columns.h, the same for every number of tokens, so the order is always the same. */

#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
#define NAME(b) PASTE(FORMAT, b)
#define QUAD_BYTES (QUAD / FORMAT_COLS * FORMAT_BYTES)
#define PANEL_BYTES (2 * QUAD_BYTES)

/* A panel of one row, padded with zeros. */
struct NAME(panel) {
    const unsigned char *codes;
    float factors[2 * LANES] __attribute__((aligned(64))), minima[2 * LANES] __attribute__((aligned(64)));
    unsigned char padded[PANEL_BYTES];
};

INLINE void NAME(find)(const struct product *p, long row, long col, long columns, struct NAME(panel) *panel)
{
    panel->codes = (const unsigned char *)p->codes + row * p->code_stride + col / FORMAT_COLS * FORMAT_BYTES;
    if (columns < INTEGER_PANEL) {
        memset(panel->padded, 0, sizeof panel->padded);
        memcpy(panel->padded, panel->codes,
               (unsigned long)((columns + FORMAT_COLS - 1) / FORMAT_COLS * FORMAT_BYTES));
        panel->codes = panel->padded;
    }
    NAME(open)(panel->codes, panel->factors, panel->minima);
}

INLINE vf NAME(lanes)(const struct NAME(panel) *panel, long run)
{
    return FORMAT_GROUP == 32 ? vf_halves_at(panel->factors + 2 * run) : vf_fourths_at(panel->factors + 4 * run);
}

INLINE struct minima NAME(minima)(const struct NAME(panel) *panel)
{
    struct minima minima = {{vf_set(0), vf_set(0)}};
    for (int i = 0; i < 32 / FORMAT_GROUP; i++)
        minima.of[i] = FORMAT_MINIMA ? vf_load(panel->minima + i * LANES)
                                     : vf_mul(vf_load(panel->factors + i * LANES), vf_set(-FORMAT_ZERO));
    return minima;
}

/* Columns col.. of rows first.. times one token; `row_count` is a constant. Asks for the codes `ahead` bytes on, into the
 * second-level cache. */
INLINE void NAME(tile)(const struct product *p, long first, int row_count, long col, long columns, const signed char *x,
                       long ahead, float *sums)
{
    const long runs = panel_runs(columns);
    struct NAME(panel) rows[INTEGER_ROWS];
    struct minima minima[INTEGER_ROWS];
    vf part[INTEGER_ROWS][COLUMN_TOKENS];
    UNROLL for (int r = 0; r < row_count; r++) {
        NAME(find)(p, first + r, col, columns, &rows[r]);
        minima[r] = NAME(minima)(&rows[r]);
        for (long at = 0; at < PANEL_BYTES; at += 64)
            __builtin_prefetch(rows[r].codes + at + ahead, 0, 2);
        part[r][0] = vf_set(0);
    }
    for (long quad = 0; quad < runs / 4; quad++)
        UNROLL for (int i = 0; i < 4; i++) {
            vbytes w[INTEGER_ROWS];
            vf factor[INTEGER_ROWS];
            UNROLL for (int r = 0; r < row_count; r++) {
                w[r] = NAME(run)(rows[r].codes + quad * QUAD_BYTES, i);
                factor[r] = NAME(lanes)(&rows[r], 4 * quad + i);
            }
            dot_run(w, factor, x + (4 * quad + i) * RUN_BYTES, 0, row_count, 1, part);
        }
    end_panel(minima, FORMAT_GROUP, x + runs * RUN_BYTES, 0, row_count, 1, part, sums);
}

/* A panel of few rows times one token. */
static void NAME(one)(const struct product *p, long first, long last, long col, long columns, const signed char *x,
                      float *sums)
{
    const long ahead = (last - first) * p->code_stride;
    if (last - first == INTEGER_ROWS)
        NAME(tile)(p, first, INTEGER_ROWS, col, columns, x, ahead, sums);
    else
        NAME(tile)(p, first, 1, col, columns, x, ahead, sums);
}

static void NAME(decode)(const struct product *p, long row, long col, long columns, struct decoded_row *to)
{
    struct NAME(panel) panel;
    NAME(find)(p, row, col, columns, &panel);
    to->minima = NAME(minima)(&panel);
    for (long quad = 0; quad < panel_runs(columns) / 4; quad++)
        UNROLL for (int i = 0; i < 4; i++) {
            to->run[4 * quad + i].w = NAME(run)(panel.codes + quad * QUAD_BYTES, i);
            to->run[4 * quad + i].factor = NAME(lanes)(&panel, 4 * quad + i);
        }
}

/* A panel times many tokens. */
static void NAME(many)(const struct product *p, long first, long last, long col, long columns, const signed char *x,
                       long tokens, float *sums)
{
    struct decoded_row decoded[PANEL_ROWS];
    for (long row = first; row < last; row++)
        NAME(decode)(p, row, col, columns, &decoded[row - first]);
    dot_decoded(decoded, last - first, x, panel_runs(columns), tokens, FORMAT_GROUP, sums);
}

static void NAME(rows)(const struct product *p, long first, long last, float *sums)
{
    for (long token = 0; token < p->tokens; token += CHUNK_TOKENS) {
        const long tokens = chunk_tokens(p->tokens, token);
        const int many = tokens > 1;
        for (long row = first, next; row < last; row = next) {
            next = row + (many ? PANEL_ROWS : INTEGER_ROWS);
            if (next > last)
                next = many ? last : row + 1;
            const long rows = next - row;
            memset(sums, 0, (unsigned long)(rows * tokens) * LANES * sizeof(float));
            for (long col = 0; col < p->cols; col += INTEGER_PANEL) {
                const long columns = p->cols - col < INTEGER_PANEL ? p->cols - col : INTEGER_PANEL;
                const long bytes = column_bytes(panel_runs(columns));
                const signed char *const x = (const signed char *)p->x +
                                             p->tokens * (col / INTEGER_PANEL) * column_bytes(PANEL_RUNS) + token * bytes;
                if (many)
                    NAME(many)(p, row, next, col, columns, x, tokens, sums);
                else
                    NAME(one)(p, row, next, col, columns, x, sums);
            }
            for (long t = 0, here; t < tokens; t += here) {
                here = column_tokens(tokens - t);
                store_tile(sums + t * rows * LANES, rows, here, p->out + (token + t) * p->out_stride + row - p->base,
                           p->out_stride);
            }
        }
    }
}

/* As in row_template.h. */
static void NAME(transposed)(const struct product *p, long first, long last, float *scratch)
{
    (void)scratch;
    for (long t = 0; t < p->tokens; t++)
        memset(p->out + t * p->out_stride, 0, (unsigned long)p->out_stride * sizeof(float));
    for (long row = first; row < last; row++)
        for (long col = 0; col < p->cols; col += INTEGER_PANEL) {
            const long columns = p->cols - col < INTEGER_PANEL ? p->cols - col : INTEGER_PANEL;
            struct NAME(panel) panel;
            float values[INTEGER_PANEL];
            NAME(find)(p, row, col, columns, &panel);
            for (long run = 0; run < panel_runs(columns); run++) {
                unsigned char bytes[RUN];
                const vbytes w = NAME(run)(panel.codes + run / 4 * QUAD_BYTES, run % 4);
                memcpy(bytes, &w, sizeof bytes);
                for (long j = 0; j < RUN; j++) {
                    const long group = (run * RUN + j) / FORMAT_GROUP;
                    const float minimum = FORMAT_MINIMA ? panel.minima[group] : 0;
                    values[run * RUN + j] =
                        (float)(bytes[j] - FORMAT_ZERO) * panel.factors[group] + minimum;
                }
            }
            for (long t = 0; t < p->tokens; t++) {
                const vf x = vf_set(p->x[t * p->x_stride + row - first]);
                float *const out = p->out + t * p->out_stride + col;
                for (long j = 0; j < panel_runs(columns) * RUN; j += LANES)
                    vf_store(out + j, vf_fma(x, vf_load(values + j), vf_load(out + j)));
            }
        }
}

const struct format_ops FORMAT_OPS_OF(FORMAT) = {
    .block = QUAD,
    .row_block = FORMAT_COLS,
    .row_bytes = FORMAT_BYTES,
    .tail = TAIL_FLOATS,
    .arrange = arrange_columns,
    .integers = quantise_columns,
    .rows = NAME(rows),
    .transposed = NAME(transposed),
};

#undef PASTE_
#undef PASTE
#undef NAME
#undef QUAD_BYTES
#undef PANEL_BYTES
#undef FORMAT
#undef FORMAT_COLS
#undef FORMAT_BYTES
#undef FORMAT_ZERO
#undef FORMAT_GROUP
#undef FORMAT_MINIMA
