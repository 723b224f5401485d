import io

import pytest
from rich.console import Console
from rich.progress import Progress

from uringinfer.cli.pace import Bars, PaceColumn, show_bytes, show_steps


class Shown:
    """Bars on a clock that only moves when told; `text()` is the last bar's column."""

    def __init__(self, show):
        self.now = 100.0
        self.column = PaceColumn(show)
        console = Console(file=io.StringIO())
        self.display = Progress(self.column, console=console, auto_refresh=False, get_time=lambda: self.now)
        self.bars = Bars(self.display)

    def text(self):
        return self.column(self.display.tasks[-1]).plain


@pytest.fixture
def shown():
    return Shown(show_steps)


def test_until_the_first_step_is_done_it_shows_the_time_that_has_gone_by(shown):
    shown.bars("probing", 0, 10)
    assert shown.text() == "0:00 so far"
    shown.now += 67
    assert shown.text() == "1:07 so far"


def test_the_first_step_gives_a_pace_however_slow_it_was(shown):
    shown.bars("tg128", 0, 5)
    shown.now += 45
    shown.bars("tg128", 1, 5)
    assert shown.text() == "45.0 s each, 3:00 left"


def test_the_time_left_runs_down_between_steps_and_the_pace_holds_still(shown):
    shown.bars("tg128", 0, 5)
    shown.now += 8.2
    shown.bars("tg128", 1, 5)
    shown.now += 3
    shown.bars("tg128", 1, 5)  # told again, no step further
    assert shown.text() == "8.2 s each, 0:30 left"
    shown.now += 100
    assert shown.text() == "8.2 s each, 0:00 left"


def test_the_pace_is_the_average_of_all_steps(shown):
    shown.bars("simulating", 0, 51)
    for done, seconds in ((1, 3), (7, 1), (17, 1)):
        shown.now += seconds
        shown.bars("simulating", done, 51)
    assert shown.text() == "3.4/s, 0:10 left"


def test_what_was_done_before_took_none_of_the_time(shown):
    shown.bars("packing", 60, 100)
    assert shown.text() == "0:00 so far"
    shown.now += 10
    shown.bars("packing", 80, 100)
    assert shown.text() == "2.0/s, 0:10 left"


def test_what_is_begun_again_starts_its_clock_anew(shown):
    shown.bars("loading", 0, 10)
    shown.now += 50
    shown.bars("loading", 10, 10)
    shown.now += 1000
    shown.bars("loading", 0, 20)
    assert shown.text() == "0:00 so far"
    shown.now += 5
    shown.bars("loading", 10, 20)
    assert shown.text() == "2.0/s, 0:05 left"
    assert len(shown.display.tasks) == 1


def test_a_finished_bar_stands_still(shown):
    shown.bars("loading", 0, 10)
    shown.now += 5
    shown.bars("loading", 10, 10)
    shown.now += 1000
    assert shown.text() == "2.0/s, 0:00 left"


def test_what_is_known_so_far_changes_the_words_of_the_same_bar(shown):
    shown.bars("perplexity", 0, 4)
    shown.now += 60
    shown.bars("perplexity", 1, 4, "12.5")
    (task,) = shown.display.tasks
    assert task.description == "perplexity 12.5"
    assert shown.text() == "1:00 each, 3:00 left"


def test_hours_are_shown_where_there_are_any():
    shown = Shown(show_bytes)
    shown.bars("packing", 0, 10**12)
    shown.now += 40
    shown.bars("packing", 10**10, 10**12)
    assert shown.text() == "250.0 MB/s, 1:06:00 left"
