"""Conversations that share passes: they join and leave between passes, and each pass carries what all of them
have to feed.

A pass over weights that stream from a drive costs nearly the same for one token and for many. So the token
that each decoding turn feeds, and pieces of the prompts of others, go through the weights together. A turn's
logits do not depend on who shares its passes (native kernels: not by a bit), so a batch only changes time.

What decodes always rides. Prompts share what room is left in a pass evenly: none waits for a longer one that
came first, and however long they are, a pass carries no more than `tokens`, so that those who decode do not
stall. One thread calls `run_pass`; a batch knows no threads, files or texts.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from uringinfer.engine.session import Part, as_tokens, feed_together
from uringinfer.engine.turn import Feed, Turn
from uringinfer.errors import Interrupted, UringinferError, UsageError
from uringinfer.models.base import Floats
from uringinfer.text.sampling import Sampler


@dataclass(slots=True, eq=False)
class Rider:
    """One turn in a batch. `is_over` when nothing more will come of it; `error` is what ended it early."""

    turn: Turn
    sampler: Sampler
    is_over: bool = False
    error: UringinferError | None = None
    _steps: Generator[Feed, Floats, None] | None = None
    _feeding: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    _guesses: int = 0
    _done: int = 0

    @property
    def left(self) -> int:
        """Tokens of the turn's step that are not fed yet."""
        return len(self._feeding) - self._done

    @property
    def decodes(self) -> bool:
        """Whether its next tokens are its own, not a prompt's."""
        return bool(self.turn.tokens)

    def begin(self, prompt_ids: Sequence[int]) -> None:
        """Takes the first step, which may end the turn already. Raises UsageError for a prompt that cannot be
        fed."""
        self._steps = self.turn.steps(prompt_ids, self.sampler)
        self._advance(None)

    def part(self, tokens: int) -> Part:
        """The next `tokens` of its step, for a pass."""
        piece = self._feeding[self._done : self._done + tokens]
        wanted = len(piece) if self.turn.wants_all_logits else 1 + self._guesses
        return Part(self.turn.session, piece, wanted, trial=self._guesses > 0)

    def fed(self, tokens: int, logits: Floats) -> None:
        """Hears of a pass that fed `tokens` of its step; picks the next token behind the last of them."""
        self._done += tokens
        try:
            self.turn.fed(logits, self._done, len(self._feeding))
            if not self.left:
                self._advance(logits[-1 - self._guesses :])
        except UringinferError as error:
            self.fail(error)

    def fail(self, error: UringinferError) -> None:
        """Ends the turn with an error; the others go on."""
        self.error = error
        self.stop()

    def stop(self) -> None:
        """Ends the turn as an interrupt does, what there is of it is kept."""
        if not self.is_over:
            self.is_over = True
            self.turn.interrupt()

    def _advance(self, logits: Floats | None) -> None:
        steps = self._steps
        if steps is None:
            raise UsageError("a turn that has not begun was asked to go on")
        try:
            feed = next(steps) if logits is None else steps.send(logits)
        except StopIteration:
            self.is_over = True
            return
        self._feeding = as_tokens(feed.ids, self.turn.session.vocab_size)
        self._guesses = feed.guesses
        self.turn.session.check_room(len(self._feeding))
        self._done = 0


class Batch:
    """The turns that share passes now: at most `most`, with at most `tokens` tokens in a pass."""

    def __init__(self, most: int, tokens: int) -> None:
        """Raises UsageError unless a pass has room for a token of every turn."""
        if not 1 <= most <= tokens:
            raise UsageError(
                f"{most} conversations do not share passes of {tokens} tokens",
                hint="a pass needs room for a token of each: give a larger --chunk",
            )
        self._most = most
        self._tokens = tokens
        self._riders: list[Rider] = []

    @property
    def riders(self) -> tuple[Rider, ...]:
        """Those whose turn is not over, in the order in which they joined."""
        return tuple(self._riders)

    @property
    def has_room(self) -> bool:
        return len(self._riders) < self._most

    def join(self, turn: Turn, prompt_ids: Sequence[int], sampler: Sampler) -> Rider:
        """Takes a turn in; its session may have no other turn here.

        Raises UsageError if there is no room, or for a prompt that cannot be fed: empty, with tokens that
        the model does not know, or too long for its session.
        """
        if not self.has_room:
            raise UsageError(f"{self._most} conversations share passes already")
        rider = Rider(turn, sampler)
        rider.begin(prompt_ids)
        if not rider.is_over:
            self._riders.append(rider)
        return rider

    def leave(self, rider: Rider) -> None:
        """Ends a turn between two passes; it keeps what it has."""
        rider.stop()
        self._forget_ended()

    def run_pass(self) -> None:
        """One pass over the weights with what every turn has to feed, as far as there is room.

        An error that is one turn's own ends that turn alone (`Rider.error`). Raises what makes the pass fail
        for all: Interrupted, and IntegrityError for weights that cannot be read; then every turn is ended,
        and as many sessions as can be are as they were before the pass.
        """
        riding = [(rider, count) for rider, count in self._shares() if count]
        if not riding:
            return
        try:
            logits = feed_together([rider.part(count) for rider, count in riding])
        except Interrupted:
            for rider in self._riders:
                rider.stop()
            self._forget_ended()
            raise
        except UringinferError as error:
            for rider in self._riders:
                rider.fail(error)
            self._forget_ended()
            raise
        for (rider, count), given in zip(riding, logits, strict=True):
            rider.fed(count, given)
        self._forget_ended()

    def _shares(self) -> list[tuple[Rider, int]]:
        """How many tokens of each turn the next pass carries."""
        decoding = sum(rider.left for rider in self._riders if rider.decodes)
        reading = [rider for rider in self._riders if not rider.decodes]
        shares = dict(
            zip(reading, share_evenly([r.left for r in reading], self._tokens - decoding), strict=True)
        )
        return [(rider, shares.get(rider, rider.left)) for rider in self._riders]

    def _forget_ended(self) -> None:
        self._riders = [rider for rider in self._riders if not rider.is_over]


def share_evenly(wants: Sequence[int], room: int) -> list[int]:
    """Divides `room` among those who want so much each: nobody gets more than he wants, and who wants more
    than he gets has at most one less than anybody."""
    shares = [0] * len(wants)
    by_want = sorted(range(len(wants)), key=wants.__getitem__)
    for number, place in enumerate(by_want):
        shares[place] = min(wants[place], room // (len(wants) - number))
        room -= shares[place]
    return shares
