/* Q6_K: blocks of 256: 128 bytes of nibbles, 64 of two more bits, signed scales of 16 columns, a half float. */
#include "ggml_blocks.h"

INLINE void q6_k_open(const unsigned char *codes, float *factors, float *minima)
{
    (void)minima;
    for (int block = 0; block < 2; block++) {
        const float d = half_value(codes + 210 * block + 208);
        vf_store(factors + LANES * block, vf_mul(vf_load_int8(codes + 210 * block + 192), vf_set(d)));
    }
}
INLINE vbytes q6_k_run(const unsigned char *codes, int run)
{
    const vbytes low = vb_load(codes + 64 * (run / 2)), shifted = run % 2 ? vb_shifted(low, 4, 4, 4, 4) : low;
    const int bit = run % 2 * 4;
    return vb_or_bits(vb_and(shifted, 15), vb_twice(codes + 128 + 32 * (run / 2)), bit - 4, bit - 2, 0x30);
}

#define FORMAT q6_k
#define FORMAT_COLS 256
#define FORMAT_BYTES 210
#define FORMAT_ZERO 32
#define FORMAT_GROUP 16
#define FORMAT_MINIMA 0
#include "ggml_template.h"
