import numpy as np
import pytest

from uringinfer.kernels.numpy_kernels import NumpyKernels
from uringinfer.layers.router import Router

KERNELS = NumpyKernels()


def logits(tokens=6, experts=24, seed=0):
    return 2 * np.random.default_rng(seed).standard_normal((tokens, experts)).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def softmax(x):
    powers = np.exp(x.astype(np.float64))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize(("scoring", "score"), [("sigmoid", sigmoid), ("softmax", softmax)])
def test_the_best_scores_are_chosen_best_first_and_are_the_shares(scoring, score):
    x = logits()
    routing = Router(4, scoring, renormalize=False, scaling=2.5).route(KERNELS, x)
    for t, row in enumerate(score(x)):
        expected = sorted(range(24), key=lambda e: -row[e])[:4]
        assert routing.experts[t].tolist() == expected
        np.testing.assert_allclose(routing.shares[t], 2.5 * row[expected], rtol=1e-6)


def test_renormalised_shares_sum_to_the_scaling():
    routing = Router(5, "sigmoid", renormalize=True, scaling=1.5).route(KERNELS, logits())
    np.testing.assert_allclose(routing.shares.sum(1), 1.5, rtol=1e-6)


def test_the_bias_decides_the_choice_and_has_no_part_in_the_shares():
    x = logits()
    bias = np.zeros(24, np.float32)
    bias[[7, 19]] = 10, 20
    routing = Router(2, "sigmoid", renormalize=False).route(KERNELS, x, bias)
    assert routing.experts.tolist() == [[19, 7]] * len(x)
    np.testing.assert_allclose(routing.shares, sigmoid(x[:, [19, 7]]), rtol=1e-6)


def test_ties_go_to_the_lower_number():
    x = np.zeros((1, 9), np.float32)
    x[0, [2, 5, 8]] = 1
    assert Router(5, "sigmoid", renormalize=True).route(KERNELS, x).experts.tolist() == [[2, 5, 8, 0, 1]]


@pytest.mark.parametrize(
    ("group_score", "worth"),
    [("best", lambda group: max(group)), ("best_two", lambda group: sum(sorted(group)[-2:]))],
)
def test_only_experts_of_the_best_groups_are_chosen(group_score, worth):
    x, bias = logits(8, 24, seed=3), logits(1, 24, seed=4)[0]
    router = Router(5, "sigmoid", renormalize=True, num_groups=6, top_groups=2, group_score=group_score)
    routing = router.route(KERNELS, x, bias)
    for t, row in enumerate(sigmoid(x) + bias):
        groups = sorted(range(6), key=lambda g: -worth(row[4 * g : 4 * g + 4]))[:2]
        allowed = [e for g in groups for e in range(4 * g, 4 * g + 4)]
        assert routing.experts[t].tolist() == sorted(allowed, key=lambda e: -row[e])[:5]


def test_tied_groups_go_to_the_lower_number():
    router = Router(2, "sigmoid", renormalize=True, num_groups=3, top_groups=1)
    assert router.route(KERNELS, np.zeros((1, 6), np.float32)).experts.tolist() == [[0, 1]]


def test_tokens_routed_together_are_routed_as_each_alone():
    x = logits(9, 64)
    router = Router(11, "sigmoid", renormalize=True, num_groups=8, top_groups=3)
    together = router.route(KERNELS, x)
    for t in range(len(x)):
        alone = router.route(KERNELS, x[t : t + 1])
        np.testing.assert_array_equal(alone.experts[0], together.experts[t])
        np.testing.assert_array_equal(alone.shares[0], together.shares[t])


@pytest.mark.parametrize("scoring", ["sigmoid", "softmax"])
def test_a_guess_names_what_would_be_chosen(scoring):
    x, bias = logits(), np.linspace(0, 1, 24, dtype=np.float32)
    for router, correction in (
        (Router(4, scoring, renormalize=False), None),
        (Router(4, scoring, renormalize=False), bias),
        (Router(4, scoring, renormalize=False, num_groups=4, top_groups=2), None),
    ):
        expected = router.route(KERNELS, x, correction).experts
        assert np.array_equal(router.guess(KERNELS, x, correction, 4), expected)
