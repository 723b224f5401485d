"""Types of options: sizes, rates and lists of them, refused with the text that was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uringinfer.errors import UsageError
from uringinfer.units import parse_size

if TYPE_CHECKING:  # packing takes a tenth of a second to import, and `simulate` needs none of it
    from uringinfer.packing.layout import SegmentSize


def parse_counts(text: str) -> list[int]:
    """ "199,399" -> [199, 399]. Raises UsageError for what is no list of whole numbers."""
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise UsageError(f"'{text}' is not a list of whole numbers", hint="write it as 199,399")
    return [int(word) for word in words]


def parse_sizes(text: str) -> list[int]:
    """ "8GB,16G" -> bytes. Raises UsageError for what is no list of sizes."""
    return [parse_size(word) for word in text.split(",")]


def segment_size(text: str) -> SegmentSize:
    """ "64M" -> bytes; "layer" and "auto" are themselves. Raises UsageError for anything else."""
    if text == "layer":
        return "layer"
    return "auto" if text == "auto" else parse_size(text)
