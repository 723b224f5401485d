"""The report of a run as one HTML page: what bounds it in words, then the pictures that show why.

A page is made of measurements, one section each. It carries everything in itself and asks no network.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from uringinfer.bench.measure import Measurement
from uringinfer.errors import EnvironmentError_
from uringinfer.pages.charts import layer_chart, memory_chart, share_chart, timeline_chart
from uringinfer.pages.style import CSS, KINDS
from uringinfer.report import Bound
from uringinfer.units import format_rate, format_size

_NAMES: dict[Bound, str] = {
    "drive": "the drive",
    "one read at a time": "one read at a time",
    "memory or compute": "memory or compute",
}
_ADVICE: dict[Bound, str] = {
    "drive": "A larger --budget pins more of the weights, and a faster drive brings the others sooner."
    " More threads would change little.",
    "one read at a time": "Nothing is read while the model computes. Give --ring-slots 2 and a budget above"
    " the floor for overlap, which 'uringinfer plan' names.",
    "memory or compute": "Reads keep up with the processor. A faster drive would change little; a smaller"
    " format, more threads or faster memory would.",
}


def run_page(measurements: Sequence[Measurement]) -> str:
    """The page that shows `measurements`, with a table in front if there are several."""
    title = f"uringinfer: {Path(measurements[0].setup.model).name}"
    sections = [_section(measurement) for measurement in measurements]
    table = _comparison(measurements) if len(measurements) > 1 else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # an icon of nothing keeps a browser from asking for one
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n'
        f"<body><main>\n{table}{''.join(sections)}</main></body>\n</html>\n"
    )


def write_page(path: Path, measurements: Sequence[Measurement]) -> None:
    """Writes the page to `path`. Raises EnvironmentError_ if that cannot be written."""
    try:
        path.write_text(run_page(measurements), encoding="utf-8")
    except OSError as error:
        raise EnvironmentError_(f"report '{path}' cannot be written: {error.strerror}") from error


def _section(one: Measurement) -> str:
    setup = one.setup
    heading = f"{setup.model} ({setup.family}), {one.workload.name}, budget {format_size(setup.budget)}"
    verdict = (
        f"{one.tokens_per_second:.2f} tokens/s, bound by {_NAMES[one.bound_by]}:"
        f" {one.wait_share:.0%} of the time is waiting for reads"
    )
    kind = one.bound_by.split()[0]
    parts = [
        f'<div class="card"><h1 class="soft">{escape(heading)}</h1><p class="verdict {kind}">{verdict}</p>'
        f"<p>{_ADVICE[one.bound_by]}</p>{_facts(one)}</div>"
    ]
    if one.timeline is not None:
        what = "One token" if one.workload.kind == "tg" else "One chunk of the prompt"
        took = f"{1e3 * one.timeline.seconds:.1f} ms"
        parts.append(
            _card(
                f"{what}: {took}, a pass of median duration",
                timeline_chart(one.timeline) + _kinds_legend(one),
                "Above, what the computing thread did. Below, the reads in flight, also those ahead of it.",
            )
        )
        parts.append(
            _card("Its layers", layer_chart(one.timeline), "Time of each layer, and bytes in flight for it.")
        )
    parts.append(_card("Where time and bytes come from", share_chart(_shares(one))))
    if one.memory:
        chart, legend = memory_chart(one.memory, setup.budget, one.peak_rss)
        entries = "".join(f'<span><i class="{kind}"></i>{escape(text)}</span>' for kind, text in legend)
        parts.append(_card("Memory", f'{chart}<div class="legend">{entries}</div>'))
    lines = "".join(f"<p>{escape(line)}</p>" for line in setup.to_text().splitlines())
    notes = "".join(f"<p>note: {escape(note)}</p>" for note in one.notes)
    parts.append(_card("How it was run", lines + notes))
    return "".join(parts)


def _facts(one: Measurement) -> str:
    deviation = f" ± {one.deviation:.2f}" if len(one.phases) > 1 else ""
    cpu = one.cpu_seconds_per_gb
    facts = [
        (f"{one.tokens_per_second:.2f}{deviation}", "tokens per second"),
        (format_size(round(one.bytes_per_token)), "read per token"),
        (format_rate(one.read_rate), "from the drive, on average"),
        ("-" if one.hit_rate is None else f"{one.hit_rate:.1%}", "of the trunk in memory"),
        (format_size(one.peak_rss), f"peak of a budget of {format_size(one.setup.budget)}"),
    ]
    if one.expert_hit_rate is not None:
        facts.insert(4, (f"{one.expert_hit_rate:.1%}", "of the experts in the cache"))
    if cpu is not None:
        facts.append((f"{1e3 * cpu:.0f} ms", "kernel CPU per GB read"))
    cells = "".join(f"<div><b>{escape(value)}</b><span>{name}</span></div>" for value, name in facts)
    return f'<div class="facts">{cells}</div>'


def _shares(one: Measurement) -> list[tuple[str, float, str]]:
    shares = [("time waiting for reads", one.wait_share, "k-trunk")]
    if one.hit_rate is not None:
        shares.append(("trunk bytes in memory", one.hit_rate, "m2"))
    if one.expert_hit_rate is not None:
        shares.append(("experts in the cache", one.expert_hit_rate, "m5"))
    return shares


def _kinds_legend(one: Measurement) -> str:
    shown = {interval.kind for interval in one.timeline.thread} if one.timeline else set()
    entries = [
        f'<span><i class="b-{kind}"></i>{what}</span>' for kind, what in KINDS.items() if kind in shown
    ]
    return f'<div class="legend">{"".join(entries)}</div>'


def _comparison(measurements: Sequence[Measurement]) -> str:
    rows = []
    for one in measurements:
        cells = [
            format_size(one.setup.budget),
            one.setup.reader,
            str(one.setup.threads),
            one.workload.name,
            f"{one.tokens_per_second:.2f} ± {one.deviation:.2f}",
            format_size(round(one.bytes_per_token)),
            "-" if one.hit_rate is None else f"{one.hit_rate:.1%}",
            f"{one.wait_share:.0%}",
            format_size(one.peak_rss),
            one.bound_by,
        ]
        rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    names = [
        "budget",
        "reader",
        "threads",
        "test",
        "tokens/s",
        "read/token",
        "hit",
        "waiting",
        "peak",
        "bound by",
    ]
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return _card("All settings", f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>')


def _card(heading: str, content: str, caption: str = "") -> str:
    text = f'<p class="soft">{caption}</p>' if caption else ""
    return f'<div class="card"><h2>{escape(heading)}</h2>{text}{content}</div>'
