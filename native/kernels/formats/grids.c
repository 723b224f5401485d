/* ggml's IQ1, IQ2 and IQ3: indices of grids of eight or four magnitudes. */
#include "level.h"

#include "quantise_template.h"
#include "decode_template.h"
#include "tile_template.h"
#include "dot_template.h"

#include "bytes_dot.h"
#include "grid_bytes.h"
#ifdef LOOK_UP_WORDS
#include "grid_vectors.h"
#endif

#define FORMAT iq1_s
#define FORMAT_COLS 256
#define FORMAT_BYTES 50
#define FORMAT_RUN 8
#define FORMAT_ZERO 9
#define FORMAT_WIDE 0
#define FORMAT_BIASED 0
#ifdef LOOK_UP_WORDS
#define FORMAT_BLOCKS
#else
#define FORMAT_COPIED
#endif
#include "bytes_template.h"

#define FORMAT iq1_m
#define FORMAT_COLS 256
#define FORMAT_BYTES 56
#define FORMAT_RUN 8
#define FORMAT_ZERO 9
#define FORMAT_WIDE 0
#define FORMAT_BIASED 0
#ifdef LOOK_UP_WORDS
#define FORMAT_BLOCKS
#else
#define FORMAT_COPIED
#endif
#include "bytes_template.h"

#define FORMAT iq2_xxs
#define FORMAT_COLS 256
#define FORMAT_BYTES 66
#define FORMAT_RUN 8
#define FORMAT_ZERO 43
#define FORMAT_WIDE 1
#define FORMAT_BIASED 0
#ifdef LOOK_UP_WORDS
#define FORMAT_BLOCKS
#else
#define FORMAT_COPIED
#endif
#include "bytes_template.h"

#define FORMAT iq2_xs
#define FORMAT_COLS 256
#define FORMAT_BYTES 74
#define FORMAT_RUN 8
#define FORMAT_ZERO 43
#define FORMAT_WIDE 1
#define FORMAT_BIASED 0
#ifdef LOOK_UP_WORDS
#define FORMAT_BLOCKS
#else
#define FORMAT_COPIED
#endif
#include "bytes_template.h"

#define FORMAT iq2_s
#define FORMAT_COLS 256
#define FORMAT_BYTES 82
#define FORMAT_RUN 8
#define FORMAT_ZERO 43
#define FORMAT_WIDE 1
#define FORMAT_BIASED 0
#ifdef LOOK_UP_WORDS
#define FORMAT_BLOCKS
#else
#define FORMAT_COPIED
#endif
#include "bytes_template.h"

#define FORMAT iq3_xxs
#define FORMAT_COLS 256
#define FORMAT_BYTES 98
#define FORMAT_RUN 8
#define FORMAT_ZERO 62
#define FORMAT_WIDE 1
#define FORMAT_BIASED 0
#ifdef LOOK_UP_WORDS
#define FORMAT_BLOCKS
#else
#define FORMAT_COPIED
#endif
#include "bytes_template.h"

#define FORMAT iq3_s
#define FORMAT_COLS 256
#define FORMAT_BYTES 110
#define FORMAT_RUN 8
#define FORMAT_ZERO 15
#define FORMAT_WIDE 0
#define FORMAT_BIASED 0
#ifdef LOOK_UP_WORDS
#define FORMAT_BLOCKS
#else
#define FORMAT_COPIED
#endif
#include "bytes_template.h"

#ifdef LEVEL_AVX512
/* Processors that have byte permutations (VBMI) take the rows of that level. */
#define ROWS(name)                                                                                     \
    extern const struct format_ops name##_ops_avx512_vbmi;                                             \
    static void name##_best(const struct product *p, long first, long last, float *scratch)            \
    {                                                                                                  \
        if (__builtin_cpu_supports("avx512vbmi"))                                                      \
            name##_ops_avx512_vbmi.rows(p, first, last, scratch);                                      \
        else                                                                                           \
            name##_rows(p, first, last, scratch);                                                      \
    }
#define ROWS_OF(name) name##_best
#else
#define ROWS(name)
#define ROWS_OF(name) name##_rows
#endif

#define OPS(name, cols, bytes)                   \
    ROWS(name)                                   \
    const struct format_ops FORMAT_OPS(name) = { \
        .block = 128,                            \
        .row_block = cols,                       \
        .row_bytes = bytes,                      \
        .arrange = arrange_blocks,               \
        .integers = name##_integers,             \
        .rows = ROWS_OF(name),                   \
        .transposed = name##_transposed,         \
    }

OPS(iq1_s, 256, 50);
OPS(iq1_m, 256, 56);
OPS(iq2_xxs, 256, 66);
OPS(iq2_xs, 256, 74);
OPS(iq2_s, 256, 82);
OPS(iq3_xxs, 256, 98);
OPS(iq3_s, 256, 110);
