/* One SIMD level. The build compiles ops.c and every file in formats/ once for each, with LEVEL its name and the flags
 * that allow its instructions; the processor is asked at run time. */
#ifndef URINGINFER_LEVEL_H
#define URINGINFER_LEVEL_H

#include <stddef.h>

#include "simd.h"

#if defined(LEVEL_AVX512_VBMI)
#define LOOK_UP_BYTES /* grid_vectors.h */
#endif
#if defined(LEVEL_AVX512) || defined(LEVEL_AVX512_VBMI)
#include "lanes_avx512.h"
#elif defined(LEVEL_AVX2)
#include "lanes_avx2.h"
#else
#include "lanes_portable.h"
#endif

/* For functions of headers that not every file needs. */
#define SHARED static __attribute__((unused))

#endif
