/* Nibbles, two columns to a byte, with a scale for 32 or 128 columns. */
#include "level.h"

#include "quantise_template.h"
#include "decode_template.h"
#include "tile_template.h"
#include "dot_template.h"

#define FORMAT mxfp4
#define FORMAT_BLOCK 128
#define FORMAT_BITS 4
#define FORMAT_SCALED 1
#define FORMAT_GROUP 32
#define FORMAT_SCALE_BYTES 1
#define FORMAT_ZERO 12
#include "row_template.h"
#include "integer_template.h"

#define FORMAT q4
#define FORMAT_BLOCK 128
#define FORMAT_BITS 4
#define FORMAT_SCALED 1
#define FORMAT_GROUP 128
#define FORMAT_SCALE_BYTES 2
#define FORMAT_ZERO 8
#include "row_template.h"
#include "integer_template.h"

#define FORMAT q4_g32
#define FORMAT_BLOCK 128
#define FORMAT_BITS 4
#define FORMAT_SCALED 1
#define FORMAT_GROUP 32
#define FORMAT_SCALE_BYTES 2
#define FORMAT_ZERO 8
#include "row_template.h"
#include "integer_template.h"

const struct format_ops FORMAT_OPS(mxfp4) = {
    .block = 128,
    .row_block = 2,
    .row_bytes = 1,
    .scale_bytes = 1,
    .arrange = arrange_nibbles,
    .integers = mxfp4_integers,
    .rows = mxfp4_rows,
    .transposed = mxfp4_transposed,
};
const struct format_ops FORMAT_OPS(q4) = {
    .block = 128,
    .row_block = 2,
    .row_bytes = 1,
    .scale_bytes = 2,
    .arrange = arrange_nibbles,
    .integers = q4_integers,
    .rows = q4_rows,
    .transposed = q4_transposed,
};
const struct format_ops FORMAT_OPS(q4_g32) = {
    .block = 128,
    .row_block = 2,
    .row_bytes = 1,
    .scale_bytes = 2,
    .arrange = arrange_nibbles,
    .integers = q4_g32_integers,
    .rows = q4_g32_rows,
    .transposed = q4_g32_transposed,
};
