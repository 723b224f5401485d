"""What a prediction starts from: how fast drive and processor are, and how that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from uringinfer.errors import UsageError

Origin = Literal["clocked", "given", "saved by probe", "assumed"]

ASSUMED_LATENCY = 100e-6
"""Seconds that a read takes beside its bytes, where that was not clocked: those of an NVMe drive."""

LONE_BYTES = 4096
"""A read of so few bytes shows a drive's latency, not its rate."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second: what the drive reads with many reads in flight, and what a pass works off where it
    need not wait; None where nothing is known. `expert_compute` is for routed experts, where they differ
    from the trunk, `streamed_compute` for segments of the trunk that were just read.

    Seconds: a read that is alone takes `latency` longer than its bytes do. Of the processor, guessing about
    a layer's experts, early and late, takes `guess`, and each read of an expert `per_read`. None where it is
    not known.

    The origins say how the drive's rate, its latency, and all of the processor's figures are known.
    """

    drive: float | None = None
    compute: float | None = None
    expert_compute: float | None = None
    latency: float | None = None
    guess: float | None = None
    per_read: float | None = None
    drive_origin: Origin = "given"
    latency_origin: Origin = "given"
    compute_origin: Origin = "given"
    streamed_compute: float | None = None

    def blended(self, trunk_bytes: float, expert_bytes: float) -> float | None:
        """Bytes per second of a pass over so many bytes of trunk and experts."""
        if self.compute is None:
            return None
        seconds = trunk_bytes / self.compute + expert_bytes / (self.expert_compute or self.compute)
        return (trunk_bytes + expert_bytes) / seconds if seconds else self.compute

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: object) -> Rates:
        """What `to_json` gave. Raises UsageError, naming the key, for anything else."""
        if not isinstance(found, Mapping):
            raise UsageError("no rates were found", hint="give the output of 'plan --measure --json'")
        known = {field.name for field in fields(cls)}
        for name, value in found.items():
            if name not in known or not _is_valid(name, value):
                raise UsageError(
                    f"rates: '{name}' cannot be {value!r}", hint="give the output of 'plan --measure --json'"
                )
        return cls(**found)


def _is_valid(name: str, value: object) -> bool:
    if name.endswith("_origin"):
        return value in get_args(Origin)
    if value is None:
        return True
    if type(value) not in (int, float) or not 0 <= value < float("inf"):  # type: ignore[operator]
        return False
    return value != 0 or name in ("latency", "guess", "per_read")
