"""A file of prompts and the file of their answers, both JSON lines: the job that is begun once and may be
interrupted.

A line of prompts is an object with one of `prompt` (text, put into the model's chat format), `messages` (a
conversation) and `ids`, and with any of `max_tokens`, `temperature`, `seed`, `stop`, `id`. Answers are
written in the order asked, each as one line, so a file of answers that breaks off tells how far the job came.
Prompts are hostile input: what is wrong in a line is told with its number and spoils that answer alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from uringinfer.engine.answers import Answer, Request
from uringinfer.engine.generation import GenerationOptions
from uringinfer.engine.prompt import Prompt
from uringinfer.errors import UringinferError, UsageError
from uringinfer.text.rendering import ReplyParser

_KINDS = ("prompt", "messages", "ids")
_SETTINGS = ("max_tokens", "temperature", "seed", "stop", "id")


Encode = Callable[[Prompt], tuple[list[int], ReplyParser | None]]
"""How a prompt becomes ids, and what reads the reply. Raises UsageError where the model lacks something."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One line of prompts: its request, or why it cannot be one; `name` is its `id`."""

    request: Request
    name: str | int | None = None
    error: UringinferError | None = None

    def line(self, answer: Answer) -> str:
        """The line that answers it."""
        named = {} if self.name is None else {"id": self.name}
        return json.dumps(named | answer.to_json(), ensure_ascii=False) + "\n"


def prompt_line(text: str) -> str:
    """The line that asks `text`."""
    return json.dumps({"prompt": text})


def read_prompts(lines: Iterable[str], encode: Encode, defaults: GenerationOptions) -> list[Asked]:
    """Every line that is not blank, in order. `defaults` holds where a line sets nothing."""
    asked = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            asked.append(_read_line(line, f"line {number}", encode, defaults))
    return asked


def _read_line(line: str, where: str, encode: Encode, defaults: GenerationOptions) -> Asked:
    name = None
    try:
        found = _parse(line, where)
        name = _typed(found, "id", (str, int), where)
        ids, parser = encode(_prompt(found, where))
        return Asked(Request(ids, _options(found, where, defaults), parser), name)
    except UringinferError as error:
        return Asked(Request([], defaults), name, error)


def _parse(line: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: no JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{where} is no object", hint='write it as {"prompt": "..."}')
    unknown = sorted(set(found) - {*_KINDS, *_SETTINGS})
    if unknown:
        known = ", ".join((*_KINDS, *_SETTINGS))
        raise UsageError(f"{where}: '{unknown[0]}' is not known", hint=f"a line may have {known}")
    if sum(kind in found for kind in _KINDS) != 1:
        raise UsageError(f"{where} needs exactly one of {', '.join(_KINDS)}")
    return found


def _prompt(found: Mapping[str, Any], where: str) -> Prompt:
    """What the line asks: a text, messages or ids."""
    if "prompt" in found:
        text: str = _typed(found, "prompt", (str,), where)
        return text
    kind = "messages" if "messages" in found else "ids"
    entries: list[Any] = _typed(found, kind, (list,), where)
    wanted, what = (dict, "object") if kind == "messages" else (int, "integer")
    if not all(type(entry) is wanted for entry in entries):
        raise UsageError(f"{where}: '{kind}' holds something that is no {what}")
    return entries


def _options(found: Mapping[str, Any], where: str, defaults: GenerationOptions) -> GenerationOptions:
    options, sampling = defaults, defaults.sampling
    if "temperature" in found:
        sampling = replace(sampling, temperature=_typed(found, "temperature", (int, float), where))
    if "seed" in found:
        sampling = replace(sampling, seed=_typed(found, "seed", (int,), where))
    if "max_tokens" in found:
        options = replace(options, max_tokens=_typed(found, "max_tokens", (int,), where))
    if "stop" in found:
        stop = _typed(found, "stop", (str, list), where)
        stop = [stop] if isinstance(stop, str) else stop
        if not all(isinstance(text, str) for text in stop):
            raise UsageError(f"{where}: 'stop' holds something that is no text")
        options = replace(options, stop=stop)
    return replace(options, sampling=sampling)


def _typed(found: Mapping[str, Any], key: str, types: tuple[type, ...], where: str) -> Any:
    value = found.get(key)
    if key in found and type(value) not in types:
        wanted = " or ".join(kind.__name__ for kind in types)
        raise UsageError(f"{where}: '{key}' is {value!r:.40}, not {wanted}")
    return value


def answered_before(lines: Sequence[bytes], asked: Sequence[Asked], where: str) -> int:
    """How many of `asked` the `lines` of an earlier job answer; a last line that breaks off counts for none.

    Raises UsageError, naming `where` the lines are from, if they do not answer these prompts.
    """
    whole = [line for line in lines if line.endswith(b"\n")]
    if len(whole) > len(asked):
        raise UsageError(
            f"{where} holds {len(whole)} answers to {len(asked)} prompts", hint="choose another output"
        )
    for number, (line, prompt) in enumerate(zip(whole, asked, strict=False), 1):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        fits = isinstance(found, dict) and "finish_reason" in found and found.get("id") == prompt.name
        if not fits or found.get("prompt_tokens") != len(prompt.request.ids):
            raise UsageError(
                f"{where}: line {number} is no answer to prompt {number}", hint="choose another output"
            )
    return len(whole)


def failed(number: int, asked: Asked) -> Answer:
    """The answer of a line that could not be a request."""
    return Answer(number, [], [], "", "error", None, [], asked.error)
