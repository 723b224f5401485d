"""A manifest whose checksum was made anew after an edit is whole by its bytes and may say anything.

Whatever one to three edits make of it, opening, loading, generating and verifying end with an answer or with
a typed error of one line, in little time.
"""

import json
import random
import shutil
import time

import pytest

from tests.container.container_maker import signed
from tests.engine.tiny_models import pack_moe
from uringinfer.engine.generation import GenerationOptions
from uringinfer.engine.load_options import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.errors import UringinferError
from uringinfer.models.verification import verify

FORMATS = ("bf16", "f16", "f32", "q8", "q4", "mxfp4", "fp8", "vq3")
EDITS = 60


def places(value, path=()):
    """The paths of everything in a JSON value, itself last."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))
    yield path


def other(value, draw):
    """Something else in the place of `value`, mostly of its type."""
    if draw.random() < 0.05:
        return draw.choice([None, [], {}, "x", 5, True, 1.5])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice(
            [value + 1, value - 1, -value, value * 2, value // 2, value + 4096, 0, 1, 2**31, 2**62]
        )
    if isinstance(value, float):
        return draw.choice([0.0, -value, value * 10, 1e300, float("inf"), 1e-300])
    if isinstance(value, str):
        return draw.choice([*FORMATS, "", f"{value}x", value[:-1], "../x"])
    if isinstance(value, list):
        return draw.choice([value[1:], value[::-1], value + value[-1:]])
    if isinstance(value, dict) and value:
        gone = draw.choice(sorted(value))
        return {key: inner for key, inner in value.items() if key != gone}
    return "x"


def edit(document, draw):
    root = draw.choice(["config", "segments", "banks", "files"])
    path = draw.choice([path for path in places(document[root], (root,)) if len(path) > 1])
    owner = document
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = other(owner[path[-1]], draw)


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    return pack_moe(tmp_path_factory.mktemp("resealed"))


@pytest.mark.parametrize("seed", range(3))
def test_an_edited_manifest_gives_an_answer_or_an_error(container, tmp_path, seed):
    copy = tmp_path / "m.uring"
    shutil.copytree(container, copy)
    whole = (copy / "manifest.json").read_text()
    draw = random.Random(seed)
    refused = 0
    for _ in range(EDITS // 3):
        document = json.loads(whole)
        for _ in range(draw.randint(1, 3)):
            edit(document, draw)
        (copy / "manifest.json").write_text(signed(document))
        began = time.process_time()
        try:
            with open_model(copy).load(LoadOptions(context=32)) as engine:
                engine.generate([5, 17, 250], GenerationOptions(max_tokens=2))
        except UringinferError as error:
            assert "\n" not in error.message
            refused += 1
        try:
            verify(copy)
        except UringinferError as error:
            assert "\n" not in error.message
        assert time.process_time() - began < 5
    assert refused > EDITS // 6
