"""Messages to the token ids of a prompt, by the chat template of the checkpoint.

The template's own markup may become control tokens, the messages' text never does (`chat_guard`). Ids are
those of rendering the template plainly and encoding the result, whenever no message holds the text of
a control token.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jinja2

from uringinfer.errors import IntegrityError, UsageError
from uringinfer.text.chat_guard import ChatGuard, free_character
from uringinfer.text.chat_messages import REASONING_NAMES, forms_of, normal_messages
from uringinfer.text.kimi_k3_replies import OPEN, KimiK3ReplyParser
from uringinfer.text.marked_replies import MarkedReplyParser
from uringinfer.text.rendering import ChatRequest, ReplyParser, Segment
from uringinfer.text.template import DEFAULT_SECONDS, LimitError, Meter, Template, TemplateError
from uringinfer.text.tokenizer import Tokenizer

_ASKED, _ANSWERED = "xyzzy", "plugh"


class _Limits(NamedTuple):
    """What one rendering may take: seconds, and bytes beside those for the request."""

    seconds: float
    nbytes: int


_FULL = _Limits(DEFAULT_SECONDS, 32 << 20)
_SMALL = _Limits(0.3, 4 << 20)
"""For what is only good to know."""
_NBYTES_FOR_EACH = 200
"""What a rendering may make in all, at least and for each character of the request: templates copy texts a
dozen times over, and Python takes up to four bytes for a character."""


class ChatTemplate:
    """One template for one tokenizer. `name` says where it comes from."""

    def __init__(self, source: str, tokenizer: Tokenizer, *, name: str = "chat template") -> None:
        self.name = name
        self.source = source
        self._tokenizer = tokenizer

    def check_syntax(self) -> None:
        """Raises IntegrityError if this is not a template. `render` does it too."""
        _ = self._template

    @functools.cached_property
    def _template(self) -> Template:
        hint = "give another with --chat-template"
        try:
            return Template(self.source)
        except jinja2.TemplateSyntaxError as error:
            reason = _line(error.message or "no template").rstrip(".")
            raise IntegrityError(f"{self.name}, line {error.lineno}: {reason}", hint=hint) from error
        except TemplateError as error:
            raise IntegrityError(f"{self.name} cannot be used: {error}", hint=hint) from error

    def knows(self, variable: str) -> bool:
        """Whether the template names this variable."""
        return variable in re.findall(r"\w+", self.source)

    def encode(self, request: ChatRequest, add_generation_prompt: bool = True) -> list[int]:
        """Ids of the prompt; see `render`."""
        return self._tokenizer.encode_segments(self.render(request, add_generation_prompt))

    def render(self, request: ChatRequest, add_generation_prompt: bool = True) -> list[Segment]:
        """The prompt in segments: control tokens that the template wrote, and all the text between two.

        Raises UsageError for a message that is none, for values that JSON has not, and for what the template
        refuses.
        """
        return self._segments(request, add_generation_prompt, _FULL)

    def _segments(self, request: ChatRequest, add_generation_prompt: bool, limits: _Limits) -> list[Segment]:
        forms = forms_of(normal_messages(request.messages), self.source)
        refusal: UsageError | None = None
        for messages in forms:
            try:
                return self._segments_of(messages, request, add_generation_prompt, limits)
            except UsageError as error:
                refusal = refusal or error
                if isinstance(error.__cause__, LimitError):
                    break
        raise refusal or UsageError("there are no messages")

    def _segments_of(
        self,
        messages: list[dict[str, Any]],
        request: ChatRequest,
        add_generation_prompt: bool,
        limits: _Limits,
    ) -> list[Segment]:
        tools = None if request.tools is None else list(request.tools)
        asked = {"tool_choice": request.tool_choice, "response_format": request.response_format}
        variables = {key: value for key, value in asked.items() if value is not None}
        variables |= dict(request.variables)
        guard = ChatGuard(
            self._tokenizer.control_tokens, free_character(messages, tools, variables, self.source)
        )
        given = {
            "documents": None,
            **self._tokenizer.special_texts,
            **guard.apply(variables),
            "messages": [_guarded(message, guard) for message in messages],
            "tools": guard.apply(tools),
            "add_generation_prompt": add_generation_prompt,
        }
        return self._tokenizer.split_markup(self._run(given, guard.character, limits), guard.character)

    def turn_ends(self) -> frozenset[int]:
        """The control token that the template writes behind what an assistant said, with or without a turn
        after it; none where it cannot be had at little cost."""
        said = [{"role": "user", "content": _ASKED}, {"role": "assistant", "content": _ANSWERED}]
        for messages in (said, [*said, said[0]]):
            try:
                segments = self._segments(ChatRequest(messages), False, _SMALL)
            except (IntegrityError, UsageError):
                continue
            ends = self._first_marker_after(_ANSWERED, segments)
            if ends:
                return ends
        return frozenset()

    def _first_marker_after(self, text: str, segments: Sequence[Segment]) -> frozenset[int]:
        place = next((n for n, segment in enumerate(segments) if text in segment.text), len(segments))
        rest = segments[place + 1 :]
        if not rest or not rest[0].is_markup or segments[place].text.partition(text)[2].strip():
            return frozenset()
        token_id = self._tokenizer.id_of(rest[0].text.strip())
        return frozenset() if token_id is None else frozenset([token_id])

    def reply_parser(self, prompt: Sequence[Segment]) -> ReplyParser:
        """A parser for the reply to `prompt`."""
        if Segment(OPEN, True) in prompt:  # a template for Kimi K3, whoever wrote it
            opened = [segment.text for segment in prompt[-2:-1]]
            return KimiK3ReplyParser(self._tokenizer, thinking=opened == ["think"])
        return MarkedReplyParser(self._tokenizer, prompt)

    def _run(self, given: dict[str, Any], guard: str, limits: _Limits) -> str:
        template = self._template
        meter = Meter(limits.nbytes + _NBYTES_FOR_EACH * _characters(given), limits.seconds)
        try:
            return template.render(given, meter)
        except TemplateError as error:
            raise UsageError(
                f"{self.name} refuses these messages: {_line(str(error).replace(guard, ''))}",
                hint="change the messages, or give another template with --chat-template",
            ) from error


def _line(text: str) -> str:
    """What a template says, as one line that leaves a terminal alone."""
    return "".join(character if character.isprintable() else " " for character in text).strip()


def _characters(value: Any) -> int:
    """How long all strings in `value` are together."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_characters(key) + _characters(entry) for key, entry in value.items())
    if isinstance(value, list):
        return sum(map(_characters, value))
    return 1


def _guarded(message: dict[str, Any], guard: ChatGuard) -> dict[str, Any]:
    """The message with guards; what an assistant said keeps the visible structure that the model wrote."""
    own_words = ("content", *REASONING_NAMES) if message["role"] == "assistant" else ()
    guarded = {
        guard.apply(key): guard.apply(value, keep_visible=key in own_words) for key, value in message.items()
    }
    return {**guarded, "role": message["role"]}
