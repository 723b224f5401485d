"""Every family against the logits of transformers on the same weights (scripts/make_golden.py)."""

import numpy as np
import pytest
from golden_cases import CASES
from golden_files import TOLERANCE, continue_greedily, feed, load

from uringinfer.kernels import open_kernels
from uringinfer.models.base import Span


@pytest.mark.parametrize("chunk", [None, 7, 1], ids=lambda chunk: f"chunk_{chunk or 'all'}")
def test_logits_agree_with_the_oracle(golden, kernels, chunk):
    logits = feed(golden.model(), golden.weights(kernels), golden.ids, chunk)
    assert golden.error(logits) < TOLERANCE


def test_numpy_kernels_agree_with_the_oracle(golden):
    logits = feed(golden.model(), golden.weights(open_kernels(native=False)), golden.ids)
    assert golden.error(logits) < TOLERANCE


def test_every_token_takes_the_experts_that_the_oracle_chose(golden, kernels):
    weights = golden.weights(kernels)
    feed(golden.model(), weights, golden.ids)
    assert golden.experts_agree(weights.experts.demanded)


def test_the_greedy_continuation_is_the_oracles(golden, kernels):
    chosen = continue_greedily(golden.model(), golden.weights(kernels), golden.ids, len(golden.greedy))
    assert chosen == golden.greedy.tolist()


def test_every_tensor_of_the_checkpoint_is_declared_or_known_to_be_ignored(golden, kernels):
    assert golden.weights(kernels).leftovers() == []


def test_a_pass_asks_for_every_declared_tensor_once_in_order(golden, kernels):
    weights = golden.weights(kernels)
    feed(golden.model(), weights, golden.ids[:3])
    assert weights.passes == 1


def test_without_all_logits_only_those_of_the_last_position_come_back(golden, kernels):
    model, weights = golden.model(), golden.weights(kernels)
    [last] = model.forward(weights, [Span(model.new_state(len(golden.ids)), golden.ids)])
    assert last.shape == (1, model.vocab_size)
    assert np.abs(last - golden.logits[-1]).max() < TOLERANCE * np.abs(golden.logits).max()


@pytest.mark.parametrize("name", list(CASES))
def test_chunks_and_threads_do_not_change_a_bit(name, native):
    golden = load(name)
    ids = np.resize(golden.ids, 70)
    model = golden.model()
    one_by_one = feed(model, golden.weights(open_kernels(native=True, threads=1)), ids, 1)
    for threads in (1, 2):
        weights = golden.weights(open_kernels(native=True, threads=threads))
        for chunk in (7, 64):
            assert feed(model, weights, ids, chunk).tobytes() == one_by_one.tobytes()
