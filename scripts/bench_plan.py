"""Compares the tokens per second that `plan` predicts with what `bench` measures, at three budgets.

Makes a dense model and a mixture of experts, both synthetic and bf16, in a directory that is removed at the
end; the use of experts is learned from other tokens than those that are measured. In each round and at each
budget drive and processor are clocked before and after the measurement, as `plan --measure` does, since both
drift, and the prediction uses the means. Prints a Markdown section.

    python scripts/bench_plan.py [--directory DIR] [--size 1500MB] [--rounds 3] [--tokens 8]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from conditions import machine_conditions
from make_synthetic import layers_for_size, llama_config, llama_tensors, write_checkpoint
from synthetic_moe import GAINS, moe_config, moe_tensors

from uringinfer import api
from uringinfer.packing.packer import pack
from uringinfer.units import format_rate, format_size, parse_size

SHARES = (0.3, 0.6, 0.9)
"""Budgets, as shares of the weights."""
CLOCK_SECONDS = 1.0
CLOCKED = ("drive", "latency", "compute", "streamed_compute", "expert_compute", "guess", "per_read")
LEARNED_TOKENS = 96
"""Of another seed than those that are measured: what `generate --learn` would have seen."""
TARGET = 0.2


@dataclass
class Case:
    """One model at one budget: in each round, the predicted and the measured tokens per second."""

    model: str
    budget: int
    predicted: list[float] = field(default_factory=list)
    measured: list[float] = field(default_factory=list)
    rates: list[api.Rates] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def run(self, opened: api.OpenModel, tokens: int, before: api.Rates) -> api.Rates:
        """Measures, and predicts from what was clocked `before` and after that -> what was clocked after."""
        bench = api.Bench(opened.container.path, (api.Workload("tg", tokens),), 1)
        setting = api.Setting(budget=self.budget)
        ((_, result),) = api.run_bench(bench, [setting])
        if isinstance(result, api.Refusal):
            raise SystemExit(f"{self.model}: {result.error}")
        after = api.measure_rates(opened, CLOCK_SECONDS)
        rates = api.Rates.from_json(
            after.to_json() | {name: _mean(getattr(before, name), getattr(after, name)) for name in CLOCKED}
        )
        self.predicted.append(predict(opened, self.budget, bench.options(setting), rates))
        self.measured.append(result.tokens_per_second)
        self.waits.append(result.wait_share)
        self.rates.append(rates)
        return after

    @property
    def ratios(self) -> list[float]:
        """Predicted over measured, one figure a round."""
        return [p / m for p, m in zip(self.predicted, self.measured, strict=True)]

    def row(self) -> str:
        """One line of the table: medians, and the range of the ratio."""
        drive, latency, compute, streamed, experts, guess, read = (
            statistics.median(getattr(rates, name) or 0.0 for rates in self.rates) for name in CLOCKED
        )
        ratio = statistics.median(self.ratios)
        spread = f"{min(self.ratios):.2f}-{max(self.ratios):.2f}"
        verdict = "yes" if abs(ratio - 1) <= TARGET else "no"
        return (
            f"| {self.model} | {format_size(self.budget)} | {format_rate(drive)} | {latency * 1e6:.0f} |"
            f" {format_rate(compute)} | {format_rate(streamed)} | {format_rate(experts) if experts else ''} |"
            f" {f'{guess * 1e6:.0f}, {read * 1e6:.0f}' if experts else ''} |"
            f" {statistics.median(self.predicted):.2f} | {statistics.median(self.measured):.2f} |"
            f" {statistics.median(self.waits):.0%} | {ratio:.2f} ({spread}) | {verdict} |"
        )


def predict(opened: api.OpenModel, budget: int, options: api.LoadOptions, rates: api.Rates) -> float:
    """Tokens per second by `uringinfer plan`, in a process as small as the one that is measured."""
    command = [sys.executable, "-m", "uringinfer", "plan", str(opened.container.path), "--json"]
    command += ["--budget", str(budget), "-c", str(options.context), "--chunk", str(options.chunk)]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"rates": rates.to_json()}, file)
        file.flush()
        done = subprocess.run([*command, "--rates", file.name], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    predicted: float = json.loads(done.stdout)["predicted_tokens_per_second"]
    return predicted


def _mean(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else (first + second) / 2


def learn(path: Path) -> api.OpenModel:
    """Decodes some random tokens and keeps what is learned of the experts -> the model, open anew."""
    opened = api.open_model(path)
    with opened.load(api.LoadOptions(context=LEARNED_TOKENS)) as engine:
        session = engine.session()
        for token in np.random.default_rng(1).integers(opened.model.vocab_size, size=LEARNED_TOKENS):
            session.step(int(token))
        engine.learn()
    return api.open_model(path)


def make_models(directory: Path, size: int) -> dict[str, api.OpenModel]:
    """The two models of about `size` bytes each, packed and open."""
    dense = llama_config(layers=layers_for_size(size))
    mixture = moe_config(layers=max(1, size // (32 * 3 * 2 * 512 * 1024)), experts=32)
    opened = {}
    for name, config, tensors, gains in (
        ("dense", dense, llama_tensors(dense), {}),
        ("mixture of experts", mixture, moe_tensors(mixture), GAINS),
    ):
        checkpoint = directory / name.replace(" ", "-")
        write_checkpoint(checkpoint, config, tensors, gains=gains)
        pack(checkpoint, checkpoint.with_suffix(".uring"))
        for file in checkpoint.iterdir():
            file.unlink()
        packed = checkpoint.with_suffix(".uring")
        opened[name] = learn(packed) if "num_experts" in config else api.open_model(packed)
    return opened


def run(models: dict[str, api.OpenModel], rounds: int, tokens: int) -> list[Case]:
    """Every case, in rounds that go through all of them."""
    cases: dict[str, list[Case]] = {}
    for name, opened in models.items():
        weights = opened.container.streamed_bytes + opened.container.bank_bytes
        cases[name] = [Case(name, round(share * weights)) for share in SHARES]
    for _ in range(rounds):
        for name, opened in models.items():
            clocked = api.measure_rates(opened, CLOCK_SECONDS)
            for case in cases[name]:
                clocked = case.run(opened, tokens, clocked)
    return [case for of_model in cases.values() for case in of_model]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--directory", type=Path, help="where the models are made; the system's by default")
    parser.add_argument("--size", type=parse_size, default=1500 * 10**6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="bench-plan-") as directory:
        cases = run(make_models(Path(directory), arguments.size), arguments.rounds, arguments.tokens)
    print("## Predicted and measured\n")
    print(
        f"`python scripts/bench_plan.py`: {machine_conditions()}; models of"
        f" {format_size(arguments.size)}; medians of {arguments.rounds} rounds of {arguments.tokens} decoded"
        f" tokens. The target is a ratio within {TARGET:.0%} of 1.\n"
    )
    print(
        "| model | budget | drive | latency, us | compute | of what was just read | of experts |"
        " a guess, a read: us of processor | predicted t/s | measured t/s | waiting | ratio | within 20 % |"
    )
    print(f"|{'---|' * 13}")
    for case in cases:
        print(case.row())


if __name__ == "__main__":
    main()
