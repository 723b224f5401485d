import json
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from tiny_models import Containers, write_tiny_checkpoint

from tests.packing.gguf_maker import byte_level_tokenizer, make_gguf, smollm_pre_tokenizer, weights
from uringinfer import api
from uringinfer.container import Container
from uringinfer.packing.packer import pack
from uringinfer.probing import cells, saved_rate
from uringinfer.units import parse_size

MIB = 1 << 20


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """11 MiB of weights in segments of 256 KiB."""
    directory = tmp_path_factory.mktemp("plan")
    sizes = {"layers": 6, "hidden": 256, "intermediate": 768, "vocab": 2000}
    return Containers(write_tiny_checkpoint(directory / "checkpoint", **sizes), directory)(1 << 18)


@pytest.fixture
def plan(command_line, model):
    """`plan(*options)` -> the JSON of a small context."""

    def run(*options):
        result = command_line("plan", model, "-c", 64, "--chunk", 8, "--json", *options)
        assert result.code == 0, result.stderr
        return json.loads(result.stdout)

    return run


def test_the_parts_add_up_to_the_budget(plan):
    report = plan("--budget", "4G")

    parts = ["interpreter_bytes", "reserve_bytes", "state_bytes", "scratch_bytes", "arena_bytes"]
    assert sum(report[part] for part in [*parts, "page_table_bytes", "unused_bytes"]) == 4 << 30
    assert report["trunk"]["hit_rate"] == 1.0
    assert report["bytes_per_token"] == 0


def test_the_table_names_each_part_and_ends_with_the_budget(command_line, model):
    result = command_line("plan", model, "-c", 64, "--budget", "4G")

    lines = result.stdout.splitlines()
    names = [line.split("  ")[0] for line in lines]
    for name in ["pinned weights", "ring", "conversation", "scratch", "interpreter", "unused", "budget"]:
        assert name in names
    sizes = [line.split("  ")[1:] for line in lines[2 : names.index("budget") + 1]]
    values = [parse_size(next(word for word in words if word)) for words in sizes]
    assert sum(values[:-1]) == pytest.approx(values[-1], rel=0.002)  # each size is rounded for the table


def test_below_the_floor_it_exits_5_with_both_numbers(command_line, model, plan):
    result = command_line("plan", model, "-c", 64, "--chunk", 8, "--budget", "10M")

    assert result.code == 5
    assert str(10 * MIB) in result.stderr
    floor = plan("--budget", "4G")["floor"]
    named = int(result.stderr.split("floor of")[1].split("(")[1].split(" bytes")[0])
    assert abs(named - floor) < 8 * MIB  # two processes' interpreters apart
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--budget", "10M"], 5),
        (["-c", "1000000"], 2),
        (["-c", "1000000", "--sweep", "1G:2G"], 2),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_clocked(command_line, model, monkeypatch, options, code):
    clocked = []
    monkeypatch.setattr(api, "measure_rates", lambda *_, **__: clocked.append(1) or api.Rates())

    result = command_line("plan", model, "--measure", *options)

    assert (result.code, result.stderr.count("\n")) == (code, 1)
    assert not clocked
    assert command_line("plan", model, "--measure", "-c", 64, "--sweep", "1M:1G").code == 0
    assert clocked  # budgets of a sweep that are too small are points of it


def test_placement_and_slots_reach_the_plan(plan):
    budget = plan("--budget", "4G")["floor"] + 2 * MIB

    prefix = plan("--budget", budget, "--placement", "prefix", "--ring-slots", 3)["trunk"]
    spread = plan("--budget", budget)["trunk"]

    assert prefix["pinned"] == list(range(prefix["pinned_count"]))
    assert (prefix["ring_slots"], spread["ring_slots"]) == (3, 2)
    assert spread["pinned"] != list(range(spread["pinned_count"]))


def test_a_given_drive_rate_predicts_tokens_per_second(plan):
    report = plan("--budget", plan("--budget", "4G")["floor"] + 4 * MIB, "--drive", "1GB/s")

    assert report["predicted_tokens_per_second"] == pytest.approx(1e9 / report["bytes_per_token"])


def test_compute_slows_the_prediction(plan):
    budget = plan("--budget", "4G")["floor"] + 4 * MIB

    report = plan("--budget", budget, "--drive", "100GB/s", "--compute", "1GB/s")

    total = report["trunk"]["pinned_bytes"] + report["trunk"]["streamed_bytes"]
    assert report["predicted_tokens_per_second"] == pytest.approx(1e9 / total, rel=0.05)


def test_measuring_clocks_the_drive_and_the_kernels(plan, monkeypatch):
    measure = api.measure_rates
    monkeypatch.setattr(api, "measure_rates", lambda opened, **options: measure(opened, 0.05, **options))

    report = plan("--measure")

    assert report["rates"]["drive"] > 0
    assert report["rates"]["compute"] > 0
    assert report["rates"]["latency"] > 0
    assert {found["origin"] for found in report["assumptions"]} == {"clocked"}


def test_rates_of_an_earlier_plan_give_the_same_prediction(plan, command_line, model, tmp_path, monkeypatch):
    rates = api.Rates(2e9, 1e9, latency=1e-4, drive_origin="clocked", compute_origin="clocked")
    monkeypatch.setattr(api, "measure_rates", lambda opened, **_: rates)
    measured = plan("--measure", "--budget", "1G")
    (tmp_path / "plan.json").write_text(json.dumps(measured))

    again = plan("--rates", tmp_path / "plan.json", "--budget", "1G")

    assert again["rates"] == measured["rates"]
    assert again["predicted_tokens_per_second"] == measured["predicted_tokens_per_second"]
    text = command_line("plan", model, "--rates", tmp_path / "plan.json", "--budget", "1G").stdout
    assert re.search(r"latency of a lone read +100 us +given", text)
    assert re.search(r"drive, many reads in flight +2.00 GB/s +clocked", text)


@pytest.mark.parametrize("content", [None, "", "[]", '{"rates": {"drive": -1}}', "[" * 100_000])
def test_a_file_without_rates_exits_2_with_one_line(command_line, model, tmp_path, content):
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)

    result = command_line("plan", model, "--rates", path)

    assert result.code == 2
    assert result.stderr.count("\n") == 1


def test_the_rate_that_a_probe_of_the_directory_saved_is_the_plans(
    plan, command_line, model, tmp_path, monkeypatch
):
    monkeypatch.setattr(api, "saved_rate", saved_rate)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cells, "_SECONDS", {"quick": 0.0, "normal": 0.0, "full": 0.0})
    before = plan("--trunk-budget", "6M")
    assert (before["rates"]["drive"], before["predicted_tokens_per_second"]) == (None, None)

    probed = command_line("probe", model.parent, "--quick", "--size", "16M", "--save", "--json")

    found = json.loads(probed.stdout)
    if found["best"] is None:
        pytest.skip(f"no rate could be saved: {found['verdict']}")
    assert probed.code == 0, probed.stderr
    (rate,) = (job["read"]["bw_bytes"] for job in found["jobs"] if job["jobname"] == found["best"])
    after = plan("--trunk-budget", "6M")
    assert after["rates"]["drive"] == pytest.approx(rate, rel=1e-6)
    assert after["predicted_tokens_per_second"] > 0
    text = command_line("plan", model, "-c", 64, "--trunk-budget", "6M").stdout
    assert re.search(r"drive, many reads in flight +\d+\.\d\d GB/s +saved by probe", text)
    given = plan("--trunk-budget", "6M", "--drive", "1GB/s")
    assert given["rates"]["drive"] == 1e9


def test_a_preset_bounds_the_trunk(plan):
    report = plan("--preset", "laptop")

    assert report["trunk"]["ring_bytes"] + report["trunk"]["pinned_bytes"] <= 3e9
    assert report["unused_bytes"] == 0


def test_a_checkpoint_is_planned_as_it_would_be_packed_and_nothing_is_written(command_line, tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint")
    pack(checkpoint, tmp_path / "packed.uring", segment="layer")
    options = ("-c", 64, "--trunk-budget", "1M", "--json")
    before = sorted(tmp_path.rglob("*"))

    report = json.loads(command_line("plan", checkpoint, "--segment", "layer", *options).stdout)

    packed = json.loads(command_line("plan", tmp_path / "packed.uring", *options).stdout)
    assert (report["trunk"], report["layers"]) == (packed["trunk"], packed["layers"])
    assert sorted(tmp_path.rglob("*")) == before
    for path, option in ((checkpoint, "--measure"), (tmp_path / "packed.uring", "--segment=layer")):
        assert command_line("plan", path, option).code == 2


def test_a_gguf_file_is_planned_as_it_would_be_packed(command_line, tmp_path):
    checkpoint, packed = tmp_path / "model.gguf", tmp_path / "packed.uring"
    make_gguf(checkpoint, weights(), tokenizer=byte_level_tokenizer(smollm_pre_tokenizer()))
    pack(checkpoint, packed, segment="layer")
    options = ("-c", 16, "--chunk", 8, "--trunk-budget", "1M", "--json")

    report = json.loads(command_line("plan", checkpoint, "--segment", "layer", *options).stdout)

    assert report["trunk"] == json.loads(command_line("plan", packed, *options).stdout)["trunk"]


def test_layers_count_as_pinned_when_every_segment_of_theirs_is(plan):
    report = plan("--trunk-budget", "6M", "--placement", "prefix")

    segments = Container.open(report["model"]).streamed_segments
    pinned = set(report["trunk"]["pinned"])
    streamed = {segment.group for unit, segment in enumerate(segments) if unit not in pinned}
    assert report["layers"] == 6
    assert report["pinned_layers"] == sum(f"layers.{layer}" not in streamed for layer in range(6)) > 0


def test_both_placements_are_shown_for_the_same_memory_and_the_planned_one_is_marked(
    plan, command_line, model
):
    options = ("--trunk-budget", "6M", "--placement", "prefix")

    choices = {choice["placement"]: choice for choice in plan(*options)["choices"]}

    for placement, choice in choices.items():
        report = plan("--trunk-budget", "6M", "--placement", placement)
        assert choice["segment"] == "as packed"
        assert choice["pinned_layers"] == report["pinned_layers"]
        assert choice["hit_rate"] == report["trunk"]["hit_rate"]
        assert choice["bytes_per_token"] == report["bytes_per_token"]
    assert choices["prefix"]["pinned_layers"] > choices["spread"]["pinned_layers"]
    shown = command_line("plan", model, *options).stdout.splitlines()[-2:]
    assert [line.startswith("*") for line in shown] == ["prefix" in line for line in shown]


def test_a_checkpoint_shows_what_segments_of_layers_and_finer_ones_would_give(command_line, tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint", layers=6, hidden=256, intermediate=768)
    options = ("-c", 64, "--trunk-budget", "5M", "--json")

    shown = json.loads(command_line("plan", checkpoint, "--segment", "64K", *options).stdout)["choices"]

    assert [choice["segment"] for choice in shown[::2]] == ["64.00 KiB", "layer", "auto"]
    for choice, cut in zip(shown[::2], ("64K", "layer", "auto"), strict=True):
        report = json.loads(command_line("plan", checkpoint, "--segment", cut, *options).stdout)
        assert choice["hit_rate"] == report["trunk"]["hit_rate"]
        assert choice["slot_bytes"] == report["trunk"]["slot_bytes"]


def test_a_cut_that_needs_more_memory_is_said_to(command_line, tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint", layers=2, hidden=256, intermediate=8192)
    options = ("-c", 64, "--chunk", 8)
    floors = {
        cut: json.loads(command_line("plan", checkpoint, "--segment", cut, *options, "--json").stdout)[
            "floor"
        ]
        for cut in ("64K", "layer")
    }
    budget = (floors["64K"] + floors["layer"]) // 2

    result = command_line("plan", checkpoint, "--segment", "64K", *options, "--budget", budget)

    assert result.code == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.split()[:1] == ["layer"]]
    assert len(lines) == 2
    assert all("needs more memory" in line for line in lines)


def test_a_sweep_lists_each_budget(plan, command_line, model):
    everything = plan("--budget", "4G")["everything"]

    report = plan("--sweep", f"1M:{everything + 64 * MIB}", "--drive", "1GB/s")

    points = report["sweep"]
    assert len(points) == 12
    assert (points[0]["fits"], points[-1]["fits"], points[-1]["hit_rate"]) == (False, True, 1.0)
    assert [point["budget"] for point in points] == sorted(point["budget"] for point in points)
    table = command_line("plan", model, "-c", 64, "--sweep", "1M:4G").stdout
    assert "below the floor" in table.splitlines()[1]
    assert "rest on" not in table
    table = command_line("plan", model, "-c", 64, "--sweep", "1M:4G", "--drive", "1GB/s").stdout
    assert re.search(r"drive, many reads in flight +1.00 GB/s +given", table)


def test_a_sweep_can_be_drawn(command_line, model, tmp_path):
    pytest.importorskip("matplotlib", reason="--plot needs matplotlib")
    path = tmp_path / "sweep.svg"

    result = command_line(
        "plan", model, "-c", 64, "--sweep", "100M:1000G", "--drive", "1GB/s", "--plot", path
    )

    assert result.code == 0, result.stderr
    assert "<svg" in path.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "1G", "--preset", "laptop"], "exclude each other"),
        (["--budget", "1G", "--sweep", "1G:2G"], "exclude each other"),
        (["--measure", "--drive", "1GB/s"], "exclude each other"),
        (["--plot", "x.png"], "--plot draws a sweep"),
        (["--sweep", "2G"], "no range"),
        (["--sweep", "4G:2G"], "does not rise"),
        (["--sweep", "0:2G"], "does not rise"),
        (["--budget", "much"], "not a size"),
        (["-c", "1000000"], "context"),
    ],
)
def test_wrong_requests_exit_2_with_one_line(command_line, model, options, message):
    result = command_line("plan", model, *options)

    assert result.code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_without_a_given_rate_it_takes_the_one_that_probe_saved(plan, monkeypatch):
    saved = api.SavedRate(bytes_per_second=3e9, block_bytes=MIB, queue_depth=8, way="uring")
    monkeypatch.setattr(api, "saved_rate", lambda path: saved)
    assert plan()["rates"]["drive"] == 3e9
    assert plan()["rates"]["drive_origin"] == "saved by probe"
    given = plan("--drive", "1GB/s")["rates"]
    assert (given["drive"], given["drive_origin"]) == (1e9, "given")
