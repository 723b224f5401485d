"""`uringinfer plan`: where the memory of a budget goes, and how fast that would be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from uringinfer import api
from uringinfer.api import (
    BudgetError,
    SegmentSize,
    UsageError,
    as_segment_size,
    format_size,
    parse_rate,
    parse_size,
    read_regular,
)
from uringinfer.cli import shared
from uringinfer.cli.plot import new_figure, plot_option, save_figure
from uringinfer.cli.progress import progress, quiet_option
from uringinfer.cli.table import format_table

SCHEMA_VERSION = 2
SWEEP_STEPS = 12
_GIB = 1 << 30


def _sweep_range(text: str) -> list[int]:
    """ "2G:64G" -> budgets from the one to the other, each larger than the last by the same factor."""
    bounds = text.split(":")
    if len(bounds) != 2:
        raise UsageError(f"'{text}' is no range of budgets", hint="write it as 2G:64G")
    low, high = (parse_size(bound) for bound in bounds)
    if not 0 < low < high:
        raise UsageError(f"the range {text} does not rise", hint="write it as 2G:64G")
    factor = (high / low) ** (1 / (SWEEP_STEPS - 1))
    return [*(round(low * factor**step) for step in range(SWEEP_STEPS - 1)), high]


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@shared.budget
@shared.preset
@shared.trunk_budget
@shared.cache_budget
@click.option(
    "--segment",
    type=as_segment_size,
    metavar="SIZE|layer|auto",
    help="Plan a checkpoint as `pack --segment` would lay it out.  [default: auto]",
)
@click.option("--sweep", "budgets", type=_sweep_range, metavar="A:B", help="Budgets from A to B, as 2G:64G.")
@shared.placement
@shared.ring_slots
@click.option(
    "-c",
    "--context",
    type=click.IntRange(1),
    help="Tokens of the conversation; 4096 unless given (generate takes what prompt and -n need).",
)
@shared.chunk(api.DEFAULT_CHUNK)
@click.option(
    "--parallel",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Conversations with room at once, each of the context.",
)
@click.option("--drive", type=parse_rate, metavar="RATE", help="The drive's rate, such as 2.0GB/s.")
@click.option(
    "--compute", type=parse_rate, metavar="RATE", help="What a pass works off in memory, such as 20GB/s."
)
@click.option(
    "--expert-compute",
    type=parse_rate,
    metavar="RATE",
    help="The same for routed experts.  [default: that of --compute]",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Clock drive and passes on MODEL: two seconds each; passes with experts, four.",
)
@click.option(
    "--rates",
    "rates_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The rates in the JSON of an earlier `plan --measure --json`.",
)
@plot_option("Draw the sweep")
@quiet_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    model: Path,
    budget: int | None,
    preset: str | None,
    trunk_budget: int | None,
    cache_budget: int | None,
    segment: SegmentSize | None,
    budgets: list[int] | None,
    placement: api.Placement,
    ring_slots: int,
    context: int | None,
    chunk: int,
    parallel: int,
    drive: float | None,
    compute: float | None,
    expert_compute: float | None,
    measure: bool,
    rates_path: Path | None,
    plot: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Show where the memory of a budget would go: pinned weights, ring, conversation, scratch, interpreter.

    Nothing is loaded; a checkpoint that is not packed yet is planned as it would be packed. The share of
    weights that is pinned, and so what is read for each token, is certain, not expected. With a drive's rate,
    given or measured, it predicts tokens per second. A budget below the
    model's floor exits with 5 and both numbers.

    \b
    Examples:
      uringinfer plan model.uring --budget 500M
      uringinfer plan model.uring --budget 8G --drive 3.5GB/s
      uringinfer plan model.uring --measure --json
      uringinfer plan Kimi-K3 --preset desktop --segment layer
      uringinfer plan model.uring --sweep 2G:64G --measure --plot sweep.png
      uringinfer plan model.uring --budget 4G --rates plan.json
    """
    given = (drive, compute, expert_compute)
    _refuse_conflicts(budget, preset, budgets, plot, measure=measure, rates=given, rates_path=rates_path)
    if expert_compute is not None and compute is None:
        raise UsageError("--expert-compute needs the rate of the rest", hint="give --compute as well")
    trunk_budget, cache_budget = shared.preset_budgets(preset, trunk_budget, cache_budget)
    options = api.LoadOptions(
        budget=budget,
        context=context,
        parallel=parallel,
        chunk=chunk,
        placement=placement,
        ring_slots=ring_slots,
        trunk_budget=trunk_budget,
        cache_budget=cache_budget,
    )
    opened = api.open_to_plan(model, segment)
    if measure and not opened.is_packed:
        raise UsageError(f"{model} is not packed, so nothing can be clocked on it", hint="give --drive")
    if measure:
        # what cannot be is told before anything is clocked; a sweep has no one budget that could be too small
        if budgets is None:
            api.outlook_of(opened, options, api.Rates())
        else:
            opened.context(options)
        with progress(unit_is_bytes=False, wanted=not quiet) as report_progress:
            rates = api.measure_rates(opened, progress=report_progress, budget=budget)
    elif rates_path is not None:
        rates = _read_rates(rates_path)
    else:
        rates = api.Rates(drive, compute, expert_compute)
        if drive is None and (saved := api.saved_rate(opened.container.path)) is not None:
            rates = saved.completing(rates)
    if budgets is None:
        outlook = api.outlook_of(opened, options, rates)
        choices = api.choices_of(opened, options)
        if as_json:
            found = {"choices": [choice.to_json() for choice in choices]}
            click.echo(json.dumps(_head(opened, options) | outlook.to_json() | found, indent=1))
        else:
            parts = (
                _text(opened, options, outlook),
                _assumptions_text([outlook]),
                _choices_text(choices, outlook),
            )
            click.echo("\n\n".join(filter(None, parts)))
        return
    outlooks = api.sweep(opened, options, rates, budgets)
    if plot is not None:
        _draw(plot, outlooks)
    if as_json:
        points = [_point(given, outlook) for given, outlook in zip(budgets, outlooks, strict=True)]
        swept = {"rates": rates.to_json(), "sweep": points}
        click.echo(json.dumps(_head(opened, options) | swept, indent=1))
    else:
        fitting = [outlook for outlook in outlooks if isinstance(outlook, api.Outlook)]
        click.echo("\n\n".join(filter(None, (_sweep_text(budgets, outlooks), _assumptions_text(fitting)))))


def _read_rates(path: Path) -> api.Rates:
    try:
        found = json.loads(read_regular(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="give a file that can be read") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: no JSON ({error})", hint="give the output of 'plan --json'") from None
    return api.Rates.from_json(found.get("rates") if isinstance(found, dict) else None)


def _refuse_conflicts(
    *sources: object, measure: bool, rates: Sequence[float | None], rates_path: Path | None
) -> None:
    budget, preset, budgets, plot = sources
    if sum(source is not None for source in (budget, preset, budgets)) > 1:
        raise UsageError("--budget, --preset and --sweep exclude each other", hint="give one of them")
    if measure + (rates_path is not None) + any(rate is not None for rate in rates) > 1:
        raise UsageError("--measure, --rates and a given rate exclude each other", hint="give one of them")
    if plot is not None and budgets is None:
        raise UsageError("--plot draws a sweep", hint="give --sweep 2G:64G as well")


def _head(opened: api.OpenModel, options: api.LoadOptions) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "model": str(opened.container.path),
        "family": opened.model.family,
        "context": opened.context(options),
    }


def _text(opened: api.OpenModel, options: api.LoadOptions, outlook: api.Outlook) -> str:
    plan, trunk = outlook.plan, outlook.plan.trunk
    rows = [[row.name, format_size(row.nbytes), row.note] for row in plan.rows()]
    rows.append(["budget", format_size(plan.budget), "all of it"])
    facts = [
        ["pinned", f"{trunk.pinned_count} of {trunk.unit_count} units, {trunk.placement} placement"],
        ["layers", f"{outlook.pinned_layers} of {outlook.layers} pinned whole, {_share(outlook):.1%}"],
        ["hit rate", f"{trunk.hit_rate:.1%} of the bytes of every token, without exception"],
        ["read per token", format_size(plan.bytes_per_token)],
        [
            "reads",
            "overlap compute" if trunk.overlaps else "do not overlap compute: one slot only",
        ],
        ["floor", f"{format_size(plan.floor)}; reads overlap from {format_size(plan.overlap_floor)}"],
        ["all in memory", f"from {format_size(plan.everything)}"],
        ["default", _default(outlook)],
        ["tokens/s", _prediction(outlook)],
    ]
    lines = [
        f"{opened.container.path}: {opened.model.family}, a context of {opened.context(options)} tokens;"
        f" a token uses {format_size(trunk.total_bytes)}",
        "",
        format_table(["", "", ""], rows, align="<><"),
        "",
        format_table(["", ""], facts, align="<<"),
    ]
    if outlook.exceeds_memory:
        lines += ["", f"warning: {_excess(outlook)}"]
    lines += [f"note: {note}" for note in outlook.machine.neighbour_notes]
    return "\n".join(lines)


def _choices_text(choices: Sequence[api.Choice], outlook: api.Outlook) -> str:
    """The same memory with every cut of the segments and both placements; a star marks what was planned."""
    rows = []
    for choice in choices:
        chosen = choice.cut == choices[0].cut and choice.placement == outlook.plan.trunk.placement
        row = ["*" if chosen else "", choice.cut, choice.placement]
        if choice.plan is None:
            rows.append([*row, "needs more memory", "", "", ""])
            continue
        trunk = choice.plan.trunk
        share = choice.pinned_layers / outlook.layers
        rows.append(
            [
                *row,
                f"{choice.pinned_layers} of {outlook.layers}, {share:.1%}",
                f"{trunk.hit_rate:.1%}",
                f"{trunk.ring_slots} x {format_size(trunk.slot_bytes)}" if trunk.ring_slots else "none",
                format_size(choice.plan.bytes_per_token),
            ]
        )
    header = ["", "segments", "placement", "layers pinned", "of the bytes", "ring", "read/token"]
    return format_table(header, rows, align="<<<>>>>")


def _share(outlook: api.Outlook) -> float:
    return outlook.pinned_layers / outlook.layers


def _default(outlook: api.Outlook) -> str:
    machine = outlook.machine
    grants = f"{format_size(machine.usable_bytes)} usable, bound by {machine.bounded_by}"
    if outlook.default_budget is None:
        return f"none: this model does not fit here ({grants})"
    return f"{format_size(outlook.default_budget)} ({grants})"


def _prediction(outlook: api.Outlook) -> str:
    if outlook.rates.drive is None:
        return "unknown: give --drive or --measure"
    speed = outlook.tokens_per_second
    if speed is None:
        return "nothing is read: only compute bounds it"
    return f"{'at most' if outlook.rates.compute is None else 'about'} {speed:.2f}"


def _assumptions_text(outlooks: Sequence[api.Outlook]) -> str:
    """What the predictions rest on, as far as it is the same for all; empty without any."""
    known = [outlook.assumptions for outlook in outlooks]
    shared = [found for found in known[0] if all(found in others for others in known)] if known else []
    rows = [[found.what, found.value, found.origin] for found in shared]
    return format_table(["tokens/s rest on", "", ""], rows, align="<><") if rows else ""


def _excess(outlook: api.Outlook) -> str:
    machine = outlook.machine
    return (
        f"this takes {format_size(outlook.plan.used_bytes)} and this process may use"
        f" {format_size(machine.usable_bytes)} ({machine.bounded_by}); beyond that, hits become page faults"
    )


def _point(budget: int, outlook: api.Outlook | BudgetError) -> dict[str, Any]:
    if isinstance(outlook, BudgetError):
        return {"budget": budget, "fits": False, "floor": outlook.floor}
    trunk = outlook.plan.trunk
    return {
        "budget": budget,
        "fits": True,
        "pinned_count": trunk.pinned_count,
        "hit_rate": trunk.hit_rate,
        "overlaps": trunk.overlaps,
        "bytes_per_token": outlook.plan.bytes_per_token,
        "predicted_tokens_per_second": outlook.tokens_per_second,
        "exceeds_memory": outlook.exceeds_memory,
    }


def _sweep_text(budgets: Sequence[int], outlooks: Sequence[api.Outlook | BudgetError]) -> str:
    rows = []
    for budget, outlook in zip(budgets, outlooks, strict=True):
        if isinstance(outlook, BudgetError):
            rows.append([format_size(budget), "", "", "", f"below the floor of {format_size(outlook.floor)}"])
            continue
        speed = outlook.tokens_per_second
        remarks = [] if outlook.plan.trunk.overlaps else ["reads do not overlap"]
        remarks += ["beyond this machine's memory"] if outlook.exceeds_memory else []
        rows.append(
            [
                format_size(budget),
                f"{outlook.plan.trunk.hit_rate:.1%}",
                format_size(outlook.plan.bytes_per_token),
                "" if speed is None else f"{speed:.2f}",
                ", ".join(remarks),
            ]
        )
    return format_table(["budget", "pinned", "read/token", "tokens/s", ""], rows, align=">>>><")


def _draw(path: Path, outlooks: Sequence[api.Outlook | BudgetError]) -> None:
    shown = [outlook for outlook in outlooks if isinstance(outlook, api.Outlook)]
    if not shown:
        raise UsageError("every budget of the sweep is below the model's floor", hint="sweep larger budgets")
    budgets = [outlook.plan.budget / _GIB for outlook in shown]
    speeds = [outlook.tokens_per_second for outlook in shown]
    is_predicted = any(speed is not None for speed in speeds)
    figure, panels = new_figure(2 if is_predicted else 1)
    panels[0].plot(budgets, [100 * outlook.plan.trunk.hit_rate for outlook in shown], marker="o")
    panels[0].set(ylabel="pinned, %", ylim=(0, 105), title="What a budget gives")
    if is_predicted:
        known = [(x, y) for x, y in zip(budgets, speeds, strict=True) if y is not None]
        panels[1].plot([x for x, _ in known], [y for _, y in known], marker="o", color="tab:green")
        panels[1].set(ylabel="tokens/s, predicted", ylim=(0, 1.1 * max(y for _, y in known)))
    usable = shown[0].machine.usable_bytes / _GIB
    for panel in panels:
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.grid(alpha=0.3)
        if budgets[-1] > usable:
            panel.axvspan(usable, budgets[-1], color="tab:red", alpha=0.1, label="paging: more than memory")
            panel.legend()
    panels[-1].set_xlabel("budget, GiB")
    save_figure(figure, path)
