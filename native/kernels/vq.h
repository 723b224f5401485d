/* Vector quantisation: what its public functions and its inner parts share. docs/formats.md has the layout. */
#ifndef URINGINFER_VQ_H
#define URINGINFER_VQ_H

#include <stdint.h>

enum {
    VQ_DIMENSION = 8,       /* columns in a vector */
    VQ_CENTROIDS = 256,     /* of a stage: an index is a byte */
    VQ_STAGES = 3,          /* at most */
    VQ_BEAM = 4,            /* sums that the search keeps from stage to stage */
    VQ_ROWS = 128,          /* rows in a block of indices */
    VQ_POSITIONS = 64,      /* vectors of a row whose partial products share a scale: a group */
    VQ_PLANES_BYTES = 768,  /* a table in three planes of bytes, */
    VQ_WORDS_BYTES = 1024,  /* and in words */
    VQ_BIAS = 1 << 22       /* what an entry of a table stands above the number it means */
};

/* An entry means (entry - VQ_BIAS) * unit; |entry - VQ_BIAS| <= VQ_RANGE, so rounding cannot reach the bias. */
#define VQ_RANGE 4194000.0

/* Sums [rows] = the entries that a block's indices [count, rows] choose from `count` tables in planes. Below
 * 2^32, as count <= 3 * VQ_POSITIONS; rows <= VQ_ROWS. The processor has AVX-512 with VBMI. */
void vq_look_up_planes(long count, long rows, const unsigned char *indices, const unsigned char *tables,
                       uint32_t *sums);

/* The same for two whole blocks, their indices `stride` bytes apart -> sums [2][VQ_ROWS]. A table comes from the
 * second-level cache, since a group's tables are too large for the first; both blocks use it while it is in
 * registers. */
void vq_look_up_two_blocks(long count, const unsigned char *indices, long stride, const unsigned char *tables,
                           uint32_t *sums);

#endif
