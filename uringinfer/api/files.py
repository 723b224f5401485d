"""The public functions that look at files and need no engine: info, simulate."""

from __future__ import annotations

from pathlib import Path

from uringinfer.container.container import Container
from uringinfer.container.summary import Summary, summarise
from uringinfer.errors import UsageError
from uringinfer.models import model_from_config
from uringinfer.residency.policies import DEFAULT_POLICY, POLICIES
from uringinfer.residency.simulate import SimulationResult, slots_of
from uringinfer.residency.simulate import simulate as simulate_slots
from uringinfer.residency.trace import Trace, read_trace
from uringinfer.units import as_bytes


def info(path: str | Path) -> Summary:
    """What is in the container at `path`: its family, tensors, formats and bytes.

    Raises UsageError if it is none, IntegrityError if it is damaged.
    """
    container = Container.open(path)
    model = model_from_config(container.manifest.config)
    return summarise(container, model.experts_per_token)


def simulate(
    trace: str | Path | Trace,
    policy: str = DEFAULT_POLICY,
    *,
    slots: int | None = None,
    capacity: int | str | None = None,
    record_bytes: int | str | None = None,
) -> SimulationResult:
    """Replays a trace of routed experts against a cache of `slots` records, or of `capacity` bytes with
    records of `record_bytes`.

    Raises UsageError for a policy that does not exist or a cache without a size.
    """
    if policy not in POLICIES:
        raise UsageError(f"no cache policy is called '{policy}'", hint=f"choose from {', '.join(POLICIES)}")
    size, record = as_bytes(capacity, "capacity"), as_bytes(record_bytes, "record_bytes")
    if slots is None:
        if size is None or not record:
            raise UsageError("the cache has no size", hint="give slots, or capacity and record_bytes")
        [slots] = slots_of([size], record)
    return simulate_slots(trace if isinstance(trace, Trace) else read_trace(Path(trace)), policy, slots)
