"""Traces of routed experts: which experts every token used, layer by layer.

Two formats, told apart by their first bytes:

- JSON lines, one token each: {"tok": n, "layers": [[ids], ...]}, one list for each layer that has experts, in
  the order of execution. What `generate --trace` writes, unless the file's name ends in .bin.
- Raw pairs of little-endian int32, (layer, expert), in the order of use. What `generate --trace FILE.bin`
  and some public engines write; they do not say where a token ends, so a pass ends where the layer number
  falls.

A trace is foreign input: every number is checked before anything is allocated by it, and an error names the
line or the byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError
from uringinfer.residency.policies import ExpertKey
from uringinfer.storage.growing_file import GrowingFile
from uringinfer.storage.regular import read_regular

MAX_LAYERS = 1 << 12
MAX_EXPERTS = 1 << 16
MAX_RECORDS = 1 << 22
"""Bounds of what a trace may name: layer numbers, expert numbers, and their rectangle, which policies
allocate."""
_PAIR_BYTES = 8


@dataclass(frozen=True, slots=True)
class Turn:
    """One layer's turn: the experts it used, in order."""

    layer: int
    experts: tuple[int, ...]

    @property
    def requests(self) -> list[ExpertKey]:
        return [(self.layer, expert) for expert in self.experts]


@dataclass(frozen=True, slots=True)
class Trace:
    """Turns in the order of execution, in `passes` passes (tokens, when decoding)."""

    turns: tuple[Turn, ...]
    passes: int

    @property
    def requests(self) -> int:
        """Experts used, counting each use."""
        return sum(len(turn.experts) for turn in self.turns)

    @property
    def layers(self) -> tuple[int, ...]:
        """Numbers of the layers, in the order of execution."""
        return tuple(dict.fromkeys(turn.layer for turn in self.turns))

    @property
    def num_experts(self) -> int:
        """Experts of a layer, as far as the trace shows: the largest number and one."""
        return 1 + max(max(turn.experts, default=0) for turn in self.turns)

    @property
    def distinct(self) -> int:
        """Different experts used: as many slots as that, and every miss is a first use."""
        return len({key for turn in self.turns for key in turn.requests})


def read_trace(path: Path) -> Trace:
    """Reads a trace in either format.

    Raises UsageError if there is no such file, EnvironmentError_ if it cannot be read, IntegrityError for a
    device or a pipe, and naming the place of what is no trace.
    """
    try:
        data = read_regular(path)
    except FileNotFoundError:
        raise UsageError(f"trace '{path}' does not exist") from None
    except OSError as error:
        raise EnvironmentError_(f"trace '{path}' cannot be read: {error.strerror}") from error
    if not data.strip():
        raise IntegrityError(f"trace '{path}' is empty")
    # text has no zero bytes; small little-endian numbers have little else
    trace = _read_pairs(path, data) if 0 in data[:_PAIR_BYTES] else _read_lines(path, data)
    if not trace.requests:
        raise IntegrityError(f"trace '{path}' names no experts")
    rectangle = (1 + max(trace.layers)) * trace.num_experts
    if rectangle > MAX_RECORDS:
        raise IntegrityError(
            f"trace '{path}' spans {rectangle} experts, more than the {MAX_RECORDS} there can be"
        )
    return trace


def _read_lines(path: Path, data: bytes) -> Trace:
    turns: list[Turn] = []
    passes = 0
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            turns += _token_turns(f"trace '{path}' line {number}", line)
            passes += 1
    return Trace(tuple(turns), passes)


def _token_turns(where: str, line: bytes) -> Iterator[Turn]:
    try:
        token = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{where} is not JSON: {error}") from error
    layers = token.get("layers") if isinstance(token, dict) else None
    if not isinstance(layers, list) or not _is_count(token.get("tok"), 1 << 62):
        raise IntegrityError(f'{where} is not of the form {{"tok": n, "layers": [[ids], ...]}}')
    if len(layers) > MAX_LAYERS:
        raise IntegrityError(f"{where} has {len(layers)} layers, more than {MAX_LAYERS}")
    for layer, experts in enumerate(layers):
        if not isinstance(experts, list):
            raise IntegrityError(f"{where}, layer {layer}: {_shown(experts)} is no list of experts")
        for expert in experts:
            if not _is_count(expert, MAX_EXPERTS):
                raise IntegrityError(f"{where}, layer {layer}: {_shown(expert)} is no expert's number")
        if experts:
            yield Turn(layer, tuple(experts))


def _is_count(value: Any, limit: int) -> bool:
    """Whether `value` is an integer, and not a boolean, in [0, limit)."""
    return type(value) is int and 0 <= value < limit


def _shown(value: Any) -> str:
    return json.dumps(value)[:40]


def _read_pairs(path: Path, data: bytes) -> Trace:
    if len(data) % _PAIR_BYTES:
        raise IntegrityError(
            f"trace '{path}' has {len(data)} bytes, not a multiple of {_PAIR_BYTES}",
            hint="it may be cut short, or not a trace",
        )
    pairs = np.frombuffer(data, "<i4").reshape(-1, 2)
    limits = np.array([MAX_LAYERS, MAX_EXPERTS])
    wrong = np.flatnonzero(((pairs < 0) | (pairs >= limits)).any(axis=1))
    if wrong.size:
        layer, expert = pairs[wrong[0]].tolist()
        raise IntegrityError(
            f"trace '{path}' at byte {wrong[0] * _PAIR_BYTES}: layer {layer}, expert {expert} cannot be"
        )
    step = np.diff(pairs[:, 0])
    runs = np.split(pairs, np.flatnonzero(step) + 1)
    turns = tuple(Turn(int(run[0, 0]), tuple(run[:, 1].tolist())) for run in runs)
    return Trace(turns, passes=1 + int((step < 0).sum()))


class TraceWriter:
    """Writes a trace while tokens are made; use it in a `with`. `kind` is 'jsonl' or 'pairs'; without it, a
    file whose name ends in .bin gets pairs and any other JSON lines.

    Raises EnvironmentError_ naming the file if it cannot be written, when it is opened or later (a full
    drive).
    """

    def __init__(self, path: Path, kind: str | None = None) -> None:
        if kind is None:
            kind = "pairs" if path.suffix == ".bin" else "jsonl"
        if kind not in ("jsonl", "pairs"):
            raise UsageError(f"no trace is of the kind '{kind}'", hint="choose jsonl or pairs")
        self._kind = kind
        self._file = GrowingFile(path)

    def write_token(self, token: int, layers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """One token's experts: (layer number, experts) of each layer that has some, in the order of
        execution."""
        if self._kind == "jsonl":
            experts = [[int(expert) for expert in chosen] for _, chosen in layers]
            data = json.dumps({"tok": token, "layers": experts}).encode() + b"\n"
        else:
            pairs = [(layer, expert) for layer, chosen in layers for expert in chosen]
            data = np.array(pairs, "<i4").tobytes()
        self._file.append(data)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._file.close(error)
