"""`uringinfer pack`: a checkpoint to a container."""

from __future__ import annotations

import json
from pathlib import Path

import click

from uringinfer.api import (
    KEEP,
    MAX_JOBS,
    MAX_SEED,
    Manifest,
    PackReport,
    SegmentSize,
    as_segment_size,
    check_asked,
    counted,
    format_rate,
    format_size,
    pack,
    parse_rule,
    partial_path,
    require_source,
)
from uringinfer.cli.error_table import error_table
from uringinfer.cli.progress import progress, quiet_option


def _layer_range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise click.BadParameter(f"'{text}' is no range of layers such as 0-9")
    return int(first), int(last or first)


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--segment",
    type=as_segment_size,
    metavar="SIZE|layer|auto",
    default="auto",
    show_default=True,
    help="Most bytes that are read at once; auto is 64M, or a 64th of a smaller model. 'layer' reads whole"
    " layers.",
)
@click.option(
    "--trunk",
    metavar="FORMAT",
    default=KEEP,
    show_default=True,
    help="Convert the trunk's matrices: bf16, fp8, q8, q4, mxfp4, vq3, ... Embedding and head keep 8 bits.",
)
@click.option(
    "--experts", metavar="FORMAT", default=KEEP, show_default=True, help="Convert the experts' matrices."
)
@click.option(
    "--tensor",
    "tensors",
    multiple=True,
    metavar="REGEX=FORMAT",
    help="Convert the tensors of these names, whatever they are; the last one that fits counts.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, MAX_SEED),
    default=0,
    show_default=True,
    help="Draws the weights that vq3 learns from. The same seed gives the same bytes.",
)
@click.option(
    "--layers",
    type=_layer_range,
    metavar="A-B",
    help="Write the part of these layers only, counted from 0; a pack without it finishes.",
)
@click.option(
    "--reclaim",
    count=True,
    help="Delete the checkpoint's weight files once the container is verified, GGUF in parts one by one;"
    " must be given twice.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, MAX_JOBS),
    help="Threads that read and write. [default: 8, or one for each CPU]",
)
@click.option("--force", is_flag=True, help="Replace OUT, once the new container is whole.")
@click.option(
    "--check-source",
    is_flag=True,
    help="First compare the checkpoint's files with the digests that its download left.",
)
@click.option("--dry-run", is_flag=True, help="Check everything and show the layout; write nothing.")
@quiet_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    checkpoint: Path,
    out: Path,
    segment: SegmentSize,
    trunk: str,
    experts: str,
    tensors: tuple[str, ...],
    seed: int,
    layers: tuple[int, int] | None,
    reclaim: int,
    jobs: int | None,
    force: bool,
    check_source: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Pack CHECKPOINT into the container OUT, in the order in which tokens use it.

    CHECKPOINT is a Hugging Face directory (safetensors) or a GGUF file of the llama family, which is only
    read. It is checked as a whole before anything is written. Interrupted, the same command continues.

    \b
    Examples:
      uringinfer pack Llama-3.2-1B llama.uring
      uringinfer pack SmolLM2.gguf smol.uring --segment 8M
      uringinfer pack Llama-3.2-1B llama.uring --dry-run
      uringinfer pack Kimi-K3 k3.uring --layers 0-30
      uringinfer pack Qwen3-30B-A3B q.uring --trunk q8 --experts q4
      uringinfer pack Qwen3-30B-A3B q.uring --experts vq3
    """
    reclaims = check_asked(reclaim)
    rules = [parse_rule(rule) for rule in tensors]
    if check_source:
        with progress(wanted=not quiet) as report:
            checked = require_source(
                checkpoint,
                None if report is None else lambda done, total: report("checking the source", done, total),
            )
        unknown = f"; of {checked.unknown} others none is known" if checked.unknown else ""
        click.echo(
            f"{counted(checked.checked, 'file')}, {format_size(checked.nbytes)}, as published{unknown}",
            err=True,
        )
    try:
        with progress(wanted=not quiet) as report:
            result = pack(
                checkpoint,
                out,
                segment=segment,
                trunk=trunk,
                experts=experts,
                tensors=rules,
                seed=seed,
                jobs=jobs,
                force=force,
                dry_run=dry_run,
                layers=layers,
                reclaim_checkpoint=reclaims,
                progress=None if report is None else lambda done, total: report("packing", done, total),
            )
    except KeyboardInterrupt:
        if partial_path(out).is_dir():
            click.echo(f"kept in {partial_path(out)}: run the same command again to continue", err=True)
        raise
    for note in result.notes:
        click.echo(f"note: {note}", err=True)
    if as_json:
        document = result.to_dict()
        if dry_run:
            document["layout"] = _layout(result.manifest)
        click.echo(json.dumps(document, indent=1))
    else:
        _show(result)


def _layout(manifest: Manifest) -> list[dict[str, object]]:
    return [
        {
            "segment": segment.name,
            "nbytes": segment.nbytes,
            "streamed": segment.streamed,
            "tensors": [
                {"name": part.name, "format": part.format.name, "rows": [part.row_start, part.row_stop]}
                for part in segment.parts
            ],
        }
        for segment in manifest.segments
    ]


def _show(result: PackReport) -> None:
    if result.dry_run:
        for segment in result.manifest.segments:
            parts = ", ".join(
                part.name
                if part.rows == (part.shape[0] if part.shape else 1)
                else f"{part.name}[{part.row_start}:{part.row_stop}]"
                for part in segment.parts
            )
            click.echo(f"{segment.name:<16} {format_size(segment.nbytes):>12}  {parts}")
        for bank in result.manifest.banks:
            size = format_size(bank.record_bytes)
            click.echo(f"{bank.file:<16} {size:>12}  x {bank.num_experts} experts of layer {bank.layer}")
    bound = "a layer" if result.segment_bytes is None else f"at most {format_size(result.segment_bytes)}"
    what = f"{result.family}, {format_size(result.nbytes)} in {result.segments} segments of {bound}"
    if result.banks:
        what += f" and {result.banks} banks"
    if result.dry_run:
        formats = ", ".join(f"{name} {format_size(nbytes)}" for name, nbytes in result.formats.items())
        click.echo(f"would pack {what} into {result.path}: {formats}")
        return
    if not result.complete:
        done = format_size(result.written_bytes + result.resumed_bytes)
        click.echo(f"{done} of {what} are in {partial_path(Path(result.path))}: pack again for the rest")
        return
    if result.errors:
        click.echo(error_table(result.errors))
    if result.reclaimed_bytes:
        click.echo(f"deleted the checkpoint's weights: {format_size(result.reclaimed_bytes)} given back")
    rate = format_rate(result.nbytes / max(result.seconds, 1e-9))
    kept = f", {format_size(result.resumed_bytes)} kept of an earlier run" if result.resumed_bytes else ""
    click.echo(f"packed {what} into {result.path}: {result.seconds:.1f} s, {rate}{kept}")
