"""How well a model predicts a text, and how far one container of it is from another.

The text's tokens are cut into windows. Each is fed to a fresh session; its first half is only context, and
what the model predicts at every position of its second half is scored: the negative log-likelihood of the
token that follows. Perplexity is e to the mean of these. llama.cpp scores the same tokens, 255 of a window
of 512.

With a reference (the same model in another format, say) both get the same windows, and the distributions that
they give for each scored token are compared: Kullback-Leibler divergence from the reference, in nats, and how
often both would choose the same token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from uringinfer.container.container import Container
from uringinfer.engine.engine import Engine
from uringinfer.engine.loading import OpenModel
from uringinfer.errors import UsageError
from uringinfer.models.base import Floats

Doubles = NDArray[np.float64]
SHORTEST_WINDOW = 3
"""One token of context, one to predict from, and one to predict."""
_UNSEEN_IN_SHAPES = (
    "num_attention_heads",
    "num_key_value_heads",
    "num_experts_per_tok",
    "rope_theta",
    "rms_norm_eps",
)
"""What a config decides and no tensor shows. Whole configs differ between a checkpoint and its GGUF file."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two models on the same scored tokens: float64 [n] divergences in nats, and how many choices agree."""

    divergences: Doubles
    agreements: int
    reference_losses: Doubles

    @property
    def mean_divergence(self) -> float:
        return float(self.divergences.mean())

    @property
    def divergence_error(self) -> float:
        """Standard error of `mean_divergence`."""
        return _standard_error(self.divergences)

    @property
    def agreement(self) -> float:
        """Share of the tokens for which both have the same likeliest token, 0 to 1."""
        return self.agreements / len(self.divergences)

    @property
    def reference_perplexity(self) -> float:
        return math.exp(float(self.reference_losses.mean()))

    def to_json(self) -> dict[str, Any]:
        return {
            "reference_perplexity": self.reference_perplexity,
            "kl_divergence": self.mean_divergence,
            "kl_divergence_error": self.divergence_error,
            "top_1_agreement": self.agreement,
        }


@dataclass(frozen=True, slots=True)
class PerplexityResult:
    """What was measured over the first `windows` windows: `losses` float64 [n] in nats, one a token."""

    windows: int
    windows_in_all: int
    context: int
    losses: Doubles
    comparison: Comparison | None = None

    @property
    def perplexity(self) -> float:
        return math.exp(float(self.losses.mean()))

    @property
    def error(self) -> float:
        """Standard error of `perplexity`, from the losses' own spread as if they were independent."""
        return self.perplexity * _standard_error(self.losses)

    def to_json(self) -> dict[str, Any]:
        return {
            "perplexity": self.perplexity,
            "error": self.error,
            "windows": self.windows,
            "windows_in_all": self.windows_in_all,
            "context": self.context,
            "tokens_scored": len(self.losses),
            "comparison": None if self.comparison is None else self.comparison.to_json(),
        }


def check_same_model(opened: OpenModel, reference: OpenModel, text: str) -> None:
    """Raises UsageError unless both are of one model, whatever their formats: family, tensors, the numbers of
    the config that tensors do not show, and the tokens that `text` becomes."""
    here, there = opened.container, reference.container
    difference = None
    if here.manifest.family != there.manifest.family:
        difference = f"their families are {here.manifest.family} and {there.manifest.family}"
    elif (shapes := _shapes(here)) != (others := _shapes(there)):
        name, shape = min(shapes ^ others)
        difference = f"the tensor {name} of shape {list(shape)} is in one of them only"
    else:
        for key in _UNSEEN_IN_SHAPES:
            ours, theirs = here.manifest.config.get(key), there.manifest.config.get(key)
            # a GGUF file keeps such a number as float32
            if _is_number(ours) and _is_number(theirs) and not math.isclose(ours, theirs, rel_tol=1e-6):
                difference = f"their {key} is {ours} and {theirs}"
                break
    has_text = opened.prompter.tokenizer is not None and reference.prompter.tokenizer is not None
    if (
        difference is None
        and has_text
        and not np.array_equal(opened.encode_text(text), reference.encode_text(text))
    ):
        difference = "their tokenizers cut the text otherwise"
    if difference is not None:
        raise UsageError(
            f"{here.path} and {there.path} are not one model: {difference}",
            hint="compare two containers of the same model",
        )


def _shapes(container: Container) -> set[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all tensors; those of experts by their layer, with the number of experts."""
    parts = (part for segment in container.segments for part in segment.parts)
    shapes = {(part.name, part.shape) for part in parts}
    for layer, bank in container.banks.items():
        shapes |= {(f"experts.{layer}.{part.name}", (bank.num_experts, *part.shape)) for part in bank.parts}
    return shapes


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float)


def count_windows(tokens: int, context: int, max_windows: int | None = None) -> int:
    """How many windows of `context` tokens a text of so many `tokens` has, at most `max_windows`.

    Raises UsageError if there is none, or nothing in it to score.
    """
    if context < SHORTEST_WINDOW:
        raise UsageError(
            f"in a window of {context} tokens nothing is scored", hint=f"give at least {SHORTEST_WINDOW}"
        )
    count = tokens // context
    if not count:
        raise UsageError(
            f"the text has {tokens} tokens, less than one window of {context}",
            hint="give a longer text or a smaller -c",
        )
    return min(count, max_windows) if max_windows else count


def score_room(windows: int, context: int, *, compared: bool) -> Doubles:
    """Memory for what `windows` windows of `context` tokens score, in use from now on: losses, and if they
    are `compared`, losses of the reference and divergences; [1 or 3, tokens that are scored]."""
    return np.ones((3 if compared else 1, windows * (context - context // 2 - 1)))


def measure_perplexity(
    engine: Engine,
    ids: Sequence[int] | NDArray[np.int32],
    *,
    context: int,
    bos_id: int | None = None,
    max_windows: int | None = None,
    reference: Engine | None = None,
    scores: Doubles | None = None,
) -> Iterator[PerplexityResult]:
    """Scores `ids` in windows of `context` tokens; yields the result so far after each window.

    Tokens behind the last whole window are left out. `bos_id` takes the place of each window's first token,
    for models whose texts begin with one. `max_windows` None scores all. Both engines must have been loaded
    for this context. `scores` is their `score_room`, made before loading where the budget must count it.
    Raises UsageError for a text shorter than one window and for a reference with another vocabulary;
    Interrupted if an engine was asked to stop.
    """
    count = count_windows(len(ids), context, max_windows)
    if reference is not None and reference.model.vocab_size != engine.model.vocab_size:
        raise UsageError(
            f"the models have {engine.model.vocab_size} and {reference.model.vocab_size} tokens",
            hint="compare two containers of the same model",
        )
    if scores is None:
        scores = score_room(count, context, compared=reference is not None)
    agreements = done = 0
    for number in range(count):
        window = [int(token) for token in ids[number * context : (number + 1) * context]]
        if bos_id is not None:
            window[0] = bos_id
        scored = slice(done, done + len(_scored(window)))
        done = scored.stop
        comparison = None
        if reference is None:
            scores[0, scored] = _losses(engine, window)
        else:
            *found, agreed = _compare(engine, reference, window)
            scores[:, scored] = found
            agreements += agreed
            comparison = Comparison(scores[2, :done], agreements, scores[1, :done])
        yield PerplexityResult(number + 1, count, context, scores[0, :done], comparison)


def log_probabilities(logits: Floats) -> Doubles:
    """log softmax of logits [vocab], in float64."""
    shifted = logits.astype(np.float64) - float(logits.max())
    shifted -= math.log(float(np.exp(shifted).sum()))
    return shifted


def divergence(reference: Doubles, model: Doubles) -> float:
    """Kullback-Leibler divergence of `model` from `reference`, both log-probabilities [vocab], in nats."""
    possible = reference > -np.inf
    reference, model = reference[possible], model[possible]
    return float(np.sum(np.exp(reference) * (reference - model)))


def _losses(engine: Engine, window: Sequence[int]) -> Doubles:
    scored = zip(_predictions(engine, window), _scored(window), strict=True)
    return np.array([-log_probabilities(logits)[token] for logits, token in scored])


def _compare(
    engine: Engine, reference: Engine, window: Sequence[int]
) -> tuple[Doubles, Doubles, Doubles, int]:
    """Losses of both, divergences, and the number of equal choices. The two take turns by chunks, so that
    only one chunk's logits of each are in memory."""
    losses, reference_losses, divergences, agreements = [], [], [], 0
    rows = zip(
        _predictions(engine, window),
        _predictions(reference, window),
        _scored(window),
        strict=True,
    )
    for logits, reference_logits, token in rows:
        ours, theirs = log_probabilities(logits), log_probabilities(reference_logits)
        losses.append(-ours[token])
        reference_losses.append(-theirs[token])
        divergences.append(divergence(theirs, ours))
        agreements += int(logits.argmax() == reference_logits.argmax())
    return np.array(losses), np.array(reference_losses), np.array(divergences), agreements


def _predictions(engine: Engine, window: Sequence[int]) -> Iterator[Floats]:
    """Logits [vocab] for each token of `_scored`, from what stands before it."""
    half = len(window) // 2
    session = engine.session(len(window))
    session.feed(window[:half])
    for logits in session.passes(window[half:-1], all_logits=True):
        yield from logits


def _scored(window: Sequence[int]) -> Sequence[int]:
    """The tokens that the positions of the second half predict."""
    return window[len(window) // 2 + 1 :]


def _standard_error(values: Doubles) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
