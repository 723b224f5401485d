"""Whether the numbers of a manifest fit one another and the files they point into.

A manifest that passes describes every byte of its trunk and banks exactly once: segments are contiguous,
parts lie inside them in order, panels cover each tensor's rows once, every size is what its format says.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from uringinfer.container.codebooks import check_codebooks
from uringinfer.container.manifest import ALIGNMENT, Bank, Manifest, Segment, TensorPart
from uringinfer.container.row_checksums import check_row_checksums
from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.units import counted

PART_ALIGN = 64


def check_manifest(manifest: Manifest) -> None:
    """Raises IntegrityError unless segments, banks and file names are consistent among themselves."""
    names = [manifest.trunk_file, *(bank.file for bank in manifest.banks)]
    _check_distinct("file", [*names, *(file.name for file in manifest.files), "manifest.json", "shard.json"])
    _check_distinct("segment", [segment.name for segment in manifest.segments])
    _check_distinct("bank of layer", [str(bank.layer) for bank in manifest.banks])
    _check_trunk(manifest.segments)
    for bank in manifest.banks:
        _check_bank(bank)
    check_codebooks(manifest)
    check_row_checksums(manifest)


def pointed_files(manifest: Manifest) -> Iterator[tuple[str, int]]:
    """Every file of the directory that the manifest points into, with the bytes that it must hold."""
    if manifest.segments:
        yield manifest.trunk_file, manifest.segments[-1].offset + manifest.segments[-1].nbytes
    if manifest.sharding is None:
        for bank in manifest.banks:
            yield bank.file, bank.num_experts * bank.record_bytes
    for file in manifest.files:
        yield file.name, file.nbytes


def check_files(manifest: Manifest, directory: Path) -> None:
    """Raises IntegrityError unless every file is there, inside `directory`, and as long as it must be."""
    inside = os.path.realpath(directory)
    for name, nbytes in pointed_files(manifest):
        path = directory / name
        try:
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                if not Path(os.path.realpath(path)).is_relative_to(inside):
                    raise IntegrityError(f"{path}: a symbolic link that leaves the container")
                status = path.stat()
        except FileNotFoundError:
            raise IntegrityError(
                f"{path} is missing, {nbytes} bytes by the manifest", hint="copy it again, or pack again"
            ) from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise IntegrityError(f"{path}: a symbolic link that leads to itself") from None
            raise EnvironmentError_(f"cannot look at {path}: {os.strerror(error.errno or 0)}") from error
        if not stat.S_ISREG(status.st_mode):
            raise IntegrityError(f"{path}: not a regular file")
        if status.st_size != nbytes:
            difference = counted(abs(status.st_size - nbytes), "byte")
            wrong = "short" if status.st_size < nbytes else "too long"
            raise IntegrityError(
                f"{path}: {difference} {wrong}: it holds {status.st_size}, {nbytes} by the manifest",
                hint="copy it again, or pack again",
            )


def _check_distinct(what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise IntegrityError(f"manifest.json: {what} {double} stands twice")


def _check_trunk(segments: tuple[Segment, ...]) -> None:
    end = 0
    rows: dict[str, tuple[TensorPart, bool]] = {}
    for segment in segments:
        where = f"manifest.json: segment {segment.name}"
        if segment.offset != end:
            problem = "overlaps the one before" if segment.offset < end else "leaves a gap"
            raise IntegrityError(f"{where}: {problem}: it starts at {segment.offset}, not at {end}")
        end += segment.nbytes
        _check_parts(where, segment.nbytes, segment.parts)
        for part in segment.parts:
            _check_continues(where, part, segment.streamed, rows.get(part.name))
            rows[part.name] = (part, segment.streamed)
    for last, _ in rows.values():
        if last.row_stop != last_row(last):
            raise IntegrityError(
                f"manifest.json: tensor {last.name}: rows {last.row_stop} to {last_row(last)} are missing"
            )


def last_row(part: TensorPart) -> int:
    """Rows of the whole tensor that `part` belongs to."""
    return part.shape[0] if part.shape else 1


def _check_continues(
    where: str, part: TensorPart, streamed: bool, before: tuple[TensorPart, bool] | None
) -> None:
    """`part` must continue the rows of the same tensor where the part before it stopped."""
    expected = before[0].row_stop if before else 0
    if part.row_start != expected:
        raise IntegrityError(f"{where}: {part.name} starts at row {part.row_start}, not {expected}")
    if before and (part.shape, part.format, streamed) != (before[0].shape, before[0].format, before[1]):
        raise IntegrityError(f"{where}: {part.name} is not of the shape, format and kind of its first panel")


def _check_bank(bank: Bank) -> None:
    where = f"manifest.json: bank of layer {bank.layer}"
    _check_parts(where, bank.record_bytes, bank.parts)
    _check_distinct(f"layer {bank.layer}'s expert tensor", [part.name for part in bank.parts])
    for part in bank.parts:
        if (part.row_start, part.row_stop) != (0, last_row(part)):
            raise IntegrityError(f"{where}: {part.name} is not whole in its record")


def _check_parts(where: str, nbytes: int, parts: tuple[TensorPart, ...]) -> None:
    """Parts lie in order and aligned within `nbytes`, which is what they take, rounded up."""
    end = 0
    for part in parts:
        _check_part(where, part)
        if part.offset % PART_ALIGN:
            raise IntegrityError(f"{where}: {part.name} at {part.offset}, no multiple of {PART_ALIGN}")
        if part.offset < end:
            raise IntegrityError(f"{where}: {part.name} at {part.offset} overlaps what ends at {end}")
        end = part.offset + part.nbytes
        if end > nbytes:
            raise IntegrityError(f"{where}: {part.name} ends at {end}, beyond the {nbytes} bytes there")
    if not parts:
        raise IntegrityError(f"{where}: holds no tensor")
    if nbytes % ALIGNMENT or nbytes - end >= ALIGNMENT:
        raise IntegrityError(f"{where}: {nbytes} bytes are not {end} rounded up to {ALIGNMENT}")


def _check_part(where: str, part: TensorPart) -> None:
    form = part.format
    if not part.row_start < part.row_stop <= last_row(part):
        raise IntegrityError(
            f"{where}: {part.name}: rows {part.row_start} to {part.row_stop} of {last_row(part)}"
        )
    if part.row_start % form.row_granularity:
        raise IntegrityError(
            f"{where}: {part.name} starts at row {part.row_start}, no multiple of {form.row_granularity}"
        )
    expected = form.nbytes(part.rows, part.cols)
    if part.nbytes != expected:
        raise IntegrityError(
            f"{where}: {part.name}: {part.nbytes} bytes, {expected} by its shape and format {form.name}"
        )
