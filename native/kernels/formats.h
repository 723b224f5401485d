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
    X(q4_g32)
