import pytest

from uringinfer.errors import UsageError
from uringinfer.text.openai_request import read_request

HELLO = [{"role": "user", "content": "Hi"}]


def variables(**fields):
    return read_request({"messages": HELLO, **fields})[0].variables


@pytest.mark.parametrize("field", ["thinking_effort", "reasoning_effort"])
def test_an_effort_has_every_name_that_formats_give_it(field):
    assert variables(**{field: "low"}) == {"thinking_effort": "low", "reasoning_effort": "low"}


def test_an_effort_may_stand_in_an_object():
    assert variables(reasoning={"effort": "high"})["reasoning_effort"] == "high"


@pytest.mark.parametrize("off", [False, {"type": "disabled"}])
def test_thinking_has_every_name_that_formats_give_it(off):
    assert variables(thinking=off) == {"thinking": False, "enable_thinking": False}


def test_no_effort_is_no_thinking_unless_that_was_asked_for():
    assert variables(reasoning_effort="none")["enable_thinking"] is False
    assert variables(reasoning_effort="none", thinking=True)["enable_thinking"] is True


def test_variables_of_a_template_are_given_as_they_are():
    assert variables(chat_template_kwargs={"custom": [1]}) == {"custom": [1]}


def test_tools_choice_and_format_are_kept_and_sampling_is_passed_over():
    fields = {"tools": [{"name": "f"}], "tool_choice": "none", "response_format": {"type": "text"}}
    request, asks = read_request({"messages": HELLO, **fields, "top_p": 0.5, "stream": True})
    assert (request.tools, request.tool_choice, request.response_format) == tuple(fields.values())
    assert request.variables == {}
    assert asks


@pytest.mark.parametrize("body", [None, [], {"messages": None}, {"prompt": "x"}])
def test_what_is_no_request_is_refused(body):
    with pytest.raises(UsageError, match="a list of messages"):
        read_request(body)
