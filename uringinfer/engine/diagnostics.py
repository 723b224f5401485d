"""What `--debug` shows of loading: the plan, how weights are read, what was refused, how long it took."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from uringinfer.planning.memory import MemoryPlan
from uringinfer.report import Setup
from uringinfer.units import format_size

_LOG = logging.getLogger(__name__)


def log_loaded(plan: MemoryPlan, setup: Setup, notes: Sequence[str], seconds: float) -> None:
    """Tells of a model that was loaded in so many `seconds`; `notes` are what was refused."""
    if not _LOG.isEnabledFor(logging.DEBUG):
        return
    _LOG.debug("budget %s, floor %s", format_size(plan.budget), format_size(plan.floor))
    for row in plan.rows():
        _LOG.debug("plan: %s %s %s", row.name, format_size(row.nbytes), row.note)
    for line in setup.to_text().splitlines():
        _LOG.debug("%s", line)
    for note in notes:
        _LOG.debug("refused or missing: %s", note)
    _LOG.debug("loaded in %.3f s", seconds)
