"""Tokens per second of a plan, from the rates of a drive and a processor, and what that rests on."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from uringinfer.planning.cache import CachePlan
from uringinfer.planning.memory import MemoryPlan
from uringinfer.planning.rates import ASSUMED_LATENCY, Rates
from uringinfer.planning.schedule import ExpertTurns, pass_seconds
from uringinfer.storage.contract import DEFAULT_QUEUE_DEPTH, DEFAULT_SPLIT_BYTES
from uringinfer.units import format_rate

_IN_FLIGHT_BYTES = DEFAULT_QUEUE_DEPTH * DEFAULT_SPLIT_BYTES


@dataclass(frozen=True, slots=True)
class Assumption:
    """One figure that a prediction rests on, as text, and how it is known."""

    what: str
    value: str
    origin: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def predict_tokens_per_second(plan: MemoryPlan, rates: Rates) -> float | None:
    """Decoded tokens per second that the drive allows, and the processor too if its rate is known.

    None if nothing bounds the rate: no drive's rate is known, or nothing is read and no compute rate is
    known.
    """
    if rates.drive is None:
        return None
    if rates.compute is None:
        seconds = plan.bytes_per_token / rates.drive
    else:
        latency, _ = _latency(rates)
        seconds = pass_seconds(
            plan.trunk.unit_bytes,
            plan.trunk.pinned,
            plan.trunk.ring_slots,
            rates.drive,
            rates.compute,
            _turns(plan.cache, rates.drive, rates.compute, rates) if plan.cache is not None else None,
            streamed_compute=rates.streamed_compute,
            latency=latency,
            in_flight_bytes=_IN_FLIGHT_BYTES,
        )
        if plan.row_bytes_per_token:
            seconds += latency + plan.row_bytes_per_token / rates.drive
    return 1.0 / seconds if seconds > 0 else None


def _turns(cache: CachePlan, drive: float, compute: float, rates: Rates) -> ExpertTurns:
    recall = cache.recall or 0.0
    absence = 1 - cache.hit_rate
    return ExpertTurns(
        count=cache.layers,
        used=cache.per_token,
        absence=absence,
        compute=cache.record_bytes / (rates.expert_compute or compute),
        read=cache.record_bytes / drive,
        foreseen=recall,
        wrong=absence * cache.wrong_per_turn,
        guess=(rates.guess or 0.0) if recall and absence else 0.0,
        per_read=rates.per_read or 0.0,
    )


def assumptions_of(plan: MemoryPlan, rates: Rates) -> list[Assumption]:
    """What the prediction for `plan` rests on; nothing without a drive's rate."""
    if rates.drive is None:
        return []
    found = [Assumption("drive, many reads in flight", format_rate(rates.drive), rates.drive_origin)]
    if rates.compute is None:
        found.append(Assumption("processor", "takes no time, latency neither", "assumed"))
    else:
        latency, origin = _latency(rates)
        found.append(Assumption("latency of a lone read", f"{latency * 1e6:.0f} us", origin))
        found.append(Assumption("compute", format_rate(rates.compute), rates.compute_origin))
        if plan.trunk.streamed_bytes:
            found.append(_compute("what was just read", rates.streamed_compute, rates))
    if plan.cache is not None:
        found += _of_experts(plan.cache, rates)
    return found


def _latency(rates: Rates) -> tuple[float, str]:
    """Seconds, and how they are known."""
    return (ASSUMED_LATENCY, "assumed") if rates.latency is None else (rates.latency, rates.latency_origin)


def _of_experts(cache: CachePlan, rates: Rates) -> list[Assumption]:
    found = []
    if rates.compute is not None:
        found.append(_compute("experts", rates.expert_compute, rates))
        for what, seconds in (("guess about a layer", rates.guess), ("read of an expert", rates.per_read)):
            value, origin = (
                ("no time", "assumed")
                if seconds is None
                else (f"{seconds * 1e6:.0f} us", rates.compute_origin)
            )
            found.append(Assumption(f"processor for a {what}", value, origin))
    found.append(Assumption("experts in memory", f"{cache.hit_rate:.1%}", cache.basis))
    if cache.recall is None:
        found.append(Assumption("experts guessed in time", "none", "assumed: nothing was learned"))
    else:
        found.append(Assumption("experts that guesses name", f"{cache.recall:.1%}", "this model's usage"))
    return found


def _compute(what: str, rate: float | None, rates: Rates) -> Assumption:
    if rate is None:
        return Assumption(f"compute of {what}", "as the rest", "assumed")
    return Assumption(f"compute of {what}", format_rate(rate), rates.compute_origin)
