/* MXFP4 as ggml stores it: blocks of 32: a scale, a power of two, and nibbles that are E2M1. */
#include "ggml_blocks.h"

INLINE void ggml_mxfp4_open(const unsigned char *codes, float *factors, float *minima)
{
    (void)minima;
    for (int block = 0; block < 16; block++) {
        const uint32_t exponent = codes[17 * block];
        const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23; /* half a scale */
        float half;
        memcpy(&half, &bits, sizeof half);
        factors[block] = half;
    }
}
INLINE vbytes ggml_mxfp4_run(const unsigned char *codes, int run)
{
    static const unsigned char table[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    return vb_table(nibbles_of_16(codes + 34 * run + 1, codes + 34 * run + 18), table);
}

#define FORMAT ggml_mxfp4
#define FORMAT_COLS 32
#define FORMAT_BYTES 17
#define FORMAT_ZERO 12
#define FORMAT_GROUP 32
#define FORMAT_MINIMA 0
#include "ggml_template.h"
