"""Which files a model in GGUF has: one, or parts called NAME-00001-of-00003.gguf. Looks at names alone.

Any part stands for all, and so does a directory that holds one model.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from uringinfer.errors import IntegrityError, UsageError
from uringinfer.units import counted

SUFFIX = ".gguf"
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_BESIDE = "mmproj"
"""How the file of a vision tower begins, which lies beside the model that it belongs to."""
_SHOWN = 5


def part_paths(path: Path) -> list[Path]:
    """The files of the model at `path`, one of them or their directory, in order.

    Raises IntegrityError naming parts that are not there, UsageError for a directory with no GGUF file or
    with several models.
    """
    if path.is_dir():
        path = _only_model(path)
    match = _PART.fullmatch(path.name)
    if match is None or int(match[3]) < 1:
        return [path]
    count = int(match[3])
    parts = [path.with_name(f"{match[1]}-{number:05d}-of-{match[3]}.gguf") for number in range(1, count + 1)]
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise IntegrityError(
            f"{path.parent}: {len(missing)} of {counted(count, 'part')} missing:"
            f" {', '.join(missing[:_SHOWN])}{more}",
            hint="download them into the same directory",
        )
    return parts


def holds_gguf(directory: Path) -> bool:
    """Whether the directory has a GGUF file, and no safetensors."""
    return any(directory.glob(f"*{SUFFIX}")) and not any(directory.glob("*.safetensors"))


def _only_model(directory: Path) -> Path:
    """The one model in `directory`, as one of its files."""
    models: defaultdict[str, list[Path]] = defaultdict(list)
    for file in sorted(directory.glob(f"*{SUFFIX}")):
        match = _PART.fullmatch(file.name)
        if not file.name.startswith(_BESIDE):
            models[f"{match[1]}-*-of-{match[3]}" if match else file.name].append(file)
    if len(models) != 1:
        names = ", ".join(list(models)[:_SHOWN]) or "none"
        raise UsageError(
            f"{directory} holds {counted(len(models), 'GGUF model')}: {names}",
            hint="name one of the files",
        )
    return next(iter(models.values()))[0]
