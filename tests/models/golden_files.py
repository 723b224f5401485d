"""Reading golden files and running models against them."""

import json
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from dict_weights import DictWeights
from tiny_checkpoint import checkpoint
from tiny_quantised import quantised

from uringinfer.models import model_from_config
from uringinfer.models.base import Span

DIRECTORY = Path(__file__).parent / "golden"
TOLERANCE = 1e-5


@dataclass
class Golden:
    """One golden case: what the oracle said, and the checkpoint it said it of."""

    config: dict
    checkpoint: dict
    ids: np.ndarray
    logits: np.ndarray
    greedy: np.ndarray
    routing: np.ndarray

    def model(self):
        return model_from_config(self.config)

    def weights(self, kernels):
        return DictWeights(self.model(), self.checkpoint, kernels)

    def error(self, logits):
        """Largest deviation from the oracle, relative to its largest logit."""
        return np.abs(logits - self.logits).max() / np.abs(self.logits).max()

    def experts_agree(self, demanded):
        """Whether the demands (layer, [T, K]), in whatever chunks, are the oracle's choice."""
        layers = sorted({layer for layer, _ in demanded})
        chosen = [np.concatenate([ids for layer, ids in demanded if layer == wanted]) for wanted in layers]
        return np.array_equal(np.sort(np.array(chosen)).reshape(self.routing.shape), self.routing)


def from_arrays(arrays):
    config = json.loads(str(arrays["config"]))
    tensors = checkpoint(
        int(arrays["seed"]), json.loads(str(arrays["shapes"])), config["tie_word_embeddings"]
    )
    tensors = quantised(tensors, config.get("quantization_config"))
    return Golden(config, tensors, arrays["ids"], arrays["logits"], arrays["greedy"], arrays["routing"])


@cache
def arrays_of(name):
    """What the file of the case called `name` holds."""
    with np.load(DIRECTORY / f"{name}.npz") as arrays:
        return dict(arrays)


@cache
def _loaded(name):
    return from_arrays(arrays_of(name))


def load(name):
    """The case called `name`; config and checkpoint may be changed, the arrays in them not."""
    golden = _loaded(name)
    return replace(golden, config=deepcopy(golden.config), checkpoint=dict(golden.checkpoint))


def feed(model, weights, ids, chunk=None):
    """Logits [T, vocab] of `ids`, fed in chunks of `chunk` tokens."""
    state = model.new_state(len(ids))
    chunk = chunk or len(ids)
    parts = [
        model.forward(weights, [Span(state, ids[start : start + chunk], chunk)])[0]
        for start in range(0, len(ids), chunk)
    ]
    return np.concatenate(parts)


def continue_greedily(model, weights, ids, count):
    """The next `count` tokens, each the best after all before it, one forward pass a token."""
    state = model.new_state(len(ids) + count)
    [logits] = model.forward(weights, [Span(state, ids)])
    chosen = []
    for _ in range(count):
        chosen.append(int(logits[-1].argmax()))
        [logits] = model.forward(weights, [Span(state, np.array(chosen[-1:]))])
    return chosen
