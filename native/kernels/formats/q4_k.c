/* Q4_K: blocks of 256 nibbles; half floats for scales and minima of six bits, of 32 columns each. */
#include "ggml_blocks.h"

INLINE void q4_k_open(const unsigned char *codes, float *factors, float *minima)
{
    open_six_bits(codes, 144, factors, minima);
}
INLINE vbytes q4_k_run(const unsigned char *codes, int run) { return nibbles_of_32(codes + 16 + 32 * run); }

#define FORMAT q4_k
#define FORMAT_COLS 256
#define FORMAT_BYTES 144
#define FORMAT_ZERO 0
#define FORMAT_GROUP 32
#define FORMAT_MINIMA 1
#include "ggml_template.h"
