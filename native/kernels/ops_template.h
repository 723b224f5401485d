/* Everything of one SIMD level; a lanes_*.h must have been included, and OPS be the table's name. */
#include "simd.h"

#include "decode_floats.h"
#include "tile_template.h"

#define FORMAT bf16
#define FORMAT_BLOCK LANES
#include "product_template.h"
#define FORMAT f16
#define FORMAT_BLOCK LANES
#include "product_template.h"
#define FORMAT f32
#define FORMAT_BLOCK LANES
#include "product_template.h"

#include "math_template.h"
#include "pointwise_template.h"
#include "attention_template.h"
#include "gates_template.h"
#include "recurrent_template.h"

const struct simd_ops OPS = {
    .formats = {
        [KERNELS_BF16] = {LANES, 0, arrange_plain, bf16_rows, bf16_transposed},
        [KERNELS_F16] = {LANES, 0, arrange_plain, f16_rows, f16_transposed},
        [KERNELS_F32] = {LANES, 0, arrange_plain, f32_rows, f32_transposed},
    },
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
};
