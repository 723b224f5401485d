/* ggml's IQ4, NVFP4 and TQ: nibbles that are looked up, and digits of three. */
#include "level.h"

#include "quantise_template.h"
#include "decode_template.h"
#include "tile_template.h"
#include "dot_template.h"

#include "bytes_dot.h"
#include "table_bytes.h"
#ifdef LOOK_UP_WORDS
#include "table_vectors.h"
#endif

#define FORMAT iq4_nl
#define FORMAT_COLS 32
#define FORMAT_BYTES 18
#define FORMAT_RUN 16
#define FORMAT_ZERO 127
#define FORMAT_WIDE 1
#define FORMAT_BIASED 0
#ifdef LOOK_UP_WORDS
#define FORMAT_VECTORS
#else
#define FORMAT_COPIED
#endif
#include "bytes_template.h"

#define FORMAT iq4_xs
#define FORMAT_COLS 256
#define FORMAT_BYTES 136
#define FORMAT_RUN 16
#define FORMAT_ZERO 127
#define FORMAT_WIDE 1
#define FORMAT_BIASED 0
#ifdef LOOK_UP_WORDS
#define FORMAT_BLOCKS
#else
#define FORMAT_COPIED
#endif
#include "bytes_template.h"

#define FORMAT nvfp4
#define FORMAT_COLS 64
#define FORMAT_BYTES 36
#define FORMAT_RUN 8
#define FORMAT_ZERO 12
#define FORMAT_WIDE 0
#define FORMAT_BIASED 0
#ifdef LOOK_UP_WORDS
#define FORMAT_VECTORS
#else
#define FORMAT_COPIED
#endif
#include "bytes_template.h"

#define FORMAT tq1_0
#define FORMAT_COLS 256
#define FORMAT_BYTES 54
#define FORMAT_RUN 64
#define FORMAT_ZERO 1
#define FORMAT_WIDE 0
#define FORMAT_BIASED 0
#ifdef LOOK_UP_WORDS
#define FORMAT_BLOCKS
#else
#define FORMAT_COPIED
#endif
#include "bytes_template.h"

#define FORMAT tq2_0
#define FORMAT_COLS 256
#define FORMAT_BYTES 66
#define FORMAT_RUN 64
#define FORMAT_ZERO 1
#define FORMAT_WIDE 0
#define FORMAT_BIASED 0
#ifdef LOOK_UP_WORDS
#define FORMAT_BLOCKS
#else
#define FORMAT_COPIED
#endif
#include "bytes_template.h"

#define OPS(name, cols, bytes)                       \
    const struct format_ops FORMAT_OPS(name) = {     \
        .block = 128,                                \
        .row_block = cols,                           \
        .row_bytes = bytes,                          \
        .arrange = arrange_blocks,                   \
        .integers = name##_integers,                 \
        .rows = name##_rows,                         \
        .transposed = name##_transposed,             \
    }

OPS(iq4_nl, 32, 18);
OPS(iq4_xs, 256, 136);
OPS(nvfp4, 64, 36);
OPS(tq1_0, 256, 54);
OPS(tq2_0, 256, 66);
