"""The options of the public functions as keywords: typed, and refused by name where there are none such.

A type checker refuses an unknown keyword by the `TypedDict`; at run time `check_keywords` does it, with the
name that was probably meant.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypedDict

from uringinfer.engine.generation import GenerationOptions
from uringinfer.errors import UsageError
from uringinfer.text.constraints import Mask
from uringinfer.text.sampling import SamplingOptions


class TurnKeywords(TypedDict, total=False):
    """How to generate; see `GenerationOptions` and `SamplingOptions`. Defaults are greedy, 128 tokens."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    repeat_window: int
    seed: int | None
    stop: str | Sequence[str]
    ignore_eos: bool
    logprobs: int | None
    logit_bias: Mapping[int, float]
    mask: Mask | None


class GenerateKeywords(TurnKeywords, total=False):
    """How to generate, and what a chat format is told besides the messages.

    `system` goes in front of a prompt that is text. `tools` are OpenAI's declarations. `variables` are what
    the model's template knows, such as enable_thinking. `raw` leaves the chat format out.
    """

    system: str | None
    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: Any
    response_format: Any
    variables: Mapping[str, Any]
    raw: bool


REQUEST_NAMES = ("system", "tools", "tool_choice", "response_format", "variables", "raw")
_SAMPLING_NAMES = frozenset(SamplingOptions.__slots__)
_WHOLE = ("max_tokens", "top_k", "repeat_window", "chunk", "ring_slots", "parallel", "snapshots", "lookahead")
_WHOLE_OR_NONE = ("seed", "logprobs", "context", "threads", "guesses", "experts_per_token")
_FLAGS = ("ignore_eos", "raw", "all_logits", "verify_reads", "timeline")
_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(_WHOLE, ((Integral,), "a whole number")),
    **dict.fromkeys(_WHOLE_OR_NONE, ((Integral, type(None)), "a whole number")),
    **dict.fromkeys(("temperature", "top_p", "min_p", "repeat_penalty"), ((Real,), "a number")),
    **dict.fromkeys(_FLAGS, ((bool,), "True or False")),
    **dict.fromkeys(("logit_bias", "variables"), ((Mapping,), "a dictionary")),
    "native": ((bool, type(None)), "True, False or None"),
    "system": ((str, type(None)), "a text"),
}
"""What values of a keyword are, and what they are called."""


def check_keywords(
    given: Mapping[str, Any],
    known: Collection[str],
    what: str,
    choices: Mapping[str, Collection[str]] | None = None,
) -> None:
    """Raises UsageError for a keyword that `what` does not know, with the nearest that it does, and for a
    value of another kind than the keyword takes, or none of its `choices`."""
    for name, value in given.items():
        if name not in known:
            nearest = difflib.get_close_matches(name, list(known), 1, cutoff=0.5)
            hint = f"did you mean '{nearest[0]}'?" if nearest else f"it has {', '.join(sorted(known))}"
            raise UsageError(f"{what} has no option '{name}'", hint=hint)
        kinds, described = _KINDS.get(name, ((object,), "something else"))
        is_wrong_boolean = isinstance(value, bool) and name in _KINDS and bool not in kinds
        if is_wrong_boolean or not isinstance(value, kinds):
            raise UsageError(f"{name} is {value!r}", hint=f"give {described}")
        if choices is not None and name in choices and value not in choices[name]:
            raise UsageError(f"{name} is {value!r}", hint=f"choose from {', '.join(choices[name])}")


def turn_options(keywords: Mapping[str, Any]) -> GenerationOptions:
    """The options that these `TurnKeywords` mean."""
    sampling = {name: value for name, value in keywords.items() if name in _SAMPLING_NAMES}
    others = {name: value for name, value in keywords.items() if name not in _SAMPLING_NAMES}
    return GenerationOptions(sampling=SamplingOptions(**sampling), **others)
