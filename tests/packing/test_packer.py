import errno
import json
import os
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from checkpoint_maker import make_checkpoint, raw_tensors

from uringinfer.container import Container
from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError
from uringinfer.packing import packer, staging, writer
from uringinfer.packing.packer import pack
from uringinfer.packing.safetensors_header import read_header


@pytest.fixture
def checkpoint(tmp_path):
    return make_checkpoint(tmp_path / "m")


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_every_tensor_lies_in_the_container_bit_for_bit(checkpoint, tmp_path):
    pack(checkpoint, tmp_path / "m.uring", segment=8192)
    container = Container.open(tmp_path / "m.uring")
    trunk = container.trunk_path.read_bytes()
    expected = raw_tensors(checkpoint)
    packed = {
        name: b"".join(trunk[p.file_offset : p.file_offset + p.part.nbytes] for p in placements)
        for name, placements in container.tensors.items()
    }
    assert packed["layers.1.mlp.down_proj"] == expected["model.layers.1.mlp.down_proj.weight"]
    assert packed["embed_tokens"] == expected["model.embed_tokens.weight"]
    assert sorted(packed.values()) == sorted(expected.values())


def test_what_no_tensor_covers_is_zero_and_checksums_are_zlibs(checkpoint, tmp_path):
    pack(checkpoint, tmp_path / "m.uring", segment=8192)
    container = Container.open(tmp_path / "m.uring")
    trunk = np.frombuffer(container.trunk_path.read_bytes(), np.uint8)
    for segment in container.segments:
        data = trunk[segment.offset : segment.offset + segment.nbytes].copy()
        assert segment.crc32 == zlib.crc32(data)
        for part in segment.parts:
            data[part.offset : part.offset + part.nbytes] = 0
        assert not data.any()


def test_the_container_keeps_config_and_tokenizer(checkpoint, tmp_path):
    pack(checkpoint, tmp_path / "m.uring")
    container = Container.open(tmp_path / "m.uring")
    assert container.manifest.config == json.loads((checkpoint / "config.json").read_text())
    assert (tmp_path / "m.uring" / "tokenizer.json").read_bytes() == b'{"model": {}}\n'
    assert [file.name for file in container.manifest.files] == [
        "config.json",
        "tokenizer.json",
        "row_checksums.bin",
    ]


def test_the_number_of_jobs_and_small_buffers_do_not_change_a_byte(checkpoint, tmp_path, monkeypatch):
    pack(checkpoint, tmp_path / "one.uring", segment=16384, jobs=1)
    monkeypatch.setattr("uringinfer.packing.packer.BUFFER_BYTES", 4096)
    monkeypatch.setattr("uringinfer.packing.windows.WINDOW_BYTES", 4096)
    pack(checkpoint, tmp_path / "three.uring", segment=16384, jobs=3)
    assert contents(tmp_path / "three.uring") == contents(tmp_path / "one.uring")


def test_the_source_is_not_touched(checkpoint, tmp_path):
    before = contents(checkpoint), [path.stat().st_mtime_ns for path in checkpoint.iterdir()]
    pack(checkpoint, tmp_path / "m.uring")
    assert before == (contents(checkpoint), [path.stat().st_mtime_ns for path in checkpoint.iterdir()])


def test_an_existing_container_is_replaced_only_by_force(checkpoint, tmp_path):
    out = tmp_path / "m.uring"
    pack(checkpoint, out, segment="layer")
    with pytest.raises(UsageError, match="exists; use --force"):
        pack(checkpoint, out, segment=8192)
    assert len(Container.open(out).segments) == 4
    pack(checkpoint, out, segment=8192, force=True)
    assert len(Container.open(out).segments) > 4


def test_force_replaces_nothing_but_containers(checkpoint, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    (tmp_path / "file").write_bytes(b"")
    for name in ("photos", "file"):
        with pytest.raises(UsageError, match=f"{name} exists and is no"):
            pack(checkpoint, tmp_path / name, force=True)
    assert (tmp_path / "photos" / "cat.jpg").exists()


def test_an_empty_directory_may_become_the_container(checkpoint, tmp_path):
    (tmp_path / "m.uring").mkdir()
    pack(checkpoint, tmp_path / "m.uring")
    Container.open(tmp_path / "m.uring")


def test_a_partial_directory_that_no_pack_left_is_not_touched(checkpoint, tmp_path):
    (tmp_path / "m.uring.partial").mkdir()
    (tmp_path / "m.uring.partial" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="was not left by a pack"):
        pack(checkpoint, tmp_path / "m.uring")
    assert (tmp_path / "m.uring.partial" / "notes.txt").read_text() == "mine"


def test_a_dry_run_reports_the_layout_and_writes_nothing(checkpoint, tmp_path):
    report = pack(checkpoint, tmp_path / "m.uring", segment=8192, dry_run=True)
    assert not list(tmp_path.glob("*.uring*"))
    real = pack(checkpoint, tmp_path / "m.uring", segment=8192)
    assert (report.nbytes, report.segments) == (real.nbytes, real.segments)
    assert (report.written_bytes, real.written_bytes) == (0, real.nbytes)
    json.dumps(report.to_dict())


def test_progress_reaches_the_total(checkpoint, tmp_path):
    seen = []
    report = pack(checkpoint, tmp_path / "m.uring", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (report.nbytes, report.nbytes)


def test_too_little_space_is_refused_with_both_numbers_before_writing(checkpoint, tmp_path, monkeypatch):
    class Status:
        f_bavail, f_frsize = 3, 4096

    monkeypatch.setattr(staging.os, "statvfs", lambda path: Status)
    with pytest.raises(EnvironmentError_, match=r"\d+ bytes\) needed, 12\.00 KiB \(12288 bytes\) free"):
        pack(checkpoint, tmp_path / "m.uring")
    assert list(tmp_path.iterdir()) == [checkpoint]


def test_what_can_be_continued_outlives_a_lack_of_space(checkpoint, tmp_path, monkeypatch):
    pack(checkpoint, tmp_path / "m.uring", layers=(0, 0))
    begun = {path: path.read_bytes() for path in (tmp_path / "m.uring.partial").iterdir()}
    monkeypatch.setattr(staging, "lacking_space", lambda path, needed: "no space")
    with pytest.raises(EnvironmentError_, match="no space"):
        pack(checkpoint, tmp_path / "m.uring")
    assert {path: path.read_bytes() for path in begun} == begun


class FailingWrites:
    """Stands in for os.pwrite: fails at one call, or writes less than was asked."""

    def __init__(self, *, fail_at=None, code=errno.ENOSPC, at_most=None):
        self.calls, self.fail_at, self.code, self.at_most = 0, fail_at, code, at_most
        self.real = os.pwrite

    def __call__(self, fd, data, offset):
        self.calls += 1
        if self.calls == self.fail_at:
            raise OSError(self.code, os.strerror(self.code))
        return self.real(fd, data[: self.at_most] if self.at_most else data, offset)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            errno.ENOSPC,
            r"trunk\.bin: writing \d+ bytes at offset \d+ failed: No space left.*; free some",
        ),
        (errno.EIO, r"trunk\.bin: writing \d+ bytes at offset \d+ failed: Input/output error"),
    ],
)
def test_a_write_that_fails_is_named_leaves_no_container_and_can_be_continued(
    checkpoint, tmp_path, monkeypatch, code, message
):
    pack(checkpoint, tmp_path / "good.uring", segment=8192)
    with monkeypatch.context() as patch:
        patch.setattr(writer.os, "pwrite", FailingWrites(fail_at=20, code=code))
        with pytest.raises(EnvironmentError_, match=message):
            pack(checkpoint, tmp_path / "m.uring", segment=8192, jobs=2)
    assert not (tmp_path / "m.uring").exists()
    assert not list((tmp_path / "m.uring.partial").glob("manifest.json*"))
    report = pack(checkpoint, tmp_path / "m.uring", segment=8192)
    assert report.resumed_bytes >= 17 * 4096
    assert contents(tmp_path / "m.uring") == contents(tmp_path / "good.uring")


def test_short_writes_are_continued(checkpoint, tmp_path, monkeypatch):
    pack(checkpoint, tmp_path / "good.uring")
    monkeypatch.setattr(writer.os, "pwrite", FailingWrites(at_most=4096))
    pack(checkpoint, tmp_path / "m.uring")
    assert contents(tmp_path / "m.uring") == contents(tmp_path / "good.uring")


def interrupt_after(nbytes):
    def progress(done, total):
        if done >= nbytes:
            raise KeyboardInterrupt

    return progress


@pytest.fixture
def interrupted(checkpoint, tmp_path, monkeypatch):
    """A pack of `checkpoint` into m.uring that Ctrl-C stopped in the middle."""
    with monkeypatch.context() as patch:
        patch.setattr(writer.os, "pwrite", FailingWrites(fail_at=30))
        with pytest.raises(EnvironmentError_):
            pack(checkpoint, tmp_path / "m.uring", segment=8192, jobs=1)
    return tmp_path / "m.uring"


def test_an_interrupt_stops_the_workers_and_leaves_what_can_be_continued(checkpoint, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        pack(checkpoint, tmp_path / "m.uring", segment=8192, progress=interrupt_after(1))
    assert not (tmp_path / "m.uring").exists()
    pack(checkpoint, tmp_path / "m.uring", segment=8192)
    Container.open(tmp_path / "m.uring")


def test_what_was_written_before_is_not_written_again(checkpoint, interrupted, monkeypatch):
    writes = FailingWrites()
    monkeypatch.setattr(writer.os, "pwrite", writes)
    report = pack(checkpoint, interrupted, segment=8192)
    assert report.resumed_bytes > 0
    assert report.written_bytes == report.nbytes - report.resumed_bytes
    assert writes.calls == report.segments - 29


def test_what_the_drive_lost_since_is_written_again(checkpoint, interrupted, tmp_path):
    with (tmp_path / "m.uring.partial" / "trunk.bin").open("r+b") as file:
        file.write(bytes(4096))
    pack(checkpoint, interrupted, segment=8192)
    pack(checkpoint, tmp_path / "good.uring", segment=8192)
    assert contents(interrupted) == contents(tmp_path / "good.uring")


def test_a_source_that_changed_meanwhile_is_packed_anew(checkpoint, interrupted, tmp_path):
    make_checkpoint(checkpoint, seed=1)
    assert pack(checkpoint, interrupted, segment=8192).resumed_bytes == 0
    pack(checkpoint, tmp_path / "good.uring", segment=8192)
    assert contents(interrupted) == contents(tmp_path / "good.uring")


def test_another_segment_size_is_another_job(checkpoint, interrupted):
    assert pack(checkpoint, interrupted, segment=16384).resumed_bytes == 0


@pytest.mark.parametrize("damage", [b"", b"\xff", b'{"key": 1}\n', b"[]\n[]\n"])
def test_a_damaged_journal_is_dropped(checkpoint, interrupted, damage):
    (interrupted.with_name("m.uring.partial") / "pack.journal").write_bytes(damage)
    assert pack(checkpoint, interrupted, segment=8192).resumed_bytes == 0


def test_a_journal_line_that_was_cut_off_costs_one_segment(checkpoint, interrupted):
    journal = interrupted.with_name("m.uring.partial") / "pack.journal"
    journal.write_bytes(journal.read_bytes()[:-5])
    report = pack(checkpoint, interrupted, segment=8192)
    assert 0 < report.resumed_bytes < report.nbytes


def test_a_journal_whose_last_line_was_cut_off_is_continued_and_used_again(
    checkpoint, interrupted, monkeypatch
):
    journal = interrupted.with_name("m.uring.partial") / "pack.journal"
    journal.write_bytes(journal.read_bytes()[:-5])
    with monkeypatch.context() as patch:
        patch.setattr(writer.os, "pwrite", FailingWrites(fail_at=10))
        with pytest.raises(EnvironmentError_):
            pack(checkpoint, interrupted, segment=8192, jobs=1)
    assert pack(checkpoint, interrupted, segment=8192).resumed_bytes >= (28 + 9) * 4096


def test_what_another_job_left_behind_does_not_reach_the_container(checkpoint, interrupted):
    (interrupted.with_name("m.uring.partial") / "experts-L9.bin").write_bytes(b"left")
    pack(checkpoint, interrupted, segment=16384)
    assert not (interrupted / "experts-L9.bin").exists()


def test_a_source_that_changes_during_the_pack_gives_no_container(checkpoint, tmp_path):
    def touch(done, total):
        (checkpoint / "tokenizer.json").write_text("{}")

    with pytest.raises(IntegrityError, match="changed while it was packed"):
        pack(checkpoint, tmp_path / "m.uring", progress=touch)
    assert not (tmp_path / "m.uring").exists()


def test_two_packs_into_one_output_do_not_mix(checkpoint, tmp_path):
    def again(done, total):
        with pytest.raises(EnvironmentError_, match="another pack is writing"):
            pack(checkpoint, tmp_path / "m.uring")

    pack(checkpoint, tmp_path / "m.uring", progress=again)


def test_an_output_that_cannot_be_made_is_named(checkpoint, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(EnvironmentError_, match="cannot write to"):
        pack(checkpoint, tmp_path / "file" / "m.uring")


def test_there_are_no_more_threads_than_blocks_to_write(checkpoint, tmp_path, monkeypatch):
    asked = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, workers, **options):
            asked.append(workers)
            super().__init__(workers, **options)

    monkeypatch.setattr(packer, "ThreadPoolExecutor", Pool)
    report = pack(checkpoint, tmp_path / "m.uring", segment="layer", jobs=packer.MAX_JOBS)
    assert asked == [report.segments]


@pytest.mark.parametrize("jobs", [-1, 0, packer.MAX_JOBS + 1])
def test_a_number_of_jobs_that_cannot_be_is_refused(checkpoint, tmp_path, jobs):
    with pytest.raises(UsageError, match=f"{jobs} jobs were asked for; give 1 to 64"):
        pack(checkpoint, tmp_path / "m.uring", jobs=jobs)


def test_a_matrix_of_zeros_is_noted_and_a_bias_of_zeros_is_not(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "hf", shard_bytes=1 << 30)
    (shard,) = checkpoint.glob("*.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    place = read_header(shard).tensors[name]
    with shard.open("r+b") as file:
        file.seek(place.offset)
        file.write(bytes(place.tensor.nbytes))
    notes = pack(checkpoint, tmp_path / "m.uring").notes
    assert [note for note in notes if "zero" in note] == [
        f"tensor {name} is zero throughout: was the download complete? --check-source compares it with"
        " published digests"
    ]
