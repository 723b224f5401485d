"""Reads replies of models whose chat format is a template: reasoning, answer and calls by marker tokens.

What a reply holds is told by control tokens that such models write around it (`<think>`, `<tool_call>`,
gpt-oss's channels). Only the token counts, never its characters: a model that spells "</think>" has not
stopped reasoning. A vocabulary without these tokens gives plain answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uringinfer.text.detokenizer import StreamingDetokenizer
from uringinfer.text.rendering import ReplyEvent, ReplyKind, Segment, ToolCall, assistant_message
from uringinfer.text.settings import CHANNEL, MESSAGE_END
from uringinfer.text.tokenizer import Tokenizer
from uringinfer.text.written_calls import read_calls

_REASONING = {"<think>": "</think>", "[THINK]": "[/THINK]", "<seed:think>": "</seed:think>"}
_CALLS = {
    "<tool_call>": "</tool_call>",
    "<|tool_calls_section_begin|>": "<|tool_calls_section_end|>",
    "<｜tool▁calls▁begin｜>": "<｜tool▁calls▁end｜>",
    "[TOOL_CALLS]": "",
    "<|python_tag|>": "",
}
"""What opens calls to what closes them; "" where the end of the reply does."""
_CHANNEL, _START, _MESSAGE, _END = CHANNEL, "<|start|>", "<|message|>", MESSAGE_END


class MarkedReplyParser:
    """The reply to one prompt; see `rendering.ReplyParser`."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[Segment] = ()) -> None:
        """`prompt` may have opened the reasoning already."""
        self.reasoning = self.answer = ""
        self.calls: list[ToolCall] = []
        self.finished = False
        self._tokenizer = tokenizer
        self._detokenizer = StreamingDetokenizer(tokenizer, show_special=True, continues_text=True)
        self._has_channels = tokenizer.id_of(_CHANNEL) is not None and tokenizer.id_of(_MESSAGE) is not None
        self._kind: ReplyKind = "answer"
        self._closes = ""
        """The marker that ends what is being read, "" for the answer."""
        self._header: str | None = None
        """What was read so far of a message's header, with channels."""
        self._written = ""
        """The text of the calls being read, markers included."""
        self._held = ""
        """Line breaks that belong to the text only if more of it comes."""
        self._is_fresh = False
        """Whether nothing but line breaks has come since the last marker."""
        markup = [segment.text.strip() for segment in prompt if segment.is_markup]
        if markup and markup[-1] in _REASONING:
            self._open("reasoning", _REASONING[markup[-1]])
        elif self._has_channels and markup and markup[-1] == _START:
            self._header = ""

    def feed(self, token_id: int) -> list[ReplyEvent]:
        """What the next token makes known."""
        if self.finished:
            return []
        added = self._tokenizer.added_token(token_id)
        if added is None or not added.is_control:
            return self._take(self._detokenizer.push(token_id))
        events = self._take(self._detokenizer.finish())
        if token_id in self._tokenizer.eos_ids:
            self.finished = True
            self._close()
            return events
        return events + self._mark(added.content)

    def finish(self) -> list[ReplyEvent]:
        """What is left once no token will follow."""
        events = [] if self.finished else self._take(self._detokenizer.finish())
        if self._kind == "answer" and self._held and not self._is_fresh:
            events.append(self._event(self._held))
            self._held = ""
        self._close()
        return events

    def message(self) -> dict[str, Any]:
        """The reply as a message of a request."""
        return assistant_message(self.answer, self.reasoning, self.calls)

    def _mark(self, marker: str) -> list[ReplyEvent]:
        if self._has_channels and marker in (_CHANNEL, _START, _MESSAGE, _END):
            self._channel_mark(marker)
        elif self._header is not None:
            self._header += " "
        elif self._closes and marker == self._closes:
            self._close()
        elif self._kind == "call":
            self._written += marker
            return [ReplyEvent("call", marker)]
        elif marker in _REASONING:
            self._open("reasoning", _REASONING[marker])
        elif marker in _CALLS:
            self._open("call", _CALLS[marker])
            self._written = marker
        elif marker not in _REASONING.values() and not self._is_special(marker):
            return self._take(marker)
        return []

    def _channel_mark(self, marker: str) -> None:
        if marker != _MESSAGE:
            self._close()
            self._header = None if marker == _END else ""
            return
        header, self._header = self._header or "", None
        words = header.split()
        names = [word.removeprefix("to=") for word in words if word.startswith("to=")]
        if names:
            self._open("call", _END)
            self._written = f"{names[0].removeprefix('functions.')}\n"
        elif "analysis" in words:
            self._open("reasoning", _END)
        else:
            self._open("answer", "")

    def _is_special(self, marker: str) -> bool:
        return self._tokenizer.id_of(marker) in self._tokenizer.special_ids

    def _open(self, kind: ReplyKind, closes: str) -> None:
        self._close()
        self._kind, self._closes, self._is_fresh = kind, closes, True

    def _close(self) -> None:
        if self._kind == "call":
            self.calls += read_calls(self._written, first=len(self.calls) + 1)
        self._written, self._held = "", ""
        self._is_fresh = self._kind != "answer"
        self._kind, self._closes = "answer", ""

    def _take(self, text: str) -> list[ReplyEvent]:
        """Text of the kind being read; line breaks beside markers are the format's, not the text's."""
        if not text:
            return []
        if self._header is not None:
            self._header += text
            return []
        if self._kind == "call":
            self._written += text
            return [ReplyEvent("call", text)]
        if self._is_fresh:
            text = text.lstrip("\n")
            if not text:
                return []
            self._is_fresh = False
        text = self._held + text
        bare = text.rstrip("\n")
        self._held = text[len(bare) :]
        return [self._event(bare)] if bare else []

    def _event(self, text: str) -> ReplyEvent:
        if self._kind == "reasoning":
            self.reasoning += text
        else:
            self.answer += text
        return ReplyEvent(self._kind, text)
