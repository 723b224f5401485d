"""The checks of a model: its files, the drive they lie on, its tokenizer.

A model is a container, a checkpoint directory or a GGUF file. What is wrong with it is a finding, not an
error: the other checks go on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from uringinfer.container.container import Container
from uringinfer.container.manifest import MANIFEST_NAME
from uringinfer.diagnosis.findings import Finding, note, ok, problem
from uringinfer.diagnosis.read_clock import BLOCK_BYTES, clock_reads
from uringinfer.engine.load_options import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.errors import UringinferError, UsageError
from uringinfer.models import model_from_config
from uringinfer.models.verification import verify
from uringinfer.packing.gguf_files import part_paths
from uringinfer.packing.source_checksums import check_source
from uringinfer.packing.sources import open_source
from uringinfer.storage.device import find_device
from uringinfer.storage.direct import StorageFile, open_file
from uringinfer.text.formats import find_renderer
from uringinfer.text.rendering import ChatRequest
from uringinfer.text.tokenizer import Tokenizer
from uringinfer.units import format_rate, format_size

_WEIGHTS = (".safetensors", ".gguf", ".bin")


@dataclass(frozen=True, slots=True)
class _Weights:
    """The files that hold a model's weights; `is_packed` if it is a container."""

    files: list[Path]
    is_packed: bool

    @property
    def nbytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)

    @property
    def largest(self) -> Path:
        return max(self.files, key=lambda file: file.stat().st_size)


def check_model(
    path: Path, seconds: float, *, deep: bool = False, progress: Callable[[int, int], None] | None = None
) -> Iterator[Finding]:
    """Every check of the model at `path`; the drive is clocked for `seconds`, checksums only if `deep`.

    Raises UsageError if there is no model at `path`.
    """
    weights = _find_weights(path)
    yield check_structure(path, weights.is_packed)
    if deep:
        yield check_checksums(path, weights.is_packed, progress)
    if weights.is_packed:
        yield check_fit(path)
    yield check_direct(weights.largest)
    yield check_space(path, weights)
    if seconds > 0:
        yield check_reads(weights.largest, seconds)
    yield from check_text(path)


def check_structure(path: Path, is_packed: bool) -> Finding:
    """Whether all files are there, of the sizes they should have, and of an architecture that runs."""
    try:
        if is_packed:
            container = Container.open(path)
            config, what = container.manifest.config, "container"
            count = f"{len(container.segments)} segments, {len(container.banks)} expert banks"
        else:
            source = open_source(path)
            config, what = source.config, "checkpoint"
            count = f"{len(source.tensors)} tensors"
        family = model_from_config(config).family
    except UringinferError as error:
        return problem("model", error.message, error.hint)
    return ok("model", f"{what} of family {family}, {count}, every file whole by its size")


def check_checksums(
    path: Path, is_packed: bool, progress: Callable[[int, int], None] | None = None
) -> Finding:
    """Whether every byte of a container is what was packed; names the first damage."""
    if not is_packed:
        return check_digests(path, progress)
    try:
        report = verify(path, progress=progress)
    except UringinferError as error:
        return problem("checksums", error.message, error.hint)
    if report.ok:
        return ok("checksums", f"all {report.targets} match, {format_size(report.nbytes)} read")
    if not report.damaged:
        return problem(
            "checksums", f"the container is not what its config says: {report.unfit[0]}", "pack it again"
        )
    return problem(
        "checksums",
        f"{len(report.damaged)} of {report.targets} parts are damaged, the first: {report.damaged[0]}",
        "copy the container again, or pack it again with --force",
    )


def check_digests(path: Path, progress: Callable[[int, int], None] | None = None) -> Finding:
    """Whether a checkpoint's files are those that were published, by the digests that a download left."""
    try:
        report = check_source(path, progress)
    except UringinferError as error:
        return problem("checksums", error.message, error.hint)
    if report.damaged:
        return problem(
            "checksums",
            f"{len(report.damaged)} of {report.checked} files are damaged, the first: {report.damaged[0]}",
            "delete what is damaged and download it again",
        )
    if not report.checked:
        return note(
            "checksums",
            "no digest of a file is known: a hub cache or 'hf download --local-dir' keeps them",
            "pack it and check the container",
        )
    others = f"; of {report.unknown} others none is known" if report.unknown else ""
    return ok("checksums", f"{report.checked} files have the digests that were published{others}")


def check_fit(path: Path) -> Finding:
    """Whether this machine grants the memory that the container needs at least, at the default context."""
    try:
        opened, options = open_model(path), LoadOptions()
        plan = opened.plan(options)
    except UringinferError as error:
        return problem("fit", error.message, error.hint)
    return ok(
        "fit",
        f"a context of {opened.context(options)} tokens: floor {format_size(plan.floor)}; by default"
        f" {format_size(plan.budget)}, which pins {plan.trunk.hit_rate:.0%} of what a token streams",
    )


def check_direct(path: Path) -> Finding:
    """Whether reads of the weights bypass the page cache on the file system they lie on."""
    try:
        with open_file(path) as file:
            direct, stand_in = file.direct, _stand_in(file)
    except UringinferError as error:
        return problem("direct I/O", error.message, error.hint)
    if stand_in is not None:
        return problem(
            "direct I/O",
            f"{path.name} is not read from a drive: {stand_in}",
            "move the model to one; losetup --direct-io=on lets a loop device bypass the page cache",
        )
    if direct.is_direct:
        return ok("direct I/O", f"{direct.reason}; aligned to {direct.offset_align} bytes")
    return problem(
        "direct I/O",
        f"reads of {path.name} go through the page cache: {direct.reason}",
        "move the model to a local ext4, xfs or btrfs file system",
    )


def _stand_in(file: StorageFile) -> str | None:
    """What is read in place of a drive, in words, where reads bypass the page cache of the file itself."""
    device = find_device(file.fd) if file.direct.is_direct else None
    return None if device is None else device.stand_in


def check_space(path: Path, weights: _Weights) -> Finding:
    """Free space where the model lies; a checkpoint needs about its own size once more to be packed there."""
    free = shutil.disk_usage(path).free
    message = f"{format_size(free)} free beside {format_size(weights.nbytes)} of weights"
    if not weights.is_packed and free < weights.nbytes:
        return note("space", f"{message}: too little to pack the checkpoint here", "pack to another drive")
    return ok("space", message)


def check_reads(path: Path, seconds: float) -> Finding:
    """The rate of real reads for a moment, and what it is worth as evidence."""
    try:
        with open_file(path) as file:
            rate = clock_reads(file, seconds)
            is_direct = file.direct.is_direct and _stand_in(file) is None
    except UringinferError as error:
        return problem("reads", error.message, error.hint)
    if rate is None:
        return note("reads", f"{path.name} is too short to be clocked (less than {format_size(BLOCK_BYTES)})")
    message = (
        f"{format_rate(rate.bytes_per_second)} in {rate.seconds:.1f} s of random reads by {rate.reader},"
        f" {rate.cpu_ms_per_gb:.0f} ms of CPU per GB"
    )
    if not is_direct:
        return note("reads", f"{message}; through the page cache, so this may not be a drive's speed")
    if rate.passes > 1:
        return ok(
            "reads", f"{message}; the file was read {rate.passes} times, a drive's own cache may have helped"
        )
    return ok("reads", message)


def check_text(path: Path) -> Iterator[Finding]:
    """Whether there is a tokenizer, and a chat template for it."""
    if path.is_file():
        yield ok("tokenizer", "inside the GGUF file; taken out when it is packed")
        return
    try:
        tokenizer = Tokenizer.open(path)
    except UsageError as error:
        yield note("tokenizer", error.message, error.hint)
        return
    except UringinferError as error:
        yield problem("tokenizer", error.message, error.hint)
        return
    template = _check_template(path, tokenizer)
    message = f"{tokenizer.vocab_size} tokens, {len(tokenizer.control_tokens)} of them control tokens"
    if tokenizer.eos_ids:
        yield ok("tokenizer", f"{message}; text ends at {_names(tokenizer)}")
    else:
        yield note(
            "tokenizer", f"{message}; none ends a text, generation goes on to its limit", "give --stop"
        )
    yield template


def _check_template(path: Path, tokenizer: Tokenizer) -> Finding:
    """Whether there is a chat format that puts a question. What ends a turn in it is known afterwards."""
    try:
        found = find_renderer(path, tokenizer)
        if found is not None:
            found.render(ChatRequest([{"role": "user", "content": "Who are you?"}]))
    except UringinferError as error:
        return problem("chat template", error.message, error.hint)
    if found is None:
        what = "none: prompts are given to the model as they are"
        return note("chat template", what, "give --chat-template")
    return ok("chat template", found.name)


def _names(tokenizer: Tokenizer) -> str:
    tokens = [tokenizer.added_token(token_id) for token_id in sorted(tokenizer.eos_ids)]
    named = [token.content for token in tokens if token is not None]
    return " or ".join(named) or f"token {min(tokenizer.eos_ids)}"


def _find_weights(path: Path) -> _Weights:
    if path.is_file() and path.suffix == ".gguf":
        return _Weights(part_paths(path), is_packed=False)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in _WEIGHTS and file.is_file())
        if files:
            return _Weights(files, is_packed=(path / MANIFEST_NAME).is_file())
    what = "is neither a container nor a checkpoint" if path.exists() else "does not exist"
    raise UsageError(
        f"{path} {what}", hint="give NAME.uring, a directory with safetensors files, or a GGUF file"
    )
