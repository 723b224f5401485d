"""Random blocks of ggml's types whose scales are ordinary numbers, so that products can be compared."""

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from uringinfer.kernels.formats import FORMATS, Weight
from uringinfer.kernels.ggml_formats import FORMAT_OF_TYPE

TYPE_OF_FORMAT = {form: kind for kind, form in FORMAT_OF_TYPE.items()}
HALVES = {
    **dict.fromkeys(("q4_0", "q5_0", "q8_0"), (0,)),
    **dict.fromkeys(("q4_1", "q5_1", "q4_k", "q5_k"), (0, 2)),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q6_k": (208,),
    "ggml_mxfp4": (),
}
"""Where half floats lie in a block."""


def random_weight(name: str, rows: int, cols: int, seed: int = 0) -> Weight:
    """Any bytes, but for half floats of about 2^-8 of either sign, and exponents of powers near that."""
    rng = np.random.default_rng(seed)
    block, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[TYPE_OF_FORMAT[name]]]
    blocks = rng.integers(0, 256, (rows * -(-cols // block), nbytes), np.uint8)
    for place in HALVES[name]:
        halves = rng.normal(0, 2**-8, len(blocks)).astype(np.float16)
        blocks[:, place : place + 2] = halves.view(np.uint8).reshape(-1, 2)
    if name == "ggml_mxfp4":
        blocks[:, 0] = rng.integers(115, 125, len(blocks))
    return Weight(FORMATS[name], rows, cols, blocks.reshape(-1))
