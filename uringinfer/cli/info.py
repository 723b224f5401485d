"""`uringinfer info`: what a container holds."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from uringinfer.api import (
    Container,
    GroupSummary,
    Summary,
    TensorSummary,
    format_size,
    groups,
    model_from_config,
    summarise,
    tensors,
)
from uringinfer.cli.error_table import error_table


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--layers", "with_layers", is_flag=True, help="Also one line for each layer.")
@click.option("--tensors", "with_tensors", is_flag=True, help="Also one line for each tensor.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model: Path, with_layers: bool, with_tensors: bool, as_json: bool) -> None:
    """Show the architecture, sizes, segments and formats of the container MODEL.

    Only the manifest is read.

    \b
    Examples:
      uringinfer info model.uring
      uringinfer info model.uring --layers
      uringinfer info model.uring --tensors --json
    """
    container = Container.open(model)
    summary = summarise(container, model_from_config(container.manifest.config).experts_per_token)
    if as_json:
        document = summary.to_dict()
        if with_layers:
            document["layers"] = [asdict(group) for group in groups(container)]
        if with_tensors:
            document["tensors"] = [asdict(tensor) for tensor in tensors(container)]
        click.echo(json.dumps(document, indent=1))
        return
    for line in _summary_lines(summary):
        click.echo(line)
    if summary.errors:
        click.echo()
        click.echo(error_table(summary.errors))
    if with_layers:
        click.echo()
        for group in groups(container):
            click.echo(_group_line(group))
    if with_tensors:
        click.echo()
        for tensor in tensors(container):
            click.echo(_tensor_line(tensor))


def _count(number: int) -> str:
    return f"{number / 1e9:.2f} billion" if number >= 10**9 else f"{number / 1e6:.1f} million"


def _summary_lines(summary: Summary) -> list[str]:
    source = summary.source
    lines = [
        ("model", f"{summary.family}, {_count(summary.parameters)} parameters"),
        ("source", f"{source.get('kind', '?')} {source.get('name', '')}"),
        ("size", format_size(summary.nbytes)),
        ("streamed", f"{format_size(summary.streamed_bytes)}, read in each pass unless pinned"),
        ("tables", f"{format_size(summary.table_bytes)}, rows read on demand"),
        (
            "segments",
            f"{summary.segments}, at most {format_size(summary.largest_segment_bytes)} when streamed",
        ),
    ]
    if summary.banks:
        lines.append(
            (
                "experts",
                f"{summary.experts} in {summary.banks} layers, {format_size(summary.bank_bytes)}; each"
                f" token uses {summary.experts_per_token} a layer, at most"
                f" {format_size(summary.largest_record_bytes)} each",
            )
        )
    total = sum(summary.formats.values()) or 1
    formats = ", ".join(
        f"{name} {format_size(nbytes)} ({nbytes / total:.1%})" for name, nbytes in summary.formats.items()
    )
    lines.append(("formats", formats))
    lines.append(("per token", f"{format_size(summary.bytes_per_token)} read when nothing is in memory"))
    return [f"{name:<10} {text}" for name, text in lines]


def _group_line(group: GroupSummary) -> str:
    counts = f"{group.segments:>3} segments  {group.tensors:>3} tensors"
    line = f"{group.name:<14} {format_size(group.nbytes):>12}  {counts}"
    if not group.streamed:
        line += "  on demand"
    if group.experts:
        line += f"  {group.experts} experts of {format_size(group.record_bytes)}"
    return line


def _tensor_line(tensor: TensorSummary) -> str:
    shape = "x".join(map(str, tensor.shape)) or "1"
    size = format_size(tensor.nbytes)
    panels = f" ({tensor.panels} panels)" if tensor.panels > 1 else ""
    return f"{tensor.name:<44} {tensor.format:<6} {shape:>14} {size:>12}  {tensor.where}{panels}"
