"""Many gated networks in one call: the same bits as their products and activations one by one."""

import numpy as np
import pytest
from arrays import assert_same_bits, normal, packed

from uringinfer.kernels.formats import ENCODED, encode
from uringinfer.kernels.gated_network import GatedNetwork

HIDDEN, OUTER = 100, 70


def network(seed, name, *, inner=90, up=None, biases=False):
    shapes = ((inner, HIDDEN), (inner, HIDDEN), (OUTER, inner))
    formats = (name, up or name, name)
    weights = [
        packed(form, 0.2 * normal(seed + i, *shapes[i]), codebook_seed=seed + i)
        for i, form in enumerate(formats)
    ]
    return GatedNetwork(*weights, *(normal(seed + 3 + i, shapes[i][0]) for i in range(3) if biases))


def one_by_one(kernels, networks, inputs, kind="silu", **settings):
    outputs = []
    for n, x in zip(networks, inputs, strict=True):
        gate, up = kernels.matmul(n.gate, x), kernels.matmul(n.up, x)
        if n.gate_bias is not None:
            gate, up = gate + n.gate_bias, up + n.up_bias
        y = kernels.matmul(n.down, kernels.gated(kind, gate, up, **settings))
        outputs.append(y if n.down_bias is None else y + n.down_bias)
    return np.stack(outputs)


@pytest.mark.parametrize("tokens", [1, 2, 7, 70])
@pytest.mark.parametrize("name", ENCODED)
def test_networks_in_one_call_have_the_bits_of_their_products_one_by_one(kernels, name, tokens):
    networks = [network(10 * i, name, biases=i % 2 == 0) for i in range(4)]
    inputs = [normal(100 + i, tokens, HIDDEN) for i in range(4)]
    assert_same_bits(kernels.gated_networks(networks, inputs, "silu"), one_by_one(kernels, networks, inputs))


@pytest.mark.parametrize("up", ["mxfp4", "q8"])
@pytest.mark.parametrize("tokens", [1, 20])
def test_networks_may_share_an_input_with_their_neighbours(kernels, up, tokens):
    networks = [network(10 * i, "mxfp4", up=up) for i in range(5)]
    x, other = normal(100, tokens, HIDDEN), normal(101, tokens, HIDDEN)
    inputs = [x, x, other, x, x]
    assert_same_bits(kernels.gated_networks(networks, inputs, "silu"), one_by_one(kernels, networks, inputs))


def test_a_network_that_was_multiplied_before_is_multiplied_with_the_bytes_it_has_now(kernels):
    kept, other = network(0, "q4"), network(50, "q4")
    x = [normal(100, 1, HIDDEN)]
    before = kernels.gated_networks([kept], x, "silu")
    for (weight, _), (new, _) in zip(kept.parts(), other.parts(), strict=True):
        weight.data[:] = new.data
    after = kernels.gated_networks([kept], x, "silu")
    assert_same_bits(after, one_by_one(kernels, [other], x))
    assert not np.array_equal(after, before)


def sharing(count, name="vq3"):
    """Networks whose gates have one codebook, whose ups and downs have theirs."""
    first = network(0, name)
    books = [part.format.codebook for part, _ in first.parts()]
    shapes = [(part.rows, part.cols) for part, _ in first.parts()]
    return [
        GatedNetwork(*(encode(name, normal(10 * i + j, *shapes[j]), books[j]) for j in range(3)))
        for i in range(count)
    ]


@pytest.mark.parametrize("tokens", [1, 3])
def test_tables_are_kept_from_call_to_call_and_show_in_no_bit(kernels, tokens):
    networks, x, shared = sharing(4), normal(9, tokens, HIDDEN), {}
    calls = [kernels.gated_networks([n], [x], "silu", shared=shared) for n in networks]
    assert_same_bits(np.concatenate(calls), one_by_one(kernels, networks, [x] * 4))


def test_inputs_that_are_one_array_share_the_tables_of_gate_and_of_up(native, monkeypatch):
    kernels, networks, x = native(1), sharing(4), normal(9, 1, HIDDEN)
    made = []
    make = type(kernels).tables
    monkeypatch.setattr(type(kernels), "tables", lambda self, w, x: made.append(w) or make(self, w, x))
    shared = {}
    kernels.gated_networks(networks[:3], [x] * 3, "silu", shared=shared)
    kernels.gated_networks(networks[3:], [x], "silu", shared=shared)
    assert len(made) == len(shared) == 2
    kernels.gated_networks(networks[:2], [x, x.copy()], "silu", shared={})
    assert len(made) == 2


@pytest.mark.parametrize(
    ("kind", "limit", "alpha"), [("gelu_tanh", 0, 1), ("swiglu_oai", 7, 1.7), ("situ", 4, 3)]
)
def test_every_activation_can_stand_between_the_halves(kernels, kind, limit, alpha):
    networks, inputs = [network(0, "bf16")], [normal(9, 1, HIDDEN)]
    together = kernels.gated_networks(networks, inputs, kind, limit=limit, alpha=alpha)
    assert_same_bits(together, one_by_one(kernels, networks, inputs, kind, limit=limit, alpha=alpha))


@pytest.mark.parametrize("up", ["q8", "mxfp4", "fp8"])
@pytest.mark.parametrize("tokens", [1, 20])
def test_gate_and_up_may_be_packed_differently(kernels, up, tokens):
    networks = [network(i, "bf16", up=up) for i in range(2)]
    inputs = [normal(5 + i, tokens, HIDDEN) for i in range(2)]
    assert_same_bits(kernels.gated_networks(networks, inputs, "silu"), one_by_one(kernels, networks, inputs))


@pytest.mark.parametrize("count", [1, 2, 6])
@pytest.mark.parametrize("name", ["bf16", "mxfp4"])
def test_networks_have_the_same_bits_on_any_number_of_threads(native, name, count):
    networks = [network(10 * i, name, inner=700) for i in range(count)]
    inputs = [normal(100 + i, 1, HIDDEN) for i in range(count)]
    alone = native(1).gated_networks(networks, inputs, "silu")
    for threads in (2, 3, 7):
        for _ in range(5):  # threads meet differently every time
            assert_same_bits(native(threads).gated_networks(networks, inputs, "silu"), alone)


@pytest.mark.parametrize(
    ("networks", "inputs", "message"),
    [
        ([], [], "0 networks"),
        ([network(0, "bf16")], [], "1 networks do not meet 0 inputs"),
        ([network(0, "bf16"), network(0, "q8")], 2 * [normal(0, 1, HIDDEN)], "differ"),
        ([network(0, "bf16")], [normal(0, 1, HIDDEN + 1)], r"an input \(1, 101\) is not \(1, 100\)"),
        (2 * [network(0, "bf16")], [normal(0, 1, HIDDEN), normal(0, 2, HIDDEN)], "an input"),
        ([GatedNetwork(*3 * [encode("bf16", normal(0, 9, 8))])], [normal(0, 1, 8)], "do not meet"),
    ],
)
def test_networks_and_inputs_that_do_not_meet_are_refused(kernels, networks, inputs, message):
    with pytest.raises(ValueError, match=message):
        kernels.gated_networks(networks, inputs, "silu")


def test_a_bias_of_another_length_is_refused(kernels):
    plain = network(0, "bf16")
    wrong = GatedNetwork(plain.gate, plain.up, plain.down, up_bias=normal(0, 3))
    with pytest.raises(ValueError, match="a bias"):
        kernels.gated_networks([wrong], [normal(0, 1, HIDDEN)], "silu")
