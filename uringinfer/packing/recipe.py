"""Which format each tensor of a container gets: what was asked for, and what is never touched.

Routers, norms, biases and other small tensors keep what the checkpoint has; embedding and head never go below
8 bits. Only a rule that names a tensor overrides this. Pure: names and shapes in, formats out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from uringinfer.errors import UsageError
from uringinfer.kernels.formats import ENCODED, FORMATS, weight_format

KEEP = "keep"
FLOATS = ("bf16", "f16", "f32")
TABLE_FORMAT = "q8"
"""What embedding and head become where less than 8 bits are asked for the trunk."""
TABLE_BITS = 8
MAX_SEED = 2**32 - 1

Role = Literal["trunk", "heads", "table", "expert", "exact"]
"""A tensor is a matrix of the trunk, one whose rows are used by head, an embedding or head, a matrix of an
expert, or is to be left alone."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The formats asked for: of the trunk's matrices, of the experts', and of tensors by name.

    `tensors` are (regular expression, format) pairs; the expression must match a whole name as `info
    --tensors` shows it, and the last pair that does decides. "keep" is a format too. `seed`, 0 to 2^32 - 1,
    draws the weights that codebooks are learned from. Raises UsageError for a format that does not exist, an
    expression that is none and another seed.
    """

    trunk: str = KEEP
    experts: str = KEEP
    tensors: tuple[tuple[str, str], ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed <= MAX_SEED:
            raise UsageError(f"{self.seed} is no seed", hint=f"give 0 to {MAX_SEED}")
        for name in (self.trunk, self.experts, *(name for _, name in self.tensors)):
            if name != KEEP and name not in ENCODED:
                what = "is kept from files, not packed anew" if name in FORMATS else "is no weight format"
                raise UsageError(f"'{name}' {what}", hint=f"choose one of {', '.join((KEEP, *ENCODED))}")
        for pattern, _ in self.tensors:
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(f"'{pattern}' is no regular expression: {error}") from None

    def choose(self, name: str, role: Role, shape: Sequence[int], kept: str) -> str:
        """The format of the tensor `name`, which is `kept` in the checkpoint.

        Raises UsageError if a rule names it and its format cannot hold that shape.
        """
        named = self._rule(name)
        if named is not None:
            if named != KEEP and not can_hold(named, shape):
                raise UsageError(
                    f"{name} {list(shape)} is no matrix, {named} cannot hold it",
                    hint=f"choose one of {', '.join((KEEP, *FLOATS))}",
                )
            return kept if named == KEEP else named
        wanted = self.experts if role == "expert" else self.trunk
        if wanted == KEEP or role == "exact" or not can_hold(wanted, shape) or min(shape) == 1:
            return kept
        if role == "table" and wanted not in FLOATS and kept not in FLOATS and _serves_as_table(kept):
            return kept  # quantised once is better than twice, and it has its 8 bits already
        falls_short = role == "table" and not _serves_as_table(wanted)
        if falls_short or (role == "heads" and weight_format(wanted).bind):
            return TABLE_FORMAT if kept in FLOATS else kept
        return wanted

    def table_notes(self, tables: Mapping[str, str], unchanged: Collection[str] = ()) -> tuple[str, ...]:
        """What to say of `tables`, embedding and head by name, and the formats they got; those in `unchanged`
        had them before."""
        fallen = [
            name
            for name, form in tables.items()
            if self.trunk not in (KEEP, form) and not self._rule(name) and form not in FLOATS
        ]
        notes = []
        for stays in (False, True):
            names = [name for name in fallen if (name in unchanged) == stays]
            if not names:
                continue
            formats = " and ".join(dict.fromkeys(tables[name] for name in names))
            why = "quantised already" if stays else f"which {_shortcoming(self.trunk)}"
            notes.append(
                f"{' and '.join(names)}: {formats} instead of {self.trunk}, {why};"
                f" --tensor '{names[0]}={self.trunk}' insists"
            )
        return tuple(notes)

    def _rule(self, name: str) -> str | None:
        """The format that the last matching rule gives to the tensor `name`; None if no rule does."""
        return next((form for pattern, form in reversed(self.tensors) if re.fullmatch(pattern, name)), None)

    def check_used(self, names: Iterable[str]) -> None:
        """Raises UsageError for a rule that matches none of `names`, all tensors of the container."""
        known = list(names)
        for pattern, _ in self.tensors:
            if not any(re.fullmatch(pattern, name) for name in known):
                raise UsageError(
                    f"no tensor is called '{pattern}'",
                    hint=f"names are like {known[len(known) // 2]}; uringinfer info --tensors lists them",
                )


def can_hold(name: str, shape: Sequence[int]) -> bool:
    """Whether the format `name` can hold a tensor of this shape: a matrix, or anything in plain floats."""
    return name in FLOATS or (len(shape) == 2 and shape[1] > 1)


def _serves_as_table(name: str) -> bool:
    """Whether rows can be looked up in the format one at a time, and have 8 bits or more."""
    return _shortcoming(name) is None


def _shortcoming(name: str) -> str | None:
    """Why the format is not one for embedding and head; None if it is."""
    form = weight_format(name)
    if form.bits_per_weight < TABLE_BITS:
        return f"has less than {TABLE_BITS} bits"
    return None if form.row_granularity == 1 else "has no single rows"


def parse_rule(text: str) -> tuple[str, str]:
    """ "REGEX=FORMAT" -> (regular expression, format). Raises UsageError for what is no such pair."""
    pattern, equals, name = text.rpartition("=")
    if not equals or not pattern:
        raise UsageError(f"'{text}' names no tensors and their format", hint="write it as 'REGEX=FORMAT'")
    return pattern, name
