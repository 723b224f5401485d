import pytest
from hypothesis import given
from hypothesis import strategies as st

from uringinfer.errors import UsageError
from uringinfer.text.stopping import StopConditions


def run(conditions, texts):
    shown = []
    for text in texts:
        shown.append(conditions.push(0, text))
        if conditions.finish_reason:
            break
    return [*shown, conditions.finish()]


def naive_end(text, stops):
    """Where the text shown ends: reads character by character, looks at every stop string each time."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return end - max(map(len, found))
    return len(text)


letters = st.text("ab\n", max_size=3)


@given(st.lists(letters, max_size=12), st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=3))
def test_text_ends_before_the_first_stop_string_however_it_is_spread_over_tokens(texts, stops):
    conditions = StopConditions(stop=stops)
    text = "".join(texts)
    end = naive_end(text, stops)
    assert "".join(run(conditions, texts)) == text[:end]
    assert conditions.finish_reason == ("stop" if any(stop in text for stop in stops) else None)


@given(st.lists(letters, max_size=12), st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=3))
def test_only_the_possible_beginning_of_a_stop_string_is_held_back(texts, stops):
    conditions = StopConditions(stop=stops)
    shown = given_so_far = ""
    for text in texts:
        shown += conditions.push(0, text)
        given_so_far += text
        if conditions.finish_reason:
            break
        held = given_so_far[len(shown) :]
        beginnings = [
            n
            for n in range(1, len(given_so_far) + 1)
            if any(len(stop) > n and stop.startswith(given_so_far[-n:]) for stop in stops)
        ]
        assert len(held) == max(beginnings, default=0)


def test_the_stop_string_that_ended_it_is_named():
    conditions = StopConditions(stop=["\nUser:", "END"])
    assert run(conditions, ["Yes.\n", "Us", "er: more"]) == ["Yes.", "", "", ""]
    assert conditions.stop_string == "\nUser:"


def test_held_text_is_shown_when_the_generation_ends_otherwise():
    conditions = StopConditions(stop=["abc"], max_tokens=1)
    assert run(conditions, ["xab"]) == ["x", "ab"]
    assert conditions.finish_reason == "length"


def test_the_last_characters_can_still_complete_a_stop_string():
    conditions = StopConditions(stop=["ab\ufffd"])
    conditions.push(0, "xab")
    assert conditions.finish("\ufffd") == ""
    assert conditions.finish_reason == "stop"


def test_an_end_token_stops_and_shows_nothing_of_its_own():
    conditions = StopConditions(eos_ids={7}, max_tokens=5)
    assert conditions.push(3, "a") == "a"
    assert conditions.push(7, "<|im_end|>") == ""
    assert conditions.finish_reason == "stop"


def test_an_end_token_that_is_also_the_last_allowed_counts_as_stop():
    conditions = StopConditions(eos_ids={7}, max_tokens=1)
    conditions.push(7, "")
    assert conditions.finish_reason == "stop"


def test_the_limit_counts_tokens_and_zero_is_reached_at_once():
    conditions = StopConditions(max_tokens=2)
    conditions.push(1, "a")
    assert conditions.finish_reason is None
    conditions.push(1, "b")
    assert conditions.finish_reason == "length"
    assert StopConditions(max_tokens=0).finish_reason == "length"


def test_empty_stop_strings_and_negative_limits_are_refused():
    with pytest.raises(UsageError, match="a stop string is empty"):
        StopConditions(stop=["a", ""])
    with pytest.raises(UsageError, match="-1 tokens"):
        StopConditions(max_tokens=-1)
