"""Results of `uringinfer bench` as JSON, CSV and a Markdown table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from uringinfer import api
from uringinfer.api import format_size

SCHEMA_VERSION = 1

Results = Sequence[tuple[api.Setting, api.BenchResult]]

_SETTING_COLUMNS = ("budget", "io", "threads", "lookahead", "batch")
_CSV_COLUMNS = (
    "test",
    "tokens_per_second",
    "tokens_per_second_sd",
    "bytes_per_token",
    "hit_rate",
    "expert_hit_rate",
    "disk_wait_share",
    "system_seconds_per_gb",
    "peak_rss_bytes",
    "bound_by",
)


def head(bench: api.Bench) -> dict[str, Any]:
    """What is the same for all results."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": str(bench.model),
        "repetitions": bench.repetitions,
        "chunk": bench.chunk,
        "checksums": {"library": api.CHECKSUM_LIBRARY, "bytes_per_second": api.check_rate()},
    }


def row_json(setting: api.Setting, result: api.BenchResult) -> dict[str, Any]:
    """One result; of a setting that cannot run, only what was asked for and the floor."""
    asked = {"asked": setting.to_json()}
    if isinstance(result, api.Refusal):
        return asked | {"fits": False, "floor": result.error.floor}
    return asked | {"fits": True} | result.to_json()


def as_csv(results: Results) -> str:
    """A header and a line for each result, with the keys of the JSON; empty where there is no value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_SETTING_COLUMNS, *_CSV_COLUMNS])
    for setting, result in results:
        asked = setting.to_json()
        row = row_json(setting, result)
        values = [asked[name] for name in _SETTING_COLUMNS] + [row.get(name) for name in _CSV_COLUMNS]
        if isinstance(result, api.Measurement):
            values[: len(_SETTING_COLUMNS)] = [
                result.setup.budget, asked["io"], result.setup.threads, asked["lookahead"], asked["batch"]
            ]  # fmt: skip
        writer.writerow(values)
    return text.getvalue().rstrip("\n")


def as_markdown(results: Results) -> str:
    """A Markdown table, which a terminal shows as well; columns without any value are left out."""
    columns: list[tuple[str, list[str]]] = [
        ("budget", [_budget(*pair) for pair in results]),
        ("io", [pair[0].io if _varies(results, "io") else "" for pair in results]),
        ("threads", [str(pair[0].threads) if _varies(results, "threads") else "" for pair in results]),
        ("lookahead", [str(pair[0].lookahead) if _varies(results, "lookahead") else "" for pair in results]),
        ("batch", [str(pair[0].batch) if _varies(results, "batch") else "" for pair in results]),
    ]
    rows = [_cells(result) for _, result in results]
    columns += [(name, [row.get(name, "") for row in rows]) for name in _cells_header()]
    shown = [(name, cells) for name, cells in columns if any(cells)]
    widths = [max(len(name), *map(len, cells)) for name, cells in shown]
    lines = [
        [name.rjust(width) for (name, _), width in zip(shown, widths, strict=True)],
        ["-" * (width - 1) + ":" for width in widths],
    ]
    for number in range(len(results)):
        lines.append([cells[number].rjust(width) for (_, cells), width in zip(shown, widths, strict=True)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells_header() -> list[str]:
    return [
        "test",
        "t/s",
        "read/token",
        "hit",
        "expert hit",
        "waiting",
        "kernel ms/GB",
        "peak RSS",
        "bound by",
    ]


def _cells(result: api.BenchResult) -> dict[str, str]:
    if isinstance(result, api.Refusal):
        return {"test": f"below the floor of {format_size(result.error.floor)}"}
    cpu, experts, hits = result.cpu_seconds_per_gb, result.expert_hit_rate, result.hit_rate
    return {
        "test": result.workload.name,
        "t/s": f"{result.tokens_per_second:.2f} ± {result.deviation:.2f}",
        "read/token": format_size(round(result.bytes_per_token)),
        "hit": "" if hits is None else f"{hits:.1%}",
        "expert hit": "" if experts is None else f"{experts:.1%}",
        "waiting": f"{result.wait_share:.0%}",
        "kernel ms/GB": "" if cpu is None else f"{1e3 * cpu:.0f}",
        "peak RSS": format_size(result.peak_rss),
        "bound by": result.bound_by,
    }


def _budget(setting: api.Setting, result: api.BenchResult) -> str:
    if isinstance(result, api.Measurement):
        return format_size(result.setup.budget)
    return "" if setting.budget is None else format_size(setting.budget)


def _varies(results: Results, name: str) -> bool:
    return len({getattr(setting, name) for setting, _ in results}) > 1
