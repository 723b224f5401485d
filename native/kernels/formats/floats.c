/* Plain floats: bf16, f16 and f32. */
#include "level.h"

#include "quantise_template.h"
#include "decode_template.h"
#include "tile_template.h"

#define FORMAT bf16
#define FORMAT_BLOCK LANES
#define FORMAT_BITS 16
#define FORMAT_SCALED 0
#include "row_template.h"
#include "product_template.h"

#define FORMAT f16
#define FORMAT_BLOCK LANES
#define FORMAT_BITS 16
#define FORMAT_SCALED 0
#include "row_template.h"
#include "product_template.h"

#define FORMAT f32
#define FORMAT_BLOCK LANES
#define FORMAT_BITS 32
#define FORMAT_SCALED 0
#include "row_template.h"
#include "product_template.h"

const struct format_ops FORMAT_OPS(bf16) = {
    .block = LANES,
    .row_block = 1,
    .row_bytes = 2,
    .arrange = arrange_lanes,
    .rows = bf16_rows,
    .transposed = bf16_transposed,
};
const struct format_ops FORMAT_OPS(f16) = {
    .block = LANES,
    .row_block = 1,
    .row_bytes = 2,
    .arrange = arrange_lanes,
    .rows = f16_rows,
    .transposed = f16_transposed,
};
const struct format_ops FORMAT_OPS(f32) = {
    .block = LANES,
    .row_block = 1,
    .row_bytes = 4,
    .arrange = arrange_lanes,
    .rows = f32_rows,
    .transposed = f32_transposed,
};
