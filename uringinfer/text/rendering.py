"""What a chat format is: a request to the segments of a prompt, and a reply's ids back to its parts.

A `Renderer` is one model's chat format for one tokenizer: a Jinja template (`chat.ChatTemplate`) or a
program (`kimi_k3.KimiK3Renderer`). It gives *segments*: only those that are markup may become control tokens,
so what a person, a document or a tool wrote never does. `Tokenizer.encode_segments` makes ids of them.
A `ReplyParser` reads what the model answers, id by id, so that text that looks like markup is text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

Message = Mapping[str, Any]
"""OpenAI's: role, content (text or parts), reasoning_content, tool_calls, tool_call_id, name."""


@dataclass(frozen=True)
class ChatRequest:
    """A conversation so far and what is asked of the next reply, in OpenAI's terms.

    `variables` are what the chat format may ask for besides, such as `enable_thinking` or
    `reasoning_effort`.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: Any = None
    response_format: Any = None
    variables: Mapping[str, Any] = field(default_factory=dict)


class Segment(NamedTuple):
    """A piece of a prompt. Control tokens count in markup and are ordinary characters in text."""

    text: str
    is_markup: bool


ReplyKind = Literal["reasoning", "answer", "call"]


class ReplyEvent(NamedTuple):
    """Text that became known: of the reasoning, of the answer, or of a call as the format writes it."""

    kind: ReplyKind
    text: str


@dataclass(frozen=True)
class ToolCall:
    """A call in a reply. `arguments` is the text of a JSON object, or what the model wrote in its place."""

    name: str
    index: int
    """Its place among the reply's calls, from 1."""
    arguments: str
    id: str = ""
    """What the format itself calls it, if it does; results name it."""


class ReplyParser(Protocol):
    """Reads one reply. The texts of a kind, joined, are `reasoning` and `answer`."""

    reasoning: str
    answer: str
    calls: list[ToolCall]
    finished: bool
    """Whether the reply ended itself, so that nothing that comes after counts."""

    def feed(self, token_id: int) -> list[ReplyEvent]:
        """What the next token makes known; often nothing, while markup or a character is incomplete."""
        ...

    def finish(self) -> list[ReplyEvent]:
        """What is left once no token will follow. The reply may have been cut anywhere."""
        ...

    def message(self) -> dict[str, Any]:
        """The reply as a message of a request: role, content, reasoning_content and tool_calls if any."""
        ...


class Renderer(Protocol):
    """A chat format for one tokenizer."""

    name: str
    """Where it comes from, for people."""

    def knows(self, variable: str) -> bool:
        """Whether it asks for a variable of the request of this name."""
        ...

    def render(self, request: ChatRequest, add_generation_prompt: bool = True) -> list[Segment]:
        """The prompt. Raises UsageError for messages or settings that the format refuses."""
        ...

    def encode(self, request: ChatRequest, add_generation_prompt: bool = True) -> list[int]:
        """Ids of the prompt; see `render`."""
        ...

    def turn_ends(self) -> frozenset[int]:
        """The tokens that end a reply in this format, whatever the checkpoint's settings say."""
        ...

    def reply_parser(self, prompt: Sequence[Segment]) -> ReplyParser:
        """A parser for the reply to `prompt`, which decides what the reply begins in."""
        ...


def text_of(segments: Iterable[Segment]) -> str:
    """The prompt as one string, to look at: markup and text cannot be told apart in it."""
    return "".join(segment.text for segment in segments)


def assistant_message(answer: str, reasoning: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
    """A reply as a message of a request. A call that the format gives no id is named by its place."""
    message: dict[str, Any] = {"role": "assistant", "content": answer}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id or f"call_{call.index}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ]
    return message
