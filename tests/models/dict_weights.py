"""`Weights` over a checkpoint held in a dictionary; enforces the order of execution that a model declares.

Routed experts arrive in a shuffled order, because no result may depend on it.
"""

import random
import re
from contextlib import contextmanager

import numpy as np

from uringinfer.kernels.formats import Weight, decode_rows, encode
from uringinfer.layers.weights import ExpertWeights


class OutOfTurn(AssertionError):
    """A forward pass asked for another tensor than the one that is next."""


class DictWeights:
    """Tensors of `checkpoint` (name -> float32 array) as `model` declares them, stored as `fmt`. `seed`
    decides the order in which experts arrive."""

    def __init__(self, model, checkpoint, kernels, fmt="bf16", seed=0):
        self.kernels = kernels
        self.passes = 0
        self._model = model
        self._checkpoint = checkpoint
        self._taken = set()
        self._specs = {}
        self._arrays = {}
        self._order = []
        for group in model.trunk():
            for spec in group.tensors:
                self._add(spec, checkpoint, fmt)
        self._next = 0
        self.experts = DictExperts(model, checkpoint, fmt, self._taken, seed)

    def _add(self, spec, checkpoint, fmt):
        source = next((name for name in spec.sources if name in checkpoint), None)
        if source is None:
            assert spec.optional, f"{spec.name}: none of {spec.sources} in the checkpoint"
            return
        self._taken.add(source)
        array = checkpoint[source]
        shapes = (spec.shape, *spec.other_shapes)
        assert array.shape in shapes, f"{spec.name}: {array.shape}, declared {shapes}"
        self._specs[spec.name] = spec
        self._arrays[spec.name] = array if spec.kind == "vector" else encode(fmt, array)
        if spec.kind != "embedding":
            self._order.append(spec.name)

    def _take(self, name, kinds):
        expected = self._order[self._next]
        if name != expected:
            raise OutOfTurn(f"asked for {name}, next is {expected}")
        assert self._specs[name].kind in kinds
        self._next += 1
        if self._next == len(self._order):
            self._next, self.passes = 0, self.passes + 1
        return self._arrays[name]

    def has(self, name):
        return name in self._specs

    def matmul(self, name, x):
        return self.kernels.matmul(self._take(name, ("matrix",)), x)

    def vector(self, name):
        return self._take(name, ("vector",)).copy()

    @contextmanager
    def weight(self, name):
        assert self._specs[name].whole
        packed = self._take(name, ("matrix",))
        lent = Weight(packed.format, packed.rows, packed.cols, packed.data.copy())
        yield lent
        lent.data[:] = 0xFF  # whoever keeps it past its lease computes NaN

    def embedding(self, name, ids):
        return decode_rows(self._arrays[name], ids)

    def leftovers(self):
        """Checkpoint tensors that the model neither took nor allows to be left over."""
        ignored = [re.compile(pattern) for pattern in self._model.ignored_sources()]
        return [
            name
            for name in self._checkpoint
            if name not in self._taken and not any(pattern.fullmatch(name) for pattern in ignored)
        ]


class DictExperts:
    """`Experts` over the same checkpoint; remembers what was demanded and hinted."""

    def __init__(self, model, checkpoint, fmt, taken, seed):
        self.lookahead = 0
        self.demanded = []
        self.hinted = []
        self._random = random.Random(seed)
        self._experts = {}
        for layer in model.expert_layers():
            for expert in range(layer.count):
                self._experts[layer.layer, expert] = _expert_weights(layer, expert, checkpoint, fmt, taken)

    @contextmanager
    def demand(self, layer, routed):
        self.demanded.append((layer, routed.copy()))
        distinct = np.unique(routed).tolist()
        self._random.shuffle(distinct)
        yield ((expert, self._experts[layer, expert]) for expert in distinct)

    def hint(self, layer, guessed):
        self.hinted.append((layer, guessed.tolist()))


def _expert_weights(layer, expert, checkpoint, fmt, taken):
    matrices, biases = {}, {}
    for part in layer.parts:
        array = _part(part, expert, checkpoint, taken)
        assert array.shape == part.shape, f"{part.name}: {array.shape}, declared {part.shape}"
        if array.ndim == 1:
            biases[part.name] = array
        else:
            matrices[part.name] = encode(fmt, np.ascontiguousarray(array))
    return ExpertWeights(matrices, biases)


def _part(part, expert, checkpoint, taken):
    """Expert `expert`'s part as float32, by the rules of `ExpertSource`."""
    for source in part.sources:
        name = source.name.replace("{expert}", str(expert))
        if name not in checkpoint:
            continue
        taken.add(name)
        array = checkpoint[name]
        if name == source.name:
            array = array[expert]
        if source.transposed:
            array = array.T
        stop = source.first + source.step * part.shape[0]
        return array[source.first : stop : source.step]
    raise AssertionError(f"{part.name}: none of {[source.name for source in part.sources]}")
