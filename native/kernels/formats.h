/* The weight formats that there are products with: X(name, functions of ops_template.h). Their numbers are their
 * places here; Python asks for them by name. */
#define KERNELS_FORMATS(X)    \
    X(bf16, bf16)             \
    X(f16, f16)               \
    X(f32, f32)               \
    X(fp8, fp8)               \
    X(fp8_b64, fp8_small)     \
    X(fp8_b32, fp8_small)     \
    X(fp8_b16, fp8_small)     \
    X(q8, q8)                 \
    X(q8_g32, q8_g32)         \
    X(mxfp4, mxfp4)           \
    X(q4, q4)                 \
    X(q4_g32, q4_g32)
