"""uringinfer generates text with language models larger than memory, streamed from NVMe.

`uringinfer.load(path, budget=...)` gives an `Engine`; `docs/api.md` shows what it does. A name is imported
when it is first used, so that `import uringinfer` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING

from uringinfer.version import VERSION

if TYPE_CHECKING:
    from uringinfer.api import (
        BudgetError,
        Conversation,
        Engine,
        EnvironmentError_,
        Generation,
        IntegrityError,
        Interrupted,
        Piece,
        UnsupportedModelError,
        UringinferError,
        UsageError,
        doctor,
        info,
        load,
        pack,
        plan,
        probe,
        shard,
        simulate,
        tokenize,
        verify,
    )
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'uringinfer' has no attribute '{name}'")
        value = getattr(importlib.import_module("uringinfer.api"), name)
        globals()[name] = value
        return value


__version__ = VERSION

__all__ = [
    "BudgetError",
    "Conversation",
    "Engine",
    "EnvironmentError_",
    "Generation",
    "IntegrityError",
    "Interrupted",
    "Piece",
    "UnsupportedModelError",
    "UringinferError",
    "UsageError",
    "doctor",
    "info",
    "load",
    "pack",
    "plan",
    "probe",
    "shard",
    "simulate",
    "tokenize",
    "verify",
]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
