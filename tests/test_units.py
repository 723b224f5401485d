import pytest

from uringinfer.errors import UsageError
from uringinfer.units import counted, format_size, parse_rate, parse_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("500M", 500 << 20),
        ("16G", 16 << 30),
        ("16GB", 16 * 10**9),
        ("64MiB", 64 << 20),
        ("1.5k", 1536),
        ("2 TiB", 2 << 40),
    ],
)
def test_sizes_use_powers_of_1024_except_with_a_plain_b(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "G", "-1G", "1X", "1e9", "12 apples"])
def test_what_is_no_size_is_refused_with_the_text(text):
    with pytest.raises(UsageError, match="not a size"):
        parse_size(text)


def test_a_rate_is_decimal_bytes_per_second():
    assert parse_rate("2.0GB/s") == 2e9
    with pytest.raises(UsageError, match="not a rate"):
        parse_rate("0GB/s")


@pytest.mark.parametrize("text", ["2", "2.0", "2/s", "", "/s"])
def test_a_rate_without_a_unit_is_refused(text):
    with pytest.raises(UsageError, match="is not a rate"):
        parse_rate(text)


def test_a_size_prints_as_gib_with_two_decimals():
    assert format_size(3 << 30) == "3.00 GiB"
    assert format_size(5 << 20) == "5.00 MiB"


def test_one_of_a_thing_is_no_plural():
    assert [counted(number, "byte") for number in (0, 1, 2)] == ["0 bytes", "1 byte", "2 bytes"]
