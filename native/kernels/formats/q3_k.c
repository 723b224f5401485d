/* Q3_K: blocks of 256: 32 bytes of a third bit, 64 of two bits, scales of six bits of 16 columns, a half float. */
#include "ggml_blocks.h"

INLINE void q3_k_open(const unsigned char *codes, float *factors, float *minima)
{
    (void)minima;
    for (int block = 0; block < 2; block++, codes += 110) {
        uint32_t low[2], high;
        memcpy(low, codes + 96, sizeof low);
        memcpy(&high, codes + 104, sizeof high);
        const vf scales = vf_words((low[0] & 0x0f0f0f0f) | (high << 4 & 0x30303030),
                                   (low[1] & 0x0f0f0f0f) | (high << 2 & 0x30303030),
                                   (low[0] >> 4 & 0x0f0f0f0f) | (high & 0x30303030),
                                   (low[1] >> 4 & 0x0f0f0f0f) | (high >> 2 & 0x30303030));
        const float d = half_value(codes + 108);
        vf_store(factors + LANES * block, vf_mul(vf_sub(scales, vf_set(32)), vf_set(d)));
    }
}
INLINE vbytes q3_k_run(const unsigned char *codes, int run)
{
    const vbytes low = pairs_of_bits(codes + 32 + 32 * (run / 2), run % 2 * 4);
    return vb_or_bits(low, vb_twice(codes), 2 * run - 2, 2 * run - 1, 4);
}

#define FORMAT q3_k
#define FORMAT_COLS 256
#define FORMAT_BYTES 110
#define FORMAT_ZERO 4
#define FORMAT_GROUP 16
#define FORMAT_MINIMA 0
#include "ggml_template.h"
