"""Sizes, rates and counts between text and numbers; nothing else.

`K M G T` and `KiB MiB GiB TiB` are powers of 1024, as in fio and systemd; `KB MB GB TB` are powers of 1000.
"""

from __future__ import annotations

import re

from uringinfer.errors import UsageError

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGTP]?)(i?B)?\s*", re.IGNORECASE)
_MAX_BYTES = 2.0**63
_SHOWN = 20
_RATE = re.compile(r"(.*?)\s*/\s*s", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes that `text` names: "500M", "16G" and "64MiB" in powers of 1024, "16GB" in powers of 1000.

    Raises UsageError if `text` is no size.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UsageError(f"'{text}' is not a size", hint="write it with a unit: 500M, 16G or 64MiB")
    number, prefix, suffix = match.groups()
    base = 1000 if suffix is not None and suffix.upper() == "B" and prefix else 1024
    nbytes = float(number) * float(base ** _POWERS[prefix.upper()])
    if nbytes >= _MAX_BYTES:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise UsageError(f"'{shown}' is more than any machine holds", hint="give a size below 8 EiB")
    return round(nbytes)


def parse_rate(text: str) -> float:
    """Bytes per second that `text` names, such as "2.0GB/s" or "1500MB/s".

    Raises UsageError if `text` is no rate.
    """
    match = _RATE.fullmatch(text.strip())
    size = match.group(1) if match else text
    try:
        # a bare number means gigabytes to whoever writes it, and would be bytes
        rate = float(parse_size(size)) if size.strip()[-1:].isalpha() else 0.0
    except UsageError:
        rate = 0.0
    if rate <= 0:
        raise UsageError(f"'{text}' is not a rate", hint="write it as 2.0GB/s or 1500MB/s")
    return rate


def format_size(nbytes: int) -> str:
    """Bytes for a person: GiB with two decimals; MiB below one GiB, KiB and B where MiB would hide them."""
    if abs(nbytes) >= 1 << 30:
        return f"{nbytes / (1 << 30):.2f} GiB"
    if abs(nbytes) >= 1 << 20:
        return f"{nbytes / (1 << 20):.2f} MiB"
    if abs(nbytes) >= 1 << 10:
        return f"{nbytes / (1 << 10):.2f} KiB"
    return f"{nbytes} B"


def format_rate(bytes_per_second: float) -> str:
    """Bytes per second as decimal GB/s with two decimals, the unit drives are sold in."""
    return f"{bytes_per_second / 1e9:.2f} GB/s"


def counted(number: int, noun: str) -> str:
    """ "1 byte", "2 bytes": for nouns whose plural is an s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def as_bytes(size: int | str | None, what: str = "the size") -> int | None:
    """The bytes of a size that somebody gave: a number of them, or text as `parse_size` takes it; None stays.

    Raises UsageError, naming `what`, for anything else.
    """
    if size is None:
        return None
    if isinstance(size, str):
        return parse_size(size)
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise UsageError(f"{what} is {size!r}, which is no size", hint="give bytes, or text such as '8G'")
    return size
