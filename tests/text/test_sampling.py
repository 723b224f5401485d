import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uringinfer.errors import IntegrityError, UsageError
from uringinfer.text.sampling import Sampler, SamplingOptions


def oracle(logits, options, recent=()):
    """The distribution over the whole vocabulary, written as loops over plain Python floats."""
    values = [float(logit) for logit in logits]
    window = (
        list(recent) if options.repeat_window < 0 else list(recent)[len(recent) - options.repeat_window :]
    )
    for token in set(window) if options.repeat_window else ():
        scaled = values[token] / options.repeat_penalty, values[token] * options.repeat_penalty
        values[token] = scaled[0] if values[token] > 0 else scaled[1]
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    if options.top_k:
        order = order[: options.top_k]
    weights = {i: np.exp(values[i] - values[order[0]]) for i in order}
    total, reached, kept = sum(weights.values()), 0.0, []
    for i in order:
        if options.top_p < 1 and kept and reached >= options.top_p * total:
            break
        kept.append(i)
        reached += weights[i]
    kept = [i for i in kept if weights[i] >= options.min_p * weights[order[0]]]
    tempered = {i: np.exp((values[i] - values[order[0]]) / options.temperature) for i in kept}
    result = np.zeros(len(values))
    total = sum(tempered.values())
    for i, weight in tempered.items():
        result[i] = weight / total
    return result


def random_logits(seed, vocab=300):
    return np.random.default_rng(seed).normal(0, 3, vocab).astype(np.float32)


@given(
    st.lists(st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, -0.0, 1.5, -np.inf]), min_size=1)
)
def test_the_likeliest_come_first_and_equal_ones_by_id(values):
    logits = np.array([*values, np.finfo(np.float32).max], np.float32)
    logits[logits == np.inf] = 3
    ids, _ = Sampler(SamplingOptions(temperature=1)).distribution(logits)
    assert ids.tolist() == np.argsort(-logits, kind="stable").tolist()


options_strategy = st.builds(
    SamplingOptions,
    temperature=st.floats(0.2, 3),
    top_k=st.sampled_from([0, 1, 5, 40, 1000]),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.1]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    repeat_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    repeat_window=st.sampled_from([-1, 0, 2, 64]),
    seed=st.just(0),
)


@given(options_strategy, st.integers(0, 10_000), st.lists(st.integers(0, 299), max_size=6))
def test_the_distribution_is_that_of_the_plain_oracle(options, seed, recent):
    logits = random_logits(seed)
    sampler = Sampler(options)
    ids, probabilities = sampler.distribution(sampler._penalised(logits, recent))
    ours = np.zeros(len(logits))
    ours[ids] = probabilities
    np.testing.assert_allclose(ours, oracle(logits, options, recent), atol=2e-6)


@pytest.mark.parametrize("spread", [0.01, 3.0])
def test_top_p_over_a_large_vocabulary_keeps_what_the_oracle_keeps(spread):
    logits = np.random.default_rng(5).normal(0, spread, 5000).astype(np.float32)
    options = SamplingOptions(temperature=1, top_p=0.9)
    ids, probabilities = Sampler(options).distribution(logits)
    expected = oracle(logits, options)
    assert len(ids) == np.count_nonzero(expected)
    np.testing.assert_allclose(probabilities, expected[ids], rtol=1e-9)


def test_draws_follow_the_distribution():
    options = SamplingOptions(temperature=0.8, top_k=12, top_p=0.95, seed=3)
    logits = random_logits(1)
    sampler, count = Sampler(options), 5_000
    drawn = np.bincount([sampler.pick(logits) for _ in range(count)], minlength=len(logits))
    expected = oracle(logits, options) * count
    assert not drawn[expected == 0].any()
    kept = expected > 0
    chi_squared = ((drawn - expected)[kept] ** 2 / expected[kept]).sum()
    assert chi_squared < 35  # at most 11 degrees of freedom: p < 0.001 beyond 31.3


def test_one_seed_gives_one_answer_and_another_seed_another():
    logits = random_logits(2)

    def draws(seed):
        sampler = Sampler(SamplingOptions(temperature=1, seed=seed))
        return [sampler.pick(logits) for _ in range(30)]

    assert draws(5) == draws(5)
    assert draws(5) != draws(6)


def test_a_seed_that_was_not_given_can_be_repeated():
    logits = random_logits(2)
    first = Sampler(SamplingOptions(temperature=1))
    again = Sampler(SamplingOptions(temperature=1, seed=first.seed))
    assert [first.pick(logits) for _ in range(20)] == [again.pick(logits) for _ in range(20)]
    assert Sampler(SamplingOptions()).seed != first.seed


def test_ties_go_to_the_lower_id():
    logits = np.array([1, 5, 5, 0, 5, 5], dtype=np.float32)
    assert Sampler(SamplingOptions()).pick(logits) == 1
    ids, _ = Sampler(SamplingOptions(temperature=1, top_k=3)).distribution(logits)
    assert ids.tolist() == [1, 2, 4]
    ids, _ = Sampler(SamplingOptions(temperature=1, top_p=0.3)).distribution(logits)
    assert ids.tolist() == [1, 2]
    ids, _ = Sampler(SamplingOptions(temperature=1, top_k=90)).distribution(np.zeros(100, dtype=np.float32))
    assert ids.tolist() == list(range(90))
    ids, _ = Sampler(SamplingOptions(temperature=1)).distribution((np.arange(1000) % 2).astype(np.float32))
    assert ids.tolist() == [*range(1, 1000, 2), *range(0, 1000, 2)]


def test_the_penalty_reaches_only_the_window():
    logits = np.array([3.0, 2.9, -1.0], dtype=np.float32)
    sampler = Sampler(SamplingOptions(repeat_penalty=2.0, repeat_window=1))
    assert sampler.pick(logits, [0, 1]) == 0
    assert sampler.pick(logits, [1, 0]) == 1
    assert logits.tolist() == [3.0, np.float32(2.9), -1.0]


def test_masked_tokens_are_never_drawn():
    logits = np.full(8, -np.inf, dtype=np.float32)
    logits[[2, 6]] = 0
    sampler = Sampler(SamplingOptions(temperature=5, seed=0))
    assert {sampler.pick(logits) for _ in range(100)} == {2, 6}


def test_a_vanishing_temperature_is_greedy():
    assert (
        Sampler(SamplingOptions(temperature=1e-300, seed=0)).pick(random_logits(3))
        == random_logits(3).argmax()
    )


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0, 1])
def test_damaged_logits_are_an_integrity_error(value, temperature):
    logits = random_logits(4)
    logits[17] = value
    with pytest.raises(IntegrityError, match="1 of 300"):
        Sampler(SamplingOptions(temperature=temperature)).pick(logits)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"min_p": -0.1},
        {"min_p": 1.1},
        {"repeat_penalty": 0.0},
        {"repeat_window": -2},
        {"seed": -1},
    ],
)
def test_an_option_out_of_range_is_named_with_its_value(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(UsageError, match=f"{name} is {value}"):
        SamplingOptions(**wrong)
