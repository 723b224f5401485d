"""`Weights` over a checkpoint held in a dictionary; enforces the order of execution that a model declares."""

import re
from contextlib import contextmanager

from uringinfer.kernels.formats import Weight, decode_rows, encode


class OutOfTurn(AssertionError):
    """A forward pass asked for another tensor than the one that is next."""


class DictWeights:
    """Tensors of `checkpoint` (name -> float32 array) as `model` declares them, stored as `fmt`."""

    def __init__(self, model, checkpoint, kernels, fmt="bf16"):
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

    def _add(self, spec, checkpoint, fmt):
        source = next((name for name in spec.sources if name in checkpoint), None)
        if source is None:
            assert spec.optional, f"{spec.name}: none of {spec.sources} in the checkpoint"
            return
        self._taken.add(source)
        array = checkpoint[source]
        assert array.shape == spec.shape, f"{spec.name}: {array.shape}, declared {spec.shape}"
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
