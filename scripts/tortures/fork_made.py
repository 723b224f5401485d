"""What children do with a loaded model: answers to compare, sessions to save and to restore."""

from __future__ import annotations

import zlib
from pathlib import Path

PROMPT = [5, 17, 120, 9, 33, 250, 77, 3, 81, 14]


def answer(path: Path, **options: object) -> str:
    """Everything that a model says about a prompt, as one checksum of the logits and the tokens."""
    import uringinfer

    with uringinfer.load(path, context=64, chunk=4, all_logits=True, **options) as engine:
        logits = engine.session().feed(PROMPT, all_logits=True)
        generated = engine.generate(PROMPT, max_tokens=6, temperature=0.0, ignore_eos=True)
        try:
            ids = engine.tokenize("The capital of France <|im_end|> 1 2 3")
        except uringinfer.UsageError:  # without a tokenizer
            ids = []
    return f"{zlib.crc32(logits.tobytes()):08x} {generated.tokens} {ids}"


def save_session(model: Path, path: Path) -> None:
    """Saves a conversation of a few tokens."""
    import uringinfer

    with uringinfer.load(model, context=64) as engine:
        session = engine.session()
        session.feed(PROMPT)
        session.save(path)


def restore_session(model: Path, path: Path) -> str:
    """Reads a session, and goes on with it; its logits as a checksum."""
    import uringinfer

    with uringinfer.load(model, context=64) as engine:
        session = engine.load_session(path)
        return f"{zlib.crc32(session.feed([7]).tobytes()):08x}"
