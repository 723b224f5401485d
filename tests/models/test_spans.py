"""One pass that carries several conversations gives each the logits that it has alone."""

import numpy as np
import pytest
from golden_files import TOLERANCE, load

from uringinfer.errors import ResidencyError, UsageError
from uringinfer.models.base import Span

SCHEDULE = (
    # tokens of each of five conversations that ride in the same pass: some decode, some read a prompt
    (3, 1, 0, 7, 0),
    (1, 1, 5, 1, 0),
    (1, 4, 1, 1, 9),
    (1, 1, 1, 1, 1),
    (2, 1, 1, 3, 1),
)


def conversations(golden):
    """Five prompts of different lengths and tokens, as long as the schedule."""
    rng = np.random.default_rng(5)
    lengths = np.sum(SCHEDULE, axis=0)
    return [rng.integers(3, golden.model().vocab_size, int(length)) for length in lengths]


def alone(golden, kernels, ids):
    """Logits of every position, [T, vocab], fed one token at a time."""
    model, weights = golden.model(), golden.weights(kernels)
    state = model.new_state(len(ids))
    return np.concatenate([model.forward(weights, [Span(state, ids[n : n + 1])])[0] for n in range(len(ids))])


def together(golden, kernels, prompts):
    """The same of all of them, by the schedule."""
    model, weights = golden.model(), golden.weights(kernels)
    states = [model.new_state(len(ids)) for ids in prompts]
    logits = [[] for _ in prompts]
    for counts in SCHEDULE:
        riding = [number for number, count in enumerate(counts) if count]
        spans = [
            Span(states[n], prompts[n][states[n].length : states[n].length + counts[n]], wanted=counts[n])
            for n in riding
        ]
        for number, given in zip(riding, model.forward(weights, spans), strict=True):
            logits[number].append(given)
    return [np.concatenate(parts) for parts in logits]


def test_a_conversation_has_the_logits_it_has_alone_whoever_shares_its_passes(golden, kernels):
    prompts = conversations(golden)
    shared = together(golden, kernels, prompts)
    for ids, got in zip(prompts, shared, strict=True):
        expected = alone(golden, kernels, ids)
        if kernels.name == "native":
            assert got.tobytes() == expected.tobytes()
        else:  # BLAS may round otherwise where the number of tokens is another
            assert np.abs(got - expected).max() < TOLERANCE * np.abs(expected).max()


def test_only_the_logits_that_were_asked_for_are_given(kernels):
    golden = load("llama")
    model, weights = golden.model(), golden.weights(kernels)
    spans = [Span(model.new_state(9), golden.ids[:9], wanted) for wanted in (1, 3, 99)]
    assert [len(logits) for logits in model.forward(weights, spans)] == [1, 3, 9]


def test_a_span_that_cannot_be_fed_leaves_the_others_where_they_are(kernels):
    golden = load("llama")
    model, weights = golden.model(), golden.weights(kernels)
    good, full = model.new_state(9), model.new_state(2)
    with pytest.raises(UsageError, match="do not fit"):
        model.forward(weights, [Span(good, golden.ids[:3]), Span(full, golden.ids[:3])])
    assert good.length == 0 and weights.passes == 0


@pytest.mark.parametrize("kept", [1, 2, 4, 5])
def test_tokens_of_a_trial_that_are_taken_back_leave_no_trace(golden, kernels, kept):
    model, weights = golden.model(), golden.weights(kernels)
    ids, rng = golden.ids, np.random.default_rng(7)
    tried, plain, other = (model.new_state(len(ids) + 9) for _ in range(3))
    for state in (tried, plain):
        model.forward(weights, [Span(state, ids[:5])])
    most = tried.most_on_trial or 5
    kept, tokens = min(kept, most), rng.integers(3, model.vocab_size, min(5, most))

    # another conversation rides along, so that rows of the pass are not all the trial's
    model.forward(weights, [Span(other, ids[:3]), Span(tried, tokens, len(tokens), trial=True)])
    tried.take_back(5 + kept, weights.kernels)
    model.forward(weights, [Span(plain, tokens[:kept])])

    for name, array in plain.arrays().items():
        got = tried.arrays()[name]
        if kernels.name == "native":
            assert got.tobytes() == array.tobytes(), name
        else:
            np.testing.assert_allclose(got, array, atol=1e-5)
    after = [model.forward(weights, [Span(state, ids[5:8])])[0] for state in (tried, plain)]
    np.testing.assert_allclose(after[0], after[1], atol=0 if kernels.name == "native" else 1e-5)


def test_a_recurrent_state_goes_back_only_over_a_trial(kernels):
    golden = load("kimi_linear")
    model, weights = golden.model(), golden.weights(kernels)
    state = model.new_state(9)
    model.forward(weights, [Span(state, golden.ids[:4])])
    with pytest.raises(ResidencyError, match="cannot go back to 2"):
        state.take_back(2, weights.kernels)


def test_trial_bytes_is_what_a_trial_keeps(kernels):
    golden = load("kimi_linear")
    model, weights = golden.model(), golden.weights(kernels)
    state = model.new_state(9)
    model.forward(weights, [Span(state, golden.ids[:4], trial=True)])
    trials = [cache.trial for cache in state.caches if getattr(cache, "trial", None)]
    arrays = [
        array for trial in trials for array in (trial.memory, trial.history, *trial.inputs, *trial.updates)
    ]
    assert trials and model.trial_bytes(4) == sum(array.nbytes for array in arrays)
