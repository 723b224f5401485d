"""Conversations that are over for now and may go on: in memory as long as there is room, then on the drive.

A new conversation often begins as another one did: with the same instructions, or with all of that one's
turns. So ended sessions are kept. Whoever is about to feed some tokens takes the session that has fed the
longest beginning of them, gone back to there, and feeds only the rest. No bit of any logits depends on that.

Sessions in use and those kept in memory are at most as many as were planned for. When another one is needed,
the one that was used longest ago makes room: it goes to the swap directory, if there is one, as a session
file, and comes back from there. A session that cannot be read back is left out, and said; its text is fed
anew.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from uringinfer.engine.session import Session
from uringinfer.engine.session_file import SESSION_SUFFIX, read_header
from uringinfer.errors import EnvironmentError_, UringinferError, UsageError
from uringinfer.units import format_size

WORTH_READING = 64
"""Tokens: a shorter beginning is fed faster than a session is read from the drive."""
WORTH_TAKING = 8
"""Tokens of a beginning for which a session in memory is taken rather than a new one."""


@dataclass(slots=True)
class SwapStatistics:
    """What went to the drive and came back, and the seconds and bytes that it took; tokens that need not be
    fed because a kept session had fed them."""

    out: int = 0
    back: int = 0
    lost: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    reused_tokens: int = 0

    def to_text(self) -> str:
        """A line for a person; empty if nothing happened."""
        lines = [f"{self.reused_tokens} tokens had been fed before"] if self.reused_tokens else []
        if self.out or self.back:
            moves = self.out + self.back
            lines.append(
                f"{self.out} conversations went to the drive and {self.back} came back,"
                f" {format_size(self.nbytes // moves)} and {self.seconds / moves:.3f} s each"
            )
        return "; ".join(lines)


@dataclass(slots=True, eq=False)
class _Kept:
    """A session in memory, or the file that it went to with what it has fed."""

    fed: list[int]
    session: Session | None
    path: Path | None = None


@dataclass(slots=True)
class KeptSessions:
    """At most `most` sessions in use and in memory together, made by `new`; others in the directory `swap`.

    Files of earlier runs that are there are found again, those of other models left alone. `notes` says what
    could not be read back.
    """

    new: Callable[[], Session]
    most: int
    swap: Path | None = None
    statistics: SwapStatistics = field(default_factory=SwapStatistics)
    notes: list[str] = field(default_factory=list)
    _kept: list[_Kept] = field(default_factory=list)
    _in_use: int = 0

    def __post_init__(self) -> None:
        """Raises EnvironmentError_ for a directory that cannot be used, UsageError for something else."""
        if self.swap is None:
            return
        try:
            self.swap.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = sorted(self.swap.glob(f"*{SESSION_SUFFIX}"), key=lambda path: path.stat().st_mtime)
        except FileExistsError:
            raise UsageError(f"{self.swap} is no directory", hint="choose another --swap") from None
        except OSError as error:
            raise EnvironmentError_(f"cannot use {self.swap}: {error.strerror}") from error
        for path in found:
            try:
                header = read_header(path)
            except UringinferError:
                continue  # not ours, or damaged: a name in a directory promises nothing
            self._kept.append(_Kept(list(header.ids[: header.length]), None, path))

    def take(self, ids: Sequence[int]) -> Session:
        """A session that has fed as much of the beginning of `ids` as any kept one has, the last of `ids`
        left out, and nothing else; it is in use until `give` or `drop`.

        Raises UsageError if as many are in use as may be, EnvironmentError_ if the swap directory is full.
        """
        if self._in_use >= self.most:
            raise UsageError(f"{self.most} conversations are in use already")
        kept, common = self._closest(ids)
        session = None
        if kept is not None:
            self._kept.remove(kept)
            session = kept.session or self._read_back(kept)
        if session is None:
            self._make_room()
            session, common = self.new(), 0
        self._in_use += 1
        self.statistics.reused_tokens += session.rewind(common)
        return session

    def give(self, session: Session) -> None:
        """Keeps a session that is not in use any more; one that is not whole is dropped."""
        self._in_use -= 1
        if session.is_whole and session.last_logits is not None:
            self._kept.append(_Kept(session.fed, session))

    def drop(self) -> None:
        """Says that a session is not in use any more and is of no use."""
        self._in_use -= 1

    def keep_all(self) -> None:
        """Writes what is in memory to the swap directory, if there is one, to be found by the next run."""
        if self.swap is not None:
            for kept in self._kept:
                if kept.session is not None:
                    self._write_out(kept)

    def _closest(self, ids: Sequence[int]) -> tuple[_Kept | None, int]:
        """The kept session with the longest beginning of `ids`, the last used of those, and its length."""
        best: tuple[_Kept | None, int] = (None, 0)
        for kept in self._kept:
            common = _common(kept.fed, ids, len(ids) - 1)
            worth = WORTH_READING if kept.session is None else WORTH_TAKING
            if common >= max(worth, best[1]):
                best = (kept, common)
        return best

    def _make_room(self) -> None:
        """Until there is room for one more in memory, the session that was used longest ago goes."""
        while self._in_use + sum(kept.session is not None for kept in self._kept) >= self.most:
            oldest = next(kept for kept in self._kept if kept.session is not None)
            if self.swap is not None:
                self._write_out(oldest)
            else:
                self._kept.remove(oldest)

    def _write_out(self, kept: _Kept) -> None:
        if kept.session is None or self.swap is None:
            return
        began = time.perf_counter()
        path = self.swap / f"{secrets.token_hex(8)}{SESSION_SUFFIX}"
        kept.session.save(path)
        kept.session, kept.path = None, path
        self._count(path, began)
        self.statistics.out += 1

    def _read_back(self, kept: _Kept) -> Session | None:
        """The session of a file, which is removed; None, and a note, if it cannot be read."""
        path = kept.path
        if path is None:
            return None
        self._make_room()
        session, began = self.new(), time.perf_counter()
        try:
            session.restore(path)
            self._count(path, began)
            self.statistics.back += 1
        except UringinferError as error:
            self.notes.append(f"a conversation is fed anew: {error}")
            self.statistics.lost += 1
            return None
        finally:
            path.unlink(missing_ok=True)
        return session

    def _count(self, path: Path, began: float) -> None:
        self.statistics.nbytes += path.stat().st_size
        self.statistics.seconds += time.perf_counter() - began


def _common(fed: Sequence[int], ids: Sequence[int], most: int) -> int:
    """How many of the first tokens are the same, at most `most`."""
    most = min(len(fed), most)
    low, high = 0, max(0, most)
    while low < high:  # by halves: comparing lists costs less than a loop over their tokens
        middle = (low + high + 1) // 2
        if fed[low:middle] == ids[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
