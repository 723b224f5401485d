"""What a load was asked for and what it obtained, for the report of its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uringinfer.container.checksum import PROVIDER
from uringinfer.engine.load_options import LoadOptions
from uringinfer.planning.memory import MemoryPlan
from uringinfer.report import Setup
from uringinfer.residency.trunk import Trunk
from uringinfer.storage.arena import Arena
from uringinfer.storage.direct import StorageFile
from uringinfer.storage.reader import Reader

if TYPE_CHECKING:
    from uringinfer.engine.loading import OpenModel


def obtained(
    opened: OpenModel,
    options: LoadOptions,
    plan: MemoryPlan,
    arena: Arena,
    file: StorageFile,
    reader: Reader,
    trunk: Trunk,
) -> Setup:
    """The setup of an engine that was made with these."""
    return Setup(
        model=str(opened.container.path),
        family=opened.model.family,
        budget=plan.budget,
        context=opened.context(options),
        chunk=opened.chunk(options),
        pass_tokens=plan.pass_tokens,
        guesses=plan.guesses,
        parallel=options.parallel,
        pinned_bytes=plan.trunk.pinned_bytes,
        streamed_bytes=plan.trunk.streamed_bytes,
        plan_reason=plan.trunk.reason,
        placement=plan.trunk.placement,
        ring_slots=plan.trunk.ring_slots,
        reader=reader.name,
        is_direct=file.direct.is_direct,
        direct_reason=file.direct.reason,
        overlaps=trunk.overlaps,
        arena_bytes=plan.arena_bytes,
        huge_bytes=arena.huge_bytes(),
        kernels=opened.kernels.name,
        simd=opened.kernels.simd,
        threads=opened.kernels.threads,
        cache_slots=plan.cache.slots if plan.cache else 0,
        cache_bytes=plan.cache.nbytes if plan.cache else 0,
        cache_policy=options.cache_policy if plan.cache else None,
        lookahead=options.lookahead if plan.cache else 0,
        verify_reads=options.verify_reads,
        checksums=PROVIDER if options.verify_reads else None,
        snapshots=options.snapshots,
    )
