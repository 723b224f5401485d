"""When a generation ends: an end token, a stop string, or the limit of tokens.

A stop string may be spread over several tokens, so text that could be its beginning is held back until the
next tokens decide. The stop string that is completed first ends the text in front of it; of those completed
by the same character, the longest counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from uringinfer.errors import UsageError

FinishReason = Literal["stop", "length"]


class StopConditions:
    """Watches one generation. `finish_reason` is None until it has ended."""

    def __init__(
        self, *, eos_ids: Collection[int] = (), stop: str | Sequence[str] = (), max_tokens: int | None = None
    ) -> None:
        """`max_tokens` None is no limit. Raises UsageError for an empty stop string or a negative limit."""
        stop = (stop,) if isinstance(stop, str) else tuple(stop)
        if not all(isinstance(text, str) for text in stop):
            raise UsageError(f"stop is {stop!r}", hint="give a text, or several of them")
        if any(not text for text in stop):
            raise UsageError("a stop string is empty", hint="leave it out, or give at least one character")
        if max_tokens is not None and max_tokens < 0:
            raise UsageError(f"cannot generate {max_tokens} tokens", hint="give 0 or more")
        self.finish_reason: FinishReason | None = "length" if max_tokens == 0 else None
        self.stop_string: str | None = None
        """The stop string that ended the generation, if one did."""
        self._eos_ids = frozenset(eos_ids)
        self._stop = tuple(sorted(stop, key=len, reverse=True))
        self._longest = max(map(len, stop), default=0)
        self._tokens_left = max_tokens
        self._held = ""

    def push(self, token_id: int, text: str) -> str:
        """Takes one generated token with the text it completed; returns the text that may now be shown.

        An end token's own text is not shown.
        """
        if self._tokens_left is not None:
            self._tokens_left -= 1
        if token_id in self._eos_ids:
            self.finish_reason = "stop"
            return ""
        shown = self._release(text)
        if self.finish_reason is None and self._tokens_left == 0:
            self.finish_reason = "length"
        return shown

    def finish(self, text: str = "") -> str:
        """The rest, once no token will follow: `text` that came last and whatever was held back."""
        shown = self._release(text) + self._held
        self._held = ""
        return shown

    def _release(self, text: str) -> str:
        if self.stop_string is not None:
            return ""
        if not self._stop:
            return text
        searched = self._held + text
        for end in range(len(self._held) + 1, len(searched) + 1):
            found = next((stop for stop in self._stop if searched.endswith(stop, 0, end)), None)
            if found is not None:
                self.stop_string, self.finish_reason, self._held = found, "stop", ""
                return searched[: end - len(found)]
        keep = next(
            n
            for n in range(min(self._longest - 1, len(searched)), -1, -1)
            if n == 0 or any(stop.startswith(searched[len(searched) - n :]) for stop in self._stop)
        )
        self._held = searched[len(searched) - keep :]
        return searched[: len(searched) - keep]
