"""From a container's banks to an expert cache: sizes for the plan, open files, slots, usage."""

from __future__ import annotations

from contextlib import ExitStack

from uringinfer.container.container import Container
from uringinfer.engine.routing_log import RoutingLog
from uringinfer.models.base import Model
from uringinfer.planning.cache import CachePlan, Curve, ExpertSizes, curve_of_usage
from uringinfer.residency.checker import ReadChecker
from uringinfer.residency.experts import ExpertCache
from uringinfer.residency.policies import make_policy
from uringinfer.residency.records import ExpertRecords
from uringinfer.residency.usage import UsageCounts, read_usage
from uringinfer.storage.arena import Arena
from uringinfer.storage.direct import StorageFile, open_file
from uringinfer.storage.reader import Reader


def expert_sizes(container: Container, model: Model) -> ExpertSizes | None:
    """What the planner needs to know of the routed experts; None for a dense model."""
    banks = container.manifest.banks
    if not banks:
        return None
    return ExpertSizes(
        layers=len(banks),
        count=max(bank.num_experts for bank in banks),
        per_token=model.experts_per_token,
        record_bytes=max(bank.record_bytes for bank in banks),
    )


def learned_usage(container: Container) -> tuple[UsageCounts | None, list[str]]:
    """What earlier runs learned of the container's experts, and a note if it cannot be used."""
    banks = container.manifest.banks
    if not banks:
        return None, []
    count = max(bank.num_experts for bank in banks)
    layers = [bank.layer for bank in banks]
    usage, note = read_usage(container.path, container.fingerprint, layers, count)
    return usage, [note] if note else []


def usage_curve(usage: UsageCounts | None) -> Curve | None:
    """How the hit rate grows with slots by what was learned; None if nothing was."""
    return curve_of_usage(usage.counts) if usage is not None and usage.counts.any() else None


def learned_recall(usage: UsageCounts | None, lookahead: int) -> float | None:
    """The share of the experts that looking `lookahead` ahead names; None if it was not learned."""
    return usage.recall if usage is not None and lookahead else None


class ExpertFiles:
    """The banks of a container, open."""

    def __init__(self, container: Container) -> None:
        self.notes: list[str] = []
        self._stack = ExitStack()
        banks, sharding = container.manifest.banks, container.manifest.sharding
        self.drives = 1 if sharding is None else len(sharding.drives)
        by_layer = {
            bank.layer: [self._stack.enter_context(open_file(path)) for path in container.bank_paths(bank)]
            for bank in banks
        }
        self.files: list[StorageFile] = [file for files in by_layer.values() for file in files]
        self.records = ExpertRecords(banks, by_layer, container.record_place)
        buffered = [file for file in self.files if not file.direct.is_direct]
        if buffered:
            self.notes.append(f"experts are read through the page cache: {buffered[0].direct.reason}")

    def make_cache(
        self,
        arena: Arena,
        reader: Reader,
        plan: CachePlan,
        *,
        policy: str,
        lookahead: int,
        checker: ReadChecker | None,
        poison: bool,
    ) -> tuple[ExpertCache, RoutingLog]:
        """The cache in its slots, empty, and the log that hears of its demands."""
        layers, count = self.records.layers, self.records.num_experts
        log = RoutingLog(UsageCounts(layers, count))
        slots = [arena.carve(plan.record_bytes, name="expert slot") for _ in range(plan.slots)]
        cache = ExpertCache(
            self.records,
            reader,
            slots,
            make_policy(policy, layers, count),
            lookahead=lookahead,
            checker=checker,
            poison=poison,
            on_routed=log.routed,
        )
        return cache, log

    def close(self) -> None:
        self._stack.close()
