/* Everything of one SIMD level; a lanes_*.h must have been included, and OPS be the table's name. */
#include <stddef.h>

#include "simd.h"

#include "quantise_template.h"
#include "decode_template.h"
#include "tile_template.h"
#include "dot_template.h"

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

#include "math_template.h"
#include "pointwise_template.h"
#include "attention_template.h"
#include "gates_template.h"
#include "recurrent_template.h"
#include "vq_template.h"

#define bf16_ops {LANES, 16, 0, 0, arrange_lanes, NULL, bf16_rows, bf16_transposed}
#define f16_ops {LANES, 16, 0, 0, arrange_lanes, NULL, f16_rows, f16_transposed}
#define f32_ops {LANES, 32, 0, 0, arrange_lanes, NULL, f32_rows, f32_transposed}
#define fp8_ops {128, 8, 4, 1, arrange_blocks, NULL, fp8_rows, fp8_transposed}
#define fp8_small_ops {LANES, 8, 4, 1, arrange_lanes, NULL, fp8_small_rows, fp8_small_transposed}
#define q8_ops {128, 8, 2, 0, arrange_blocks, NULL, q8_rows, q8_transposed}
#define q8_g32_ops {LANES, 8, 2, 0, arrange_lanes, NULL, q8_g32_rows, q8_g32_transposed}
#define mxfp4_ops {128, 4, 1, 0, arrange_nibbles, mxfp4_integers, mxfp4_rows, mxfp4_transposed}
#define q4_ops {128, 4, 2, 0, arrange_nibbles, q4_integers, q4_rows, q4_transposed}
#define q4_g32_ops {128, 4, 2, 0, arrange_nibbles, q4_g32_integers, q4_g32_rows, q4_g32_transposed}

const struct simd_ops OPS = {
#define ENTRY(name, functions) functions##_ops,
    .formats = {KERNELS_FORMATS(ENTRY)},
    .pack_tokens = pack_tokens,
    .rms_norm_row = rms_norm_row,
    .gated = gated,
    .attention_heads = attention_heads,
    .sigmoid = sigmoid,
    .softmax_row = softmax_row,
    .l2_norm_row = l2_norm_row,
    .forget_gate_row = forget_gate_row,
    .attention_residual_token = attention_residual_token,
    .causal_conv_lanes = causal_conv_lanes,
    .delta_head = delta_head,
    .vq_table = vq_table,
    .vq_look_up = vq_look_up,
    .vq_search = vq_search,
};
