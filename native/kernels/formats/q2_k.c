/* Q2_K: blocks of 256: sixteen bytes of scales and minima of four bits, of 16 columns each, two bits a weight. */
#include "ggml_blocks.h"

INLINE void q2_k_open(const unsigned char *codes, float *factors, float *minima)
{
    for (int block = 0; block < 2; block++, codes += 84) {
        const float d = half_value(codes + 80), m = -half_value(codes + 82);
        vf_store(factors + LANES * block, vf_mul(vf_low_nibbles(codes), vf_set(d)));
        vf_store(minima + LANES * block, vf_mul(vf_high_nibbles(codes), vf_set(m)));
    }
}
INLINE vbytes q2_k_run(const unsigned char *codes, int run)
{
    return pairs_of_bits(codes + 16 + 32 * (run / 2), run % 2 * 4);
}

#define FORMAT q2_k
#define FORMAT_COLS 256
#define FORMAT_BYTES 84
#define FORMAT_ZERO 0
#define FORMAT_GROUP 16
#define FORMAT_MINIMA 1
#include "ggml_template.h"
