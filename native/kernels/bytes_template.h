/* The product of one format whose codes become bytes before they are multiplied, at one SIMD level; included once for each,
 * with
 *   FORMAT          its name
 *   FORMAT_COLS     columns of a stored block, 256 or a divisor of 128
 *   FORMAT_BYTES    bytes of a stored block
 *   FORMAT_RUN      how the columns lie in a half (bytes_dot.h)
 *   FORMAT_ZERO     what is added to each weight to make it unsigned
 *   FORMAT_WIDE     whether weights may be so large that a lane's sum of eight products needs more than 32 bits
 *   FORMAT_BIASED   whether groups have biases; the zero is none then
 * and one of
 *   FORMAT_COPIED   void FORMAT_half(codes, half, to)   what half number `half` of a block consists of; blocks below 128
 *                                                       columns are given as many as make 128
 *                   struct byte_pair FORMAT_bytes(half) its weights, each plus FORMAT_ZERO
 *                   vf FORMAT_lanes(half)               the factor of each lane
 *   FORMAT_BLOCKS   void FORMAT_block(codes, to)        both halves of a block of 256 columns
 *   FORMAT_VECTORS  void FORMAT_vectors(codes, to)      a half
 *   FORMAT_SECTIONS void FORMAT_found(p, row, half, to) a half of a matrix whose scales lie apart from its codes
 *
 * Codes become bytes in memory, those of a panel of rows at once; for a single token they stay in registers, unless they
 * are copied piece by piece. Then it is as in integer_template.h. */

#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
#define NAME(b) PASTE(FORMAT, b)
#define HALF_COLS 128
#define FEW_ROWS 8
#define HALF_BYTES (FORMAT_COLS < HALF_COLS ? HALF_COLS / FORMAT_COLS * FORMAT_BYTES : FORMAT_BYTES)

#if defined(FORMAT_COPIED) || defined(FORMAT_VECTORS)
/* The block of half number `half` of a row, or its blocks: those that the row has no more are zero. */
INLINE const unsigned char *NAME(whole_half)(const struct product *p, const unsigned char *row, long half,
                                             unsigned char *padded)
{
    const long left = p->cols - half * HALF_COLS;
    if (FORMAT_COLS > HALF_COLS)
        return row + half / 2 * FORMAT_BYTES;
    if (left >= HALF_COLS)
        return row + half * HALF_BYTES;
    memset(padded, 0, HALF_BYTES);
    memcpy(padded, row + half * HALF_BYTES, (unsigned long)((left + FORMAT_COLS - 1) / FORMAT_COLS * FORMAT_BYTES));
    return padded;
}
#endif

#ifdef FORMAT_COPIED
INLINE void NAME(find_half)(const struct product *p, const unsigned char *row, long half, struct half *to)
{
    unsigned char padded[HALF_BYTES];
    NAME(half)(NAME(whole_half)(p, row, half, padded), half % 2, to);
}
#endif

/* Half number `half` of a row, and the next where blocks have two, unless it is copied. */
#ifdef FORMAT_COPIED
#define HALVES 1
#elif defined(FORMAT_BLOCKS)
#define HALVES 2
INLINE void NAME(find)(const struct product *p, long row, long half, struct bytes_half *to)
{
    NAME(block)((const unsigned char *)p->codes + row * p->code_stride + half / 2 * FORMAT_BYTES, to);
}
#elif defined(FORMAT_VECTORS)
#define HALVES 1
INLINE void NAME(find)(const struct product *p, long row, long half, struct bytes_half *to)
{
    unsigned char padded[HALF_BYTES];
    NAME(vectors)(NAME(whole_half)(p, (const unsigned char *)p->codes + row * p->code_stride, half, padded), to);
}
#else
#define HALVES 1
INLINE void NAME(find)(const struct product *p, long row, long half, struct bytes_half *to) { NAME(found)(p, row, half, to); }
#endif

/* Halves from..to of the rows, at most PANEL_ROWS, decoded -> [row][PANEL_BLOCKS]. The codes `ahead` bytes on are asked
 * for. What is copied is copied before any of it is read as vectors: one that was just written piece by piece has to wait
 * for the last of them to reach the cache. */
static void NAME(decode)(const struct product *p, long first, long last, long from, long to, long ahead,
                         struct bytes_half *decoded)
{
#ifdef FORMAT_COPIED
    struct half halves[PANEL_ROWS * PANEL_BLOCKS];
#endif
    for (long row = first; row < last; row++) {
        const unsigned char *const codes = (const unsigned char *)p->codes + row * p->code_stride;
        const unsigned char *const next = codes + from * HALF_COLS / FORMAT_COLS * FORMAT_BYTES + ahead;
        for (long at = 0; at < (to - from) * HALF_COLS / FORMAT_COLS * FORMAT_BYTES; at += 64)
            __builtin_prefetch(next + at, 0, 2);
#ifdef FORMAT_COPIED
        for (long h = from; h < to; h++)
            NAME(find_half)(p, codes, h, &halves[(row - first) * PANEL_BLOCKS + h - from]);
#else
        for (long h = from; h < to; h += HALVES)
            NAME(find)(p, row, h, decoded + (row - first) * PANEL_BLOCKS + h - from);
#endif
    }
#ifdef FORMAT_COPIED
    for (long i = 0; i < (last - first) * PANEL_BLOCKS; i++)
        if (i % PANEL_BLOCKS < to - from)
            set_half(&decoded[i], NAME(bytes)(&halves[i]), NAME(lanes)(&halves[i]));
#endif
}

#ifndef FORMAT_COPIED
/* Halves from.. of few rows times one token: what is decoded stays in registers. */
INLINE void NAME(tile)(const struct product *p, long first, int row_count, long from, long blocks, const signed char *x,
                       long ahead, float *sums)
{
    vf part[INTEGER_ROWS][INTEGER_TOKENS];
    clear_part(row_count, 1, part);
    for (long b = 0; b < blocks; b += HALVES) {
        struct bytes_half decoded[INTEGER_ROWS][2];
        UNROLL for (int r = 0; r < row_count; r++) {
            const unsigned char *const codes = (const unsigned char *)p->codes + (first + r) * p->code_stride +
                                               (from + b) * HALF_COLS / FORMAT_COLS * FORMAT_BYTES + ahead;
            __builtin_prefetch(codes, 0, 2);
            if (HALF_BYTES > 64)
                __builtin_prefetch(codes + 64, 0, 2);
            NAME(find)(p, first + r, from + b, decoded[r]);
        }
        UNROLL for (int half = 0; half < HALVES; half++) {
            const struct bytes_half *here[INTEGER_ROWS];
            if (b + half >= blocks)
                break;
            UNROLL for (int r = 0; r < row_count; r++)
                here[r] = &decoded[r][half];
            bytes_block(here, x + (b + half) * INTEGER_BYTES, 0, row_count, 1, FORMAT_ZERO, FORMAT_WIDE, FORMAT_BIASED, part);
        }
    }
    add_part(part, x, 0, row_count, 1, sums);
}
#endif

static void NAME(rows)(const struct product *p, long first, long last, float *sums)
{
    struct bytes_half decoded[PANEL_ROWS * PANEL_BLOCKS];
    for (long token = 0; token < p->tokens; token += CHUNK_TOKENS) {
        const long tokens = chunk_tokens(p->tokens, token), step = tokens < 2 * INTEGER_TOKENS ? FEW_ROWS : PANEL_ROWS;
        for (long row = first; row < last; row += step) {
            const long next = row + step < last ? row + step : last, rows = next - row;
            memset(sums, 0, (unsigned long)(rows * tokens) * LANES * sizeof(float));
            for (long col = 0; col < p->cols; col += INTEGER_PANEL) {
                const long columns = p->cols - col < INTEGER_PANEL ? p->cols - col : INTEGER_PANEL;
                const long blocks = integer_blocks(columns), from = col / HALF_COLS;
                const signed char *const x = (const signed char *)(p->x + p->tokens * col) + token * blocks * INTEGER_BYTES;
#ifndef FORMAT_COPIED
                if (tokens == 1) {
                    long r = 0;
                    for (; r + 2 <= rows; r += 2)
                        NAME(tile)(p, row + r, 2, from, blocks, x, rows * p->code_stride, sums + r * LANES);
                    if (r < rows)
                        NAME(tile)(p, row + r, 1, from, blocks, x, rows * p->code_stride, sums + r * LANES);
                    continue;
                }
#endif
                NAME(decode)(p, row, next, from, from + blocks, rows * p->code_stride, decoded);
                bytes_panel(decoded, rows, x, blocks, tokens, FORMAT_ZERO, FORMAT_WIDE, FORMAT_BIASED, sums);
            }
            for (long t = 0; t < tokens; t += INTEGER_TOKENS)
                store_tile(sums + t * rows * LANES, rows, integer_tokens(tokens - t),
                           p->out + (token + t) * p->out_stride + row - p->base, p->out_stride);
        }
    }
}

/* As in row_template.h; the columns come in their own order. */
static void NAME(transposed)(const struct product *p, long first, long last, float *scratch)
{
    (void)scratch;
    for (long t = 0; t < p->tokens; t++)
        memset(p->out + t * p->out_stride, 0, (unsigned long)p->out_stride * sizeof(float));
    for (long row = first; row < last; row++)
        for (long half = 0; half * HALF_COLS < p->cols; half++) {
            float values[HALF_COLS];
            struct bytes_half found[2];
#ifdef FORMAT_COPIED
            struct half copied;
            NAME(find_half)(p, (const unsigned char *)p->codes + row * p->code_stride, half, &copied);
            set_half(found, NAME(bytes)(&copied), NAME(lanes)(&copied));
#else
            NAME(find)(p, row, half, found);
#endif
            half_values(&found[half % HALVES], FORMAT_RUN, FORMAT_ZERO, FORMAT_BIASED, values);
            for (long t = 0; t < p->tokens; t++) {
                const vf x = vf_set(p->x[t * p->x_stride + row - first]);
                float *const out = p->out + t * p->out_stride + half * HALF_COLS;
                for (long j = 0; j < HALF_COLS; j += LANES)
                    vf_store(out + j, vf_fma(x, vf_load(values + j), vf_load(out + j)));
            }
        }
}

static void NAME(integers)(long tokens, long cols, const float *x, long x_stride, float *out)
{
    quantise_runs(FORMAT_RUN, FORMAT_BIASED ? 1 : FORMAT_ZERO, FORMAT_WIDE, tokens, cols, x, x_stride, out);
}

#undef PASTE_
#undef PASTE
#undef NAME
#undef HALF_COLS
#undef FEW_ROWS
#undef HALF_BYTES
#undef FORMAT
#undef FORMAT_COLS
#undef FORMAT_BYTES
#undef FORMAT_RUN
#undef FORMAT_ZERO
#undef FORMAT_WIDE
#undef FORMAT_VECTORS
#undef FORMAT_COPIED
#undef FORMAT_SECTIONS
#undef FORMAT_BIASED
#undef HALVES
#undef FORMAT_BLOCKS
