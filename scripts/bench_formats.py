"""Measures what weight formats cost and save: on a real model and a real text, and on a mixture of experts.

`text` packs MODEL once for each format of its trunk and scores TEXT with each container and with a bf16 one:
perplexity, Kullback-Leibler divergence from bf16, and how often both have the same likeliest token. Embedding
and head keep at least 8 bits. Divergence is the figure to look at: a few windows say much about it and little
about perplexity.

`experts` makes the synthetic mixture of experts of bench_moe.py, packs it as it is and with smaller experts,
and decodes with both under one budget, in turns: tokens per second and bytes read per token.

Each prints a section of docs/benchmarks.md. Containers are made below the current directory and removed.

    python scripts/bench_formats.py text MODEL TEXT [--formats q8,q4,...] [--windows 4]
    python scripts/bench_formats.py experts [--format vq3] [--percent 20] [--rounds 3]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench_moe import MODEL, TABLE_HEAD, Case, model_bytes, prepare, ratio
from conditions import machine_conditions

from uringinfer import api
from uringinfer.container import Container
from uringinfer.container.summary import summarise
from uringinfer.kernels.formats import FORMATS
from uringinfer.packing.recipe import KEEP
from uringinfer.units import format_size

REFERENCE = "bf16"
TRUNKS = ("q8", "q8_g32", "fp8", "q4_g32", "q4", "mxfp4", "vq3")
SMALLEST = ("vq3", "q4")
"""What experts are packed as, the first that this version has."""


def bytes_per_weight(path: Path) -> float:
    summary = summarise(Container.open(path))
    return sum(summary.formats.values()) / summary.parameters


def trunk_errors(report: api.PackReport) -> tuple[float, float]:
    """Mean and worst relative error of the layers' matrices."""
    errors = [error for error in report.errors if error.kind not in ("lm_head", "embed_tokens")]
    count = sum(error.tensors for error in errors)
    return sum(error.mean * error.tensors for error in errors) / count, max(e.worst for e in errors)


@contextlib.contextmanager
def loaded(path: Path, context: int) -> Iterator[tuple[api.Engine, api.Tokenizer]]:
    """An engine that holds the whole model and gives the logits of every position."""
    opened = api.open_model(path)
    budget = model_bytes(opened.container) * 2 + (1 << 30)
    options = api.LoadOptions(budget=budget, context=context, chunk=min(256, context), all_logits=True)
    with opened.load(options) as engine:
        yield engine, opened.prompter.need_tokenizer()


def score(
    path: Path, reference: api.Engine, text: str, context: int, windows: int
) -> tuple[api.PerplexityResult, int]:
    """The container's predictions beside the reference's, and the number of the text's tokens."""
    with loaded(path, context) as (engine, tokenizer):
        ids = tokenizer.encode(text, add_bos=False)
        *_, result = api.measure_perplexity(
            engine,
            ids,
            context=context,
            bos_id=tokenizer.bos_id if tokenizer.adds_bos else None,
            max_windows=windows,
            reference=reference,
        )
    return result, len(ids)


def measure_text(model: Path, text: Path, formats: Sequence[str], context: int, windows: int) -> None:
    content = text.read_text(encoding="utf-8")
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-formats-", dir=".") as temporary:
        directory = Path(temporary)
        api.pack(model, directory / REFERENCE, trunk=REFERENCE)
        with loaded(directory / REFERENCE, context) as (reference, _):
            for name in formats:
                report = api.pack(model, directory / name, trunk=name)
                result, tokens = score(directory / name, reference, content, context, windows)
                if not rows:
                    first = result.comparison.reference_perplexity
                    rows.append(
                        f"| `{REFERENCE}` | {bytes_per_weight(directory / REFERENCE):.3f} | - |"
                        f" {first:.2f} | 0 | 100 % |"
                    )
                mean, worst = trunk_errors(report)
                compared = result.comparison
                rows.append(
                    f"| `{name}` | {bytes_per_weight(directory / name):.3f} | {mean:.2%} ({worst:.2%}) |"
                    f" {result.perplexity:.2f} | {compared.mean_divergence:.4f} ±"
                    f" {compared.divergence_error:.4f} | {compared.agreement:.1%} |"
                )
    print("## Formats")
    print()
    print(
        f"{machine_conditions()}; {model.name}, trunk in each format, embedding and head with at least 8"
        f" bits; {text.name}, {tokens} tokens, of which {len(result.losses)} in {result.windows} windows of"
        f" {context} are scored; divergence from {REFERENCE}"
    )
    print()
    print("| trunk | bytes per weight | error, mean (worst) | perplexity | divergence, nats | same top-1 |")
    print("|---|---|---|---|---|---|")
    print("\n".join(rows))


def measure_experts(directory: Path, name: str, percent: int, rounds: int, tokens: int) -> None:
    kept, small = prepare(directory, (KEEP, name))
    budget = model_bytes(kept) * percent // 100
    before = Case("bf16 experts", budget, tokens=tokens)
    after = Case(f"{name} experts", budget, tokens=tokens)
    for _ in range(rounds):
        before.run(kept)
        after.run(small)
    read = [case.median("decode", "bytes_per_token") for case in (after, before)]
    records = [container.manifest.banks[0].record_bytes for container in (small, kept)]
    rates = [statistics.median(case.rates) for case in (after, before)]
    print(f"## Experts in {name}")
    print()
    print(
        f"{machine_conditions()}; {MODEL['layers']} layers of {MODEL['experts']} experts,"
        f" {MODEL['per_token']} per token, {format_size(model_bytes(kept))} of bf16; budget {percent} % of"
        f" that; {rounds} rounds of {tokens} tokens"
    )
    print()
    print(TABLE_HEAD)
    print(before.row())
    print(after.row())
    print()
    print(ratio(after, before))
    print(
        f"- a record takes {records[0] / records[1]:.3f} of the bytes, the model"
        f" {model_bytes(small) / model_bytes(kept):.3f}, a token reads {read[0] / read[1]:.3f} of them"
    )
    print(f"- the reader alone, at {rates[0] / rates[1]:.2f} of the rate with records of that size")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    text = parts.add_parser("text", help="perplexity of a model's trunk in each format")
    text.add_argument("model", type=Path, help="a GGUF file or a Hugging Face directory")
    text.add_argument("text", type=Path)
    text.add_argument("--formats", default=",".join(name for name in TRUNKS if name in FORMATS))
    text.add_argument("--context", type=int, default=512)
    text.add_argument("--windows", type=int, default=4)
    experts = parts.add_parser("experts", help="a mixture of experts, kept and with smaller experts")
    experts.add_argument("--format", default=next(name for name in SMALLEST if name in FORMATS))
    experts.add_argument("--percent", type=int, default=20)
    experts.add_argument("--rounds", type=int, default=3)
    experts.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args()
    if options.part == "text":
        formats = options.formats.split(",")
        measure_text(options.model, options.text, formats, options.context, options.windows)
        return
    with tempfile.TemporaryDirectory(prefix="bench-formats-", dir=".") as temporary:
        measure_experts(Path(temporary), options.format, options.percent, options.rounds, options.tokens)


if __name__ == "__main__":
    sys.exit(main())
