/* The native kernels' interface: what Python calls. Plain C types only; cffi reads this file as it is.
 *
 * Every function takes `simd` (a level that kernels_simd_supported allows) and `threads` (>= 1), keeps no
 * state between calls and touches only the arrays it is given. Arrays are float32, row-major, contiguous
 * unless a stride (in floats) is given, and need no alignment. Functions that allocate return 0 or -ENOMEM.
 *
 * Order: each output element is accumulated in an order that depends on neither the number of tokens in the
 * call nor the number of threads. Lane j % 16 of a 16-lane accumulator takes column j, in rising order; the
 * lanes are then folded in halves.
 */

enum { KERNELS_PORTABLE = 0, KERNELS_AVX2 = 1, KERNELS_AVX512 = 2 };
enum { KERNELS_BF16 = 0, KERNELS_F16 = 1, KERNELS_F32 = 2, KERNELS_FORMATS = 3 };
enum { KERNELS_SILU = 0, KERNELS_GELU_TANH = 1, KERNELS_SWIGLU_OAI = 2, KERNELS_SITU = 3 };

/* 1 if this processor and this build can run `simd`, else 0. */
int kernels_simd_supported(int simd);

/* out[t * out_stride + i] = sum_j weight[i, j] * x[t, j].
 * weight [rows, cols] in `format`: its sections `codes` and `scales` (NULL where the format has none);
 * x [tokens, cols]; out [tokens, rows] with rows `out_stride` floats apart. */
int kernels_matmul(int simd, int threads, int format, long rows, long cols, const void *codes,
                   const void *scales, long tokens, const float *x, float *out, long out_stride);

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
