/* Everything of one SIMD level but the formats. */
#include "level.h"

#include "quantise_template.h"
#include "tile_template.h"
#include "math_template.h"
#include "pointwise_template.h"
#include "attention_template.h"
#include "gates_template.h"
#include "recurrent_template.h"
#include "vq_template.h"

#define DECLARE(name) extern const struct format_ops FORMAT_OPS(name);
KERNELS_FORMATS(DECLARE)

#define ENTRY(name) &FORMAT_OPS(name),
const struct simd_ops AT_LEVEL(simd) = {
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
