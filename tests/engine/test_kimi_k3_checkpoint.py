"""A tiny Kimi K3 checkpoint that this repository did not make: packed, its logits and its greedy tokens.

tests/data/kimi_k3_tiny holds random weights in the released layout, written by an independent maker; its
reference.npz, in float64, comes from an independent implementation of the architecture.
"""

from pathlib import Path

import numpy as np
import pytest
from greedy_logits import load_for_logits

from uringinfer.engine.generation import GenerationOptions
from uringinfer.engine.opening import open_model
from uringinfer.packing.packer import pack

CHECKPOINT = Path(__file__).parents[1] / "data" / "kimi_k3_tiny"


@pytest.fixture(scope="module")
def reference():
    with np.load(CHECKPOINT / "reference.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    path = tmp_path_factory.mktemp("k3") / "k3.uring"
    pack(CHECKPOINT, path, segment=32768)
    return path


@pytest.fixture(params=["native", "numpy"])
def engine(request, container):
    opened = open_model(container, native=None if request.param == "native" else False)
    if opened.kernels.name != request.param:
        pytest.skip(f"needs the native kernels: {'; '.join(opened.kernels.notes)}")
    with load_for_logits(opened) as engine:
        yield engine


def test_logits_of_prompt_and_greedy_tokens_are_those_of_the_reference(engine, reference):
    session = engine.session()
    rows = session.feed(reference["ids"].tolist(), all_logits=True)
    steps = [session.step(int(token)) for token in reference["greedy"][:-1]]
    for got, expected in (
        (rows, reference["logits"]),
        (np.stack([rows[-1], *steps]), reference["greedy_logits"]),
    ):
        assert np.abs(got - expected).max() < 1e-5 * np.abs(expected).max()


def test_generating_greedily_gives_the_tokens_of_the_reference(engine, reference):
    greedy = reference["greedy"].tolist()
    options = GenerationOptions(max_tokens=len(greedy), ignore_eos=True)
    assert engine.generate(reference["ids"].tolist(), options).tokens == greedy
