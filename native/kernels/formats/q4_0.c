/* Q4_0: blocks of 32: a half float, nibbles counted from -8. */
#include "ggml_blocks.h"

INLINE void q4_0_open(const unsigned char *codes, float *factors, float *minima)
{
    (void)minima;
    open_halves(codes, 18, factors);
}
INLINE vbytes q4_0_run(const unsigned char *codes, int run)
{
    return nibbles_of_16(codes + 36 * run + 2, codes + 36 * run + 20);
}

#define FORMAT q4_0
#define FORMAT_COLS 32
#define FORMAT_BYTES 18
#define FORMAT_ZERO 8
#define FORMAT_GROUP 32
#define FORMAT_MINIMA 0
#include "ggml_template.h"
