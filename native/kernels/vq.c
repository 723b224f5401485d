/* Vector quantisation: products by table, and the encoder. Rows, tokens and vectors are split over threads. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "product.h"
#include "vq.h"

static int has_planes(int simd)
{
#if defined(__x86_64__)
    return simd == KERNELS_AVX512 && __builtin_cpu_supports("avx512vbmi");
#else
    (void)simd;
    return 0;
#endif
}

static long table_bytes(int simd) { return has_planes(simd) ? VQ_PLANES_BYTES : VQ_WORDS_BYTES; }
static long positions_of(long cols) { return (cols + VQ_DIMENSION - 1) / VQ_DIMENSION; }
static long groups_of(long cols) { return (positions_of(cols) + VQ_POSITIONS - 1) / VQ_POSITIONS; }
static long smaller(long a, long b) { return a < b ? a : b; }

/* A token's tables, then the unit of each group. */
long kernels_vq_table_bytes(int simd, int stages, long cols)
{
    const long units = (groups_of(cols) * (long)sizeof(float) + 63) / 64 * 64;
    return positions_of(cols) * stages * table_bytes(simd) + units;
}

/* Centroids [stages][256][8] -> [stages][8][256]; returns the length of the longest. */
static double turn_codebook(int stages, const float *codebook, float *turned)
{
    double longest = 0;
    for (long c = 0; c < stages * (long)VQ_CENTROIDS; c++) {
        double square = 0;
        for (long j = 0; j < VQ_DIMENSION; j++) {
            const float value = codebook[c * VQ_DIMENSION + j];
            square += (double)value * value;
            turned[(c / VQ_CENTROIDS * VQ_DIMENSION + j) * VQ_CENTROIDS + c % VQ_CENTROIDS] = value;
        }
        longest = square > longest ? square : longest;
    }
    return sqrt(longest);
}

/* No partial product of x [count] with a centroid as long as `longest` exceeds it. NaN if x is not finite. */
static double largest_product(const float *x, long count, double longest)
{
    double largest = 0;
    for (long p = 0; p < count; p += VQ_DIMENSION) {
        double square = 0;
        for (long j = p; j < smaller(count, p + VQ_DIMENSION); j++)
            square += (double)x[j] * x[j];
        largest = square > largest || square != square ? square : largest;
    }
    largest = sqrt(largest) * longest;
    return isfinite(largest) ? fmax(largest, 1e-30) : NAN;
}

int kernels_vq_tables(int simd, int threads, int stages, long cols, const float *codebook, long tokens,
                      const float *x, unsigned char *tables)
{
    const struct simd_ops *const ops = simd_ops(simd);
    const long positions = positions_of(cols), groups = groups_of(cols), each = table_bytes(simd);
    const long token_bytes = kernels_vq_table_bytes(simd, stages, cols);
    const int planes = has_planes(simd), team = tokens * groups == 1 ? 1 : threads;
    float *const turned = new_floats((long)stages * VQ_CENTROIDS * VQ_DIMENSION);
    if (!turned)
        return -ENOMEM;
    const double longest = turn_codebook(stages, codebook, turned);
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
    for (long i = 0; i < tokens * groups; i++) {
        const long token = i / groups, group = i % groups, first = group * VQ_POSITIONS;
        const float *const mine = x + token * cols;
        unsigned char *const to = tables + token * token_bytes;
        const long begin = first * VQ_DIMENSION, end = smaller(cols, begin + VQ_POSITIONS * VQ_DIMENSION);
        const double largest = largest_product(mine + begin, end - begin, longest);
        const float inverse = (float)(VQ_RANGE / largest), unit = (float)(largest / VQ_RANGE);
        memcpy(to + positions * stages * each + group * (long)sizeof unit, &unit, sizeof unit);
        for (long p = first; p < smaller(positions, first + VQ_POSITIONS); p++) {
            float vector[VQ_DIMENSION] = {0};
            memcpy(vector, mine + p * VQ_DIMENSION,
                   (unsigned long)smaller(VQ_DIMENSION, cols - p * VQ_DIMENSION) * sizeof(float));
            for (long s = 0; s < stages; s++)
                ops->vq_table(vector, turned + s * VQ_DIMENSION * VQ_CENTROIDS, inverse, planes,
                              to + (p * stages + s) * each);
        }
    }
    free(turned);
    return 0;
}

void kernels_vq_matmul(int simd, int threads, int stages, long rows, long cols, const unsigned char *indices,
                       const float *scales, long tokens, const unsigned char *tables, float *out,
                       long out_stride)
{
    const long positions = positions_of(cols), groups = groups_of(cols), each = table_bytes(simd);
    const long token_bytes = kernels_vq_table_bytes(simd, stages, cols), vectors = positions * stages;
    void (*const look_up)(long, long, const unsigned char *, const unsigned char *, uint32_t *) =
        has_planes(simd) ? vq_look_up_planes : simd_ops(simd)->vq_look_up;
    const int team = rows * cols * tokens < SMALL_PRODUCT ? 1 : threads;
    /* Two blocks at once where the threads still have enough to share. */
    const long step = has_planes(simd) && rows >= 8L * team * VQ_ROWS ? 2 * VQ_ROWS : VQ_ROWS;
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
    for (long row = 0; row < rows; row += step)
        for (long group = 0; group < groups; group++)
            for (long t = 0; t < tokens; t++) {
                const long count = smaller(step, rows - row), first = group * VQ_POSITIONS * stages;
                const long entries = smaller(vectors - first, (long)VQ_POSITIONS * stages);
                const unsigned char *const mine = tables + t * token_bytes;
                float *const to = out + t * out_stride + row;
                uint32_t sums[2 * VQ_ROWS];
                float unit;
                memcpy(&unit, mine + vectors * each + group * (long)sizeof unit, sizeof unit);
                if (count == 2 * VQ_ROWS)
                    vq_look_up_two_blocks(entries, indices + row * vectors + first * VQ_ROWS, vectors * VQ_ROWS,
                                          mine + first * each, sums);
                for (long r = 0; count < 2 * VQ_ROWS && r < count; r += VQ_ROWS) {
                    const long here = smaller(VQ_ROWS, count - r);
                    look_up(entries, here, indices + (row + r) * vectors + first * here, mine + first * each,
                            sums + r);
                }
                for (long r = 0; r < count; r++) {
                    const int32_t above = (int32_t)(sums[r] - (uint32_t)entries * VQ_BIAS);
                    const float sum = (group ? to[r] : 0.0f) + (float)above * unit;
                    to[r] = group == groups - 1 ? sum * scales[row + r] : sum;
                }
            }
}

void kernels_vq_search(int simd, int threads, int stages, long count, const float *vectors,
                       const float *codebook, const float *half_norms, unsigned char *chosen)
{
    const struct simd_ops *const ops = simd_ops(simd);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long start = 0; start < count; start += LANES) {
        const long here = smaller(LANES, count - start);
        float turned[VQ_DIMENSION * LANES] = {0};
        unsigned char found[VQ_STAGES * LANES];
        for (long r = 0; r < here; r++)
            for (long j = 0; j < VQ_DIMENSION; j++)
                turned[j * LANES + r] = vectors[(start + r) * VQ_DIMENSION + j];
        ops->vq_search(stages, turned, codebook, half_norms, found);
        for (long s = 0; s < stages; s++)
            memcpy(chosen + s * count + start, found + s * LANES, (unsigned long)here);
    }
}

/* Up to sixteen rows of a block, all positions. */
static void encode_rows(const struct simd_ops *ops, int stages, long cols, long row, long here, long count,
                        const float *matrix, const float *scales, const float *codebook,
                        const float *half_norms, unsigned char *to)
{
    for (long p = 0; p < positions_of(cols); p++) {
        float turned[VQ_DIMENSION * LANES] = {0};
        unsigned char found[VQ_STAGES * LANES];
        for (long r = 0; r < here; r++)
            for (long j = p * VQ_DIMENSION; j < smaller(cols, (p + 1) * VQ_DIMENSION); j++)
                turned[j % VQ_DIMENSION * LANES + r] =
                    scales[row + r] > 0 ? matrix[(row + r) * cols + j] / scales[row + r] : 0.0f;
        ops->vq_search(stages, turned, codebook, half_norms, found);
        for (long s = 0; s < stages; s++)
            memcpy(to + (p * stages + s) * count, found + s * LANES, (unsigned long)here);
    }
}

void kernels_vq_encode(int simd, int threads, int stages, long rows, long cols, const float *matrix,
                       const float *scales, const float *codebook, const float *half_norms,
                       unsigned char *indices)
{
    const struct simd_ops *const ops = simd_ops(simd);
    const long vectors = positions_of(cols) * stages;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (long row = 0; row < rows; row += LANES) {
        const long block = row / VQ_ROWS * VQ_ROWS, count = smaller(VQ_ROWS, rows - block);
        encode_rows(ops, stages, cols, row, smaller(LANES, rows - row), count, matrix, scales, codebook,
                    half_norms, indices + block * vectors + (row - block));
    }
}
