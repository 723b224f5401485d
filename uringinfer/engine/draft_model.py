"""A small model, held in memory, that guesses what a large one will say.

Its guesses are drawn as the large model's tokens will be: with the same settings and the same random numbers.
Where both distributions agree they draw the same token, at any temperature. The guesses change time alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from uringinfer.engine.drafts import MOST_DRAFTED
from uringinfer.engine.load_options import LoadOptions
from uringinfer.engine.prompt import Prompter
from uringinfer.errors import UsageError
from uringinfer.text.sampling import Sampler

if TYPE_CHECKING:  # an engine may have a draft model
    from uringinfer.engine.engine import Engine
    from uringinfer.engine.loading import OpenModel, Progress

_COMPARED = 8
"""Last tokens by which a conversation is known to be the one that was guessed about before."""
_PLENTY = 1 << 62


class DraftModel:
    """A `Drafter`: guesses with a session of `engine`, which follows the conversation and goes back where
    guesses were wrong."""

    def __init__(self, engine: Engine) -> None:
        self._session = engine.session()
        self._vocab = engine.model.vocab_size
        self._agreed = 0
        """Positions of the session that are known to be the conversation's."""

    @property
    def name(self) -> str:
        return "a draft model"

    def guess(self, fed: Sequence[int], token: int, most: int, sampler: Sampler) -> list[int]:
        """See `drafts.Drafter.guess`; reads nothing from the drive."""
        session, ids = self._session, [*fed, token]
        most = min(most, session.context - len(ids) + 1)
        if most < 1 or max(ids[self._agreed :], default=0) >= self._vocab:
            return []
        behind = ids[session.rewind(self._common(ids)) :]
        if not behind:  # all of it was fed: the last token once more, for the logits behind it
            behind = ids[session.rewind(len(ids) - 1) :]
        logits = session.feed(behind)[-1]
        self._agreed = len(ids)
        twin = sampler.twin()
        guesses = [twin.pick(logits, ids)]
        while len(guesses) < most:
            logits = session.step(guesses[-1])
            guesses.append(twin.pick(logits, [*ids, *guesses]))
        return guesses

    def _common(self, ids: Sequence[int]) -> int:
        """How many of the session's positions hold the first of `ids`."""
        known = self._session.fed
        most = min(len(known), len(ids))
        agreed = min(self._agreed, most)
        last = slice(max(0, agreed - _COMPARED), agreed)
        if known[last] != ids[last]:
            agreed = 0
        while agreed < most and known[agreed] == ids[agreed]:
            agreed += 1
        return agreed


def load_with_draft(
    model: OpenModel, draft: OpenModel, options: LoadOptions, progress: Progress | None = None
) -> Engine:
    """`model` loaded with `options`, and `draft` in memory beside it, inside the same budget.

    Raises UsageError, naming both, if `draft` cannot draft for `model`, and what `OpenModel.load` raises; the
    floor of a budget that is too small counts the draft model.
    """
    check_draft(draft, model)
    drafting = draft.load(_draft_options(draft, model.context(options), options), progress)
    try:
        guesses = MOST_DRAFTED if options.guesses is None else options.guesses
        return model.load(replace(options, guesses=guesses), progress, drafting)
    except BaseException:
        drafting.close()
        raise


def check_draft(draft: OpenModel, model: OpenModel) -> None:
    """Raises UsageError, naming both, unless `draft` has the vocabulary of `model` and can go back."""
    names = f"{draft.container.path} cannot draft for {model.container.path}"
    mine, other = draft.prompter.tokenizer, model.prompter.tokenizer
    if (mine is None or other is None) and draft.model.vocab_size != model.model.vocab_size:
        raise UsageError(
            f"{names}: it has {draft.model.vocab_size} tokens, not {model.model.vocab_size}",
            hint="choose a draft model of the same family",
        )
    if mine is not None and other is not None:
        wrong = _first_difference(draft.prompter, model.prompter)
        if wrong is not None:
            raise UsageError(
                f"{names}: their vocabularies differ, first at token {wrong}",
                hint="choose a draft model of the same family",
            )
    if draft.model.new_state(1).forgets:
        raise UsageError(
            f"{names}: its state cannot go back where a guess was wrong",
            hint="choose a draft model without recurrent layers and windows",
        )


def _first_difference(one: Prompter, other: Prompter) -> int | None:
    """The first token that is not the same text in both vocabularies."""
    mine, others = one.need_tokenizer(), other.need_tokenizer()
    shared = min(mine.vocab_size, others.vocab_size)
    for token in range(shared):
        if mine.token_bytes(token) != others.token_bytes(token):
            return token
    return None if mine.vocab_size == others.vocab_size else shared


def _draft_options(draft: OpenModel, context: int, like: LoadOptions) -> LoadOptions:
    """How to load `draft` beside a model that is loaded `like` this: everything in memory, for as long a
    context as both can have."""
    wanted = LoadOptions(
        budget=_PLENTY,
        context=min(context, draft.model.max_context),
        chunk=like.chunk,
        parallel=like.parallel,
        io=like.io,
        guesses=0,
        verify_reads=like.verify_reads,
        poison_slots=like.poison_slots,
    )
    return replace(wanted, budget=draft.plan(wanted).used_bytes)
