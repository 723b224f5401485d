"""Named shares of memory for people who do not want to think in bytes yet.

A preset bounds what the trunk (pinned weights and ring) and the expert cache take. A budget for the whole
process is what people should use: `--budget`.
"""

from __future__ import annotations

from dataclasses import dataclass

_GB = 10**9


@dataclass(frozen=True, slots=True)
class Preset:
    """What a kind of machine gives, in bytes."""

    name: str
    trunk_bytes: int
    cache_bytes: int


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("laptop", 3 * _GB, 1 * _GB),
        Preset("desktop", 16 * _GB, 10 * _GB),
        Preset("workstation", 60 * _GB, 30 * _GB),
        Preset("server", 110 * _GB, 13 * _GB),
    )
}
