import json
from dataclasses import replace

import pytest

from tests.packing.checkpoint_maker import make_checkpoint
from tests.text import tokenizer_files
from uringinfer.diagnosis import diagnose, model_checks
from uringinfer.diagnosis.findings import Status
from uringinfer.diagnosis.read_clock import BLOCK_BYTES, ReadRate
from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.errors import UsageError
from uringinfer.packing.packer import pack
from uringinfer.storage.device import Device
from uringinfer.storage.direct import Direct, StorageFile


@pytest.fixture
def checkpoint(tmp_path):
    directory = make_checkpoint(tmp_path / "checkpoint")
    document = tokenizer_files.with_chat_markup()
    config = {"eos_token": "<|im_end|>", "chat_template": "x"}
    return tokenizer_files.write(directory, document, tokenizer_config=config)


@pytest.fixture
def container(checkpoint, tmp_path):
    pack(checkpoint, tmp_path / "model.uring")
    return tmp_path / "model.uring"


def findings(path):
    return {finding.check: finding for finding in model_checks.check_model(path, 0)}


def test_a_whole_container_has_no_problem(container):
    found = findings(container)
    assert found["model"].status is Status.OK
    assert "container of family llama" in found["model"].message
    assert "text ends at <|im_end|>" in found["tokenizer"].message
    assert found["chat template"].status is Status.OK
    assert "free beside" in found["space"].message


def test_a_whole_checkpoint_has_no_problem(checkpoint):
    assert findings(checkpoint)["model"].message.startswith("checkpoint of family llama")


def test_a_container_that_fits_tells_its_floor_and_what_the_default_pins(container):
    found = findings(container)["fit"]
    assert found.status is Status.OK
    assert "pins 100% of what a token streams" in found.message
    # both numbers hold for one context only: the default, or the model's if that is shorter
    context = open_model(container).context(LoadOptions())
    assert found.message.startswith(f"a context of {context} tokens: floor ")


def test_a_container_that_does_not_fit_is_a_problem_with_both_numbers(container, monkeypatch):
    class Small:
        usable_bytes = 1 << 20

        @classmethod
        def read(cls):
            return cls

    monkeypatch.setattr("uringinfer.engine.loading.Machine", Small)
    found = findings(container)["fit"]
    assert found.status is Status.PROBLEM
    assert "MiB" in found.message


def test_a_short_shard_is_a_problem_that_names_it_and_the_other_checks_go_on(checkpoint):
    shard = max(checkpoint.glob("*.safetensors"), key=lambda file: file.stat().st_size)
    shard.write_bytes(shard.read_bytes()[:-100])
    found = findings(checkpoint)
    assert found["model"].status is Status.PROBLEM
    assert shard.name in found["model"].message
    assert found["tokenizer"].status is Status.OK


def test_a_short_container_is_a_problem(container):
    trunk = container / "trunk.bin"
    trunk.write_bytes(trunk.read_bytes()[:-4096])
    found = findings(container)["model"]
    assert found.status is Status.PROBLEM
    assert "trunk.bin" in found.message


def test_checksums_are_checked_on_request_and_damage_is_named(container, checkpoint):
    progress = []
    assert "checksums" not in findings(container)
    sound = model_checks.check_checksums(container, True, lambda done, total: progress.append(done / total))
    assert sound.status is Status.OK
    assert progress[-1] == 1
    data = bytearray((container / "trunk.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (container / "trunk.bin").write_bytes(data)
    damaged = {finding.check: finding for finding in model_checks.check_model(container, 0, deep=True)}[
        "checksums"
    ]
    assert damaged.status is Status.PROBLEM
    assert "1 of" in damaged.message and "segment" in damaged.message
    assert model_checks.check_checksums(checkpoint, False).status is Status.NOTE


def test_an_architecture_that_does_not_run_is_a_problem(checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**config, "model_type": "perceptron"}))
    found = findings(checkpoint)["model"]
    assert found.status is Status.PROBLEM
    assert "perceptron" in found.message


def test_a_missing_tokenizer_is_a_note_and_a_damaged_one_a_problem(checkpoint):
    (checkpoint / "tokenizer.json").write_text("{")
    assert findings(checkpoint)["tokenizer"].status is Status.PROBLEM
    (checkpoint / "tokenizer.json").unlink()
    found = findings(checkpoint)["tokenizer"]
    assert found.status is Status.NOTE
    assert "--ids" in found.remedy


def test_a_missing_template_is_a_note(container):
    (container / "tokenizer_config.json").write_text('{"eos_token": "<think>"}')
    tokenizer_files.write(container, tokenizer_files.byte_level())
    assert findings(container)["chat template"].status is Status.NOTE


@pytest.mark.parametrize(
    ("template", "message"),
    [("{% if %}", "line 1"), ("{{ 'a' * 10**10 }}", "32 MiB of memory"), ("{{ nothing.x }}", "undefined")],
)
def test_a_template_that_cannot_put_a_question_is_a_problem(checkpoint, template, message):
    (checkpoint / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    found = findings(checkpoint)["chat template"]
    assert found.status is Status.PROBLEM
    assert message in found.message


def test_a_vocabulary_without_an_end_is_a_note(container):
    document = tokenizer_files.byte_level()
    document["added_tokens"] = [
        entry for entry in document["added_tokens"] if entry["content"] != "<|im_end|>"
    ]
    (container / "tokenizer_config.json").write_text("{}")
    (container / "config.json").write_text("{}")
    tokenizer_files.write(container, document)
    found = findings(container)["tokenizer"]
    assert found.status is Status.NOTE
    assert "generation goes on" in found.message


def test_reads_through_the_page_cache_are_a_problem(container, monkeypatch):
    cached = Direct(False, "tmpfs keeps its files in memory", 1, 1)
    monkeypatch.setattr(model_checks, "open_file", lambda path: StorageFile(path, -1, 0, cached))
    found = model_checks.check_direct(container / "trunk.bin")
    assert found.status is Status.PROBLEM
    assert "trunk.bin go through the page cache: tmpfs" in found.message


def test_direct_reads_of_a_loop_device_that_caches_are_a_problem(container, monkeypatch):
    direct = Direct(True, "ext4, the page cache stayed empty", 512, 512)
    device = Device("loop7", None, None, None, "loop7", "the page cache")
    monkeypatch.setattr(model_checks, "open_file", lambda path: StorageFile(path, -1, 0, direct))
    monkeypatch.setattr(model_checks, "find_device", lambda fd: device)
    found = model_checks.check_direct(container / "trunk.bin")
    assert found.status is Status.PROBLEM
    assert found.message == "trunk.bin is not read from a drive: loop7 is read through the page cache"
    monkeypatch.setattr(model_checks, "clock_reads", lambda *about: ReadRate(10**9, 1.0, 0.04, "uring", 1))
    assert "may not be a drive's speed" in model_checks.check_reads(container / "trunk.bin", 1.0).message
    monkeypatch.setattr(model_checks, "find_device", lambda fd: replace(device, cached_by=None))
    assert model_checks.check_direct(container / "trunk.bin").status is Status.OK


@pytest.mark.parametrize(
    ("is_direct", "passes", "status", "words"),
    [
        (True, 1, Status.OK, "2.00 GB/s in 2.0 s of random reads by uring, 10 ms of CPU per GB"),
        (True, 3, Status.OK, "the file was read 3 times"),
        (False, 1, Status.NOTE, "may not be a drive's speed"),
    ],
)
def test_a_clocked_rate_says_what_it_is_worth(container, monkeypatch, is_direct, passes, status, words):
    monkeypatch.setattr(model_checks, "find_device", lambda fd: None)
    rate = ReadRate(4_000_000_000, 2.0, 0.04, "uring", passes)
    direct = Direct(is_direct, "because", 512, 512)
    monkeypatch.setattr(model_checks, "clock_reads", lambda file, seconds: rate)
    monkeypatch.setattr(model_checks, "open_file", lambda path: StorageFile(path, -1, 0, direct))
    found = model_checks.check_reads(container / "trunk.bin", 2.0)
    assert found.status is status
    assert words in found.message


def test_files_too_short_to_be_clocked_are_said_to_be(container):
    found = model_checks.check_reads(container / "manifest.json", 0.1)
    assert found.status is Status.NOTE
    assert f"less than {BLOCK_BYTES >> 20}.00 MiB" in found.message


def test_too_little_space_to_pack_a_checkpoint_is_a_note(checkpoint, container, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    assert findings(checkpoint)["space"].status is Status.NOTE
    assert findings(container)["space"].status is Status.OK


def test_a_path_without_a_model_is_refused(tmp_path):
    with pytest.raises(UsageError, match="neither a container nor a checkpoint"):
        list(diagnose(tmp_path, seconds=0))
    with pytest.raises(UsageError, match="does not exist"):
        list(diagnose(tmp_path / "nothing", seconds=0))
