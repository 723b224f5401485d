"""The headers of a model's parts in GGUF, checked against one another.

Every part says its own number and how many there are, the first holds the metadata; what is swapped or there
twice is named by its file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from uringinfer.errors import IntegrityError
from uringinfer.packing.gguf_header import GgufHeader, read_gguf_header
from uringinfer.units import counted


def read_parts(paths: Sequence[Path]) -> list[GgufHeader]:
    """The headers of a model's files, in order, checked against one another.

    Raises IntegrityError naming a file that is damaged, is not the part that its name says, or belongs to
    another model.
    """
    headers = [read_gguf_header(path) for path in paths]
    for number, header in enumerate(headers):
        _check_place(headers, number, header)
    owners: dict[str, Path] = {}
    for header in headers:
        for name in header.tensors:
            if name in owners:
                raise IntegrityError(f"{header.path}: tensor {name!a} stands in {owners[name].name} too")
            owners[name] = header.path
    total = headers[0].metadata.get("split.tensors.count", len(owners))
    if len(headers) > 1 and total != len(owners):
        raise IntegrityError(
            f"{headers[0].path}: its {len(headers)} parts hold {len(owners)} tensors of {str(total)[:20]}",
            hint="some part belongs to another model; download the parts again",
        )
    return headers


def _check_place(headers: Sequence[GgufHeader], number: int, header: GgufHeader) -> None:
    count, own = _split(header, "split.count", 1), _split(header, "split.no", 0)
    if len(headers) == 1 and count in (0, 1):
        return
    if count != len(headers):
        hint = f"name its parts NAME-00001-of-{count:05d}.gguf, as they were published"
        where = f"one of {counted(len(headers), 'file')}" if len(headers) > 1 else "whose name is no part's"
        raise IntegrityError(f"{header.path}: is part {own + 1} of {count}, {where}", hint=hint)
    if own != number:
        twin = next(
            (h.path.name for n, h in enumerate(headers) if n != number and _split(h, "split.no", 0) == own),
            None,
        )
        also = f", and so does {twin}" if twin else ""
        raise IntegrityError(
            f"{header.path}: holds part {own + 1}{also}; its name is that of part {number + 1}",
            hint="give each part its own name, or download it again",
        )


def _split(header: GgufHeader, key: str, default: int) -> int:
    value: Any = header.metadata.get(key, default)
    if type(value) is not int or not 0 <= value < 1 << 16:
        raise IntegrityError(f"{header.path}: metadata {key} is {str(value)[:20]!a}, no number of a part")
    return value
