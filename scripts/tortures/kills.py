"""A kill at each system call that changes a file: the old state or the new one is there, whole, and running
the command again makes the new one. The same with calls that fail and writes that are short.

A case is one call of one operation. `shim.c` is preloaded into a process that forks; each child is armed to
die at its call.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tortures.common import ROOT, Outcome, forked, import_everything, make_models
from tortures.fork_made import answer, restore_session, save_session

_OFF, _COUNT, _KILL, _FAIL, _HALF = range(5)
HARMS = {
    "killed": (_KILL, 0),
    "no space": (_FAIL, errno.ENOSPC),
    "EIO": (_FAIL, errno.EIO),
    "half": (_HALF, 0),
}
_LIBRARY = "URINGINFER_TORTURE_SHIM"


@dataclass(frozen=True, slots=True)
class Operation:
    """`begin(made, place)` makes the state before; `work` is tortured; `state` names what is there after
    it: whatever was there before, or what a run that nobody disturbed leaves. `again` must then succeed."""

    begin: Callable[[dict[str, Any], Path], None]
    work: Callable[[dict[str, Any], Path], object]
    state: Callable[[dict[str, Any], Path], str]


def _pack(made: dict[str, Any], place: Path, **options: Any) -> None:
    from uringinfer.packing.packer import pack

    pack(place / "checkpoint", place / "m.uring", segment=32768, jobs=2, **options)


def _copy_checkpoint(made: dict[str, Any], place: Path) -> None:
    shutil.copytree(made["small"], place / "checkpoint")


def _copy_container(made: dict[str, Any], place: Path) -> None:
    _copy_checkpoint(made, place)
    shutil.copytree(made["moe"], place / "m.uring")


def _copy_moe(made: dict[str, Any], place: Path) -> None:
    shutil.copytree(made["moe"], place / "m.uring")
    for drive in ("a", "b"):
        (place / drive).mkdir()


def _container(made: dict[str, Any], place: Path) -> str:
    """What the container answers, if there is one."""
    path = place / "m.uring"
    if not path.exists():
        return "nothing"
    from uringinfer.container.verifier import verify

    if not verify(path).ok:
        return "damaged"
    return answer(path)


def _with_checkpoint(made: dict[str, Any], place: Path) -> str:
    """The container, or else the checkpoint, which must be whole then."""
    found = _container(made, place)
    left = sorted(file.name for file in (place / "checkpoint").glob("*.safetensors"))
    return found if found != "nothing" else f"{found}, {left}"


def _shard(made: dict[str, Any], place: Path) -> None:
    from uringinfer.packing.sharder import shard

    shard(place / "m.uring", [place / "a", place / "b"])


def _sharded(made: dict[str, Any], place: Path) -> None:
    _copy_moe(made, place)
    _shard(made, place)


def _bring_back(made: dict[str, Any], place: Path) -> None:
    from uringinfer.packing.sharder import shard

    shard(place / "m.uring", [])


def _save(made: dict[str, Any], place: Path) -> None:
    save_session(made["dense"], place / "session")


def _session(made: dict[str, Any], place: Path) -> str:
    path = place / "session"
    return restore_session(made["dense"], path) if path.exists() else "nothing"


def _learn(made: dict[str, Any], place: Path) -> None:
    import uringinfer

    with uringinfer.load(place / "m.uring", context=64) as engine:
        engine.generate([1, 2, 3], max_tokens=2)
        engine.learn()


def _usage(made: dict[str, Any], place: Path) -> str:
    from uringinfer.engine.opening import open_model

    opened = open_model(place / "m.uring")
    return "nothing" if opened.usage is None else f"{int(opened.usage.counts.sum())} uses"


def _nothing(made: dict[str, Any], place: Path) -> None:
    pass


OPERATIONS = {
    "pack": Operation(_copy_checkpoint, _pack, _container),
    "pack --force": Operation(
        _copy_container, lambda made, place: _pack(made, place, force=True), _container
    ),
    "reclaim": Operation(
        _copy_checkpoint, lambda made, place: _pack(made, place, reclaim_checkpoint=True), _with_checkpoint
    ),
    "shard": Operation(_copy_moe, _shard, _container),
    "shard --back": Operation(_sharded, _bring_back, _container),
    "save": Operation(_nothing, _save, _session),
    "learn": Operation(_copy_moe, _learn, _usage),
}


def prepare(directory: Path) -> dict[str, Any]:
    _preload(directory)
    import_everything()
    made: dict[str, Any] = dict(make_models(directory))
    made["directory"] = directory
    made["small"] = made["dense checkpoint"]
    made["before"], made["after"], made["cases"] = {}, {}, []
    for name, operation in OPERATIONS.items():
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            place = Path(scratch)
            _ok(forked(lambda o=operation, p=place: o.begin(made, p)))
            made["before"][name] = _ok(forked(lambda o=operation, p=place: o.state(made, p)))
            calls = _ok(forked(lambda o=operation, p=place: _armed(o, made, p, _COUNT, -1, 0)))
            made["after"][name] = _ok(forked(lambda o=operation, p=place: o.state(made, p)))
        print(f"{name}: {calls} calls that change files")
        made["cases"] += [(name, harm, call) for harm in HARMS for call in range(calls + 3)]
    made["cases"].sort(key=lambda case: list(HARMS).index(case[1]))
    return made


def cases(made: dict[str, Any]) -> int:
    """How many cases there are: kills first."""
    return len(made["cases"])


def run(made: dict[str, Any], number: int, seed: int) -> str | None:
    name, harm, call = made["cases"][number % len(made["cases"])]
    operation = OPERATIONS[name]
    allowed = (made["before"][name], made["after"][name])
    with tempfile.TemporaryDirectory(dir=made["directory"]) as scratch:
        place = Path(scratch)
        _ok(forked(lambda: operation.begin(made, place)))
        ended = forked(lambda: _armed(operation, made, place, HARMS[harm][0], call, HARMS[harm][1]))
        where = f"{name}, {harm} at call {call}"
        if ended.kind in ("raised", "hung"):
            return f"{where}: {ended.kind}: {ended.error}"
        found = forked(lambda: operation.state(made, place))
        if found.kind != "returned" or found.result not in allowed:
            return f"{where}: left {found.result or found.error}; allowed {allowed}"
        if ended.kind == "returned" and found.result != made["after"][name]:
            return f"{where}: said that it was done, and left {found.result}"
        if found.result == made["after"][name]:
            return None
        again = forked(lambda: operation.work(made, place))
        if again.kind != "returned":
            return f"{where}: run again: {again.kind}: {again.error}"
        found = forked(lambda: operation.state(made, place))
        if found.kind != "returned" or found.result != made["after"][name]:
            return f"{where}: run again it left {found.result or found.error}"
    return None


def _armed(operation: Operation, made: dict[str, Any], place: Path, mode: int, call: int, number: int) -> int:
    """The operation, harmed; how many calls it made."""
    shim = ctypes.CDLL(os.environ[_LIBRARY])
    shim.shim_calls.restype = ctypes.c_long
    shim.shim_arm(mode, ctypes.c_long(call), number)
    try:
        operation.work(made, place)
    finally:
        shim.shim_arm(_OFF, ctypes.c_long(-1), 0) if mode != _COUNT else None
    return int(shim.shim_calls())


def _ok(outcome: Outcome) -> Any:
    if outcome.kind != "returned":
        raise RuntimeError(f"an undisturbed run {outcome.kind}: {outcome.error}")
    return outcome.result


def _preload(directory: Path) -> None:
    """Starts this process anew with the shim in front of the C library."""
    if _LIBRARY in os.environ:
        return
    directory.mkdir(parents=True, exist_ok=True)
    library = directory.resolve() / "shim.so"
    source = ROOT / "scripts" / "tortures" / "shim.c"
    compiler = [*shlex.split(os.environ.get("CC", "cc")), "-std=gnu11", "-O1", "-Wall", "-shared", "-fPIC"]
    subprocess.run([*compiler, str(source), "-o", str(library), "-ldl"], check=True)
    os.environ[_LIBRARY] = os.environ["LD_PRELOAD"] = str(library)
    os.execv(sys.executable, [sys.executable, *sys.argv])
