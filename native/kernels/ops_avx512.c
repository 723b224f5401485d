/* The inner parts for AVX-512 (F, BW, VL, DQ, VNNI); the processor is asked at run time. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")
#endif
#include "lanes_avx512.h"
#define OPS simd_avx512
#include "ops_template.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int nothing_here; /* ISO C wants at least one declaration */
#endif
