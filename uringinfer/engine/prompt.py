"""From a person's words to the ids that a model is fed."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uringinfer.container.manifest import MANIFEST_NAME
from uringinfer.container.manifest_reader import load_manifest
from uringinfer.container.small_files import check_small_files
from uringinfer.errors import UringinferError, UsageError
from uringinfer.packing.gguf_files import holds_gguf
from uringinfer.packing.sources import open_source
from uringinfer.planning.grants import lacking, room
from uringinfer.planning.machine import Machine
from uringinfer.text.chat_messages import check_only_text
from uringinfer.text.formats import find_renderer
from uringinfer.text.openai_request import read_request
from uringinfer.text.rendering import ChatRequest, Message, Renderer, ReplyParser, Segment
from uringinfer.text.tokenizer import Tokenizer

Prompt = str | Sequence[Message] | Sequence[int] | NDArray[np.int64]
"""Text, messages, or token numbers."""

_NO_TEMPLATE = "this model has no chat template: prompts are taken as they are"

_LONG = 1 << 16
"""Characters from which on a prompt is counted before it is encoded."""

_PIECE_BYTES = 12 << 20
"""Memory that the pieces of a long text take on their way to ids."""


def _check_room(text: str) -> None:
    """Raises BudgetError for a long text whose pieces do not fit into what this process may use."""
    machine = Machine.read() if len(text) > _LONG else None
    if machine is not None and room(machine) < _PIECE_BYTES:
        raise lacking("a long text", _PIECE_BYTES, machine)


class Prompter:
    """The text side of one model: its tokenizer and its chat template, either of which may be missing.

    `notes` says what is missing, a template only once text was to be put into one. `template_file` takes
    the place of the checkpoint's own template.
    """

    def __init__(self, directory: Path, template_file: Path | None = None) -> None:
        self.directory = directory
        self.most_tokens: int | None = None
        """Tokens that the model has room for; a text with more is refused while it is counted."""
        self.notes: list[str] = []
        self.tokenizer: Tokenizer | None = None
        self.template: Renderer | None = None
        self._without_tokenizer: UringinferError | None = None
        try:
            self.tokenizer = Tokenizer.open(directory)
        except UringinferError as error:
            self._without_tokenizer = error
            self.notes.append(str(error))
            return
        self.template = find_renderer(directory, self.tokenizer, file=template_file)

    @classmethod
    def of_model(cls, path: Path, template_file: Path | None = None) -> Prompter:
        """The text side of a container, a checkpoint directory or a GGUF file, which is not packed for that.

        Raises UsageError if there is nothing at `path`, IntegrityError if a file of a container is not what
        was packed, and what opening a GGUF file raises.
        """
        if not path.exists():
            raise UsageError(f"{path} does not exist", hint="give a container, a checkpoint or a GGUF file")
        if path.is_dir() and not holds_gguf(path):
            if (path / MANIFEST_NAME).is_file():
                check_small_files(path, load_manifest(path))
            return cls(path, template_file)
        source = open_source(path)
        try:
            with tempfile.TemporaryDirectory() as scratch:
                for name, data in source.auxiliary_files().items():
                    (Path(scratch) / name).write_bytes(data)
                prompter = cls(Path(scratch), template_file)
        finally:
            source.close()
        prompter.notes += [note for note in source.notes if note not in prompter.notes]
        prompter.directory = path
        return prompter

    def need_tokenizer(self) -> Tokenizer:
        """The tokenizer; raises UsageError if the model has none, and why it cannot be used if it has."""
        if self.tokenizer is None:
            if self._without_tokenizer is not None and not isinstance(self._without_tokenizer, UsageError):
                raise self._without_tokenizer
            raise UsageError(
                f"{self.directory} has no tokenizer, so text cannot be used",
                hint="give token numbers with --ids",
            )
        return self.tokenizer

    def need_template(self) -> Renderer:
        """The chat template; raises UsageError if the model has none."""
        if self.template is None:
            raise UsageError(
                f"{self.directory} has no chat template", hint="give a template with --chat-template"
            )
        return self.template

    def encode(self, prompt: str, *, raw: bool = False, goes_on: bool = False) -> list[int]:
        """The ids of `prompt` as one user's turn, or as it is if `raw` or if there is no template.

        `goes_on`: it does not begin a text, so the token that begins one is left out. Raises UsageError if
        the model has no tokenizer.
        """
        tokenizer = self.need_tokenizer()
        self.check_length(prompt)
        if not raw and self.template is None and _NO_TEMPLATE not in self.notes:
            self.notes.append(_NO_TEMPLATE)
        if raw or self.template is None:
            ids = tokenizer.encode(prompt)
        else:
            ids = self.template.encode(ChatRequest([{"role": "user", "content": prompt}]))
        begins = bool(ids) and ids[0] == tokenizer.bos_id
        return ids[1:] if goes_on and begins else ids

    def encode_request(self, body: Any) -> tuple[list[int], list[Segment]]:
        """The ids and the segments of a request as OpenAI's chat completions take it.

        Raises UsageError for what is none, or if the model has no chat format, or one that refuses it.
        """
        request, asks_for_reply = read_request(body)
        segments = self.need_template().render(request, asks_for_reply)
        return self.need_tokenizer().encode_segments(segments), segments

    def encode_text(self, text: str) -> NDArray[np.int32]:
        """The ids of a text, however long, without what begins one: four bytes for each. Raises UsageError if
        the model has no tokenizer."""
        _check_room(text)
        ids = array("i")
        for part in self.need_tokenizer().encode_parts(text):
            ids.extend(part)
        return np.frombuffer(ids, np.int32) if ids else np.empty(0, np.int32)

    def check_length(self, prompt: str, most: int | None = None) -> None:
        """Raises UsageError for a text that must have more than `most` tokens, or `most_tokens`. A long one
        is counted part by part, so that its ids are in memory only if they can be fed."""
        most = self.most_tokens if most is None else most
        if len(prompt) <= _LONG or self.tokenizer is None or most is None:
            return
        _check_room(prompt)
        count = 0
        for part in self.tokenizer.encode_parts(prompt):
            count += len(part)
            if count > most:
                raise UsageError(
                    f"the prompt of {len(prompt)} characters does not fit into a context of {most} tokens",
                    hint="use a longer context (-c) or a shorter prompt",
                )

    def prompt_ids(
        self, prompt: Prompt, asked: Mapping[str, Any], *, goes_on: bool = False
    ) -> tuple[list[int], ReplyParser | None]:
        """The ids of a prompt in any of its forms, and what reads the reply if there is a chat format.

        `asked` are those of the keywords of `generate` that a chat format is told. Raises UsageError for what
        is no prompt, or for a text or messages where the model lacks what they need.
        """
        if isinstance(prompt, str):
            if goes_on and not asked.get("raw") and self.template is not None:
                raise UsageError(
                    "a turn behind others needs their messages",
                    hint="use Engine.conversation, or give raw=True",
                )
            if asked.get("raw") or self.template is None:
                for name in ("system", "tools"):
                    if asked.get(name) and self.template is None:
                        self.need_template()
                return self.encode(prompt, raw=bool(asked.get("raw")), goes_on=goes_on), None
            return self.render([{"role": "user", "content": prompt}], asked)
        entries = list(prompt)
        if entries and isinstance(entries[0], Mapping):
            return self.render([entry for entry in entries if isinstance(entry, Mapping)], asked)
        try:
            return [int(entry) for entry in entries], None
        except (TypeError, ValueError):
            raise UsageError(
                f"a prompt of {type(entries[0]).__name__} cannot be fed",
                hint="give text, messages or token numbers",
            ) from None

    def render(self, messages: Sequence[Message], asked: Mapping[str, Any]) -> tuple[list[int], ReplyParser]:
        """The ids of a conversation's messages, and what reads the reply; `system`, if it is asked for, goes
        in front unless one is there. Raises UsageError if the model has no chat format, or one that refuses
        them."""
        template = self.need_template()
        for message in messages:
            if isinstance(content := message.get("content"), str):
                self.check_length(content)
        if asked.get("system") is not None and (not messages or messages[0].get("role") != "system"):
            messages = [{"role": "system", "content": asked["system"]}, *messages]
        request = ChatRequest(
            messages,
            tools=asked.get("tools"),
            tool_choice=asked.get("tool_choice"),
            response_format=asked.get("response_format"),
            variables=asked.get("variables") or {},
        )
        check_only_text(messages)
        segments = template.render(request)
        return self.need_tokenizer().encode_segments(segments), template.reply_parser(segments)
