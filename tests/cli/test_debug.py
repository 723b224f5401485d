"""`--debug` shows how a model was loaded; without it nothing logs."""

import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from tiny_models import Containers, write_tiny_checkpoint

ROOT = Path(__file__).parents[2]


def test_debug_tells_the_plan_the_reader_what_was_refused_and_how_long_it_took(tmp_path):
    model = Containers(write_tiny_checkpoint(tmp_path / "checkpoint"), tmp_path)()

    def errors(*flags):
        command = [sys.executable, "-m", "uringinfer", *flags]
        command += ["generate", str(model), "--quiet", "-p", "x", "-n", "1", "--io", "preadv"]
        result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        return result.stderr

    assert errors() == ""
    shown = errors("--debug")
    for line in ("uringinfer.engine.opening: opened", "plan: ", "reader preadv", "loaded in"):
        assert line in shown
    assert all(line.startswith("uringinfer") for line in shown.splitlines())
