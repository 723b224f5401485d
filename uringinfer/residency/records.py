"""Records of routed experts: where each lies on disk, and what its bytes mean.

A record holds everything of one expert side by side, so one read brings it. All records of a layer are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from uringinfer.container.manifest import Bank
from uringinfer.kernels.formats import Weight, decode
from uringinfer.kernels.gated_network import GatedNetwork
from uringinfer.residency.policies import ExpertKey
from uringinfer.storage.direct import StorageFile
from uringinfer.storage.reader import Bytes, Priority, ReadRequest

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class ExpertWeights:
    """One expert's record: packed matrices ('gate', 'up', 'down') and float32 biases ('gate_bias', ...)."""

    matrices: Mapping[str, Weight]
    biases: Mapping[str, Floats]

    @cached_property
    def network(self) -> GatedNetwork:
        """The same as the kernels take it."""
        matrices, bias = self.matrices, self.biases.get
        return GatedNetwork(
            matrices["gate"],
            matrices["up"],
            matrices["down"],
            bias("gate_bias"),
            bias("up_bias"),
            bias("down_bias"),
        )


class ExpertRecords:
    """The banks of one container. `files` has each bank's open files by layer, one for each drive; `place`
    says in which of them the record of an expert lies, and where (`Container.record_place`)."""

    def __init__(
        self,
        banks: Sequence[Bank],
        files: Mapping[int, Sequence[StorageFile]],
        place: Callable[[Bank, int], tuple[int, int]],
    ) -> None:
        self._banks = {bank.layer: bank for bank in banks}
        self._files = dict(files)
        self._place = place

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers with routed experts, in order of execution."""
        return tuple(self._banks)

    @property
    def num_experts(self) -> int:
        """Experts of the layer that has most."""
        return max(bank.num_experts for bank in self._banks.values())

    def count(self, layer: int) -> int:
        """Experts of `layer`."""
        return self._banks[layer].num_experts

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot that holds any record."""
        return max(bank.record_bytes for bank in self._banks.values())

    def nbytes(self, layer: int) -> int:
        """Bytes of one record of `layer`."""
        return self._banks[layer].record_bytes

    def name(self, key: ExpertKey) -> str:
        return f"expert {key[1]} of layer {key[0]}"

    def request(self, key: ExpertKey, slot: Bytes, priority: Priority) -> ReadRequest:
        """The read that brings the record of `key` into the beginning of `slot`."""
        layer, expert = key
        bank = self._banks[layer]
        number, offset = self._place(bank, expert)
        return ReadRequest(self._files[layer][number], offset, slot[: bank.record_bytes], priority)

    def checksum(self, key: ExpertKey) -> int:
        """The CRC32 of the record of `key`."""
        return self._banks[key[0]].crc32[key[1]]

    def weights(self, layer: int, record: Bytes) -> ExpertWeights:
        """The expert in `record`: matrices as views into it, biases as copies."""
        matrices: dict[str, Weight] = {}
        biases: dict[str, Floats] = {}
        for part in self._banks[layer].parts:
            data = record[part.offset : part.offset + part.nbytes]
            weight = Weight(part.format, part.rows, part.cols, data)
            if len(part.shape) == 1:
                biases[part.name] = decode(weight).reshape(part.shape)
            else:
                matrices[part.name] = weight
        return ExpertWeights(matrices, biases)
