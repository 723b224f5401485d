"""The frame around the layers: state, scratch, and what it refuses."""

import tracemalloc

import numpy as np
import pytest
from dict_weights import DictWeights
from golden_files import load
from kimi_k3_cases import SHAPES, text_config
from tiny_checkpoint import checkpoint

from uringinfer.errors import UsageError
from uringinfer.models import model_from_config
from uringinfer.models.base import Span


def test_state_bytes_is_what_a_new_state_holds(golden):
    model = golden.model()
    state = model.new_state(33)
    state.length = 33
    assert model.state_bytes(33) == state.nbytes
    kept = sum(array.nbytes for array in state.arrays().values())
    has_windows = any(getattr(layer.attention, "window", 0) for layer in model.layers)
    assert kept < state.nbytes if has_windows else kept == state.nbytes


def test_a_state_restored_from_its_arrays_continues_bit_for_bit(golden, kernels):
    model, weights = golden.model(), golden.weights(kernels)
    state = model.new_state(len(golden.ids))
    model.forward(weights, [Span(state, golden.ids[:-1])])
    copy = model.new_state(len(golden.ids) + 9)
    copy.length = state.length
    for name, array in state.arrays().items():
        copy.arrays()[name][...] = array
    [expected] = model.forward(weights, [Span(state, golden.ids[-1:])])
    [got] = model.forward(weights, [Span(copy, golden.ids[-1:])])
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "no tokens"),
        ([96], "token 96 is outside"),
        ([-1], "token -1 is outside"),
        ([1] * 9, "do not fit"),
    ],
)
def test_tokens_that_cannot_be_fed_are_refused(ids, message, kernels):
    golden = load("llama")
    model = golden.model()
    with pytest.raises(UsageError, match=message):
        model.forward(golden.weights(kernels), [Span(model.new_state(8), np.array(ids, np.int64))])


class Allocating:
    """Kernels that allocate their results and nothing else, so that what is traced is the layers' own."""

    def matmul(self, weight, x, out=None):
        return np.zeros((len(x), weight.rows), np.float32)

    def matmul_heads(self, weight, x, *, offset, rows, transposed):
        return np.zeros((*x.shape[:2], weight.cols if transposed else rows), np.float32)

    def latent_attention(self, q, cache, rank, start, scale):
        return np.zeros((*q.shape[:2], rank), np.float32)

    def sigmoid(self, x):
        return np.zeros_like(x)

    def softmax(self, x):
        return np.zeros_like(x)

    def rms_norm(self, x, weight, eps):
        return np.zeros_like(x)

    def l2_norm(self, x, eps, scale=1.0):
        return np.zeros_like(x)

    def causal_conv(self, x, history, taps):
        return np.zeros_like(x)

    def forget_gate(self, z, bias, rate, lower_bound):
        return np.zeros_like(z)

    def delta_rule(self, q, k, v, beta, decay, state):
        return np.zeros_like(v)

    def attention_residual(self, sources, query, eps):
        return np.zeros_like(sources[0])

    def rotary(self, x, cos, sin, *, interleaved=False):
        pass

    def gated(self, kind, gate, up, *, limit=0.0, alpha=1.0):
        return np.zeros_like(gate)

    def gated_networks(self, networks, inputs, kind, *, limit=0.0, alpha=1.0, shared=None):
        inner = np.zeros((3, len(networks), len(inputs[0]), networks[0].gate.rows), np.float32)
        return np.zeros((*inner.shape[1:3], networks[0].down.rows), np.float32)

    def attention(self, q, keys, values, start, scale, *, window=0, sinks=None):
        return np.zeros((len(q), q.shape[1], values.shape[2]), np.float32)


WIDE = {"hidden_size": 256, "vocab_size": 500}
KIMI_K3 = text_config(**SHAPES["tiny"], mxfp4=False) | {"model_type": "kimi_k3"}


def source_shapes(model):
    """What a checkpoint for `model` holds: name -> shape."""
    shapes = {spec.sources[0]: spec.shape for group in model.trunk() for spec in group.tensors}
    for layer in model.expert_layers():
        for expert in range(layer.count):
            shapes |= {part.sources[0].name.format(expert=expert): part.shape for part in layer.parts}
    return shapes


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("qwen3", {"intermediate_size": 1000}),
        ("qwen3", {"intermediate_size": 64, "head_dim": 96}),
        ("mixtral", {"intermediate_size": 100, "num_experts_per_tok": 6}),
        ("mixtral", {"intermediate_size": 1000, "num_experts_per_tok": 1}),
        ("glm4_moe", {"moe_intermediate_size": 300, "n_shared_experts": 2, "use_qk_norm": False}),
        ("deepseek_v3", {"moe_intermediate_size": 20, "n_shared_experts": 0, "v_head_dim": 64}),
        ("kimi_linear", {"moe_intermediate_size": 20}),
        ("kimi_linear", {"intermediate_size": 500}),
        ("kimi_k3", {"routed_expert_hidden_size": 200, "moe_intermediate_size": 100}),
        ("kimi_k3", {"intermediate_size": 2000, "attn_res_block_size": 1}),
    ],
)
@pytest.mark.parametrize("chunk", [1, 64])
def test_scratch_bytes_bounds_what_a_pass_allocates_from_above_and_not_by_far(name, sizes, chunk):
    config = KIMI_K3 if name == "kimi_k3" else load(name).config
    model = model_from_config({**config, **WIDE, **sizes})
    weights = DictWeights(model, checkpoint(0, source_shapes(model), tied=False), Allocating())
    state = model.new_state(64)
    ids = np.zeros(chunk, np.int64)
    tracemalloc.start()
    try:
        model.forward(weights, [Span(state, ids)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    bound = model.scratch_bytes(chunk, 64)
    assert peak <= bound
    if chunk > 1:
        assert bound < 1.5 * peak
