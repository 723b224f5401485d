import pytest

from uringinfer.cli.main import COMMANDS, cli
from uringinfer.cli.plot import FORMATS


def commands_that_draw():
    commands = {name: cli.get_command(None, name) for name in COMMANDS}
    return [name for name, command in commands.items() if any(p.name == "plot" for p in command.params)]


def test_bench_plan_probe_and_simulate_draw():
    assert set(commands_that_draw()) == {"bench", "plan", "probe", "simulate"}


@pytest.mark.parametrize("name", commands_that_draw())
@pytest.mark.parametrize(
    ("plot", "problem"), [("x.foo", "the ending '.foo', which is no format"), ("x", "no ending")]
)
def test_an_unknown_format_is_told_before_the_work_starts(command_line, tmp_path, name, plot, problem):
    # nothing is there to work on, which would be told first by the work
    result = command_line(name, tmp_path / "missing", "--plot", plot)
    assert (result.code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(f"uringinfer: plot '{plot}' has {problem}")


@pytest.mark.parametrize("name", commands_that_draw())
def test_without_matplotlib_a_plot_is_refused_before_the_work_starts(
    command_line, tmp_path, monkeypatch, name
):
    monkeypatch.setattr("uringinfer.cli.plot.find_spec", lambda module: None)
    result = command_line(name, tmp_path / "missing", "--plot", tmp_path / "x.png")
    assert (result.code, result.stdout) == (3, "")
    assert result.stderr == (
        "uringinfer: --plot needs matplotlib, which is not installed; pip install 'uringinfer[plot]'\n"
    )


def test_matplotlib_writes_every_format_that_is_accepted():
    pytest.importorskip("matplotlib", reason="matplotlib is an extra")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    assert {ending.removeprefix(".") for ending in FORMATS} <= set(FigureCanvasAgg.get_supported_filetypes())
