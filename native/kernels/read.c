/* The yardstick: how fast memory can be read at all. */
#include <stdint.h>

#include "simd.h"

typedef uint64_t words __attribute__((vector_size(64), aligned(1), may_alias));

unsigned long kernels_read(int threads, long nbytes, const void *data)
{
    enum { TURN = 1 << 20, STEP = 4 * sizeof(words) };
    const unsigned char *const bytes = data;
    uint64_t total = 0;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) reduction(+ : total)
    for (long start = 0; start < nbytes; start += TURN) {
        const long end = start + TURN < nbytes ? start + TURN : nbytes;
        words a = {0}, b = {0}, c = {0}, d = {0};
        for (long i = start; i + (long)STEP <= end; i += STEP) {
            const words *const at = (const words *)(bytes + i);
            a += at[0];
            b += at[1];
            c += at[2];
            d += at[3];
        }
        a += b + c + d;
        for (int k = 0; k < 8; k++)
            total += a[k];
    }
    return total;
}
