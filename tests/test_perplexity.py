"""Perplexity with scripted models, against formulas in plain Python floats."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from uringinfer.errors import UsageError
from uringinfer.perplexity import divergence, log_probabilities, measure_perplexity

VOCAB = 11


class ScriptedEngine:
    """An engine whose logits depend on the tokens fed so far in the session, as a seed for random numbers.

    `seed` None gives every token the same logit. `chunk` is how many tokens a pass feeds.
    """

    def __init__(self, seed=0, *, vocab=VOCAB, chunk=3, lowest=None):
        self.model = SimpleNamespace(vocab_size=vocab)
        self.windows = []
        self._seed, self._chunk, self._lowest = seed, chunk, lowest

    def logits(self, prefix):
        if self._seed is None:
            return np.zeros(self.model.vocab_size, np.float32)
        rng = np.random.default_rng([self._seed, *prefix])
        logits = rng.normal(0, 2, self.model.vocab_size).astype(np.float32)
        if self._lowest is not None:
            logits[self._lowest] = -np.inf
        return logits

    def session(self, context):
        engine, fed = self, []
        self.windows.append(fed)

        class Session:
            def feed(self, ids):
                fed.extend(ids)

            def passes(self, ids, *, all_logits):
                assert all_logits
                for start in range(0, len(ids), engine._chunk):
                    rows = []
                    for token in ids[start : start + engine._chunk]:
                        fed.append(token)
                        assert len(fed) <= context
                        rows.append(engine.logits(fed))
                    yield np.stack(rows)

        return Session()


def probabilities(logits):
    weights = [math.exp(float(logit)) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def final(engine, ids, **options):
    return list(measure_perplexity(engine, ids, **options))[-1]


IDS = [int(token) for token in np.random.default_rng(1).integers(0, VOCAB, 26)]


def plain_losses(engine, context, windows):
    """-ln p of each token after the first of the second half of each window."""
    losses = []
    for number in range(windows):
        window = IDS[number * context : (number + 1) * context]
        for place in range(context // 2 + 1, context):
            losses.append(-math.log(probabilities(engine.logits(window[:place]))[window[place]]))
    return losses


@pytest.mark.parametrize("context", [3, 7, 8, 26])
def test_perplexity_and_error_are_those_of_the_plain_formula(context):
    windows = len(IDS) // context
    expected = plain_losses(ScriptedEngine(), context, windows)
    result = final(ScriptedEngine(), IDS, context=context)
    mean = sum(expected) / len(expected)
    spread = math.sqrt(sum((loss - mean) ** 2 for loss in expected) / (len(expected) - 1))
    assert result.windows == windows
    assert len(result.losses) == len(expected)
    assert result.perplexity == pytest.approx(math.exp(mean), rel=1e-6)
    assert result.error == pytest.approx(math.exp(mean) * spread / math.sqrt(len(expected)), rel=1e-6)


def test_a_model_that_knows_nothing_has_the_vocabularys_size_as_perplexity():
    result = final(ScriptedEngine(None), IDS, context=8)
    assert result.perplexity == pytest.approx(VOCAB)
    assert result.error == pytest.approx(0, abs=1e-9)


def test_every_window_begins_anew_and_its_last_token_is_only_predicted():
    engine = ScriptedEngine()
    final(engine, IDS, context=8)
    assert engine.windows == [IDS[0:7], IDS[8:15], IDS[16:23]]


def test_results_grow_by_a_window_each():
    results = list(measure_perplexity(ScriptedEngine(), IDS, context=8, max_windows=2))
    assert [(result.windows, result.windows_in_all, len(result.losses)) for result in results] == [
        (1, 2, 3),
        (2, 2, 6),
    ]


def test_the_beginning_takes_the_place_of_each_windows_first_token():
    engine = ScriptedEngine()
    final(engine, IDS, context=8, bos_id=10)
    assert [window[0] for window in engine.windows] == [10, 10, 10]
    assert [window[1:] for window in engine.windows] == [IDS[1:7], IDS[9:15], IDS[17:23]]


def test_a_comparison_is_that_of_the_plain_formula_whatever_the_chunks():
    engine, reference = ScriptedEngine(0, chunk=2), ScriptedEngine(5, chunk=3)
    comparison = final(engine, IDS, context=8, reference=reference).comparison
    divergences, agreements = [], 0
    for number in range(3):
        window = IDS[number * 8 : (number + 1) * 8]
        for place in range(5, 8):
            q, p = (probabilities(model.logits(window[:place])) for model in (engine, reference))
            divergences.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
            agreements += q.index(max(q)) == p.index(max(p))
    assert comparison.mean_divergence == pytest.approx(sum(divergences) / len(divergences), rel=1e-5)
    assert comparison.agreement == agreements / 9
    assert comparison.reference_perplexity == pytest.approx(
        math.exp(np.mean(plain_losses(reference, 8, 3))), rel=1e-6
    )
    assert comparison.to_json()["kl_divergence_error"] > 0


def test_a_model_does_not_diverge_from_itself():
    comparison = final(ScriptedEngine(), IDS, context=8, reference=ScriptedEngine(chunk=1)).comparison
    assert comparison.mean_divergence == 0
    assert comparison.agreement == 1


def test_tokens_that_the_reference_excludes_do_not_count():
    reference = log_probabilities(np.array([0, 0, -np.inf], np.float32))
    model = log_probabilities(np.array([0, 0, 0], np.float32))
    assert divergence(reference, model) == pytest.approx(math.log(3 / 2))
    assert divergence(model, reference) == math.inf


def test_large_logits_do_not_overflow():
    assert log_probabilities(np.array([1e4, 0], np.float32)).tolist() == [0, -1e4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": 27}, "26 tokens, less than one window of 27"),
        ({"context": 2}, "nothing is scored"),
        ({"context": 8, "reference": ScriptedEngine(vocab=12)}, "11 and 12 tokens"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_the_numbers(options, message):
    with pytest.raises(UsageError, match=message):
        final(ScriptedEngine(), IDS, **options)
