"""Quantised safetensors checkpoints of many makers, each matrix under the name that it would have as floats.

A `QuantisedSource` stands before a checkpoint's source. Where that has the parts of a quantised matrix
(`x.qweight`, `x.qzeros`, `x.scales`, say) it shows one tensor `x.weight` that is kept packed, and its
sections; what belongs to quantised activations and key/value caches is left out, and told in a note. Which
parts make which of the container's formats is known by `quantised_layouts`; nothing is read but headers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from uringinfer.kernels.formats import weight_format
from uringinfer.packing.quantised_layouts import KeptMatrix, find_kept, left_out
from uringinfer.packing.source import Bytes, SourceTensor, TensorSource
from uringinfer.packing.stored_parts import ColumnOrder, StoredPart

SECTION = "{name}: section {number}"
"""What a section behind the codes is called: no checkpoint's name."""


def with_kept_matrices(source: TensorSource) -> TensorSource:
    """`source` itself, or with its quantised matrices as tensors that are kept packed.

    Raises UnsupportedModelError naming a tensor whose layout no format keeps.
    """
    kept = find_kept(source)
    return QuantisedSource(source, kept) if kept or any(map(left_out, source.tensors)) else source


class QuantisedSource:
    """A `source.TensorSource` over another, whose quantised matrices are `kept`, by the names they get."""

    def __init__(self, source: TensorSource, kept: Mapping[str, KeptMatrix]) -> None:
        self._source = source
        self._parts: dict[str, StoredPart] = {}
        used = {tensor for matrix in kept.values() for tensor in matrix.tensors}
        endings: Counter[str] = Counter()
        self._tensors: dict[str, SourceTensor] = {}
        for name, tensor in source.tensors.items():
            ending = left_out(name)
            if ending is not None:
                endings[ending] += 1
            elif name not in used:
                self._tensors[name] = tensor
        for name, matrix in kept.items():
            self._add(name, matrix)
        self._notes = [
            f"{count} tensors {name} are left out: activations and caches are not quantised here"
            for name, count in endings.items()
        ]

    def _add(self, name: str, matrix: KeptMatrix) -> None:
        sections = (name, *(SECTION.format(name=name, number=i) for i in range(1, len(matrix.parts))))
        widths = weight_format(matrix.format).sections(1, matrix.cols)
        for section, part, width in zip(sections, matrix.parts, widths, strict=True):
            self._parts[section] = part
            shape = (1 if isinstance(part, ColumnOrder) else matrix.rows, width)
            self._tensors[section] = SourceTensor(section, "U8", shape, is_whole=part.is_whole)
        self._tensors[name] = SourceTensor(
            name,
            "U8",
            (matrix.rows, matrix.cols),
            packed_as=matrix.format,
            sections=sections,
            is_whole=matrix.parts[0].is_whole,
        )

    @property
    def path(self) -> Path:
        return self._source.path

    @property
    def config(self) -> Mapping[str, Any]:
        return self._source.config

    @property
    def tensors(self) -> Mapping[str, SourceTensor]:
        return self._tensors

    @property
    def identity(self) -> Mapping[str, Any]:
        return self._source.identity

    @property
    def notes(self) -> Sequence[str]:
        return [*self._source.notes, *self._notes]

    def state(self) -> str:
        """See `TensorSource.state`."""
        return self._source.state()

    def auxiliary_files(self) -> Mapping[str, bytes]:
        """See `TensorSource.auxiliary_files`."""
        return self._source.auxiliary_files()

    def read_rows(self, name: str, start: int, stop: int, out: Bytes) -> None:
        part = self._parts.get(name)
        if part is None:
            self._source.read_rows(name, start, stop, out)
        else:
            part.read(self._source, start, stop, out)

    def close(self) -> None:
        self._source.close()
