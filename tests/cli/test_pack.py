import hashlib
import json
import re

import pytest

from tests.packing.checkpoint_maker import make_checkpoint
from uringinfer.container import Container


@pytest.fixture
def checkpoint(tmp_path):
    return make_checkpoint(tmp_path / "m")


def test_a_checkpoint_becomes_a_container_and_one_line_says_so(command_line, checkpoint, tmp_path):
    result = command_line("pack", checkpoint, tmp_path / "m.uring", "--segment", "8K")
    assert (result.code, result.stderr) == (0, "")
    container = Container.open(tmp_path / "m.uring")
    assert result.stdout.startswith("packed llama, ")
    assert f"in {len(container.segments)} segments of at most 8.00 KiB" in result.stdout


def test_json_has_the_report(command_line, checkpoint, tmp_path):
    result = command_line("pack", checkpoint, tmp_path / "m.uring", "--json", "--segment", "layer")
    document = json.loads(result.stdout)
    assert (document["family"], document["segments"], document["segment_bytes"]) == ("llama", 4, None)
    assert document["written_bytes"] == document["nbytes"] == (tmp_path / "m.uring/trunk.bin").stat().st_size


def test_a_dry_run_shows_every_segment_with_its_tensors(command_line, checkpoint, tmp_path):
    result = command_line("pack", checkpoint, tmp_path / "m.uring", "--dry-run", "--segment", "8K")
    assert "layers.0.mlp.up_proj[0:53]" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("would pack llama")
    document = json.loads(
        command_line(
            "pack", checkpoint, tmp_path / "m.uring", "--dry-run", "--json", "--segment", "8K"
        ).stdout
    )
    assert len(document["layout"]) == document["segments"]
    assert not (tmp_path / "m.uring").exists()


def test_an_existing_output_is_refused_and_forced(command_line, checkpoint, tmp_path):
    assert command_line("pack", checkpoint, tmp_path / "m.uring").code == 0
    result = command_line("pack", checkpoint, tmp_path / "m.uring")
    assert (result.code, result.stderr.count("\n")) == (2, 1)
    assert "use --force" in result.stderr
    assert command_line("pack", checkpoint, tmp_path / "m.uring", "--force").code == 0


def test_a_damaged_checkpoint_is_one_line_and_exit_code_4(command_line, checkpoint, tmp_path):
    shard = next(checkpoint.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1])
    result = command_line("pack", checkpoint, tmp_path / "m.uring")
    assert (result.code, result.stdout, result.stderr.count("\n")) == (4, "", 1)
    assert f"{shard}: 1 byte short" in result.stderr


@pytest.mark.parametrize("size", ["100", "tiny"])
def test_a_segment_size_that_cannot_be_is_a_usage_error(command_line, checkpoint, tmp_path, size):
    result = command_line("pack", checkpoint, tmp_path / "m.uring", "--segment", size)
    assert (result.code, result.stderr.count("\n")) == (2, 1)


def test_an_interrupt_says_that_the_same_command_continues(command_line, checkpoint, tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("uringinfer.packing.packer.wait", interrupt)
    result = command_line("pack", checkpoint, tmp_path / "m.uring")
    assert result.code == 130
    assert f"kept in {tmp_path}/m.uring.partial: run the same command again" in result.stderr


def test_a_container_is_not_taken_for_a_checkpoint(command_line, checkpoint, tmp_path):
    command_line("pack", checkpoint, tmp_path / "m.uring")
    result = command_line("pack", tmp_path / "m.uring", tmp_path / "again.uring")
    assert (result.code, result.stderr.count("\n")) == (2, 1)
    assert f"{tmp_path}/m.uring: is a container already" in result.stderr


def test_a_damaged_tokenizer_leaves_no_container(command_line, checkpoint, tmp_path):
    (checkpoint / "tokenizer.json").write_text("{")
    result = command_line("pack", checkpoint, tmp_path / "m.uring")
    assert (result.code, result.stderr.count("\n")) == (4, 1)
    assert "tokenizer.json: not valid JSON" in result.stderr
    assert not (tmp_path / "m.uring").exists()


@pytest.mark.parametrize("jobs", [0, 65])
def test_the_number_of_jobs_is_bounded(command_line, checkpoint, tmp_path, jobs):
    result = command_line("pack", checkpoint, tmp_path / "m.uring", "--jobs", jobs)
    assert (result.code, result.stderr.count("\n")) == (2, 1)
    assert "1<=x<=64" in result.stderr


def test_formats_are_converted_and_their_errors_shown_by_pack_and_info(command_line, checkpoint, tmp_path):
    out = tmp_path / "m.uring"
    result = command_line(
        "pack", checkpoint, out, "--trunk", "q4", "--tensor", r".*\.up_proj=mxfp4", "--segment", "16K"
    )
    assert result.code == 0
    assert result.stderr.startswith("note: embed_tokens and lm_head: q8 instead of q4")
    table = [line.split() for line in result.stdout.splitlines()[:-1]]
    assert [row[:4] for row in table if row[0] == "mlp.up_proj"] == [["mlp.up_proj", "bf16", "mxfp4", "2"]]
    assert [row[2] for row in table if row[0] == "lm_head"] == ["q8"]
    shown = command_line("info", out).stdout
    assert "\n".join(result.stdout.splitlines()[:-1]) in shown
    document = json.loads(command_line("info", out, "--json").stdout)
    assert {error["format"] for error in document["errors"]} == {"q4", "q8", "mxfp4"}


def test_json_has_formats_and_errors(command_line, checkpoint, tmp_path):
    result = command_line("pack", checkpoint, tmp_path / "m.uring", "--trunk", "q8", "--json")
    document = json.loads(result.stdout)
    assert document["formats"].keys() == {"q8", "bf16"}
    assert all(0.001 < error["mean"] <= error["worst"] < 0.01 for error in document["errors"])


def test_a_dry_run_names_the_bytes_of_each_format(command_line, checkpoint, tmp_path):
    result = command_line("pack", checkpoint, tmp_path / "m.uring", "--trunk", "q4", "--dry-run")
    assert re.search(r"m\.uring: q8 .* KiB, q4 .* KiB, bf16 .* B$", result.stdout.strip())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trunk", "q5"], "uringinfer: 'q5' is no weight format"),
        (["--experts", "int4"], "uringinfer: 'int4' is no weight format"),
        (
            ["--tensor", "q4"],
            "uringinfer: 'q4' names no tensors and their format",
        ),
        (
            ["--tensor", "norm=q8"],
            "uringinfer: norm [64] is no matrix, q8 cannot hold it; choose",
        ),
        (["--tensor", "nothing=q8"], "uringinfer: no tensor is called 'nothing'; names are like"),
        (["--tensor", "a(=q8"], "uringinfer: 'a(' is no regular expression"),
    ],
)
def test_formats_that_cannot_be_are_one_line_and_exit_code_2(
    command_line, checkpoint, tmp_path, options, message
):
    result = command_line("pack", checkpoint, tmp_path / "m.uring", *options)
    assert (result.code, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr
    assert not (tmp_path / "m.uring.partial").exists()


def downloaded(checkpoint):
    """The checkpoint with what a download into a directory leaves: the digest of every file."""
    kept = checkpoint / ".cache" / "huggingface" / "download"
    kept.mkdir(parents=True)
    for path in [path for path in checkpoint.iterdir() if path.is_file()]:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        (kept / f"{path.name}.metadata").write_text(f"0123\n{digest}\n1733000000.0\n")
    return checkpoint


def test_a_source_is_checked_first_where_that_is_asked_for(command_line, checkpoint, tmp_path):
    result = command_line("pack", downloaded(checkpoint), tmp_path / "m.uring", "--check-source")
    assert result.code == 0
    assert re.match(r"\d files, .* KiB, as published\n", result.stderr)


def test_a_source_that_is_not_what_was_published_is_not_packed(command_line, checkpoint, tmp_path):
    downloaded(checkpoint)
    shard = sorted(checkpoint.glob("*.safetensors"))[0]
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    result = command_line("pack", checkpoint, tmp_path / "m.uring", "--check-source")
    assert (result.code, result.stderr.count("\n")) == (4, 1)
    assert f"{shard}: damaged: its SHA-256 is" in result.stderr
    assert not (tmp_path / "m.uring").exists()
