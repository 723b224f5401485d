/* The native kernels' interface: what Python calls. Plain C types only; cffi reads this file as it is.
 *
 * Every function takes `simd` (a level that kernels_simd_supported allows) and `threads` (>= 1), keeps no
 * state between calls and touches only the arrays it is given. Arrays are float32, row-major, contiguous
 * unless a stride (in floats) is given, and need no alignment. Functions that allocate return 0 or -ENOMEM.
 *
 * Order: each output element is accumulated in an order that depends on neither the number of tokens in the
 * call nor the number of threads. A 16-lane accumulator takes sixteen columns at a time, in rising order; the
 * lanes are then folded in halves. Small integers are multiplied as integers: the activations of 512 columns are
 * rounded to a step of about 2^-22 of their largest magnitude, and a token that is not finite gives NaNs.
 */

enum { KERNELS_PORTABLE = 0, KERNELS_AVX2 = 1, KERNELS_AVX512 = 2 };
enum { KERNELS_SILU = 0, KERNELS_GELU_TANH = 1, KERNELS_SWIGLU_OAI = 2, KERNELS_SITU = 3 };

/* 1 if this processor and this build can run `simd`, else 0. */
int kernels_simd_supported(int simd);

/* The number of the weight format called `name`, -1 if there are no products with it here. */
int kernels_format(const char *name);

/* How a packed matrix [rows, cols] lies in its bytes: the number of its format, how many columns share a scale (1
 * without scales), and where each of its sections begins. */
struct kernels_matrix {
    int format, group;
    long rows, cols;
    long sections[4];
};

/* out[t * out_stride + i] = sum_j weight[i, j] * x[t, j].
 * The weight's bytes are `data`; x [tokens, cols]; out [tokens, rows] with rows `out_stride` floats apart. */
int kernels_matmul(int simd, int threads, const struct kernels_matrix *matrix, const void *data, long tokens,
                   const float *x, float *out, long out_stride);

/* Bytes that a product of `tokens` tokens allocates, at most, with a matrix of `cols` columns in `format`:
 * kernels_matmul, or, if `by_heads`, kernels_matmul_heads and kernels_matmul_heads_transposed too.
 * kernels_gated_networks allocates, for each network, what its three products do, and 2 * tokens * inner floats. */
long kernels_product_bytes(int simd, int threads, int format, long cols, long tokens, int by_heads);

/* Networks down(act(gate(x)) * up(x)) of one shape: gate, up [inner, hidden] and down [outer, inner], in
 * this order. `kind`, `limit` and `alpha` as in kernels_gated. */
struct kernels_gated {
    const struct kernels_matrix *matrix[3];
    long tokens;
    int kind;
    float limit, alpha;
};

/* One of them: its matrices' bytes, their biases (NULL for none), x [tokens, hidden], out [tokens, outer]. */
struct kernels_network {
    const void *data[3];
    const float *bias[3];
    const float *x;
    float *out;
};

/* Computes `count` networks. Every element is what kernels_matmul and kernels_gated would give. */
int kernels_gated_networks(int simd, int threads, const struct kernels_gated *shape, long count,
                           const struct kernels_network *networks);

/* out = x * weight / sqrt(mean(x^2) + eps) for each of `rows` rows: x, out [rows, cols]; weight [cols] or
 * NULL for ones. */
void kernels_rms_norm(int simd, int threads, long rows, long cols, const float *x, const float *weight,
                      double eps, float *out);

/* Gated activation `kind` of gate, up [count] -> out [count]; limit and alpha as in Kernels.gated. */
void kernels_gated(int simd, int threads, int kind, long count, const float *gate, const float *up,
                   float limit, float alpha, float *out);

/* Rotates the first 2 * half channels of each head of x [tokens, heads, size] in place by cos, sin
 * [tokens, half]; pairs are (i, i + half), or (2i, 2i + 1) if interleaved. */
void kernels_rotary(int threads, long tokens, long heads, long size, long half, int interleaved, float *x,
                    const float *cos, const float *sin);

/* Causal attention of q [tokens, heads, size] over keys [groups, capacity, size] and values
 * [groups, capacity, value_size] -> out [tokens, heads, value_size]. Query t stands at position start + t;
 * window 0 means all positions; sinks [heads] or NULL. */
void kernels_attention(int simd, int threads, long tokens, long heads, long groups, long capacity, long size,
                       long value_size, long start, long window, float scale, const float *q,
                       const float *keys, const float *values, const float *sinks, float *out);

/* Reads data [nbytes], whole steps of 256 bytes, and does as little as possible with it: the rate of this
 * function is what a product can reach at most. Returns the sum of the 64-bit words. */
unsigned long kernels_read(int threads, long nbytes, const void *data);

/* Causal attention of q [tokens, heads, width] over a cache [capacity, width] whose rows are the keys of all
 * heads, and whose first `rank` columns the values -> out [tokens, heads, rank]. */
void kernels_latent_attention(int simd, int threads, long tokens, long heads, long capacity, long width,
                              long rank, long start, float scale, const float *q, const float *cache,
                              float *out);

/* Head h of x [tokens, heads, cols] times rows h * S + offset.. (`rows` of them) of a weight [heads * S, cols]
 * -> out [tokens, heads, rows]. */
int kernels_matmul_heads(int simd, int threads, const struct kernels_matrix *matrix, const void *data, long heads,
                         long offset, long rows, long tokens, const float *x, float *out);

/* Head h of x [tokens, heads, rows] times the transpose of those rows -> out [tokens, heads, cols]. */
int kernels_matmul_heads_transposed(int simd, int threads, const struct kernels_matrix *matrix, const void *data,
                                    long heads, long offset, long rows, long tokens, const float *x, float *out);

/* x [tokens, channels] after history [count - 1, channels], through taps [channels, count] (at most 16 of
 * them), then silu -> out [tokens, channels]; the history is moved on in place. */
void kernels_causal_conv(int simd, int threads, long tokens, long channels, long count, const float *x,
                         float *history, const float *taps, float *out);

/* q, k, decay [tokens, heads, keys], v [tokens, heads, values], beta [tokens, heads] -> out [tokens, heads,
 * values]; state [heads, keys, values] is updated in place, token by token. */
void kernels_delta_rule(int simd, int threads, long tokens, long heads, long keys, long values, const float *q,
                        const float *k, const float *v, const float *beta, const float *decay, float *state,
                        float *out);

/* z [tokens, heads, size], bias [heads, size], rate [heads] -> out [tokens, heads, size]:
 * exp(bound * sigmoid(rate * (z + bias))) if bounded, else exp(-rate * softplus(z + bias)). */
void kernels_forget_gate(int simd, int threads, long tokens, long heads, long size, const float *z,
                         const float *bias, const float *rate, int bounded, float bound, float *out);

/* x * scale / sqrt(sum(x^2) + eps) for each of `rows` rows: x, out [rows, cols]. */
void kernels_l2_norm(int simd, int threads, long rows, long cols, const float *x, double eps, double scale,
                     float *out);

/* x [count] -> out [count]. */
void kernels_sigmoid(int simd, int threads, long count, const float *x, float *out);

/* Softmax of each of `rows` rows: x, out [rows, cols]. */
void kernels_softmax(int simd, int threads, long rows, long cols, const float *x, float *out);

/* `count` sources [tokens, width] and query [width] -> out [tokens, width], each token for itself: softmax of
 * the dot products of s / sqrt(mean(s^2) + eps) with the query, and the mixture of the raw sources. */
int kernels_attention_residual(int simd, int threads, long count, long tokens, long width,
                               const float *const *sources, const float *query, double eps, float *out);

/* Vector quantisation (docs/formats.md, vq3): indices as they lie in a packed matrix [rows, cols] of `stages`
 * stages, 1 to 3; scales [rows]; codebook [stages, 256, 8]; half_norms [stages, 256], half of each centroid's
 * squared length.
 *
 * What the products of a token with all weights of one codebook have in common are its tables. They take
 * kernels_vq_table_bytes for each token, start at a multiple of 64 bytes, and fit one `simd` alone. */
long kernels_vq_table_bytes(int simd, int stages, long cols);
int kernels_vq_tables(int simd, int threads, int stages, long cols, const float *codebook, long tokens,
                      const float *x, unsigned char *tables);

/* The product with the tokens whose tables these are -> out [tokens, rows], rows `out_stride` floats apart. */
void kernels_vq_matmul(int simd, int threads, int stages, long rows, long cols, const unsigned char *indices,
                       const float *scales, long tokens, const unsigned char *tables, float *out,
                       long out_stride);

/* Which centroids' sum comes near each of vectors [count, 8] -> chosen [stages, count]. */
void kernels_vq_search(int simd, int threads, int stages, long count, const float *vectors,
                       const float *codebook, const float *half_norms, unsigned char *chosen);

/* matrix [rows, cols] -> indices. */
void kernels_vq_encode(int simd, int threads, int stages, long rows, long cols, const float *matrix,
                       const float *scales, const float *codebook, const float *half_norms,
                       unsigned char *indices);
