"""Tiny random checkpoints in numpy: the same seed, name and shape give the same tensor everywhere."""

import zlib

import numpy as np

from uringinfer.kernels.formats import decode, encode


def tensor(seed, name, shape, tied):
    """Matrices of unit gain, norms near one, biases near zero; every value is exact in bf16."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    values = rng.standard_normal(shape, dtype=np.float32)
    if len(shape) == 1:
        values *= np.float32(0.1)
        values += np.float32(0.0 if name.endswith(("bias", "sinks")) else 1.0)
    elif "embed" in name:
        values *= np.float32(0.1 if tied else 1.0)
    else:
        gain = 4.0 if "lm_head" in name else 1.0
        values *= np.float32(gain * shape[-1] ** -0.5)
    return decode(encode("bf16", values.reshape(-1, shape[-1]))).reshape(shape)


def checkpoint(seed, shapes, tied):
    """Every tensor of `shapes` (name -> shape) as float32, by name."""
    return {name: tensor(seed, name, tuple(shape), tied) for name, shape in shapes.items()}
