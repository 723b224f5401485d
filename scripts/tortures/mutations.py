"""Harm to bytes and to JSON: what a bad drive, a bad download or a bad person does."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

ODD: tuple[Any, ...] = (
    *(0, 1, -1, 3, 255, 4095, 4096, 4097, 65536, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 10**18),
    *(10**400, 1e308, -0.0, 0.5, 1e-320, float("inf"), float("nan"), True, False, None),
    *("", "0", "a", "../../etc/passwd", "/dev/zero", "trunk.bin", "\x00", "\ud800", "a" * 100_000, "é" * 99),
    *([], {}, [[]], [0] * 5000, {"": {}}, ["bf16"], "bf16", "q4", "float32"),
)


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """One to four changes: bits, bytes, stretches cut out, repeated, zeroed, moved, the end lost."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not changed:
            return bytes(changed)
        start = rng.randrange(len(changed))
        length = min(rng.choice((1, 2, 4, 8, 64, 4096)), len(changed) - start)
        match rng.randrange(8):
            case 0:
                changed[start] ^= 1 << rng.randrange(8)
            case 1:
                changed[start] = rng.randrange(256)
            case 2:
                del changed[start : start + length]
            case 3:
                changed[start:start] = changed[start : start + length] * rng.choice((1, 2, 100))
            case 4:
                changed[start : start + length] = bytes(length)
            case 5:
                other = rng.randrange(len(changed) - length + 1)
                changed[start : start + length] = changed[other : other + length]
            case 6:
                del changed[start:]
            case 7:  # a number in the place of another
                number = rng.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1))
                width = rng.choice((4, 8))
                changed[start : start + width] = (number & (256**width - 1)).to_bytes(width, "little")
    return bytes(changed)


def mutate_json(value: Any, rng: random.Random) -> Any:
    """The value with one to three of its parts replaced by something odd, left out, repeated or exchanged."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return rng.choice(ODD)
        holder, key = rng.choice(places)
        match rng.randrange(6):
            case 0 | 1:
                holder[key] = copy.deepcopy(rng.choice(ODD))
            case 2:
                del holder[key]
            case 3 if type(holder[key]) is int:
                holder[key] += rng.choice((-1, 1, 4096, -4096, 2**32))
            case 3 | 4:
                other, place = rng.choice(places)
                if place in other if isinstance(other, dict) else place < len(other):
                    holder[key] = copy.deepcopy(other[place])
            case 5:
                if isinstance(holder, list):
                    holder.insert(key, copy.deepcopy(holder[key]))
                else:
                    holder[rng.choice(("", "x", "version", "num_hidden_layers"))] = holder[key]
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (dict or list, key or index) in it."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def mutate_text(data: bytes, rng: random.Random) -> bytes:
    """JSON as text: mostly its values are changed, else its bytes, or it is nested without end."""
    choice = rng.random()
    if choice < 0.75:
        return json.dumps(mutate_json(json.loads(data), rng)).encode()
    if choice < 0.98:
        return mutate_bytes(data, rng)
    return rng.choice((b"[", b'{"a":', b'{"config":[')) * rng.choice((10, 1000, 100_000))
