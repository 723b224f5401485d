"""`uringinfer bench`, with the measuring processes in place of real ones except where they matter."""

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "engine"))
sys.path.append(str(Path(__file__).parents[1]))
from test_report import PHASE, SETUP
from tiny_models import Containers, write_tiny_checkpoint

from uringinfer import api
from uringinfer.errors import BudgetError

FLOOR = 100 << 20


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("bench-cli")
    return Containers(write_tiny_checkpoint(directory / "checkpoint", layers=1), directory)()


@pytest.fixture
def asked(monkeypatch):
    """What was asked for; budgets below FLOOR are refused, threads 1 take twice as long."""
    seen = []

    def measured(bench, settings, progress):
        for setting in settings:
            seen.append((bench, setting))
            if setting.budget is not None and setting.budget < FLOOR:
                error = BudgetError("too small", floor=FLOOR, budget=setting.budget)
                yield setting, api.Refusal(error)
                continue
            setup = replace(SETUP, budget=setting.budget or SETUP.budget, threads=setting.threads or 2)
            phase = replace(PHASE, seconds=4.0 if setting.threads == 1 else 2.0)
            for workload in bench.workloads:
                yield setting, api.Measurement(workload, setup, (phase, phase), 2 << 30)

    monkeypatch.setattr(api, "run_bench", measured)
    monkeypatch.setattr(api, "measure_rates", lambda opened: api.Rates(2e9, 20e9))
    return seen


def test_the_table_has_a_line_for_each_workload(command_line, asked, model):
    result = command_line("bench", model)
    assert result.code == 0, result.stderr
    header, rule, *rows = result.stdout.splitlines()
    assert [cell.strip() for cell in header.strip("|").split("|")] == [
        "budget", "test", "t/s", "read/token", "hit", "waiting", "kernel ms/GB", "peak RSS", "bound by",
    ]  # fmt: skip
    assert set(rule) == set("|-: ")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells == [
        ["3.00 GiB", name, "2.00 ± 0.00", "476.84 MiB", "0.0%", "100%", "200", "2.00 GiB", "drive"]
        for name in ("pp512", "tg128")
    ]


def test_lists_are_measured_in_every_combination_and_shown_where_they_differ(command_line, asked, model):
    result = command_line("bench", model, "--budget", "1G,2G", "--threads", "1,2", "--io", "preadv", "-p", 0)
    assert [(s.budget >> 30, s.threads, s.io) for _, s in asked] == [
        (1, 1, "preadv"), (1, 2, "preadv"), (2, 1, "preadv"), (2, 2, "preadv"),
    ]  # fmt: skip
    lines = result.stdout.splitlines()
    assert "threads" in lines[0] and "| io" not in lines[0]
    assert len(lines) == 2 + 4
    assert "1.00 ± 0.00" in lines[2] and "2.00 ± 0.00" in lines[3]


def test_numbers_reach_the_workloads(command_line, asked, model):
    command_line("bench", model, "-p", 64, "-n", 8, "-d", 100, "-r", 7, "--chunk", 16, "--lookahead", 2)
    bench, setting = asked[0]
    assert [workload.name for workload in bench.workloads] == ["pp64 @ d100", "tg8 @ d100"]
    assert (bench.repetitions, bench.chunk, setting.lookahead) == (7, 16, 2)


def test_json_csv_and_json_lines_hold_the_same_numbers(command_line, asked, model):
    whole = json.loads(command_line("bench", model, "-o", "json").stdout)
    assert whole["schema_version"] == 1
    assert json.loads(command_line("bench", model, "--json").stdout) == whole
    lines = [json.loads(line) for line in command_line("bench", model, "-o", "jsonl").stdout.splitlines()]
    rows = list(csv.DictReader(command_line("bench", model, "-o", "csv").stdout.splitlines()))
    assert len(whole["results"]) == len(lines) == len(rows) == 2
    for result, line, row in zip(whole["results"], lines, rows, strict=True):
        assert result.items() <= line.items() and line["model"] == whole["model"]
        assert row["test"] == result["test"]
        for key in ("tokens_per_second", "bytes_per_token", "disk_wait_share", "peak_rss_bytes"):
            assert float(row[key]) == result[key]


def test_a_budget_below_the_floor_is_a_line_of_a_sweep(command_line, asked, model):
    result = command_line("bench", model, "--budget", "1M,1G", "-p", 0)
    assert result.code == 0
    assert "below the floor of 100.00 MiB" in result.stdout.splitlines()[2]
    refused = json.loads(command_line("bench", model, "--budget", "1M,1G", "--json").stdout)["results"][0]
    assert (refused["fits"], refused["floor"], refused["asked"]["budget"]) == (False, FLOOR, 1 << 20)


def test_only_budgets_below_the_floor_are_an_error(command_line, asked, model):
    result = command_line("bench", model, "--budget", "1M,2M")
    assert result.code == 5
    assert result.stderr == "uringinfer: too small\n"


def test_the_plot_is_an_image(command_line, asked, model, tmp_path):
    result = command_line("bench", model, "--budget", "1G,2G,4G", "--plot", tmp_path / "roof.png")
    assert result.code == 0, result.stderr
    assert (tmp_path / "roof.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "0", "-n", "0"], "nothing to measure"),
        (["--io", "fast"], "no reader is called 'fast'"),
        (["--threads", "0"], "has a 0 in it"),
        (["--budget", "1q"], "not a size"),
        (["--plot", "x.png"], "give --budget"),
    ],
)
def test_mistakes_give_one_line_and_exit_code_2(command_line, asked, model, arguments, message):
    result = command_line("bench", model, *arguments)
    assert result.code == 2
    assert message in result.stderr and result.stderr.count("\n") == 1
    assert asked == []


def test_a_real_run_measures_in_a_process_of_its_own(command_line, model):
    result = command_line("bench", model, "-p", 4, "-n", 2, "-r", 2, "--json")
    assert result.code == 0, result.stderr
    results = json.loads(result.stdout)["results"]
    assert [one["test"] for one in results] == ["pp4", "tg2"]
    assert all(one["tokens_per_second"] > 0 and len(one["samples"]) == 2 for one in results)


def test_the_report_has_a_section_with_a_timeline_for_each_result(command_line, model, tmp_path):
    path = tmp_path / "report.html"
    result = command_line("bench", model, "-p", 4, "-n", 3, "-r", 1, "--report", path)
    assert result.code == 0, result.stderr
    page = path.read_text()
    assert page.count('aria-label="one pass over time"') == 2
    assert "One chunk of the prompt: " in page and "One token: " in page
