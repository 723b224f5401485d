"""What converting a model's weights to other formats cost: the error of each kind of tensor.

The packer measures it, the manifest keeps it, `info` shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from uringinfer.container.fields import MAX_INTEGER, Fields
from uringinfer.kernels.formats import FORMATS

MAX_ERROR = 1e9
"""Relative errors above this are nonsense: a manifest that states one is refused."""


@dataclass(frozen=True, slots=True)
class KindError:
    """The error of all tensors of one kind ("mlp.down_proj", "experts.gate") that went from `origin` to
    `format`.

    `mean` and `worst` are relative Frobenius errors, the norm of the difference over that of the source's
    tensor, 0.01 being 1 %: the mean over `tensors` tensors, and that of `worst_tensor`. `origin` is one of
    the container's formats, or the type of a GGUF file.
    """

    kind: str
    origin: str
    format: str
    tensors: int
    mean: float
    worst: float
    worst_tensor: str

    def to_dict(self) -> dict[str, Any]:
        """For the manifest and for JSON."""
        return asdict(self)


def read_errors(values: Sequence[object], where: str) -> tuple[KindError, ...]:
    """The errors that a manifest states. Raises IntegrityError for what cannot be."""
    return tuple(_read_error(value, f"{where}[{number}]") for number, value in enumerate(values))


def _read_error(value: object, where: str) -> KindError:
    fields = Fields(value, where)
    error = KindError(
        kind=fields.identifier("kind"),
        origin=fields.identifier("origin"),
        format=fields.identifier("format"),
        tensors=fields.integer("tensors", 1, MAX_INTEGER),
        mean=fields.number("mean", 0, MAX_ERROR),
        worst=fields.number("worst", 0, MAX_ERROR),
        worst_tensor=fields.identifier("worst_tensor"),
    )
    fields.close()
    if error.format not in FORMATS:
        fields.fail("format", f"'{error.format}' is unknown")
    if error.mean > error.worst:
        fields.fail("mean", f"{error.mean} is more than the worst, {error.worst}")
    return error
