"""The errors of the formats on a real model's weights, as docs/formats.md states them."""

import os

import pytest

from uringinfer.packing.packer import pack

pytestmark = pytest.mark.slow

BOUNDS = {
    "q8": 0.01,
    "q8_g32": 0.007,
    "fp8": 0.028,
    "q4_g32": 0.11,
    "q4": 0.14,
    "mxfp4": 0.13,
    "vq3": 0.205,
    "vq2": 0.34,
}
LAYERS = {"vq3": (11, 15), "vq2": (26, 29)}
"""Around the worst matrix of all 210: learning a codebook for each takes minutes."""


@pytest.mark.parametrize("name", BOUNDS)
def test_no_matrix_of_smollm2_loses_more_than_is_documented(tmp_path, name):
    path = os.environ.get("URINGINFER_SMOLLM2")
    if path is None:
        pytest.skip("needs URINGINFER_SMOLLM2, the path of the GGUF file; scripts/test.sh --all sets it")
    first, last = LAYERS.get(name, (0, 29))
    report = pack(path, tmp_path / "m.uring", trunk=name, layers=(first, last))
    matrices = [error for error in report.errors if error.format == name]
    assert sum(error.tensors for error in matrices) == 7 * (last + 1 - first)
    assert max(error.worst for error in matrices) <= BOUNDS[name]
