"""Reads the small text files of a checkpoint, and tells one that is damaged from one that may not be read."""

from __future__ import annotations

import json
import os
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.storage.regular import open_regular


def read_utf8(path: Path) -> str:
    """The text of the file `path`.

    Raises FileNotFoundError if there is none, EnvironmentError_ if the machine refuses to read it,
    IntegrityError if it is not UTF-8, or no regular file.
    """
    try:
        with TextIOWrapper(open_regular(path), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise EnvironmentError_(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
    except UnicodeDecodeError as error:
        raise IntegrityError(f"{path} is not UTF-8 (byte {error.start})", hint="copy it anew") from None


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in the file `path`. Raises as `read_utf8` does, and IntegrityError if there is none."""
    try:
        document = json.loads(read_utf8(path))
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path} is not JSON ({error})", hint="copy it anew") from error
    if not isinstance(document, dict):
        raise IntegrityError(f"{path} holds no JSON object", hint="copy it anew")
    return document
