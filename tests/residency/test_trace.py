import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError
from uringinfer.residency.trace import TraceWriter, Turn, read_trace


def line(layers, token=0):
    return json.dumps({"tok": token, "layers": layers})


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def pairs(*numbers):
    return struct.pack(f"<{len(numbers)}i", *numbers)


def test_json_lines_give_a_turn_for_each_layer_and_a_pass_for_each_line(tmp_path):
    path = written(tmp_path / "t", f"{line([[5, 2], [7]])}\n\n{line([[1], []], 1)}\n")

    trace = read_trace(path)

    assert trace.turns == (Turn(0, (5, 2)), Turn(1, (7,)), Turn(0, (1,)))
    assert (trace.passes, trace.requests, trace.layers, trace.num_experts) == (2, 4, (0, 1), 8)


def test_pairs_give_a_turn_for_each_run_of_a_layer_and_a_pass_ends_where_the_layer_falls(tmp_path):
    path = written(tmp_path / "t", pairs(1, 5, 1, 300, 2, 7, 1, 5))

    trace = read_trace(path)

    assert trace.turns == (Turn(1, (5, 300)), Turn(2, (7,)), Turn(1, (5,)))
    assert (trace.passes, trace.requests, trace.distinct, trace.num_experts) == (2, 4, 3, 301)


def test_pairs_are_recognised_even_if_they_begin_like_json(tmp_path):
    path = written(tmp_path / "t", pairs(ord("{"), 34))

    assert read_trace(path).turns == (Turn(123, (34,)),)


@pytest.mark.parametrize(
    ("name", "written"), [("t.bin", pairs(2, 7)), ("t.jsonl", b'{"tok": 0, "layers": [[7]]}\n')]
)
def test_the_name_of_the_file_chooses_the_format(tmp_path, name, written):
    with TraceWriter(tmp_path / name) as writer:
        writer.write_token(0, [(2, (7,))])

    assert (tmp_path / name).read_bytes() == written


@pytest.mark.parametrize("kind", ["jsonl", "pairs"])
def test_what_is_written_is_read_back(tmp_path, kind):
    tokens = [[(0, (3, 1)), (1, (2, 0))], [(0, (1, 2)), (1, (0, 255))]]

    with TraceWriter(tmp_path / "t", kind) as writer:
        for number, layers in enumerate(tokens):
            writer.write_token(number, layers)

    trace = read_trace(tmp_path / "t")
    assert trace.turns == tuple(Turn(layer, experts) for layers in tokens for layer, experts in layers)
    assert trace.passes == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        (f"{line([[1]])}\nnonsense", "line 2 is not JSON"),
        (line([[1]])[:-3], "line 1 is not JSON"),
        ("[" * 100_000, "line 1 is not JSON"),
        ('{"tok": 1' + "0" * 5000 + ', "layers": []}', "line 1 is not JSON"),
        (b'{"tok": 1, "layers": [[\xff]]}', "line 1 is not JSON"),
        ("[[1]]", "is not of the form"),
        ('{"layers": [[1]]}', "is not of the form"),
        ('{"tok": true, "layers": [[1]]}', "is not of the form"),
        ('{"tok": 0, "layers": {"0": [1]}}', "is not of the form"),
        (line([3]), "line 1, layer 0: 3 is no list of experts"),
        (line([[1], [-1]]), "line 1, layer 1: -1 is no expert's number"),
        (line([[True]]), "layer 0: true is no expert's number"),
        (line([[1.0]]), "layer 0: 1.0 is no expert's number"),
        (line([["7"]]), 'layer 0: "7" is no expert\'s number'),
        (line([[1 << 16]]), "layer 0: 65536 is no expert's number"),
        (line([[]] * 5000), "5000 layers"),
        (line([[], []]), "names no experts"),
        (line([[0]] * 4000 + [[60000]]), "spans 240064001 experts"),
        (pairs(1, 5, 2)[:-1], "has 11 bytes, not a multiple of 8"),
        (pairs(1, 5, 2, -3), "at byte 8: layer 2, expert -3"),
        (pairs(1, 5, 1 << 20, 3), "at byte 8: layer 1048576, expert 3"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_place(tmp_path, content, message):
    path = written(tmp_path / "t", content)

    with pytest.raises(IntegrityError) as caught:
        read_trace(path)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_trace_or_an_integrity_error(tmp_path_factory, content):
    path = written(tmp_path_factory.mktemp("any") / "t", content)
    try:
        trace = read_trace(path)
    except IntegrityError:
        return
    assert trace.requests > 0


def test_a_trace_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="nowhere"):
        read_trace(tmp_path / "nowhere")


def test_a_trace_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(EnvironmentError_, match="cannot write"):
        TraceWriter(tmp_path / "missing" / "t")


def test_a_full_drive_is_named_by_the_tokens_that_do_not_fit():
    layers = [(layer, range(100)) for layer in range(100)]
    with (
        pytest.raises(EnvironmentError_, match="cannot write /dev/full: No space left"),
        TraceWriter(Path("/dev/full")) as writer,
    ):
        writer.write_token(0, layers)
        writer.write_token(1, layers)
        pytest.fail("the tokens were taken")


def test_a_drive_that_is_full_at_the_end_is_named_too():
    full = pytest.raises(EnvironmentError_, match="cannot write /dev/full: No space left")
    with full, TraceWriter(Path("/dev/full")) as writer:
        writer.write_token(0, [(0, [1])])


def test_a_full_drive_does_not_hide_the_error_that_ended_the_run():
    with pytest.raises(ZeroDivisionError), TraceWriter(Path("/dev/full")) as writer:
        writer.write_token(0, [(0, [1])])
        raise ZeroDivisionError


def test_an_unknown_kind_of_trace_is_refused(tmp_path):
    with pytest.raises(UsageError, match="'csv'"):
        TraceWriter(tmp_path / "t", "csv")
