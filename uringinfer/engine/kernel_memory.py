"""The memory that kernels take beside what they are given: codebooks, and what a call needs while it runs."""

from __future__ import annotations

from uringinfer.container.codebooks import codebook_memory
from uringinfer.container.manifest import Bank, Manifest
from uringinfer.kernels import Kernels
from uringinfer.models.base import Model
from uringinfer.residency.experts import FEW_TOKENS


def kernel_bytes(manifest: Manifest, model: Model, kernels: Kernels, chunk: int, arrays: int) -> int:
    """Bytes of all codebooks, and of the one call in a pass of `chunk` tokens that takes the most; `arrays`
    is what the pass' own arrays take.

    Products announce what they take by format and shape (`Kernels.product_bytes`), so a new format is counted
    here without being named.
    """
    by_heads = {
        spec.name
        for group in model.trunk()
        for spec in group.tensors
        if spec.whole and not spec.exact  # a router is whole too, and multiplied as any matrix
    }
    products = [
        kernels.product_bytes(part.format, part.rows, part.cols, chunk, by_heads=part.name in by_heads)
        for segment in manifest.segments
        if segment.streamed
        for part in segment.parts
        if len(part.shape) > 1
    ]
    products += [_bank_bytes(bank, kernels, chunk, model.experts_per_token) for bank in manifest.banks]
    return codebook_memory(manifest) + max([*products, kernels.function_bytes(arrays)])


def _bank_bytes(bank: Bank, kernels: Kernels, chunk: int, per_token: int) -> int:
    """Of one expert that all tokens of a chunk chose, or of all that a few tokens chose."""
    matrices = [part for part in bank.parts if len(part.shape) > 1]

    def all_products(tokens: int) -> int:
        return sum(kernels.product_bytes(part.format, part.rows, part.cols, tokens) for part in matrices)

    if any(part.format.bind is not None for part in matrices):
        return all_products(chunk)  # with a codebook, one network goes after the other
    return max(all_products(chunk), min(chunk, FEW_TOKENS) * per_token * all_products(1))
