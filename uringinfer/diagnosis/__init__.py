"""Checks everything that decides whether a run will be good; one finding each.

`diagnose` looks at the machine and, if one is named, at a model. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from uringinfer.diagnosis.findings import Finding, Status
from uringinfer.diagnosis.machine_checks import check_machine
from uringinfer.diagnosis.model_checks import check_model

__all__ = ["READ_SECONDS", "Finding", "Status", "diagnose"]

READ_SECONDS = 2.0
"""How long a model's files are read to clock the drive."""


def diagnose(
    path: str | Path | None = None,
    *,
    deep: bool = False,
    seconds: float = READ_SECONDS,
    proc: Path = Path("/proc"),
    sys: Path = Path("/sys"),
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Finding]:
    """The findings about this machine, then about the model at `path`, each as soon as it is known.

    `deep` checks every CRC32 of a container, or every known digest of a checkpoint's files, and calls
    `progress` with (bytes done, bytes in all). `seconds` is how long the drive is clocked. Raises UsageError
    if there is no model at `path`.
    """
    yield from check_machine(proc, sys)
    if path is not None:
        yield from check_model(Path(path), seconds, deep=deep, progress=progress)
