"""Packs a checkpoint into a container: same bytes whatever the number of jobs, however often interrupted.

Workers take blocks (segments, records) in order; each reads the rows a block is made of, in pieces of a few
MiB, writes them and notes the block's CRC32 in the journal. Memory never holds the whole model, nor even a
whole segment.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from uringinfer.container.checksum import crc32
from uringinfer.container.codebooks import CODEBOOK_BYTES, CODEBOOKS_NAME, pack_codebooks
from uringinfer.container.kind_errors import KindError
from uringinfer.container.manifest import ALIGNMENT, AuxiliaryFile, Manifest
from uringinfer.container.row_checksums import ROW_CHECKSUMS_NAME, row_checksum_bytes
from uringinfer.container.summary import bytes_by_format
from uringinfer.errors import IntegrityError, UsageError
from uringinfer.models import model_from_config
from uringinfer.models.base import Model
from uringinfer.packing.conversion import squares_of
from uringinfer.packing.error_report import coming_notes, requantising_notes
from uringinfer.packing.job_memory import job_bytes, jobs_within, smallest_read
from uringinfer.packing.journal import Finished
from uringinfer.packing.layout import Block, Layout, as_segment_size, make_layout
from uringinfer.packing.parted import PartedSource, check_continues, stages_of
from uringinfer.packing.parts import LayerRange, blocks_of_layers
from uringinfer.packing.quantised_notes import quantised_notes
from uringinfer.packing.recipe import KEEP, Recipe
from uringinfer.packing.reclaim import reclaim
from uringinfer.packing.results import with_checksum, with_results
from uringinfer.packing.row_checksums import make_row_checksums
from uringinfer.packing.runs import Run
from uringinfer.packing.segments import round_up
from uringinfer.packing.source import TensorSource
from uringinfer.packing.sources import open_source
from uringinfer.packing.staging import Staging, check_replaceable, lacking_space, partial_path
from uringinfer.packing.windows import Bytes, aligned_buffer, read_range
from uringinfer.packing.writer import BUFFER_BYTES, BlockStream
from uringinfer.packing.zeros import WatchedSource
from uringinfer.planning.machine import Machine
from uringinfer.storage.direct import StorageFile, open_file

Progress = Callable[[int, int], None]
"""progress(done, total), in bytes; called from the thread that called `pack`."""

DEFAULT_JOBS = 8
"""Each job reads or writes, never both: eight keep about four reads and four writes of 4 MiB in flight. With
sixteen, twice as many finish one after the other at the end, and the rate is the same."""
MAX_JOBS = 64
"""Threads of one pack. Each holds two buffers of 4 MiB: together at most 512 MiB."""

_PROGRESS_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class PackReport:
    """What `pack` did. Sizes in bytes; `written_bytes` is without what an earlier, interrupted run wrote."""

    path: str
    family: str
    nbytes: int
    written_bytes: int
    resumed_bytes: int
    reclaimed_bytes: int
    segments: int
    segment_bytes: int | None
    """The largest size a segment may have; None means one segment for each layer."""
    banks: int
    seconds: float
    dry_run: bool
    complete: bool
    """Whether there is a container now: not after a dry run, nor after some layers alone."""
    notes: tuple[str, ...]
    formats: Mapping[str, int]
    """Bytes of weights in each format."""
    errors: tuple[KindError, ...]
    """What changing formats cost; empty if nothing changed, and before all is converted."""
    manifest: Manifest

    def to_dict(self) -> dict[str, Any]:
        """For JSON: everything but the manifest."""
        names = (field.name for field in fields(self) if field.name not in ("manifest", "errors"))
        errors = [error.to_dict() for error in self.errors]
        return {**{name: getattr(self, name) for name in names}, "errors": errors}


def pack(
    checkpoint: Path | str,
    out: Path | str,
    *,
    segment: int | str = "auto",
    trunk: str = KEEP,
    experts: str = KEEP,
    tensors: Sequence[tuple[str, str]] = (),
    seed: int = 0,
    jobs: int | None = None,
    force: bool = False,
    dry_run: bool = False,
    layers: LayerRange | None = None,
    reclaim_checkpoint: bool = False,
    progress: Progress | None = None,
    make_model: Callable[[Mapping[str, Any]], Model] = model_from_config,
) -> PackReport:
    """Packs `checkpoint` (a Hugging Face directory or a GGUF file) into the container `out`.

    `segment` bounds a segment's bytes (also as "64M"), or makes one of each layer ("layer"). `trunk` and
    `experts` are formats that their matrices are converted to, `tensors` (regular expression, format) pairs
    for tensors by name (see `Recipe`); the manifest and the report then say what that cost. `seed` draws the
    weights that codebooks are learned from: the same seed gives the same bytes. `jobs` threads read and
    write, 1 to `MAX_JOBS`, but no more than there are segments and records. Each holds 8 MiB, the scales
    that it makes or that GGUF stores among the codes, until these are written, and the rows that it converts
    where they are no run of bytes: this bounds the memory, whatever the model's size; and there are no more
    of them than fit into what this process may use. `force` replaces an
    existing container once the new one is whole; `dry_run` checks and lays out, and writes nothing, and says
    in its notes if the space is not there. Interrupted at any point, the same call continues and gives the
    same bytes. With `layers` only their part is written, for a later call to continue and one without
    `layers` to finish. `reclaim_checkpoint` deletes the checkpoint's weight files once the container is
    whole and every checksum in it has been read back; of GGUF in parts, nothing of which is converted, each
    part gives back its space as soon as all that was made of it has been read back.

    Raises UsageError, IntegrityError and UnsupportedModelError for a checkpoint or output that will not do,
    before anything is written; BudgetError if not even one job fits; EnvironmentError_ if space runs out or
    the drive refuses.
    """
    if jobs is not None and not 1 <= jobs <= MAX_JOBS:
        raise UsageError(f"{jobs} jobs were asked for", hint=f"give 1 to {MAX_JOBS}")
    start = time.monotonic()
    out = Path(out)
    recipe = Recipe(trunk, experts, tuple(tensors), seed)
    opened = open_source(Path(checkpoint))
    source = WatchedSource(opened)
    try:
        layout = make_layout(make_model(source.config), source, as_segment_size(segment), recipe)
        auxiliary = dict(source.auxiliary_files())
        files = tuple(AuxiliaryFile(name, len(data), crc32(data)) for name, data in auxiliary.items())
        files = (*files, AuxiliaryFile(ROW_CHECKSUMS_NAME, row_checksum_bytes(layout.manifest.segments), 0))
        if layout.codebooks:
            nbytes = CODEBOOK_BYTES * len(layout.codebooks)
            files = (*files, AuxiliaryFile(CODEBOOKS_NAME, nbytes, 0))
        layout = replace(layout, manifest=replace(layout.manifest, files=files))
        if dry_run:
            check_replaceable(out, force=force)
            lacking = lacking_space(partial_path(out), layout.nbytes)
            notes = [*coming_notes(layout.conversions), *([lacking] if lacking else [])]
            return _report(out, layout, start, source, notes=notes)
        wanted = None if layers is None else blocks_of_layers(layout, layers)
        stages = stages_of(opened, layout) if reclaim_checkpoint and wanted is None else []
        job = _Job(source, layout, out, wanted, opened, stages, force=force)
        try:
            blocks = job.run(jobs or default_jobs(), progress)
            job.check_source_unchanged()
            if wanted is not None:
                return _report(out, layout, start, source, job)
            manifest = with_results(layout, blocks)
            if layout.codebooks:
                data = pack_codebooks([encoder.codebook() for encoder in layout.codebooks])
                auxiliary[CODEBOOKS_NAME] = data
                manifest = with_checksum(manifest, CODEBOOKS_NAME, crc32(data))
            data = make_row_checksums(job.staging.path / manifest.trunk_file, manifest)
            auxiliary[ROW_CHECKSUMS_NAME] = data
            manifest = with_checksum(manifest, ROW_CHECKSUMS_NAME, crc32(data))
            for name, data in auxiliary.items():
                job.staging.add(name, data)
            job.staging.commit(manifest.to_json())
        finally:
            job.close()
        freed = reclaim(source.path, source.identity["files"], out) if reclaim_checkpoint else 0
        freed += job.given_back_bytes
        return _report(out, replace(layout, manifest=manifest), start, source, job, freed, complete=True)
    finally:
        source.close()


def _report(
    out: Path,
    layout: Layout,
    start: float,
    source: TensorSource,
    job: _Job | None = None,
    reclaimed: int = 0,
    *,
    complete: bool = False,
    notes: Sequence[str] = (),
) -> PackReport:
    return PackReport(
        path=str(out),
        family=layout.manifest.family,
        nbytes=layout.nbytes,
        written_bytes=job.written_bytes if job else 0,
        resumed_bytes=job.resumed_bytes if job else 0,
        reclaimed_bytes=reclaimed,
        segments=len(layout.manifest.segments),
        segment_bytes=layout.segment_bytes,
        banks=len(layout.manifest.banks),
        seconds=time.monotonic() - start,
        dry_run=job is None,
        complete=complete,
        notes=(
            *source.notes,
            *quantised_notes(layout.quantised),
            *layout.notes,
            *requantising_notes(layout.manifest.errors),
            *notes,
        ),
        formats=bytes_by_format(layout.manifest),
        errors=layout.manifest.errors,
        manifest=layout.manifest,
    )


def default_jobs() -> int:
    """Jobs of a pack that was not told how many."""
    return min(max(DEFAULT_JOBS, os.cpu_count() or 1), MAX_JOBS)


class _Job:
    """One run of `pack`: the staging directory and the threads that fill it with the `wanted` blocks (all if
    None)."""

    def __init__(
        self,
        source: TensorSource,
        layout: Layout,
        out: Path,
        wanted: Sequence[int] | None,
        opened: TensorSource,
        stages: Sequence[Sequence[int]],
        *,
        force: bool,
    ) -> None:
        self.given_back_bytes = 0
        self._parts = opened if stages and isinstance(opened, PartedSource) else None
        self.written_bytes = 0
        self.resumed_bytes = 0
        self._source = source
        self._layout = layout
        self._source_state = source.state()
        seeds = [encoder.seed for encoder in layout.codebooks]
        job = f"{layout.manifest.to_json()}\n{self._source_state}\n{seeds}"
        key = hashlib.sha256(job.encode()).hexdigest()
        sizes: dict[str, int] = {}
        for block in layout.blocks:
            sizes[block.file] = max(sizes.get(block.file, 0), block.offset + block.nbytes)
        check_continues(opened, out, key)
        room = None if self._parts is None else max(self._parts.part_bytes)
        self.staging = Staging(out, key, sizes, force=force, room=room)
        self._readable: dict[str, StorageFile] = {}
        self._finished = [Finished(0)] * len(layout.blocks)
        self._wanted = range(len(layout.blocks)) if wanted is None else wanted
        self._stages = stages or [self._wanted]
        self._total = sum(layout.blocks[index].nbytes for index in self._wanted)
        self._next: Iterator[int] = iter(())
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def run(self, jobs: int, progress: Progress | None) -> list[Finished]:
        """Writes what is wanted and not written yet, with at most `jobs` threads; what every such block
        became. The first error of a worker is raised. Behind each stage a part of the source is given
        back, if there are stages."""
        each = job_bytes(self._layout.blocks[index] for index in self._wanted)
        jobs = jobs_within(max(1, min(jobs, len(self._wanted))), each, Machine.read())
        if self.staging.journal.finished:
            self._open_to_read()
        for part, stage in enumerate(self._stages):
            self._run(stage, jobs, progress)
            if self._parts is not None:
                self._give_back(self._parts, part, stage)
        return self._finished

    def _open_to_read(self) -> None:
        if not self._readable:
            self._readable = {name: open_file(file.path) for name, file in self.staging.files.items()}

    def _give_back(self, parts: PartedSource, part: int, stage: Sequence[int]) -> None:
        """Makes sure that the drive has the blocks of `stage`, and lets the source go that nothing needs any
        more. Raises IntegrityError, with that part untouched, if a block is not what was written."""
        for file in self.staging.files.values():
            file.sync()
        self.staging.journal.sync()
        self._open_to_read()
        buffer = aligned_buffer(BUFFER_BYTES)
        for index in stage:
            block = self._layout.blocks[index]
            if self._checksum_on_disk(block, buffer) != self._finished[index].crc32:
                raise IntegrityError(
                    f"{self.staging.files[block.file].path}: {block.nbytes} bytes at {block.offset} are not"
                    " what was written; no part of the source that they need was given back",
                    hint="the drive may be failing; run the same command again",
                )
        self.given_back_bytes += parts.give_back(part)

    def _run(self, stage: Sequence[int], jobs: int, progress: Progress | None) -> None:
        self._next = iter(stage)
        self._stop.clear()
        with ThreadPoolExecutor(jobs, thread_name_prefix="pack") as pool:
            workers = [pool.submit(self._work) for _ in range(jobs)]
            try:
                running = set(workers)
                while running:
                    done, running = wait(running, _PROGRESS_SECONDS, FIRST_EXCEPTION)
                    for worker in done:
                        worker.result()
                    if progress is not None:
                        progress(self.written_bytes + self.resumed_bytes, self._total)
            finally:
                self._stop.set()

    def _work(self) -> None:
        """Takes blocks until there are none."""
        buffer = aligned_buffer(BUFFER_BYTES)
        while not self._stop.is_set():
            with self._lock:
                index = next(self._next, None)
            if index is None:
                return
            block = self._layout.blocks[index]
            known = self.staging.journal.finished.get(index)
            if known is not None and self._checksum_on_disk(block, buffer) == known.crc32:
                self._finished[index] = known
                self._count(resumed=block.nbytes)
                continue
            runs = block.runs()
            needed = max(map(smallest_read, runs)) + ALIGNMENT
            if needed > len(buffer):
                buffer = aligned_buffer(round_up(needed, ALIGNMENT))
            crc = self._write(block, runs, buffer)
            if crc is None:
                return
            finished = Finished(crc, tuple(squares_of(runs)))
            self.staging.journal.record(index, finished)
            self._finished[index] = finished

    def _checksum_on_disk(self, block: Block, buffer: Bytes) -> int:
        crc = 0
        for start in range(0, block.nbytes, BUFFER_BYTES):
            piece = buffer[: min(BUFFER_BYTES, block.nbytes - start)]
            read_range(self._readable[block.file], block.offset + start, piece)
            crc = crc32(piece, crc)
        return crc

    def _write(self, block: Block, runs: Sequence[Run], buffer: Bytes) -> int | None:
        """Writes one block; its CRC32, or None if the job was stopped meanwhile."""
        stream = BlockStream(self.staging.files[block.file], block.offset, buffer)
        for run in runs:
            stream.zeros(run.offset - stream.position)
            unit_bytes, smallest = run.unit_bytes, smallest_read(run)
            start, left = 0, run.nbytes
            while left:
                if self._stop.is_set():
                    return None
                # a little room is filled only by what little is left; else it would cost a read of its own
                if stream.room < min(left, max(smallest, len(buffer) // 8)):
                    stream.flush()
                stop = run.units if stream.room >= left else start + stream.room // unit_bytes
                nbytes = left if stop == run.units else (stop - start) * unit_bytes
                run.read(self._source, start, stop, stream.take(nbytes))
                self._count(written=nbytes)
                start, left = stop, left - nbytes
        padding = block.nbytes - stream.position
        stream.zeros(padding)
        self._count(written=padding)
        return stream.finish()

    def _count(self, *, written: int = 0, resumed: int = 0) -> None:
        with self._lock:
            self.written_bytes += written
            self.resumed_bytes += resumed

    def check_source_unchanged(self) -> None:
        """Raises IntegrityError if a file of the source was written to since it was opened."""
        if self._source.state() != self._source_state:
            raise IntegrityError(
                f"{self._source.path} changed while it was packed", hint="run the same command again"
            )

    def close(self) -> None:
        for file in self._readable.values():
            file.close()
        self.staging.close()
