/* The inner parts for any processor. */
#include "lanes_portable.h"
#define OPS simd_portable
#include "ops_template.h"
