/* Vector quantisation at one SIMD level: tables of partial products, sums of their entries, and the search for
 * the nearest centroid. */
#include "vq.h"

/* One table, in planes or in words: the products of x [8] with centroids turned [8][256], rounded to whole
 * numbers of 1 / inverse. The magic number leaves a float's mantissa to hold VQ_BIAS plus that whole number. */
static void vq_table(const float *x, const float *turned, float inverse, int planes, unsigned char *to)
{
    uint32_t words[VQ_CENTROIDS] __attribute__((aligned(64)));
    const vf magic = vf_set(3.0f * VQ_BIAS), factor = vf_set(inverse);
    for (long c = 0; c < VQ_CENTROIDS; c += LANES) {
        vf sum = vf_mul(vf_set(x[0]), vf_load(turned + c));
        for (int j = 1; j < VQ_DIMENSION; j++)
            sum = vf_fma(vf_set(x[j]), vf_load(turned + j * VQ_CENTROIDS + c), sum);
        vf_store((float *)(void *)(words + c), vf_add(vf_mul(sum, factor), magic));
    }
    for (long c = 0; c < VQ_CENTROIDS; c++)
        words[c] &= 2 * VQ_BIAS - 1;
    if (!planes)
        memcpy(to, words, sizeof words);
    for (int plane = 0; planes && plane < 3; plane++)
        for (long c = 0; c < VQ_CENTROIDS; c++)
            to[plane * VQ_CENTROIDS + c] = (unsigned char)(words[c] >> 8 * plane);
}

/* Sums [rows] = the entries that indices [count, rows] choose from tables [count][256]. */
static void vq_look_up(long count, long rows, const unsigned char *indices, const unsigned char *tables,
                       uint32_t *sums)
{
    const uint32_t *table = (const uint32_t *)(const void *)tables;
    memset(sums, 0, (unsigned long)rows * sizeof *sums);
    for (long i = 0; i < count; i++, indices += rows, table += VQ_CENTROIDS)
        for (long r = 0; r < rows; r++)
            sums[r] += table[indices[r]];
}

/* The nearest of the centroids [256][8] to each of sixteen vectors, given as [8][16]: the lowest of
 * half_norms[c] - (v . c), the first of equals. Multiplied and subtracted one by one: every level and numpy
 * find the same. */
static void vq_nearest(const float *vectors, const float *centroids, const float *half_norms,
                       unsigned char *nearest)
{
    vf v[VQ_DIMENSION], lowest = vf_set(3.4e38f), where = vf_set(0);
    float found[LANES];
    for (int j = 0; j < VQ_DIMENSION; j++)
        v[j] = vf_load(vectors + j * LANES);
    for (int c = 0; c < VQ_CENTROIDS; c++) {
        vf score = vf_set(half_norms[c]);
        for (int j = 0; j < VQ_DIMENSION; j++)
            score = vf_sub(score, vf_mul(v[j], vf_set(centroids[c * VQ_DIMENSION + j])));
        where = vf_if_less(score, lowest, vf_set((float)c), where);
        lowest = vf_if_less(score, lowest, score, lowest);
    }
    vf_store(found, where);
    for (int r = 0; r < LANES; r++)
        nearest[r] = (unsigned char)found[r];
}
