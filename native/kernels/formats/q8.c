/* Signed bytes with a scale for 128 or 32 columns. */
#include "level.h"

#include "quantise_template.h"
#include "decode_template.h"
#include "tile_template.h"

#define FORMAT q8
#define FORMAT_BLOCK 128
#define FORMAT_BITS 8
#define FORMAT_SCALED 1
#include "row_template.h"
#include "product_template.h"

#define FORMAT q8_g32
#define FORMAT_BLOCK LANES
#define FORMAT_BITS 8
#define FORMAT_SCALED 1
#include "row_template.h"
#include "product_template.h"

const struct format_ops FORMAT_OPS(q8) = {
    .block = 128,
    .row_block = 1,
    .row_bytes = 1,
    .scale_bytes = 2,
    .arrange = arrange_blocks,
    .rows = q8_rows,
    .transposed = q8_transposed,
};
const struct format_ops FORMAT_OPS(q8_g32) = {
    .block = LANES,
    .row_block = 1,
    .row_bytes = 1,
    .scale_bytes = 2,
    .arrange = arrange_lanes,
    .rows = q8_g32_rows,
    .transposed = q8_g32_transposed,
};
