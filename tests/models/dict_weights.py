"""`Weights` over a checkpoint held in a dictionary; enforces the order of execution that a model declares.

Routed experts arrive in a shuffled order, because no result may depend on it.
"""

import random
import re
from contextlib import contextmanager

import numpy as np
from tiny_quantised import packed_fp8, packed_mxfp4

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
        if spec.kind != "vector" and array.dtype == np.uint8:
            self._taken.add(f"{source}_scale_inv")
            array = packed_fp8(array, checkpoint[f"{source}_scale_inv"])
        elif spec.kind != "vector":
            array = encode(fmt, array)
        self._arrays[spec.name] = array
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
        self.hinted_late = []
        self._random = random.Random(seed)
        self._experts = {}
        for layer in model.expert_layers():
            for expert in range(layer.count):
                self._experts[layer.layer, expert] = _expert_weights(layer, expert, checkpoint, fmt, taken)

    @contextmanager
    def demand(self, layer, routed, meanwhile=None):
        if meanwhile is not None:
            meanwhile()
        self.demanded.append((layer, routed.copy()))
        distinct = np.unique(routed).tolist()
        self._random.shuffle(distinct)
        cut = self._random.randint(1, len(distinct))
        batches = [batch for batch in (distinct[:cut], distinct[cut:]) if batch]
        yield ([(expert, self._experts[layer, expert]) for expert in batch] for batch in batches)

    def wants_guess(self, layer):
        return self.lookahead > 0

    def hint(self, layer, guessed, *, late=False):
        (self.hinted_late if late else self.hinted).append((layer, guessed.tolist()))


def _expert_weights(layer, expert, checkpoint, fmt, taken):
    matrices, biases = {}, {}
    for part in layer.parts:
        found = _part(part, expert, checkpoint, fmt, taken)
        if isinstance(found, Weight):
            assert (found.rows, found.cols) == part.shape, f"{part.name}: declared {part.shape}"
            matrices[part.name] = found
        else:
            assert found.shape == part.shape, f"{part.name}: {found.shape}, declared {part.shape}"
            biases[part.name] = found
    return ExpertWeights(matrices, biases)


def _part(part, expert, checkpoint, fmt, taken):
    """Expert `expert`'s part by the rules of `ExpertSource`: a packed matrix, or a bias in float32."""
    source = next((s for s in part.sources if s.name.replace("{expert}", str(expert)) in checkpoint), None)
    assert source is not None, f"{part.name}: none of {[source.name for source in part.sources]}"
    rows = slice(source.first, source.first + source.step * part.shape[0], source.step)

    def stored(name):
        """The tensor called `name` as this part's rows, of this expert alone."""
        array = checkpoint[name.replace("{expert}", str(expert))]
        taken.add(name.replace("{expert}", str(expert)))
        array = array if "{expert}" in name else array[expert]
        return (array.T if source.transposed else array)[rows]

    array = stored(source.name)
    if array.dtype != np.uint8:
        array = np.ascontiguousarray(array)
        return array if array.ndim == 1 else encode(fmt, array)
    if source.scales is not None:
        return packed_mxfp4(array, stored(source.scales))
    return packed_fp8(array, stored(f"{source.name}_scale_inv"))
