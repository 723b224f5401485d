"""Plain quantisers of GGUF's K layouts: super-blocks of 256 weights, whose groups have whole scales.

Nearest values alone, without the search for better scales that published quantisers make. The gguf package
reads these types and cannot write them.
"""

import numpy as np
from gguf.constants import GGMLQuantizationType as Kind


def quantise(values, kind):
    """Float32 [n], n a multiple of 256 -> uint8 [n / 256, bytes], blocks of `kind` as gguf has them."""
    if kind == Kind.Q6_K:
        return _q6_k(values.reshape(-1, 16, 16))
    return _with_minima(values.reshape(-1, 8, 32), bits=4 if kind == Kind.Q4_K else 5)


def _with_minima(groups, bits):
    """Q4_K and Q5_K: eight groups of 32; a weight is scale * code - minimum."""
    low = np.minimum(groups.min(axis=2), 0)
    step = (groups.max(axis=2) - low) / (2**bits - 1)
    d, scales = _whole(step, 63)
    d_low, minima = _whole(-low, 63)
    worth = np.float32(d) * scales
    codes = np.rint((groups + (np.float32(d_low) * minima)[..., None]) / worth[..., None])
    codes = codes.clip(0, 2**bits - 1).astype(np.uint8)
    first, last = np.s_[:, :4], np.s_[:, 4:]
    packed = [
        scales[first] | scales[last] >> 4 << 6,
        minima[first] | minima[last] >> 4 << 6,
        scales[last] & 15 | (minima[last] & 15) << 4,
    ]
    fifth = [(codes >> 4 << np.arange(8, dtype=np.uint8)[:, None]).sum(axis=1, dtype=np.uint8)]
    nibbles = codes[:, 0::2] & 15 | (codes[:, 1::2] & 15) << 4
    parts = [d.view(np.uint8), d_low.view(np.uint8), *packed, *(fifth if bits == 5 else [])]
    return np.concatenate([*parts, nibbles.reshape(len(codes), -1)], axis=1)


def _q6_k(groups):
    """Sixteen groups of 16; a weight is scale * (code - 32)."""
    d, scales = _whole(np.abs(groups).max(axis=2) / 31, 127)
    codes = np.rint(groups / (np.float32(d) * scales)[..., None]).clip(-32, 31) + 32
    codes = codes.astype(np.uint8).reshape(-1, 2, 4, 32)  # of each half, four runs of 32
    nibbles = codes[:, :, :2] & 15 | (codes[:, :, 2:] & 15) << 4
    pairs = codes >> 4 << np.array([0, 2, 4, 6], np.uint8)[:, None]
    parts = [nibbles, pairs.sum(axis=2, dtype=np.uint8), scales, d.view(np.uint8)]
    return np.concatenate([part.reshape(len(codes), -1) for part in parts], axis=1)


def _whole(scales, most):
    """Positive scales [n, groups] -> a float16 [n, 1] and uint8 [n, groups] of 1 to `most` that make them."""
    d = (scales.max(axis=1, keepdims=True) / most).astype(np.float16)
    return d, np.rint(scales / np.float32(d)).clip(1, most).astype(np.uint8)
