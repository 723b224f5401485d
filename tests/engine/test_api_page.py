"""docs/api.md: every example runs; and the type checker finds what is wrong, and only that."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import write_tiny_checkpoint

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/api.md").read_text(encoding="utf-8"), re.DOTALL)

WRONG = """\
import uringinfer

uringinfer.load("x", bugdet="8G")  # wrong
uringinfer.load("x", budget=1.5)  # wrong
uringinfer.load("x", io="mmap")  # wrong
uringinfer.plan("x", io="auto")  # wrong
uringinfer.nonsense  # wrong
engine = uringinfer.load("x", budget="8G")
engine.generate("x", max_token=3)  # wrong
engine.generate("x", stop=3)  # wrong
engine.generate(3.5)  # wrong
engine.stream("x", logprobs="all")  # wrong
engine.conversation(sistem="x")  # wrong
conversation = engine.conversation(system="x")
conversation.say("x", temprature=1.0)  # wrong
conversation.say(5)  # wrong
engine.logits("x").nonsense  # wrong
uringinfer.simulate("t", slots="9")  # wrong
text: int = engine.generate("x").text  # wrong
"""


def test_the_page_has_examples_of_every_function_that_makes_text():
    text = "".join(BLOCKS)
    assert len(BLOCKS) > 8
    for name in ("load(", ".generate(", ".stream(", ".conversation(", ".logits(", "mask="):
        assert name in text


def test_every_example_runs(tmp_path, monkeypatch, capsys):
    write_tiny_checkpoint(tmp_path / "checkpoint")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"docs/api.md, example {number}", "exec"), names)
    assert "damaged" not in capsys.readouterr().err


@pytest.mark.slow
def test_the_type_checker_finds_each_wrong_call_and_nothing_in_the_examples(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "page.py").write_text("".join(BLOCKS))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    command += ["--cache-dir", str(tmp_path / "cache"), str(tmp_path / "wrong.py"), str(tmp_path / "page.py")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    reported = {int(line) for line in re.findall(r"wrong\.py:(\d+): error", result.stdout)}
    expected = {number for number, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")}
    assert reported == expected, result.stdout
    assert "page.py" not in result.stdout
