"""Going back in a conversation: caches that keep every position, windows that move on, recurrent states.

What is compared is bytes of logits with those of a session that was never anywhere else.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_models import TINY

sys.path.append(str(Path(__file__).parents[1] / "models"))
import kimi_k3_cases
from make_synthetic import llama_config, llama_tensors, write_checkpoint

from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.errors import BudgetError
from uringinfer.packing.packer import pack

IDS = np.random.default_rng(0).integers(3, 90, 40).tolist()
OTHERS = np.random.default_rng(1).integers(3, 90, 12).tolist()


def write(kind, directory):
    if kind == "recurrent":
        kimi_k3_cases.make("bf16", directory)
        return
    config = llama_config(**TINY)
    if kind == "window":
        config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 6}
    write_checkpoint(directory, config, llama_tensors(config), seed=3)


@pytest.fixture(scope="module", params=["attention", "window", "recurrent"])
def opened(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    write(request.param, directory / "checkpoint")
    pack(directory / "checkpoint", directory / "m.uring")
    opened = open_model(directory / "m.uring")
    if opened.kernels.name != "native":
        pytest.skip("other kernels may round a prompt in other chunks differently")
    return opened


@pytest.fixture(scope="module", params=[0, 2])
def engine(request, opened):
    with opened.load(LoadOptions(context=64, chunk=8, snapshots=request.param)) as engine:
        yield engine


def fresh(engine, ids):
    return engine.session().feed(ids).tobytes()


def test_what_follows_after_going_back_is_what_a_fresh_session_gives(engine):
    session = engine.session()
    session.feed(IDS[:20])
    session.mark()
    session.feed(IDS[20:])
    kept = session.rewind(27)
    marked = 20 if engine.setup.snapshots else 0
    assert kept == (27 if engine.model.snapshot_bytes(64) == 0 else marked)
    assert session.fed == IDS[:kept]
    ids = [*IDS[:27], *OTHERS]
    assert session.feed(ids[kept:]).tobytes() == fresh(engine, ids)


def test_one_can_go_back_more_than_once_and_past_the_newest_mark(engine):
    session = engine.session()
    for start in (0, 10, 20, 30):
        session.feed(IDS[start : start + 10])
        session.mark()
    for back in (35, 25, 3):
        kept = session.rewind(back)
        ids = [*session.fed, *OTHERS]
        assert kept <= back
        assert session.feed(OTHERS).tobytes() == fresh(engine, ids)


def test_a_session_that_lost_its_state_in_a_pass_is_whole_again_after_going_back(engine):
    session = engine.session()
    session.feed(IDS[:20])
    session.mark()
    session.is_whole = False
    kept = session.rewind(20)
    assert session.is_whole
    assert session.feed([*IDS[kept:20], *OTHERS]).tobytes() == fresh(engine, [*IDS[:20], *OTHERS])


def test_the_logits_behind_a_mark_come_back_with_it(engine):
    session = engine.session()
    session.feed(IDS[:20])
    session.mark()
    expected = session.last_logits.tobytes()
    session.feed(OTHERS)
    if session.rewind(20) == 20 and engine.model.snapshot_bytes(64):
        assert session.last_logits.tobytes() == expected


def test_snapshots_are_counted_in_the_budget(opened):
    without, with_three = (
        opened.plan(LoadOptions(budget="8G", context=64, snapshots=count)).state_bytes for count in (0, 3)
    )
    assert with_three - without == 3 * opened.model.snapshot_bytes(64)


def test_a_budget_without_room_for_snapshots_has_fewer(opened, monkeypatch):
    def plan(options):
        if options.snapshots > 1:
            raise BudgetError("too little", floor=2, budget=1)
        return planned

    planned = opened.plan(LoadOptions(budget="8G", context=64))
    monkeypatch.setattr(opened, "plan", plan)
    with opened.load(LoadOptions(budget="8G", context=64, snapshots=3)) as engine:
        assert engine.setup.snapshots == 1
