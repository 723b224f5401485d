"""Conversations that are kept go on where another one begins alike, from memory and from the drive."""

import pytest

from uringinfer.engine.answers import BatchStatistics, Request, answer_all
from uringinfer.engine.generation import GenerationOptions
from uringinfer.engine.kept_sessions import KeptSessions, _common
from uringinfer.engine.load_options import LoadOptions
from uringinfer.errors import UsageError
from uringinfer.text.sampling import SamplingOptions

BEGINNING = [3 + n % 50 for n in range(70)]
OPTIONS = GenerationOptions(max_tokens=3, sampling=SamplingOptions(temperature=0.9, seed=1), ignore_eos=True)


@pytest.fixture(scope="module")
def engine(native):
    with native.load(LoadOptions(context=128, chunk=32, parallel=4, guesses=0)) as engine:
        yield engine


def fed(engine, kept, ids):
    """What taking a session for `ids` and feeding the rest gives, and how much was fed."""
    session = kept.take(ids)
    rest = ids[session.length :]
    logits = session.feed(rest)[-1].tobytes()
    assert session.fed == ids
    return session, logits, len(rest)


def test_a_session_that_began_alike_is_taken_and_gone_back_to_there(engine):
    kept = KeptSessions(engine.session, 4)
    for ids, expected in (([*BEGINNING, 7, 8], 72), ([*BEGINNING, 9, 9, 9], 3), ([1, 2, 3], 3)):
        session, logits, count = fed(engine, kept, ids)
        assert count == expected
        assert logits == engine.session().feed(ids)[-1].tobytes()
        kept.give(session)
    assert kept.statistics.reused_tokens == 70


def test_the_same_prompt_again_feeds_its_last_token(engine):
    kept = KeptSessions(engine.session, 4)
    session, first, _ = fed(engine, kept, BEGINNING)
    kept.give(session)
    _, again, count = fed(engine, kept, BEGINNING)
    assert (again, count) == (first, 1)


def test_the_one_used_longest_ago_goes_to_the_drive_and_comes_back(engine, tmp_path):
    kept = KeptSessions(engine.session, 2, tmp_path / "swap")
    prompts = [[number, *BEGINNING, number] for number in range(5)]
    logits = []
    for ids in prompts:
        session, last, _ = fed(engine, kept, ids)
        logits.append(last)
        kept.give(session)
    assert kept.statistics.out == 3 == len(list((tmp_path / "swap").iterdir()))
    for ids, expected in zip(prompts, logits, strict=True):
        session, again, count = fed(engine, kept, ids)
        assert (again, count) == (expected, 1)
        kept.give(session)
    assert kept.statistics.back >= 3 and kept.statistics.nbytes > 0
    assert len(list((tmp_path / "swap").iterdir())) == 3  # each file is there once


def test_what_is_kept_is_found_after_a_restart(engine, tmp_path):
    kept = KeptSessions(engine.session, 2, tmp_path)
    session, _, _ = fed(engine, kept, BEGINNING)
    kept.give(session)
    kept.keep_all()
    (tmp_path / "other.uringses").write_bytes(b"no session")
    assert fed(engine, KeptSessions(engine.session, 2, tmp_path), [*BEGINNING, 5])[2] == 1
    assert (tmp_path / "other.uringses").exists()


def test_a_damaged_file_is_said_and_its_text_fed_anew(engine, tmp_path):
    kept = KeptSessions(engine.session, 1, tmp_path)
    session, expected, _ = fed(engine, kept, BEGINNING)
    kept.give(session)
    kept.keep_all()
    [path] = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    _, logits, count = fed(engine, kept, BEGINNING)
    assert (logits, count) == (expected, len(BEGINNING))
    assert kept.statistics.lost == 1 and "checksum mismatch" in kept.notes[0]
    assert not list(tmp_path.iterdir())


def test_no_more_are_in_use_than_there_is_room_for(engine):
    kept = KeptSessions(engine.session, 1)
    session = kept.take([1])
    with pytest.raises(UsageError, match="1 conversations are in use"):
        kept.take([2])
    kept.give(session)
    kept.take([2])


@pytest.mark.parametrize("swap", [False, True])
def test_twelve_conversations_over_four_slots_say_what_they_say_alone(engine, tmp_path, swap):
    # three turns each; every turn's prompt is all that was said before, and more
    histories = [[number, *BEGINNING[: 64 + number % 6]] for number in range(12)]
    statistics = BatchStatistics()
    for turn in range(3):
        requests = [Request(ids, OPTIONS) for ids in histories]
        answers = answer_all(engine, requests, statistics=statistics, swap=tmp_path if swap else None)
        for answer in answers:
            ids = histories[answer.number]
            assert answer.tokens == engine.generate(ids, OPTIONS).tokens
            histories[answer.number] = [*ids, *answer.tokens, 60 + turn]
    if swap:
        assert statistics.swap.out >= 16 and statistics.swap.back >= 16 and not statistics.swap.lost


def test_the_common_beginning_is_found_by_halves():
    for length in range(9):
        for common in range(length + 1):
            ids = [*range(common), *([-1] * (length - common))]
            assert _common(list(range(8)), ids, 100) == min(common, 8)
    assert _common([1, 2, 3], [1, 2, 3], 2) == 2
    assert _common([1], [], -1) == 0
