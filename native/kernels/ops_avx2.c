/* The inner parts for AVX2 with FMA and F16C; the processor is asked at run time. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#include "lanes_avx2.h"
#define OPS simd_avx2
#include "ops_template.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int nothing_here; /* ISO C wants at least one declaration */
#endif
