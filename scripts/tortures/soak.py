"""One engine for a long time: random prompts, cancels, sessions saved, loaded and dropped. Memory stays flat,
descriptors and threads constant, and a question asked again has the same answer."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tortures.common import forked, import_everything, make_models, random_of

SLACK = 4 << 20
"""Bytes by which memory may grow once a tenth of the time is over."""
_SAMPLES = 100


def prepare(directory: Path, minutes: float = 60) -> dict[str, Any]:
    import_everything()
    return {**make_models(directory), "seconds": 60 * minutes}


def run(made: dict[str, Any], number: int, seed: int) -> str | None:
    name = ("moe", "dense")[number % 2]
    seconds = made["seconds"]
    outcome = forked(lambda: _soak(made[name], seconds, random_of(seed, "soak", number)), 2 * seconds + 120)
    if outcome.kind != "returned":
        return f"{name}: {outcome.kind}: {outcome.error}"
    print(f"{name}: {outcome.result['said']}")
    return outcome.result["problem"]


def _soak(model: Path, seconds: float, rng: random.Random) -> dict[str, str | None]:
    import uringinfer

    with uringinfer.load(model, context=256, chunk=16, cache_policy="lru") as engine:
        vocabulary = engine.model.vocab_size
        expected: dict[int, list[int]] = {}
        samples: list[tuple[int, int, int]] = []
        turns = cancelled = 0
        began = time.monotonic()
        while (gone := time.monotonic() - began) < seconds:
            if gone >= seconds * len(samples) / _SAMPLES:
                samples.append(_sample())
            question = rng.randrange(50)
            prompt = [random.Random(question * 1000 + n).randrange(vocabulary) for n in range(4 + question)]
            timer = None
            if rng.random() < 0.3:
                timer = threading.Timer(rng.random() * 0.02, engine.interrupt)
                timer.start()
            generation = engine.generate(prompt, max_tokens=12, temperature=0.0, ignore_eos=True)
            if timer is not None:
                timer.join()
            turns += 1
            if generation.finish_reason == "interrupted":
                cancelled += 1
            elif expected.setdefault(question, generation.tokens) != generation.tokens:
                return {"problem": f"question {question} was answered otherwise", "said": ""}
            if timer is None and rng.random() < 0.1:  # an interrupt that came late would meet the next call
                _through_a_file(engine, prompt)
        samples.append(_sample())
    warm = samples[len(samples) // 10 :]
    grown = max(sample[0] for sample in warm) - warm[0][0]
    said = (
        f"{turns} turns, {cancelled} cancelled, memory grew by {grown >> 10} KiB, "
        f"descriptors {warm[0][1]} to {warm[-1][1]}, threads {warm[0][2]} to {warm[-1][2]}"
    )
    is_flat = grown <= SLACK and warm[0][1:] == warm[-1][1:]
    return {"problem": None if is_flat else said, "said": said}


def _through_a_file(engine: Any, prompt: list[int]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        session = engine.session()
        session.feed(prompt)
        session.save(Path(scratch) / "session")
        other = engine.load_session(Path(scratch) / "session")
        if other.feed([1]).tobytes() != session.feed([1]).tobytes():
            raise RuntimeError("a session that went through a file goes on otherwise")


def _sample() -> tuple[int, int, int]:
    """Resident bytes, descriptors, threads of this process."""
    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return int(fields["VmRSS"].split()[0]) << 10, descriptors, int(fields["Threads"])
