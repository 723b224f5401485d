/* Q5_K: as Q4_K, with a fifth bit in 32 bytes behind the scales. */
#include "ggml_blocks.h"

INLINE void q5_k_open(const unsigned char *codes, float *factors, float *minima)
{
    open_six_bits(codes, 176, factors, minima);
}
INLINE vbytes q5_k_run(const unsigned char *codes, int run)
{
    return vb_or_bits(nibbles_of_32(codes + 48 + 32 * run), vb_twice(codes + 16), 2 * run - 4, 2 * run - 3, 16);
}

#define FORMAT q5_k
#define FORMAT_COLS 256
#define FORMAT_BYTES 176
#define FORMAT_ZERO 0
#define FORMAT_GROUP 32
#define FORMAT_MINIMA 1
#include "ggml_template.h"
