import math

import k_quants
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from uringinfer.kernels.formats import ENCODED, decode, encode
from uringinfer.packing.conversion import Squares
from uringinfer.packing.error_report import TYPICAL_ERRORS, coming_notes, summarise_errors


def part(tensor, error, norm, *, kind="up", origin="bf16", form="q4"):
    return Squares(tensor, kind, origin, form, error, norm)


def test_the_panels_of_a_tensor_count_as_one_and_kinds_are_kept_apart():
    parts = [part("a", 1, 100), part("b", 16, 100), part("a", 3, 300), part("c", 4, 4, kind="down")]
    up, down = summarise_errors(parts)
    assert (up.kind, up.tensors, up.worst, up.worst_tensor) == ("up", 2, 0.4, "b")
    assert up.mean == pytest.approx((math.sqrt(4 / 400) + 0.4) / 2, abs=1e-6)
    assert (down.kind, down.mean, down.worst_tensor) == ("down", 1.0, "c")


def test_the_same_kind_in_two_formats_has_two_lines():
    assert len(summarise_errors([part("a", 1, 1), part("b", 1, 1, form="q8")])) == 2


def test_the_order_in_which_panels_were_converted_does_not_show():
    rng = np.random.default_rng(0)
    parts = [part("a", *rng.uniform(0, 1, 2) ** 9) for _ in range(200)]
    assert summarise_errors(parts) == summarise_errors(parts[::-1])


def test_a_tensor_of_zeros_has_no_error():
    (error,) = summarise_errors([part("a", 0, 0)])
    assert (error.mean, error.worst) == (0, 0)


@pytest.mark.parametrize("name", TYPICAL_ERRORS)
def test_what_is_said_to_be_typical_is_the_error_on_gaussian_weights(name):
    weights = np.random.default_rng(0).standard_normal((512, 1024)).astype(np.float32)
    if name in ENCODED:
        worth = decode(encode(name, weights))
    else:
        kind = GGMLQuantizationType[name.removeprefix("ggml_").upper()]
        packed = k_quants.quantise(weights.reshape(-1), kind) if "_k" in name else quantize(weights, kind)
        worth = dequantize(packed, kind).reshape(weights.shape)
    error = np.linalg.norm(worth - weights) / np.linalg.norm(weights)
    assert error == pytest.approx(TYPICAL_ERRORS[name], rel=0.02)


def test_what_a_type_without_an_entry_lost_is_said_to_be_unknown():
    (note,) = coming_notes({("q2_k", "q8"): 3})
    assert note == "would be quantised twice: 3 of q2_k (how far off is not known), as q8"
