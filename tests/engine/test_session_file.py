"""A saved conversation goes on as if it had never ended, and a damaged file is never taken for one."""

import dataclasses
import json
import os
import struct

import numpy as np
import pytest
from tiny_models import Containers, write_tiny_checkpoint

from uringinfer.engine.generation import GenerationOptions
from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.engine.session_file import SessionHeader, read_header, read_session, write_session
from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError
from uringinfer.text.sampling import SamplingOptions

PROMPT = list(range(20))
GREEDY = GenerationOptions(max_tokens=8, ignore_eos=True)
SAMPLED = dataclasses.replace(
    GREEDY, sampling=SamplingOptions(temperature=1.0, repeat_penalty=1.3, repeat_window=-1, seed=7)
)
HEADER = SessionHeader(
    "0123456789abcdef",
    "llama",
    (5, 6, 7),
    2,
    seed=10**30,
    draws=4,
    messages=({"role": "user", "content": "why"},),
)


@pytest.fixture(scope="module")
def engine(tiny):
    with tiny.load(LoadOptions(context=64, chunk=8)) as engine:
        yield engine


def twice(options):
    return dataclasses.replace(options, max_tokens=2 * options.max_tokens)


@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_restored_conversation_continues_identically(engine, options, tmp_path):
    whole = engine.session()
    expected = engine.generate(PROMPT, twice(options), session=whole).tokens

    session = engine.session()
    first = engine.generate(PROMPT, options, session=session).tokens
    session.save(tmp_path / "s")
    restored = engine.load_session(tmp_path / "s", context=40)
    unseeded = dataclasses.replace(options, sampling=dataclasses.replace(options.sampling, seed=None))
    second = engine.generate([], unseeded, session=restored).tokens
    assert first + second == expected
    assert restored.fed == whole.fed and restored.chosen == whole.chosen == expected[-1]
    np.testing.assert_array_equal(restored.last_logits, whole.last_logits)


def test_a_prompt_that_was_only_read_can_be_continued_without_another(engine, tmp_path):
    expected = engine.generate(PROMPT, GREEDY).tokens
    session = engine.session()
    engine.generate(PROMPT, dataclasses.replace(GREEDY, max_tokens=0), session=session)
    session.save(tmp_path / "s")
    assert engine.generate([], GREEDY, session=engine.load_session(tmp_path / "s")).tokens == expected


def test_another_seed_leaves_the_saved_sampler_out(engine, tmp_path):
    session = engine.session()
    engine.generate(PROMPT, SAMPLED, session=session)
    session.save(tmp_path / "s")
    sampling = dataclasses.replace(SAMPLED.sampling, seed=8)
    generation = engine.generate(
        [], dataclasses.replace(SAMPLED, sampling=sampling), session=engine.load_session(tmp_path / "s")
    )
    assert generation.seed == 8


def test_the_file_holds_the_positions_fed_and_not_the_whole_context(engine, tmp_path):
    sizes = []
    for context in (24, 64):
        session = engine.session(context)
        session.feed(PROMPT)
        session.save(tmp_path / "s")
        sizes.append((tmp_path / "s").stat().st_size)
    assert sizes[0] == sizes[1]


def test_a_session_of_another_model_is_refused(engine, tmp_path):
    session = engine.session()
    session.feed(PROMPT)
    session.save(tmp_path / "s")
    other = Containers(write_tiny_checkpoint(tmp_path / "checkpoint", seed=4), tmp_path)()
    with (
        open_model(other).load(LoadOptions(context=64, chunk=8)) as engine_of_another,
        pytest.raises(UsageError, match="is a conversation with another model"),
    ):
        engine_of_another.load_session(tmp_path / "s")


def test_a_session_goes_on_with_the_same_model_in_other_segments(engine, packed, tmp_path):
    session = engine.session()
    first = engine.generate(PROMPT, GREEDY, session=session)
    session.save(tmp_path / "s")
    with open_model(packed("layer")).load(LoadOptions(context=64, chunk=8)) as other:
        restored = other.load_session(tmp_path / "s")
        second = other.generate([], GREEDY, session=restored).tokens
    assert first.tokens + second == engine.generate(PROMPT, twice(GREEDY)).tokens


def test_a_session_longer_than_the_context_is_refused(engine, tmp_path):
    session = engine.session()
    session.feed(PROMPT)
    session.save(tmp_path / "s")
    with pytest.raises(UsageError, match="holds 20 tokens, which do not fit into a context of 19"):
        engine.load_session(tmp_path / "s", context=19)


def test_nothing_fed_and_nothing_whole_cannot_be_saved(engine, tmp_path):
    session = engine.session()
    with pytest.raises(UsageError, match="has not been fed anything"):
        session.save(tmp_path / "s")
    session.feed(PROMPT)
    session.is_whole = False
    with pytest.raises(UsageError, match="interrupted inside a pass"):
        session.save(tmp_path / "s")


def arrays(seed=0):
    random = np.random.default_rng(seed)
    wide = random.standard_normal((3, 9, 5)).astype(np.float32)
    return {"keys": wide[:, :7], "numbers": random.integers(0, 9, 11), "none": np.zeros((0, 4))}


def empty():
    return {name: np.zeros_like(array) for name, array in arrays().items()}


def test_header_and_arrays_come_back_as_they_were(tmp_path):
    write_session(tmp_path / "s", HEADER, arrays())
    assert read_header(tmp_path / "s") == HEADER
    got = empty()
    read_session(tmp_path / "s", HEADER, got)
    for name, array in arrays().items():
        np.testing.assert_array_equal(got[name], array)
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600


def test_flipped_bits_and_cuts_anywhere_are_found(tmp_path):
    path = tmp_path / "s"
    write_session(path, HEADER, arrays())
    whole = path.read_bytes()
    damaged = [whole[:size] for size in range(0, len(whole), 7)] + [whole + b"\0"]
    damaged += [
        whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
        for place in range(0, len(whole), 3)
    ]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(IntegrityError):
            read_session(path, read_header(path), empty())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"length": 4}, "length: 4 is not between 0 and 3"),
        ({"length": True}, "length: True is not an integer"),
        ({"ids": [1, -2, 3]}, "is not between 0"),
        ({"ids": "123"}, "is not a list"),
        ({"model": "../x"}, "is not a name"),
        ({"seed": "1e9"}, "is not a number"),
        ({"seed": 5}, "is not a string"),
        ({"draws": -1}, "is not between"),
        ({"more": 1}, "unknown key"),
        ({"messages": "hi"}, "is not a list"),
        ({"messages": [{"content": "hi"}]}, "is no message"),
    ],
)
def test_a_header_is_hostile_input(tmp_path, change, problem):
    text = json.dumps(HEADER.to_json() | {"arrays": []} | change).encode()
    (tmp_path / "s").write_bytes(struct.pack("<8sII", b"uringses", 2, len(text)) + text)
    with pytest.raises(IntegrityError, match=problem):
        read_header(tmp_path / "s")


def test_arrays_of_another_shape_are_refused_by_name(tmp_path):
    write_session(tmp_path / "s", HEADER, arrays())
    other = empty() | {"numbers": np.zeros(12, np.int64)}
    with pytest.raises(IntegrityError, match=r"numbers is not <i8 \[12\]"):
        read_session(tmp_path / "s", HEADER, other)


def test_another_version_and_another_file_are_told_apart(tmp_path):
    (tmp_path / "s").write_bytes(struct.pack("<8sII", b"uringses", 3, 0))
    with pytest.raises(IntegrityError, match="of version 3, this program reads 2"):
        read_header(tmp_path / "s")
    (tmp_path / "s").write_bytes(b"{}")
    with pytest.raises(IntegrityError, match="is no saved session"):
        read_header(tmp_path / "s")
    with pytest.raises(UsageError, match="No such file"):
        read_header(tmp_path / "t")


def test_a_write_that_fails_leaves_the_older_file_and_nothing_else(tmp_path, monkeypatch):
    write_session(tmp_path / "s", HEADER, arrays())
    before = (tmp_path / "s").read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentError_, match="No space left on device"):
        write_session(tmp_path / "s", HEADER, arrays(1))
    assert (tmp_path / "s").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["s"]


def test_no_directory_to_write_to_is_said_in_one_line(tmp_path):
    with pytest.raises(EnvironmentError_, match="cannot write the session"):
        write_session(tmp_path / "missing" / "s", HEADER, arrays())


def test_a_pipe_is_no_session_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "s")
    with pytest.raises(IntegrityError, match="s: is no regular file"):
        read_header(tmp_path / "s")


def test_a_link_stays_one_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/s")
    for _ in range(2):  # first where the link leads to nothing
        write_session(tmp_path / "link", HEADER, {})
        assert (tmp_path / "link").is_symlink()
        assert read_header(tmp_path / "there" / "s") == HEADER
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["s"]


def test_what_is_no_regular_file_is_refused_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "loop"):
        with pytest.raises(EnvironmentError_, match=f"{name}: it is no regular file"):
            write_session(tmp_path / name, HEADER, {})
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "loop").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop", "pipe"]
