"""Tokens guessed ahead, checked in one pass, kept while they are what the sampler draws anyway.

A pass over weights that stream costs nearly the same for one token and for several. So a turn feeds its token
together with guesses of those behind it, and gets the logits behind each. It then draws as it always does:
where what it draws is the guess, the logits behind that are there already. The text is exactly that of a turn
without guesses, at any temperature and seed; only time changes.

`LookUp` guesses that what came behind the last few tokens before comes again; it needs no memory. `Pace`
decides how many guesses are worth their time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from uringinfer.report import DraftStatistics
from uringinfer.text.sampling import Sampler

MOST_GUESSES = 15
MOST_DRAFTED = 8
"""By a draft model, which takes time for each."""
LONGEST_GRAM, SHORTEST_GRAM = 4, 2
"""Tokens that must be the same for what came behind them to be guessed."""
_COMPARED = 8
"""Last tokens by which a text is known to be the one that was looked at before."""


class Drafter(Protocol):
    """Where guesses come from."""

    @property
    def name(self) -> str: ...

    def guess(self, fed: Sequence[int], token: int, most: int, sampler: Sampler) -> list[int]:
        """Up to `most` tokens that may follow `token` behind those `fed`, which have usually grown since the
        last call.

        `sampler` is the one that will draw, to be looked at only."""
        ...


class LookUp:
    """Guesses from the text itself: the earlier continuation of its last tokens, the longest match first."""

    name = "look-up"

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        """Where the text went on behind a gram when it last came, the end of the text left out."""

    def guess(self, fed: Sequence[int], token: int, most: int, sampler: Sampler) -> list[int]:
        """See `Drafter.guess`; costs the tokens that are new since the last call."""
        known = len(self._ids)
        if known > len(fed) or fed[max(0, known - _COMPARED) : known] != self._ids[-_COMPARED:]:
            self._ids, self._after, known = [], {}, 0
        for new in (*fed[known:], token):
            # only now is it known what came behind the grams that end here
            for length in range(SHORTEST_GRAM, min(LONGEST_GRAM, len(self._ids)) + 1):
                self._after[tuple(self._ids[-length:])] = len(self._ids)
            self._ids.append(new)
        for length in range(LONGEST_GRAM, SHORTEST_GRAM - 1, -1):
            start = self._after.get(tuple(self._ids[-length:]))
            if start is not None:
                return self._ids[start : start + most]
        return []


class Pace:
    """How many guesses a pass should carry, from what passes and guesses did so far.

    A pass takes `base` seconds without guesses and `each` more for every guess, what making it took included;
    a guess behind accepted ones is right at `rate`. All three are decayed means. The number with the most
    tokens per second is taken; where that is none, one guess is tried now and then, further and further
    apart. What guesses have cost in all is never let grow beyond `LOSS` of the time.
    """

    LOSS = 0.015
    _KEEP = 0.8
    _FIRST_WAIT = 24

    def __init__(self) -> None:
        self._base: float | None = None
        self._each: float | None = None
        self._rate = 0.5
        self._spent = 0.0
        self._lost = 0.0
        self._wait = self._FIRST_WAIT
        self._since_try = 0

    def guesses(self, most: int) -> int:
        """How many the next pass should carry, 0 to `most`."""
        base, each = self._base, self._each
        if base is None or most < 1 or self._lost > self.LOSS * self._spent:
            return 0
        if each is None:
            return min(most, 2) if self._lost <= 0 else 0
        best, best_speed, tokens = 0, 1 / base, 1.0
        for count in range(1, most + 1):
            tokens += self._rate**count
            speed = tokens / (base + count * each)
            if speed > best_speed:
                best, best_speed = count, speed
        if best == 0 and self._since_try >= self._wait:
            return 1
        return best

    def took(self, guessed: int, accepted: int, seconds: float) -> None:
        """Hears of a pass with so many guesses, of which the first `accepted` were right."""
        self._spent += seconds
        if not guessed:
            self._since_try += 1
            self._base = self._mean(self._base, seconds)
            return
        base = self._base if self._base is not None else seconds
        was_worth_it = accepted > 0
        self._lost += seconds - base * (1 + accepted)
        self._lost = max(self._lost, -self.LOSS * self._spent)  # old gains pay for a little, not for a lot
        self._each = self._mean(self._each, max(0.0, seconds - base) / guessed)
        judged = min(guessed, accepted + 1)
        self._rate = self._KEEP**judged * self._rate + (1 - self._KEEP**judged) * accepted / judged
        self._wait = self._FIRST_WAIT if was_worth_it else min(512, 2 * self._wait)
        self._since_try = 0

    def _mean(self, old: float | None, new: float) -> float:
        return new if old is None else self._KEEP * old + (1 - self._KEEP) * new


class Drafting:
    """Guesses for one turn: as many as are worth it, from `drafter`; at most `most` in a pass."""

    def __init__(
        self, drafter: Drafter, most: int, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.most = most
        self._drafter = drafter
        self._clock = clock
        self._pace = Pace()
        self._since: float | None = None
        self._made = 0
        self.statistics = DraftStatistics(drafter.name)

    def guess(self, fed: Sequence[int], token: int, most: int, sampler: Sampler) -> list[int]:
        """What to try behind `token`; the time until `judge` is what it cost."""
        self._since = self._clock()
        count = self._pace.guesses(most)
        guesses = self._drafter.guess(fed, token, count, sampler) if count else []
        self._made = len(guesses)
        return guesses

    def judge(self, right: int) -> None:
        """Hears that the first `right` of the last guesses were drawn."""
        if self._since is None:
            return
        self._pace.took(self._made, right, self._clock() - self._since)
        self._since = None
        if self._made:
            before = self.statistics
            self.statistics = DraftStatistics(
                before.source, before.guessed + self._made, before.accepted + right, before.passes + 1
            )
