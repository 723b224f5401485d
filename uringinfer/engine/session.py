"""One conversation: what it has been fed, and the state that the model keeps of it.

A session belongs to an engine and shares its weights. Feeding goes in chunks; each chunk is one pass over the
weights, so a longer chunk reads less and needs more scratch memory. A session can be saved to a file and go
on from there as if it had never ended (`engine/session_file.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uringinfer.container.container import Container
from uringinfer.engine.session_file import SessionHeader, read_header, read_session, write_session
from uringinfer.engine.snapshots import Snapshots
from uringinfer.errors import UsageError
from uringinfer.models.base import Floats, Model, Span
from uringinfer.residency.trunk import Trunk
from uringinfer.units import counted


@dataclass(frozen=True, slots=True)
class Part:
    """What a session has in a pass: `tokens` to feed, and of how many of the last ones the logits are
    `wanted`. After a `trial`, `Session.settle` can take back all but the first."""

    session: Session
    tokens: NDArray[np.int64]
    wanted: int = 1
    trial: bool = False


def feed_together(parts: Sequence[Part]) -> list[Floats]:
    """Feeds every part in one pass over the weights; each one's logits, float32 [wanted, vocab].

    The sessions are different ones of one engine, and have room for their tokens. A pass that raises is taken
    back in all of them; where a model's state cannot be, that session is not whole any more.
    """
    first = parts[0].session
    fed = [part.session.length for part in parts]
    try:
        with first._trunk.begin() as weights:
            for part in parts:
                part.session.is_whole = False
            spans = [Span(part.session._state, part.tokens, part.wanted, part.trial) for part in parts]
            logits = first._model.forward(weights, spans)
    except BaseException:
        for part, length in zip(parts, fed, strict=True):
            part.session._take_back(length)
        raise
    for part, given in zip(parts, logits, strict=True):
        part.session._has_fed(part.tokens, given)
    return logits


class Session:
    """The state of one conversation. Made by `Engine.session` and `Engine.load_session`.

    `fed` are the tokens fed so far; `chosen` is the one that was picked last and not fed yet, if any: whoever
    goes on feeds it first. `last_logits` [vocab] are those after the last token fed. `sampling` is the seed
    of the sampler that picked, and how many numbers it drew.
    """

    def __init__(
        self, model: Model, trunk: Trunk, container: Container, context: int, chunk: int, snapshots: int = 0
    ) -> None:
        """`snapshots`: how many places to go back to are kept, see `mark`."""
        self._model = model
        self._trunk = trunk
        self._container = container
        self._chunk = chunk
        self._snapshots = Snapshots(snapshots)
        self._state = model.new_state(context)
        self.engine: object = None
        """Kept alive for as long as the session is."""
        self.is_whole = True
        self.fed: list[int] = []
        self.chosen: int | None = None
        self.last_logits: Floats | None = None
        self.sampling: tuple[int, int] | None = None

    @property
    def length(self) -> int:
        """Positions fed."""
        return self._state.length

    @property
    def context(self) -> int:
        """Positions that fit."""
        return self._state.context

    @property
    def vocab_size(self) -> int:
        """Tokens are numbers below this."""
        return self._model.vocab_size

    @property
    def can_rewind(self) -> bool:
        """Whether a pass that is interrupted could be taken back."""
        return self._state.can_rewind

    def passes(self, ids: Sequence[int] | NDArray[np.int64], *, all_logits: bool = False) -> Iterator[Floats]:
        """Feeds `ids` chunk by chunk; yields the logits of each chunk.

        Logits are float32 [tokens of the chunk, vocab] if `all_logits`, else [1, vocab] of its last token.
        Raises UsageError if `ids` is empty, holds no token of the model, or does not fit into the context;
        Interrupted if the engine was asked to stop. A pass that did not end is taken back, so that the
        session can go on; where the model has a recurrent state it cannot be, and the session refuses to,
        until `rewind` has taken it to a mark.
        """
        tokens = as_tokens(ids, self._model.vocab_size)
        self.check_room(len(tokens))
        for start in range(0, len(tokens), self._chunk):
            chunk = tokens[start : start + self._chunk]
            [logits] = feed_together([Part(self, chunk, len(chunk) if all_logits else 1)])
            yield logits

    def feed(self, ids: Sequence[int] | NDArray[np.int64], *, all_logits: bool = False) -> Floats:
        """Feeds `ids`; logits float32 [len(ids), vocab] if `all_logits`, else [1, vocab] of the last.

        Raises as `passes` does.
        """
        if all_logits:
            return np.concatenate(list(self.passes(ids, all_logits=True)))
        for logits in self.passes(ids):
            last = logits
        return last

    def try_out(self, ids: Sequence[int]) -> Floats:
        """Feeds `ids` in one pass, of which those behind the first are guesses; logits float32 [n, vocab].

        `settle` then says how many of them were right. Raises as `passes` does."""
        tokens = as_tokens(ids, self._model.vocab_size)
        self.check_room(len(tokens))
        [logits] = feed_together([Part(self, tokens, len(tokens), trial=True)])
        return logits

    def settle(self, length: int, logits: Floats) -> None:
        """Takes back what a trial fed behind `length` positions; `logits` [vocab] are those behind the last
        that stays. Nothing is read for that, and nothing shows of it afterwards."""
        if length < self.length:
            self._state.take_back(length, self._trunk.kernels)
            del self.fed[length:]
            self.last_logits = logits.copy()

    def most_guesses(self, most: int) -> int:
        """How many guesses, at most `most`, can follow the next token in a trial."""
        bound = self._state.most_on_trial
        room = self.context - self.length - 1
        return max(0, min(most, room, most if bound is None else bound - 1))

    def step(self, token: int) -> Floats:
        """Feeds one token; logits float32 [vocab] of what follows it. Raises as `passes` does."""
        logits: Floats = self.feed([token])[-1]
        return logits

    @property
    def has_marks(self) -> bool:
        """Whether there is a place that `rewind` can go back to, besides the beginning."""
        return bool(self._snapshots.lengths)

    def mark(self) -> None:
        """Makes where the session is now a place that `rewind` can go back to, if its state needs that."""
        if self.is_whole and self.last_logits is not None:
            self._snapshots.take(self._state, self.last_logits)

    def rewind(self, length: int) -> int:
        """Goes back to `length` positions; where a recurrent state or a window cannot, to the nearest mark
        before, or to the beginning. Returns the positions that are left; the session is whole again."""
        length = min(length, self.length)
        if self.is_whole and length == self.length:
            return length
        self._state.length = length
        if not (self.is_whole and self._state.can_rewind):
            self._snapshots.restore(self._state, length)
        self._snapshots.forget_behind(self.length)
        mark = self._snapshots.at(self.length)
        self.fed = self.fed[: self.length]
        self.chosen = None
        self.last_logits = None if mark is None else mark.logits.copy()
        self.is_whole = True
        return self.length

    def save(
        self,
        path: Path | str,
        messages: Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes the conversation to `path`, in one step, with the `messages` that it consists of, if any,
        and what its chat format is told besides.

        Raises UsageError if nothing was fed or if the session is not whole (`is_whole`: a pass was
        interrupted and could not be taken back), EnvironmentError_ if the file cannot be written.
        """
        if not self.is_whole:
            raise UsageError("this session was interrupted inside a pass: there is no whole state to save")
        if self.last_logits is None:
            raise UsageError("this session has not been fed anything yet: there is nothing to save")
        seed, draws = self.sampling or (None, None)
        ids = self.fed if self.chosen is None else [*self.fed, self.chosen]
        header = SessionHeader(
            self._container.identity,
            self._model.family,
            tuple(ids),
            self.length,
            seed,
            draws,
            None if messages is None else tuple(messages),
            None if tools is None else tuple(tools),
            variables,
        )
        write_session(Path(path), header, self._arrays(self.last_logits))

    def restore(self, path: Path | str) -> SessionHeader:
        """Takes the place of the conversation in `path`; of no use any more if that fails. Returns what the
        file says of itself.

        Raises UsageError if it is of another model or does not fit into the context, IntegrityError if the
        file is damaged.
        """
        path = Path(path)
        header = read_header(path)
        check_header(path, header, self._model.family, self._container, self.context)
        self.is_whole = False
        self._state.begin_at(0)
        self._state.length = header.length
        logits = np.empty(self._model.vocab_size, np.float32)
        read_session(path, header, self._arrays(logits))
        self.last_logits = logits
        self.fed = list(header.ids[: header.length])
        self.chosen = header.ids[header.length] if len(header.ids) > header.length else None
        self.sampling = None if header.seed is None else (header.seed, header.draws or 0)
        self.is_whole = True
        return header

    def _take_back(self, length: int) -> None:
        """Returns to `length` positions after a pass that did not end, if the state can."""
        self._state.length = length
        self.is_whole = self.is_whole or self._state.can_rewind

    def _has_fed(self, tokens: NDArray[np.int64], logits: Floats) -> None:
        self.chosen = None
        self.fed += tokens.tolist()
        self.last_logits = logits[-1].copy()
        self.is_whole = True

    def _arrays(self, logits: Floats) -> dict[str, NDArray[Any]]:
        return {**self._state.arrays(), "logits": logits}

    def check_room(self, tokens: int) -> None:
        """Raises UsageError unless `tokens` more can be fed: the session is whole, and they fit."""
        if not self.is_whole:
            raise UsageError("this session was interrupted inside a pass", hint="begin a new one")
        check_room(self.length, tokens, self.context)


def check_header(path: Path, header: SessionHeader, family: str, container: Container, context: int) -> None:
    """Raises UsageError unless the session in `path` belongs to the model and fits into `context`."""
    if header.model != container.identity:
        raise UsageError(
            f"{path} is a conversation with another model ({header.family}, {header.model}; this is"
            f" {family}, {container.identity})",
            hint="load it with the model that it was saved with, in the same formats",
        )
    if not 0 < header.length <= context or len(header.ids) > header.length + 1:
        raise UsageError(
            f"{path} holds {header.length} tokens, which do not fit into a context of {context}",
            hint="use a longer context (-c)",
        )


def check_room(fed: int, tokens: int, context: int) -> None:
    """Raises UsageError unless `tokens` more fit into `context` behind the `fed` ones."""
    if fed + tokens > context:
        after = f" after {fed}" if fed else ""
        raise UsageError(
            f"{counted(tokens, 'token')}{after} {'does' if tokens == 1 else 'do'} not fit"
            f" into a context of {context}",
            hint="use a longer context (-c) or a shorter prompt",
        )


def as_tokens(ids: Sequence[int] | NDArray[np.int64], vocab_size: int) -> NDArray[np.int64]:
    """`ids` as int64 [n]. Raises UsageError if there are none, or if one is no number in [0, vocab_size)."""
    try:
        tokens = np.asarray(ids, np.int64)
    except OverflowError:
        wrong = max(ids, key=abs)
    else:
        if tokens.ndim != 1 or not len(tokens):
            raise UsageError("there is no token to feed", hint="give a prompt of at least one token")
        low, high = int(tokens.min()), int(tokens.max())
        if low >= 0 and high < vocab_size:
            return tokens
        wrong = low if low < 0 else high
    raise UsageError(f"token {wrong} is outside of the vocabulary of {vocab_size}")
