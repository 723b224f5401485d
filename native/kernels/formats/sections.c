/* Four bits of quantised safetensors checkpoints, with scales, zero points and biases in sections of their own. */
#include "level.h"

#include "quantise_template.h"
#include "decode_template.h"
#include "tile_template.h"
#include "dot_template.h"

#include "bytes_dot.h"
#include "bytes_sections.h"

#define FORMAT q4_f16
#define FORMAT_COLS 128
#define FORMAT_BYTES 64
#define FORMAT_RUN 1
#define FORMAT_ZERO 8
#define FORMAT_WIDE 0
#define FORMAT_BIASED 0
#define FORMAT_SECTIONS
#include "bytes_template.h"

#define FORMAT q4_bf16
#define FORMAT_COLS 128
#define FORMAT_BYTES 64
#define FORMAT_RUN 1
#define FORMAT_ZERO 8
#define FORMAT_WIDE 0
#define FORMAT_BIASED 0
#define FORMAT_SECTIONS
#include "bytes_template.h"

#define FORMAT q4_f16_zeros
#define FORMAT_COLS 128
#define FORMAT_BYTES 64
#define FORMAT_RUN 1
#define FORMAT_ZERO 15
#define FORMAT_WIDE 0
#define FORMAT_BIASED 0
#define FORMAT_SECTIONS
#include "bytes_template.h"

#define FORMAT q4_bf16_zeros
#define FORMAT_COLS 128
#define FORMAT_BYTES 64
#define FORMAT_RUN 1
#define FORMAT_ZERO 15
#define FORMAT_WIDE 0
#define FORMAT_BIASED 0
#define FORMAT_SECTIONS
#include "bytes_template.h"

#define FORMAT q4_f16_biases
#define FORMAT_COLS 128
#define FORMAT_BYTES 64
#define FORMAT_RUN 1
#define FORMAT_ZERO 0
#define FORMAT_WIDE 0
#define FORMAT_BIASED 1
#define FORMAT_SECTIONS
#include "bytes_template.h"

#define FORMAT q4_bf16_biases
#define FORMAT_COLS 128
#define FORMAT_BYTES 64
#define FORMAT_RUN 1
#define FORMAT_ZERO 0
#define FORMAT_WIDE 0
#define FORMAT_BIASED 1
#define FORMAT_SECTIONS
#include "bytes_template.h"

#define FORMAT nvfp4_times
#define FORMAT_COLS 128
#define FORMAT_BYTES 64
#define FORMAT_RUN 1
#define FORMAT_ZERO 12
#define FORMAT_WIDE 0
#define FORMAT_BIASED 0
#define FORMAT_SECTIONS
#include "bytes_template.h"

#define FORMAT nvfp4_over
#define FORMAT_COLS 128
#define FORMAT_BYTES 64
#define FORMAT_RUN 1
#define FORMAT_ZERO 12
#define FORMAT_WIDE 0
#define FORMAT_BIASED 0
#define FORMAT_SECTIONS
#include "bytes_template.h"

#define OPS(name, functions)                         \
    const struct format_ops FORMAT_OPS(name) = {     \
        .block = 128,                                \
        .row_block = 2,                              \
        .row_bytes = 1,                              \
        .scale_bytes = 2,                            \
        .arrange = arrange_blocks,                   \
        .integers = functions##_integers,            \
        .rows = functions##_rows,                    \
        .transposed = functions##_transposed,        \
    }

OPS(q4_g64_f16, q4_f16);
OPS(q4_g32_bf16, q4_bf16);
OPS(q4_g64_bf16, q4_bf16);
OPS(q4_g128_bf16, q4_bf16);
OPS(q4_g32_f16_zeros, q4_f16_zeros);
OPS(q4_g32_f16_zeros_order, q4_f16_zeros);
OPS(q4_g64_f16_zeros, q4_f16_zeros);
OPS(q4_g64_f16_zeros_order, q4_f16_zeros);
OPS(q4_g128_f16_zeros, q4_f16_zeros);
OPS(q4_g128_f16_zeros_order, q4_f16_zeros);
OPS(q4_g32_bf16_zeros, q4_bf16_zeros);
OPS(q4_g32_bf16_zeros_order, q4_bf16_zeros);
OPS(q4_g64_bf16_zeros, q4_bf16_zeros);
OPS(q4_g64_bf16_zeros_order, q4_bf16_zeros);
OPS(q4_g128_bf16_zeros, q4_bf16_zeros);
OPS(q4_g128_bf16_zeros_order, q4_bf16_zeros);
OPS(q4_g32_f16_biases, q4_f16_biases);
OPS(q4_g64_f16_biases, q4_f16_biases);
OPS(q4_g128_f16_biases, q4_f16_biases);
OPS(q4_g32_bf16_biases, q4_bf16_biases);
OPS(q4_g64_bf16_biases, q4_bf16_biases);
OPS(q4_g128_bf16_biases, q4_bf16_biases);
OPS(nvfp4_times, nvfp4_times);
OPS(nvfp4_over, nvfp4_over);
