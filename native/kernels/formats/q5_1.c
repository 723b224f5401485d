/* Q5_1: blocks of 32: a half float, another for the minimum, a word of fifth bits, nibbles. */
#include "ggml_blocks.h"

INLINE void q5_1_open(const unsigned char *codes, float *factors, float *minima)
{
    open_halves(codes, 24, factors);
    open_halves(codes + 2, 24, minima);
}
INLINE vbytes q5_1_run(const unsigned char *codes, int run)
{
    const unsigned char *const a = codes + 48 * run, *const b = a + 24;
    return vb_plus_where(nibbles_of_16(a + 8, b + 8), two_words(a + 4, b + 4), 16);
}

#define FORMAT q5_1
#define FORMAT_COLS 32
#define FORMAT_BYTES 24
#define FORMAT_ZERO 0
#define FORMAT_GROUP 32
#define FORMAT_MINIMA 1
#include "ggml_template.h"
