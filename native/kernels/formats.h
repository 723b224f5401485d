/* The weight formats that there are products with, each in a file of formats/. Their numbers are their places here;
 * Python asks for them by name. */
#define KERNELS_FORMATS(X) \
    X(bf16)                \
    X(f16)                 \
    X(f32)                 \
    X(fp8)                 \
    X(fp8_b64)             \
    X(fp8_b32)             \
    X(fp8_b16)             \
    X(q8)                  \
    X(q8_g32)              \
    X(mxfp4)               \
    X(q4)                  \
    X(q4_g32)              \
    X(iq1_s)               \
    X(iq1_m)               \
    X(iq2_xxs)             \
    X(iq2_xs)              \
    X(iq2_s)               \
    X(iq3_xxs)             \
    X(iq3_s)               \
    X(iq4_nl)              \
    X(iq4_xs)              \
    X(nvfp4)               \
    X(tq1_0)               \
    X(tq2_0)               \
    X(q4_g64_f16)          \
    X(q4_g32_bf16)         \
    X(q4_g64_bf16)         \
    X(q4_g128_bf16)        \
    X(q4_g32_f16_zeros)    \
    X(q4_g64_f16_zeros)    \
    X(q4_g128_f16_zeros)   \
    X(q4_g32_bf16_zeros)   \
    X(q4_g64_bf16_zeros)   \
    X(q4_g128_bf16_zeros)  \
    X(q4_g32_f16_biases)   \
    X(q4_g64_f16_biases)   \
    X(q4_g128_f16_biases)  \
    X(q4_g32_bf16_biases)  \
    X(q4_g64_bf16_biases)  \
    X(q4_g128_bf16_biases) \
    X(nvfp4_times)         \
    X(nvfp4_over)          \
    X(fp8_row)
