/* E4M3 with a scale for each square block. */
#include "level.h"

#include "quantise_template.h"
#include "decode_template.h"
#include "tile_template.h"

#define FORMAT fp8
#define FORMAT_BLOCK 128
#define FORMAT_BITS 8
#define FORMAT_SCALED 1
#include "row_template.h"
#include "product_template.h"

#define FORMAT fp8_small
#define FORMAT_BLOCK LANES
#define FORMAT_BITS 8
#define FORMAT_SCALED 1
#include "row_template.h"
#include "product_template.h"

const struct format_ops FORMAT_OPS(fp8) = {
    .block = 128,
    .row_block = 1,
    .row_bytes = 1,
    .scale_bytes = 4,
    .square = 1,
    .arrange = arrange_blocks,
    .rows = fp8_rows,
    .transposed = fp8_transposed,
};
const struct format_ops FORMAT_OPS(fp8_b64) = {
    .block = LANES,
    .row_block = 1,
    .row_bytes = 1,
    .scale_bytes = 4,
    .square = 1,
    .arrange = arrange_lanes,
    .rows = fp8_small_rows,
    .transposed = fp8_small_transposed,
};
const struct format_ops FORMAT_OPS(fp8_b32) = {
    .block = LANES,
    .row_block = 1,
    .row_bytes = 1,
    .scale_bytes = 4,
    .square = 1,
    .arrange = arrange_lanes,
    .rows = fp8_small_rows,
    .transposed = fp8_small_transposed,
};
const struct format_ops FORMAT_OPS(fp8_b16) = {
    .block = LANES,
    .row_block = 1,
    .row_bytes = 1,
    .scale_bytes = 4,
    .square = 1,
    .arrange = arrange_lanes,
    .rows = fp8_small_rows,
    .transposed = fp8_small_transposed,
};
const struct format_ops FORMAT_OPS(fp8_row) = {
    .block = LANES,
    .row_block = 1,
    .row_bytes = 1,
    .scale_bytes = 4,
    .arrange = arrange_lanes,
    .rows = fp8_small_rows,
    .transposed = fp8_small_transposed,
};
