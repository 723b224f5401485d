"""Reads a reply in Kimi K3's format, token by token, into reasoning, answer and calls.

Structure is decided by token id: a model that spells `<|sep|>` in characters has closed nothing. Whatever a
reply is broken into, each piece of text goes where the innermost open element says, and nothing raises.
"""

from __future__ import annotations

import json
import re
from typing import Any

from uringinfer.text.detokenizer import StreamingDetokenizer
from uringinfer.text.rendering import ReplyEvent, ReplyKind, ToolCall, assistant_message
from uringinfer.text.tokenizer import Tokenizer

OPEN, CLOSE, SEPARATOR, END = "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"

_ATTRIBUTE = re.compile(r'\s*([^\s=]+)=(?:"([^"]*)"?|(\S*))')


def has_markers(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer is one of Kimi K3."""
    return all(tokenizer.id_of(marker) is not None for marker in (OPEN, CLOSE, SEPARATOR, END))


class KimiK3ReplyParser:
    """The reply to one prompt; see `rendering.ReplyParser`."""

    def __init__(self, tokenizer: Tokenizer, *, thinking: bool) -> None:
        """`thinking`: the prompt opened the reasoning, not the answer."""
        self.reasoning = self.answer = ""
        self.calls: list[ToolCall] = []
        self.finished = False
        self._markers = {tokenizer.id_of(marker): marker for marker in (OPEN, CLOSE, SEPARATOR, END)}
        self._ends = tokenizer.eos_ids
        self._detokenizer = StreamingDetokenizer(tokenizer, show_special=True, continues_text=True)
        self._elements = ["message", "think" if thinking else "response"]
        self._header: str | None = None
        """What was read of a tag since the marker that began it, with that marker."""
        self._call: _Call | None = None
        self._space = ""
        """White space between elements, dropped unless text follows it."""

    def feed(self, token_id: int) -> list[ReplyEvent]:
        """What the next token makes known."""
        if self.finished:
            return []
        marker = self._markers.get(token_id)
        if marker is None and token_id not in self._ends:
            return self._take(self._detokenizer.push(token_id))
        events = self._take(self._detokenizer.finish())
        if marker in (OPEN, CLOSE):
            self._header = marker
        elif marker == SEPARATOR:
            header, self._header = self._header, None
            if header is not None:
                events += self._tag(header)
        else:
            events += self._end()
            self.finished = True
        return events

    def finish(self) -> list[ReplyEvent]:
        """What is left once no token will follow: half a tag is given back as the text that it may be."""
        return [] if self.finished else self._take(self._detokenizer.finish()) + self._end()

    def message(self) -> dict[str, Any]:
        """The reply as a message of a request."""
        return assistant_message(self.answer, self.reasoning, self.calls)

    def _end(self) -> list[ReplyEvent]:
        header, self._header = self._header, None
        events = [] if header is None else self._take(header)
        return events + self._file_call()

    def _tag(self, header: str) -> list[ReplyEvent]:
        """Opens or closes an element."""
        opens = header.startswith(OPEN)
        name, _, rest = header.removeprefix(OPEN).removeprefix(CLOSE).strip().partition(" ")
        self._space = ""
        if opens:
            events = self._file_call() if name == "call" else []
            self._elements.append(name)
            self._begin(name, _attributes(rest))
            return events
        if not name:
            name = self._elements[-1] if self._elements else ""
        events = []
        if name in self._elements:
            while self._elements:
                closed = self._elements.pop()
                events += self._finished(closed)
                if closed == name:
                    break
        return events

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        if name == "call":
            self._call = _Call(attributes.get("tool", ""))
        elif name in ("argument", "json") and self._call is not None:
            self._call.begin(name, attributes)

    def _finished(self, name: str) -> list[ReplyEvent]:
        if name in ("argument", "json") and self._call is not None:
            self._call.end()
        return self._file_call() if name == "call" else []

    def _file_call(self) -> list[ReplyEvent]:
        call, self._call = self._call, None
        if call is None or not call.name:
            return []
        self.calls.append(ToolCall(call.name, len(self.calls) + 1, call.arguments()))
        return [ReplyEvent("call", f"{call.name} {self.calls[-1].arguments}")]

    def _take(self, text: str) -> list[ReplyEvent]:
        if not text:
            return []
        if self._header is not None:
            self._header += text
            return []
        element = self._elements[-1] if self._elements else "message"
        if element in ("argument", "json"):
            if self._call is not None:
                self._call.add(text)
            return []
        if element in ("tools", "call"):
            return []
        if element == "message":
            text = self._space + text
            if not text.strip():
                self._space = text
                return []
            self._space = ""
        kind: ReplyKind = "reasoning" if element == "think" else "answer"
        if kind == "reasoning":
            self.reasoning += text
        else:
            self.answer += text
        return [ReplyEvent(kind, text)]


class _Call:
    """One call while it is being read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._values: dict[str, Any] = {}
        self._verbatim: str | None = None
        self._pieces: list[str] | None = None
        """The text of the open argument."""
        self._opened = ("", "", "")

    def begin(self, element: str, attributes: dict[str, str]) -> None:
        self.end()
        self._opened = (element, attributes.get("key", ""), attributes.get("type", ""))
        self._pieces = []

    def add(self, text: str) -> None:
        if self._pieces is not None:
            self._pieces.append(text)

    def end(self) -> None:
        """Files what was read; an argument without a key is dropped."""
        if self._pieces is None:
            return
        text, self._pieces = "".join(self._pieces), None
        element, key, kind = self._opened
        if element == "json":
            self._verbatim = text
        elif key:
            self._values[key] = _value(text, kind)

    def arguments(self) -> str:
        self.end()
        if self._verbatim is not None:
            return self._verbatim
        return json.dumps(self._values, ensure_ascii=False)


def _attributes(text: str) -> dict[str, str]:
    return {
        match[1]: (match[3] if match[2] is None else match[2]).replace("&quot;", '"').replace("&amp;", "&")
        for match in _ATTRIBUTE.finditer(text)
    }


def _value(text: str, kind: str) -> Any:
    """An argument's value by its declared type; text that is not of that type stays text."""
    if kind == "string":
        return text
    if kind == "null":
        return None
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    try:
        return json.loads(text.strip(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
