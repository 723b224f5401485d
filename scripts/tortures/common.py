"""Cases in processes of their own, and tiny models to torture.

Nothing is loaded in the process that forks: its children begin with every module imported and no thread.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path += [
    str(ROOT),
    str(ROOT / "scripts"),
    *(str(ROOT / "tests" / room) for room in ("engine", "packing")),
]

SECONDS = 5.0
"""No case that reads hostile input may take longer."""
MEMORY = 300 << 20
"""No case that reads hostile input may take more memory, with the interpreter."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a child ended. `result` is what it returned; `error` what came out of it, with where."""

    kind: str
    """"returned", "refused" (in one line), "raised", "killed", "hung"."""
    result: Any = None
    error: str = ""
    peak: int = 0


def random_of(seed: int, mode: str, number: int) -> random.Random:
    """The random numbers of one case."""
    return random.Random(f"{seed}:{mode}:{number}")


def forked(work: Callable[[], Any], seconds: float = 60.0) -> Outcome:
    """What became of `work` in a process of its own; its result must be JSON."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(work, reader, writer)
    os.close(writer)
    said, deadline, hung = b"", time.monotonic() + seconds, False
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            hung = True
            break
        part = os.read(reader, 1 << 16)
        if not part:
            break
        said += part
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    if hung:
        return Outcome("hung", error=f"longer than {seconds:g} s")
    if os.WIFSIGNALED(status) or not said:
        return Outcome("killed", error=f"status {status}")
    return Outcome(**json.loads(said))


def _child(work: Callable[[], Any], reader: int, writer: int) -> None:
    from uringinfer.cli.failures import failure_of

    answer: dict[str, Any]
    try:
        os.close(reader)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        answer = {"kind": "returned", "result": work()}
    except BaseException as error:
        failure = failure_of(error)
        if failure.code == 1:  # a mistake in the program
            answer = {"kind": "raised", "error": traceback.format_exc()}
        else:
            answer = {"kind": "refused", "error": failure.line}
    try:
        os.write(writer, json.dumps(answer | {"peak": peak_bytes()}).encode())
    finally:
        os._exit(0)


def peak_bytes() -> int:
    """The most memory that this process had."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


def import_everything() -> None:
    """What children would import, each anew."""
    import gguf  # noqa: F401
    import jinja2  # noqa: F401

    import uringinfer.api.functions
    import uringinfer.cli.main
    import uringinfer.container.verifier
    import uringinfer.engine.opening
    import uringinfer.kernels.native_kernels
    import uringinfer.models.kimi_k3
    import uringinfer.packing.gguf
    import uringinfer.packing.packer
    import uringinfer.packing.sharder  # noqa: F401


def make_models(directory: Path) -> dict[str, Path]:
    """A dense model with a tokenizer and a mixture of experts, as checkpoints and packed; a GGUF file."""
    from gguf_maker import byte_level_tokenizer, make_gguf, smollm_pre_tokenizer, weights
    from tiny_models import pack_moe, write_tiny_checkpoint

    from uringinfer.packing.packer import pack

    directory.mkdir(parents=True, exist_ok=True)
    made = {
        "dense checkpoint": directory / "dense",
        "dense": directory / "dense.uring",
        "moe checkpoint": directory / "moe" / "checkpoint",
        "moe": directory / "moe" / "moe.uring",
        "quantised": directory / "quantised.uring",
        "gguf": directory / "tiny.gguf",
    }
    if not made["gguf"].exists():
        write_tiny_checkpoint(made["dense checkpoint"], layers=2)
        pack(made["dense checkpoint"], made["dense"], segment=32768)
        pack(made["dense checkpoint"], made["quantised"], segment="auto", trunk="q4")
        pack_moe(directory / "moe")
        make_gguf(made["gguf"], weights(), tokenizer=byte_level_tokenizer(smollm_pre_tokenizer()))
    return made
