"""Replays a trace against a cache of so many slots: what a policy would have hit.

The same policies as in a run, driven in the same way; only the weights are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from uringinfer.errors import UsageError
from uringinfer.residency.policies import Belady, ExpertKey, Policy, make_policy
from uringinfer.residency.trace import Trace


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What one policy did with one number of slots."""

    policy: str
    slots: int
    requests: int
    hits: int
    passes: int

    @property
    def hit_rate(self) -> float:
        """Share of requests that found their expert in memory, 0 to 1."""
        return self.hits / self.requests

    def bytes_per_token(self, record_bytes: int) -> float:
        """Bytes read for one pass of the trace, on average."""
        return (self.requests - self.hits) * record_bytes / self.passes

    def to_json(self, record_bytes: int | None) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "slots": self.slots,
            "requests": self.requests,
            "hits": self.hits,
            "hit_rate": self.hit_rate,
            "bytes_per_token": None if record_bytes is None else self.bytes_per_token(record_bytes),
        }


def simulate(trace: Trace, policy_name: str, slots: int) -> SimulationResult:
    """Replays `trace` in its order through `slots` slots. Every miss takes a slot.

    Raises UsageError for an unknown policy or no slots.
    """
    if slots < 1:
        raise UsageError(f"a cache of {slots} slots holds nothing", hint="give at least 1")
    if policy_name == Belady.name:
        policy: Policy = Belady([key for turn in trace.turns for key in turn.requests])
    else:
        policy = make_policy(policy_name, trace.layers, trace.num_experts)
    resident: set[ExpertKey] = set()
    hits = 0
    for turn in trace.turns:
        policy.begin_turn(turn.layer, turn.experts)
        for key in turn.requests:
            if key in resident:
                hits += 1
                policy.touch(key)
                continue
            if len(resident) == slots:
                resident.remove(policy.victim())
            policy.insert(key)
            resident.add(key)
    return SimulationResult(policy_name, slots, trace.requests, hits, trace.passes)


def slots_of(capacities: Sequence[int], record_bytes: int) -> list[int]:
    """How many records of `record_bytes` fit into each of `capacities` bytes.

    Raises UsageError for a capacity that holds none.
    """
    slots = []
    for capacity in capacities:
        if capacity < record_bytes:
            raise UsageError(f"a capacity of {capacity} bytes holds no record of {record_bytes} bytes")
        slots.append(capacity // record_bytes)
    return slots
