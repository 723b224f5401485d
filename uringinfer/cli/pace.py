"""Bars of things that are worked off step by step, with the pace so far and the time left at that pace.

rich's own columns for these know no speed before the second step and forget steps after half a minute: the
time left of slow steps would never be known.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.filesize import decimal
from rich.progress import Progress, ProgressColumn, Task, TaskID
from rich.text import Text


class Bars:
    """Draws one bar in `display` for each thing that it is told of."""

    def __init__(self, display: Progress) -> None:
        self._display = display
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, what: str, done: int, total: int, detail: str = "") -> None:
        """`done` of `total` steps of `what` are done; less than before if it is begun again. `detail` is what
        is known so far."""
        described = f"{what} {detail}".rstrip()
        if what not in self._tasks:
            self._tasks[what] = self._display.add_task(
                described, total=total, completed=done, already=done, stepped=0.0
            )
            return
        number = self._tasks[what]
        task = self._display.tasks[number]
        if done < task.completed:
            self._display.reset(
                number, description=described, total=total, completed=done, already=done, stepped=0.0
            )
            return
        stepped = task.elapsed if done > task.completed else task.fields["stepped"]
        self._display.update(number, description=described, total=total, completed=done, stepped=stepped)


class PaceColumn(ProgressColumn):
    """The average pace and the time left at it; until a step is done, the time that has gone by.

    A task's field `already` is how many steps were done when it began, which took none of its time, and
    `stepped` when the last step was done, in seconds from the beginning. `show` puts a pace into words.
    """

    def __init__(self, show: Callable[[float], str]) -> None:
        super().__init__()
        self._show = show

    def render(self, task: Task) -> Text:
        """`task` in words. Its pace holds still between steps: time without one is no sign of a slow step."""
        elapsed = task.elapsed or 0.0
        steps, seconds = task.completed - task.fields["already"], task.fields["stepped"]
        if steps <= 0 or seconds <= 0.0:
            return Text(f"{_clock(elapsed)} so far", style="progress.elapsed")
        pace = steps / seconds
        left = (task.remaining or 0.0) / pace - (elapsed - seconds)
        return Text(f"{self._show(pace)}, {_clock(max(left, 0.0))} left", style="progress.remaining")


def show_steps(pace: float) -> str:
    """Steps a second as "3.4/s"; slower than one a second, "8.2 s each"."""
    if pace >= 1.0:
        return f"{pace:.1f}/s"
    seconds = 1 / pace
    return f"{seconds:.1f} s each" if seconds < 60.0 else f"{_clock(seconds)} each"


def show_bytes(pace: float) -> str:
    """Bytes a second as "1.5 GB/s"."""
    return f"{decimal(int(pace))}/s"


def _clock(seconds: float) -> str:
    """m:ss or h:mm:ss, to the next whole second."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
