"""The short causal convolution in front of linear attention: one filter for each channel, then SiLU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uringinfer.layers.step import Step, joined
from uringinfer.layers.tensors import TensorSpec
from uringinfer.layers.weights import Floats, Weights


@dataclass(frozen=True, slots=True)
class ShortConvolution:
    """`channels` filters of `taps` taps, stored [channels, 1, taps]; the last tap meets the current token."""

    name: str
    source: str
    channels: int
    taps: int

    def tensors(self) -> tuple[TensorSpec, ...]:
        """The filters."""
        shape = (self.channels, 1, self.taps)
        return (TensorSpec(self.name, shape, (f"{self.source}.weight",), kind="vector"),)

    def forward(self, weights: Weights, histories: Sequence[Floats], x: Floats, step: Step) -> Floats:
        """x [T, channels] of the step's spans -> [T, channels].

        A span's history [taps - 1, channels] holds the inputs before its first, oldest first (zeros before
        the start), and is moved on."""
        filters = weights.vector(self.name).reshape(self.channels, self.taps)
        spans = zip(step.by_span(x), histories, strict=True)
        return joined([weights.kernels.causal_conv(part, history, filters) for (_, part), history in spans])
