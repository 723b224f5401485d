/* Q5_0: blocks of 32: a half float, a word of fifth bits, nibbles; counted from -16. */
#include "ggml_blocks.h"

INLINE void q5_0_open(const unsigned char *codes, float *factors, float *minima)
{
    (void)minima;
    open_halves(codes, 22, factors);
}
INLINE vbytes q5_0_run(const unsigned char *codes, int run)
{
    const unsigned char *const a = codes + 44 * run, *const b = a + 22;
    return vb_plus_where(nibbles_of_16(a + 6, b + 6), two_words(a + 2, b + 2), 16);
}

#define FORMAT q5_0
#define FORMAT_COLS 32
#define FORMAT_BYTES 22
#define FORMAT_ZERO 16
#define FORMAT_GROUP 32
#define FORMAT_MINIMA 0
#include "ggml_template.h"
