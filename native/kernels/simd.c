/* Which SIMD levels this processor has, and the functions of each. */
#include <string.h>

#include "simd.h"

int kernels_format(const char *name)
{
#define NAME(name) #name,
    static const char *const names[] = {KERNELS_FORMATS(NAME)};
#undef NAME
    for (int number = 0; number < FORMATS; number++)
        if (!strcmp(names[number], name))
            return number;
    return -1;
}

int kernels_simd_supported(int simd)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (simd == KERNELS_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("bmi2");
    if (simd == KERNELS_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("f16c");
#endif
    return simd == KERNELS_PORTABLE;
}

const struct simd_ops *simd_ops(int simd)
{
#if defined(__x86_64__)
    if (simd == KERNELS_AVX512)
        return &simd_avx512;
    if (simd == KERNELS_AVX2)
        return &simd_avx2;
#endif
    (void)simd;
    return &simd_portable;
}
