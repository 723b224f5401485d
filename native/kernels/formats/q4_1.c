/* Q4_1: blocks of 32: a half float, another for the minimum, nibbles. */
#include "ggml_blocks.h"

INLINE void q4_1_open(const unsigned char *codes, float *factors, float *minima)
{
    open_halves(codes, 20, factors);
    open_halves(codes + 2, 20, minima);
}
INLINE vbytes q4_1_run(const unsigned char *codes, int run)
{
    return nibbles_of_16(codes + 40 * run + 4, codes + 40 * run + 24);
}

#define FORMAT q4_1
#define FORMAT_COLS 32
#define FORMAT_BYTES 20
#define FORMAT_ZERO 0
#define FORMAT_GROUP 32
#define FORMAT_MINIMA 1
#include "ggml_template.h"
