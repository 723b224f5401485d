"""The report page, from measurements that are written out by hand; and in a real browser."""

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))
from test_report import PHASE, SETUP

from uringinfer.bench.measure import Measurement
from uringinfer.bench.workload import Workload
from uringinfer.errors import EnvironmentError_
from uringinfer.pages.run_page import run_page, write_page
from uringinfer.planning.memory import PlanRow
from uringinfer.residency.expert_statistics import ExpertStatistics
from uringinfer.residency.timeline import Interval, PassTimeline

TIMELINE = PassTimeline(
    0.08,
    (
        Interval(0.0, 0.01, "layers.0", "rows", 64),
        Interval(0.01, 0.02, "layers.0", "computing"),
        Interval(0.02, 0.05, "layers.1", "trunk", 4096),
        Interval(0.05, 0.06, "layers.1", "experts", 512),
        Interval(0.06, 0.08, "head", "computing"),
    ),
    (
        Interval(0.0, 0.05, "layers.1", "trunk", 4096),
        Interval(0.0, 0.04, "head", "trunk", 4096),
        Interval(0.04, 0.06, "layers.1", "experts", 512),
    ),
)
MEMORY = (PlanRow("pinned weights", 1 << 30), PlanRow("ring", 1 << 29), PlanRow("unused", 3 << 29))
ONE = Measurement(
    Workload("tg", 4),
    replace(SETUP, model="a & b <model>.uring"),
    (replace(PHASE, experts=ExpertStatistics(hits=3, misses=1)),),
    2 << 30,
    ("a <note>",),
    MEMORY,
    TIMELINE,
)


def svgs(page):
    """Every drawing of the page, parsed: a mistake in one is an error here."""
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def drawing(page, label):
    return next(svg for svg in svgs(page) if svg.get("aria-label") == label)


def tips(svg):
    return [rect.find("title").text for rect in svg.iter("rect") if rect.find("title") is not None]


def test_the_headline_says_what_bounds_the_run_and_the_line_below_what_to_do():
    page = run_page([ONE])
    assert "1.00 tokens/s, bound by the drive: 50% of the time is waiting for reads" in page
    assert "A larger --budget pins more" in page
    single = replace(ONE, setup=replace(ONE.setup, overlaps=False))
    assert "bound by one read at a time" in run_page([single])
    calm = replace(ONE, phases=(replace(PHASE, wait_seconds=0.1),))
    assert "bound by memory or compute: 2%" in run_page([calm])


def test_the_timeline_has_a_rectangle_for_every_interval():
    shown = tips(drawing(run_page([ONE]), "one pass over time"))
    assert len(shown) == len(TIMELINE.thread) + len(TIMELINE.reads)
    assert "layers.1: waiting for the trunk, 30 ms from 20 ms, 4.00 KiB" in shown
    assert "layers.1: expert reads, 20 ms from 40 ms, 512 B" in shown


def test_rectangles_lie_where_their_time_is():
    svg = drawing(run_page([ONE]), "one pass over time")
    rects = {rect.find("title").text: rect for rect in svg.iter("rect") if rect.find("title") is not None}
    waiting = rects["layers.1: waiting for the trunk, 30 ms from 20 ms, 4.00 KiB"]
    whole = 1040 - 96 - 24
    assert float(waiting.get("x")) == pytest.approx(96 + whole * 0.25, abs=0.01)
    assert float(waiting.get("width")) == pytest.approx(whole * 0.375, abs=0.01)


def test_layers_have_their_time_and_their_bytes():
    shown = tips(drawing(run_page([ONE]), "time and bytes of each layer"))
    assert "layers.1: waiting for the trunk 30 ms" in shown
    assert "layers.1: 4.50 KiB read" in shown


def test_memory_fills_the_budget():
    svg = drawing(run_page([ONE]), "memory against the budget")
    assert tips(svg) == ["pinned weights: 1.00 GiB", "ring: 512.00 MiB", "unused: 1.50 GiB"]
    widths = [float(rect.get("width")) for rect in svg.iter("rect")]
    assert sum(widths) == pytest.approx(1040, abs=0.1)
    assert any(text.text == "peak 2.00 GiB of 3.00 GiB" for text in svg.iter("text"))


def test_a_run_without_a_timeline_or_experts_has_a_page_too():
    plain = replace(ONE, timeline=None, memory=(), phases=(PHASE,))
    assert [svg.get("aria-label") for svg in svgs(run_page([plain]))] == ["shares"]


def test_several_settings_are_compared_in_a_table():
    page = run_page([ONE, replace(ONE, setup=replace(ONE.setup, budget=5 << 30))])
    assert page.count("<tr>") == 3
    assert "<td>5.00 GiB</td>" in page


def test_names_and_notes_are_text_not_markup():
    page = run_page([ONE])
    assert "a &amp; b &lt;model&gt;.uring" in page and "note: a &lt;note&gt;" in page
    assert "<model>" not in page and "<note>" not in page


def test_layers_may_have_any_name():
    odd = replace(TIMELINE, thread=(Interval(0.0, 0.08, "a<b>&c", "computing"),), reads=())
    page = run_page([replace(ONE, timeline=odd)])
    assert "a<b>&c: computing, 80 ms from 0 ms" in tips(drawing(page, "one pass over time"))


def test_the_page_refers_to_nothing_outside_of_it():
    page = run_page([ONE])
    assert "http" not in page and "url(" not in page and "<script" not in page
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,"]


def test_a_page_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(EnvironmentError_, match="nowhere"):
        write_page(tmp_path / "nowhere" / "page.html", [ONE])


GROUNDS = {"light": "rgb(246, 247, 249)", "dark": "rgb(20, 24, 29)"}


def browser():
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_renders_the_page_without_errors(tmp_path, scheme):
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1100,1200", "--dump-dom"]
    command += ["--blink-settings=preferredColorScheme=" + ("0" if scheme == "dark" else "1")]
    # the page measures itself, so that what was laid out is known, not only what was parsed
    probe = (
        "<script>addEventListener('error', e => console.error(e.message));"
        "document.body.dataset.ground = getComputedStyle(document.body).backgroundColor;"
        "document.body.dataset.heights ="
        " [...document.querySelectorAll('svg')].map(s => Math.round(s.getBoundingClientRect().height));"
        "document.body.dataset.wide = document.documentElement.scrollWidth > innerWidth;"
        "</script></body>"
    )
    (tmp_path / "page.html").write_text(run_page([ONE, ONE]).replace("</body>", probe))
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        [*command, (tmp_path / "page.html").as_uri()],
        capture_output=True, text=True, timeout=500, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr
    heights = [int(height) for height in re.search(r'data-heights="([^"]*)"', done.stdout)[1].split(",")]
    assert len(heights) == 8 and min(heights) > 20
    assert 'data-wide="false"' in done.stdout
    assert f'data-ground="{GROUNDS[scheme]}"' in done.stdout
