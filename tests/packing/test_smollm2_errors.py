"""The errors of the formats on a real model's weights, as docs/formats.md states them."""

import os

import gguf
import numpy as np
import pytest

from uringinfer.kernels.formats import decode, encode
from uringinfer.packing.packer import pack

pytestmark = pytest.mark.slow

BOUNDS = {"q8": 0.01, "q8_g32": 0.007, "fp8": 0.028, "q4_g32": 0.11, "q4": 0.14, "mxfp4": 0.13}
LEARNED = {"vq3": 0.205}
"""Of formats that learn a codebook from each matrix, which for all 210 of them takes minutes."""
WORST = {
    "vq3": {
        "attn_q": 19,
        "attn_k": 28,
        "attn_v": 20,
        "attn_output": 11,
        "ffn_gate": 27,
        "ffn_up": 20,
        "ffn_down": 15,
    },
}
"""The layer whose matrix of each kind loses most."""


@pytest.fixture(scope="module")
def smollm2():
    path = os.environ.get("URINGINFER_SMOLLM2")
    if path is None:
        pytest.skip("needs URINGINFER_SMOLLM2, the path of the GGUF file; scripts/test.sh --all sets it")
    return path


@pytest.mark.parametrize("name", BOUNDS)
def test_no_matrix_of_smollm2_loses_more_than_is_documented(smollm2, tmp_path, name):
    report = pack(smollm2, tmp_path / "m.uring", trunk=name)
    matrices = [error for error in report.errors if error.format == name]
    assert sum(error.tensors for error in matrices) >= 210
    assert max(error.worst for error in matrices) <= BOUNDS[name]


@pytest.mark.parametrize("name", LEARNED)
def test_the_worst_matrices_of_smollm2_lose_no_more_to_codebooks_than_is_documented(smollm2, name):
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(smollm2).tensors}
    for kind, layer in WORST[name].items():
        tensor = tensors[f"blk.{layer}.{kind}.weight"]
        matrix = gguf.dequantize(tensor.data, tensor.tensor_type)
        lost = np.linalg.norm(decode(encode(name, matrix)) - matrix)
        assert lost <= LEARNED[name] * np.linalg.norm(matrix)
