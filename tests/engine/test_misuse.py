"""An engine that is forked, closed from elsewhere, used after its end, or just dropped."""

import gc
import os
import threading
from pathlib import Path

import pytest
from tiny_models import Containers, write_tiny_checkpoint

import uringinfer
from uringinfer.engine.generation import Listener
from uringinfer.errors import UsageError

READERS = ["preadv", "auto"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("misuse")
    return Containers(write_tiny_checkpoint(directory / "checkpoint"), directory)()


def open_things():
    """Descriptors and threads of this process."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def in_fork(work):
    """What `work` raises in a forked process, as text; an error if that does not end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os.write(writer, b"nothing")
        except BaseException as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return text


@pytest.mark.timeout(30)
@pytest.mark.parametrize("io", READERS)
def test_a_fork_of_a_loaded_model_is_refused_with_both_processes_named(model, io):
    with uringinfer.load(model, io=io) as engine:
        session = engine.session()
        expected = f"the model was loaded in process {os.getpid()}, and process "
        for work in (lambda: engine.generate([1]), lambda: session.feed([1]), engine.session):
            said = in_fork(work)
            assert said.startswith(expected) and said.count("\n") == 0
            assert "load it in the process that uses it" in said
        assert in_fork(engine.close) == "nothing"
        assert engine.generate([1], max_tokens=2).tokens


@pytest.mark.timeout(30)
@pytest.mark.parametrize("io", READERS)
def test_close_from_another_thread_stops_the_call_that_runs_and_returns_when_all_is_given_back(model, io):
    before = open_things()
    engine = uringinfer.load(model, io=io)
    generating, after = threading.Event(), []

    def close():
        generating.wait()
        engine.close()
        after.append(len(list(Path("/proc/self/fd").iterdir())))

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(UsageError, match="the engine is closed"):
        while True:
            engine.generate([1] * 50, listener=Listener(text=lambda text: generating.set()), max_tokens=400)
            generating.set()
    closer.join()
    assert after[0] <= before[0] + 1  # the descriptor that counts is one
    assert open_things() == before


@pytest.mark.timeout(30)
@pytest.mark.parametrize("io", READERS)
def test_whatever_is_done_with_a_closed_engine_is_one_line(model, io):
    engine = uringinfer.load(model, io=io)
    session = engine.session()
    engine.close()
    engine.close()
    for work in (lambda: engine.generate([1]), lambda: session.feed([1]), engine.session):
        with pytest.raises(UsageError, match=r"^the engine is closed; load the model again$"):
            work()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("io", READERS)
def test_an_engine_that_is_dropped_leaves_nothing_open(model, io):
    before = open_things()
    for _ in range(3):
        engine = uringinfer.load(model, io=io)
        engine.generate([1], max_tokens=1)
        del engine
        assert open_things() == before


@pytest.mark.timeout(30)
def test_a_session_outlives_the_name_of_its_engine(model):
    before = open_things()
    session = uringinfer.load(model).session()
    gc.collect()
    assert session.feed([1]).shape[0] == 1
    del session
    assert open_things() == before


@pytest.mark.timeout(30)
def test_a_thread_that_does_not_own_an_idle_ring_is_told_who_must_close_it(model, monkeypatch):
    from uringinfer.residency import tenure

    monkeypatch.setattr(tenure, "PATIENCE_SECONDS", 0.01)
    engine = uringinfer.load(model)
    if engine.reader.name != "uring":
        pytest.skip("a reader on threads may be closed by any")
    said = []

    def close():
        try:
            engine.close()
        except UsageError as error:
            said.append(str(error))

    thread = threading.Thread(target=close)
    thread.start()
    thread.join()
    assert said and "close it in the thread that loaded it" in said[0]
    engine.close()
