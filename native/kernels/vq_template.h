/* Vector quantisation at one SIMD level: tables of partial products, sums of their entries, and the search for
 * the nearest sums of centroids. */
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

/* For each of sixteen vectors, a sum of centroids: what it leaves of the vector, half the square of that less
 * half the vector's own (the lower, the nearer), and which centroids they are. */
struct vq_sums {
    float left[VQ_DIMENSION * LANES], score[LANES];
    unsigned char chosen[VQ_STAGES][LANES];
};

/* Puts a candidate into a list of the `kept` lowest scores and their numbers, behind those that equal it. */
INLINE void vq_insert(int kept, vf score, vf number, vf *lowest, vf *where)
{
    for (int i = kept - 1; i > 0; i--) {
        const vf its_number = vf_if_less(score, lowest[i], number, where[i]);
        const vf its_score = vf_if_less(score, lowest[i], score, lowest[i]);
        where[i] = vf_if_less(score, lowest[i - 1], where[i - 1], its_number);
        lowest[i] = vf_if_less(score, lowest[i - 1], lowest[i - 1], its_score);
    }
    where[0] = vf_if_less(score, lowest[0], number, where[0]);
    lowest[0] = vf_if_less(score, lowest[0], score, lowest[0]);
}

/* Of `count` sums, each with each of the centroids [256][8] of one more stage, the `kept` nearest, in order, the
 * first of equals first -> longer [kept]. Multiplied and subtracted one by one: every level and numpy find the
 * same. Most candidates are no lane's and are left after one comparison, which is often guessed wrong: the
 * scores are there before, so that a wrong guess does not throw the computing of the next ones away. */
INLINE void vq_extend(int kept, int count, int stage, const struct vq_sums *sums, const float *centroids,
                      const float *half_norms, struct vq_sums *longer)
{
    float scores[VQ_CENTROIDS * LANES];
    vf lowest[VQ_BEAM], where[VQ_BEAM];
    for (int i = 0; i < kept; i++) {
        lowest[i] = vf_set(3.4e38f);
        where[i] = vf_set(0);
    }
    for (int m = 0; m < count; m++) {
        const vf before = vf_load(sums[m].score);
        vf v[VQ_DIMENSION];
        for (int j = 0; j < VQ_DIMENSION; j++)
            v[j] = vf_load(sums[m].left + j * LANES);
        for (int c = 0; c < VQ_CENTROIDS; c++) {
            vf score = vf_add(before, vf_set(half_norms[c]));
            for (int j = 0; j < VQ_DIMENSION; j++)
                score = vf_sub(score, vf_mul(v[j], vf_set(centroids[c * VQ_DIMENSION + j])));
            vf_store(scores + c * LANES, score);
        }
        for (int c = 0; c < VQ_CENTROIDS; c++) {
            const vf score = vf_load(scores + c * LANES);
            if (vf_any_less(score, lowest[kept - 1]))
                vq_insert(kept, score, vf_set((float)(m * VQ_CENTROIDS + c)), lowest, where);
        }
    }
    for (int i = 0; i < kept; i++) {
        float number[LANES];
        vf_store(longer[i].score, lowest[i]);
        vf_store(number, where[i]);
        for (int r = 0; r < LANES; r++) {
            const struct vq_sums *const from = sums + (int)number[r] / VQ_CENTROIDS;
            const int c = (int)number[r] % VQ_CENTROIDS;
            for (int j = 0; j < VQ_DIMENSION; j++)
                longer[i].left[j * LANES + r] = from->left[j * LANES + r] - centroids[c * VQ_DIMENSION + j];
            for (int s = 0; s < stage; s++)
                longer[i].chosen[s][r] = from->chosen[s][r];
            longer[i].chosen[stage][r] = (unsigned char)c;
        }
    }
}

/* For each of sixteen vectors, given as [8][16], the sum of a centroid from each stage of the codebook
 * [stages][256][8] that lies nearest among those that were tried -> chosen [stages][16]. After each stage the
 * VQ_BEAM nearest sums go on, after the last the nearest. */
static void vq_search(int stages, const float *vectors, const float *codebook, const float *half_norms,
                      unsigned char *chosen)
{
    struct vq_sums sums[2][VQ_BEAM];
    int count = 1;
    memset(sums[0][0].score, 0, sizeof sums[0][0].score);
    memcpy(sums[0][0].left, vectors, sizeof sums[0][0].left);
    for (int s = 0; s < stages; s++) {
        const struct vq_sums *const from = sums[s % 2];
        struct vq_sums *const to = sums[(s + 1) % 2];
        if (s < stages - 1)
            vq_extend(VQ_BEAM, count, s, from, codebook, half_norms, to);
        else
            vq_extend(1, count, s, from, codebook, half_norms, to);
        count = VQ_BEAM;
        codebook += VQ_CENTROIDS * VQ_DIMENSION;
        half_norms += VQ_CENTROIDS;
    }
    memcpy(chosen, sums[stages % 2][0].chosen, (unsigned long)stages * LANES);
}
