/* Q8_0: blocks of 32: a half float, signed bytes. A weight is the product of both, which a float holds exactly; so it is
 * multiplied as one. */
#include "level.h"

#include "quantise_template.h"
#include "decode_template.h"
#include "tile_template.h"

struct q8_0_block {
    const unsigned char *at;
    vf scale[2];
};
INLINE struct q8_0_block q8_0_load(const unsigned char *at)
{
    return (struct q8_0_block){at, {vf_set(half_value(at)), vf_set(half_value(at + 34))}};
}
INLINE vf q8_0_next(struct q8_0_block *block, int v)
{
    return vf_mul(vf_load_int8(block->at + 2 + v * LANES + v / 2 * 2), block->scale[v / 2]);
}
SCALE(q8_0, vf_set(1))

SHARED void arrange_pairs(long cols, const float *x, float *out) { arrange_plain_to(64, cols, x, out); }

#define FORMAT q8_0
#define FORMAT_BLOCK 64
#define FORMAT_BITS 8
#define FORMAT_SCALED 0
#define FORMAT_UNIT 32
#define FORMAT_UNIT_BYTES 34
#include "row_template.h"
#include "product_template.h"

const struct format_ops FORMAT_OPS(q8_0) = {
    .block = 64,
    .row_block = 32,
    .row_bytes = 34,
    .arrange = arrange_pairs,
    .rows = q8_0_rows,
    .transposed = q8_0_transposed,
};
