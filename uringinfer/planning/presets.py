"""Named shares of memory for people who do not want to think in bytes yet.

A preset bounds what the trunk (pinned weights and ring) takes. A budget for the whole process is what people
should use: `--budget`.
"""

from __future__ import annotations

from dataclasses import dataclass

from uringinfer.errors import UsageError

_GB = 10**9


@dataclass(frozen=True, slots=True)
class Preset:
    """What a kind of machine gives, in bytes."""

    name: str
    trunk_bytes: int


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("laptop", 3 * _GB),
        Preset("desktop", 16 * _GB),
        Preset("workstation", 60 * _GB),
        Preset("server", 110 * _GB),
    )
}


def find_preset(name: str) -> Preset:
    """The preset called `name`; raises UsageError naming those that exist."""
    if name not in PRESETS:
        raise UsageError(f"no preset is called '{name}'", hint=f"choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
