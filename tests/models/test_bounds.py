"""Every number of a config is bounded before anything is built from it."""

import ast
import time
from pathlib import Path

import pytest
from golden_files import load

import uringinfer.models
from uringinfer.errors import UnsupportedModelError
from uringinfer.models import model_from_config
from uringinfer.models.bounds import BOUNDS

SOURCES = sorted(Path(uringinfer.models.__file__).parent.glob("*.py"))
FAMILIES = ["llama", "qwen3_moe", "deepseek_v3", "gpt_oss", "kimi_linear"]


def test_every_key_that_a_family_reads_as_a_number_stands_in_the_table():
    read = {
        call.args[0].value
        for path in SOURCES
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("integer", "number")
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }
    assert len(read) > 40
    assert read <= set(BOUNDS)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("beyond", [1 << 31, 10**12, 10**40, 1e300, float("inf"), float("nan"), -(10**9)])
def test_a_number_beyond_its_bounds_is_refused_by_name_at_once(family, beyond):
    config = load(family).config
    for key in [key for key in config if key in BOUNDS]:
        low, high = BOUNDS[key]
        if low <= beyond <= high:
            continue
        began = time.perf_counter()
        with pytest.raises(UnsupportedModelError, match=f"config key '{key}'"):
            model_from_config({**config, key: beyond})
        assert time.perf_counter() - began < 1


def test_layers_and_experts_that_are_too_many_together_are_refused():
    config = {**load("qwen3_moe").config, "num_hidden_layers": 1000, "num_experts": 16384}
    with pytest.raises(UnsupportedModelError, match=r"'num_experts' .*262 experts in each of 1000"):
        model_from_config(config)
