/* Products: padding of the activations, and rows split over threads. */
#include <errno.h>

#include "product.h"

int kernels_matmul(int simd, int threads, int format, int group, long rows, long cols, const void *codes,
                   const void *scales, long tokens, const float *x, float *out, long out_stride)
{
    const struct simd_ops *const ops = simd_ops(simd);
    const struct format_ops *const form = &ops->formats[format];
    const long padded = padded_cols(form, cols);
    const int team = rows * cols * tokens < SMALL_PRODUCT ? 1 : threads;
    const int arranging = padded != cols || form->arranged, packing = tokens > ops->strip_tokens;
    const long turn = rows_per_turn(rows, team), turns = (rows + turn - 1) / turn;
    const long arranged_floats = arranging ? tokens * padded : 0, packed_floats = packing ? tokens * padded : 0;
    const long each = packing ? PRODUCT_SCRATCH : 0;
    float *const arranged = new_floats(arranged_floats + packed_floats + team * each);
    if (!arranged)
        return -ENOMEM;
    float *const packed = arranged + arranged_floats, *const scratch = packed + packed_floats;
    struct product p = new_product(form, cols, group, codes, scales, tokens);
    p.x = arranging ? arranged : x;
    p.x_stride = padded;
    p.packed = packed;
    p.out = out;
    p.out_stride = out_stride;
    for (long t = 0; arranging && t < tokens; t++)
        form->arrange(cols, x + t * cols, arranged + t * padded);
    if (packing)
        pack_chunks(ops, tokens, padded, p.x, packed);
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
    for (long i = 0; i < turns; i++)
        form->rows(&p, i * turn, i * turn + turn < rows ? i * turn + turn : rows,
                   scratch + omp_get_thread_num() * each);
    free(arranged);
    return 0;
}
