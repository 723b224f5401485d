import json

import pytest

from uringinfer.cli import doctor
from uringinfer.diagnosis import Finding, Status

GOOD = Finding("kernel", Status.OK, "Linux 6.1")
SLOW = Finding("memlock", Status.NOTE, "8 MiB", "ulimit -l")
BAD = Finding("direct I/O", Status.PROBLEM, "page cache", "move it")


@pytest.fixture
def findings(monkeypatch):
    found = []
    monkeypatch.setattr(doctor, "diagnose", lambda model, **options: iter(found))
    return found


def test_each_finding_is_a_line_with_its_remedy(command_line, findings):
    findings += [GOOD, SLOW]
    result = command_line("doctor")
    assert result.stdout.splitlines() == [
        "ok       kernel         Linux 6.1",
        "note     memlock        8 MiB; ulimit -l",
    ]


@pytest.mark.parametrize(("found", "code"), [([GOOD, SLOW], 0), ([GOOD, BAD], 1)])
def test_only_a_problem_makes_it_exit_with_1(command_line, findings, found, code):
    findings += found
    assert command_line("doctor").code == code
    assert command_line("doctor", "--json").code == code


def test_json_holds_the_same_findings(command_line, findings):
    findings += [GOOD, BAD]
    report = json.loads(command_line("doctor", "--json").stdout)
    assert set(report.pop("build")) >= {"version", "io_uring", "liburing", "kernels"}
    assert report == {
        "schema_version": 1,
        "ok": False,
        "findings": [
            {"check": "kernel", "status": "ok", "message": "Linux 6.1", "remedy": None},
            {"check": "direct I/O", "status": "problem", "message": "page cache", "remedy": "move it"},
        ],
    }


def test_this_machine_gets_every_check(command_line):
    report = json.loads(command_line("doctor", "--json").stdout)
    checks = [finding["check"] for finding in report["findings"]]
    expected = [
        "kernel",
        "io_uring",
        "kernels",
        "processor",
        "huge pages",
        "memory",
        "cgroup",
        "memlock",
        "swap",
    ]
    assert checks == expected


def test_a_model_that_is_not_there_is_exit_code_2(command_line, tmp_path):
    result = command_line("doctor", tmp_path / "nothing")
    assert result.code == 2
    assert "does not exist" in result.stderr
