"""Answers the prompts of a job in their order, each written as soon as those before it are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from uringinfer.engine.answers import Answer, BatchStatistics, Progress, answer_all
from uringinfer.engine.engine import Engine
from uringinfer.engine.prompts_file import Asked, failed


@dataclass(slots=True)
class JobResult:
    """What a job came to: `answered` prompts of which `errors` could not be, and what they took."""

    answered: int
    errors: int
    statistics: BatchStatistics


def run_job(
    engine: Engine,
    asked: Sequence[Asked],
    write: Callable[[str], None],
    progress: Progress | None = None,
    swap: Path | None = None,
) -> JobResult:
    """Answers `asked` and gives `write` the lines, in their order; `swap` as in `answer_all`.

    Raises what `answer_all` raises; the lines written until then are whole, and a job over the rest of
    `asked` goes on behind them.
    """
    result = JobResult(0, 0, BatchStatistics())
    ready: dict[int, Answer] = {n: failed(n, prompt) for n, prompt in enumerate(asked) if prompt.error}

    def flush() -> None:
        while (answer := ready.pop(result.answered, None)) is not None:
            write(asked[result.answered].line(answer))
            result.answered += 1
            result.errors += answer.error is not None

    good = [number for number, prompt in enumerate(asked) if prompt.error is None]
    requests = (asked[number].request for number in good)
    flush()
    for answer in answer_all(engine, requests, statistics=result.statistics, progress=progress, swap=swap):
        ready[good[answer.number]] = answer
        flush()
    return result
