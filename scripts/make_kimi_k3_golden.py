#!/usr/bin/env python
"""Makes tests/models/kimi_k3_golden.npz with a reference that shares no code with this repository.

usage: make_kimi_k3_golden.py REFERENCE

REFERENCE is a Python module of that implementation, in float64 numpy: `Checkpoint(directory)`,
`forward(checkpoint, ids) -> logits [T, vocab]` and `greedy(checkpoint, ids, count) -> (tokens, logits)`. For
every case of tests/models/kimi_k3_cases.py the file holds the logits of its prompt, in float32, and 24 greedy
tokens.
"""

import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "models")]
from kimi_k3_cases import CASES, GREEDY, make, prompt  # noqa: E402


def load(path):
    spec = importlib.util.spec_from_file_location("reference", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main():
    reference = load(sys.argv[1])
    arrays = {}
    for name, (_, mxfp4) in CASES.items():
        if not mxfp4:
            continue  # the reference reads no other experts
        with tempfile.TemporaryDirectory() as directory:
            make(name, Path(directory))
            checkpoint = reference.Checkpoint(directory)
            ids = prompt(name).tolist()
            arrays[f"{name}_logits"] = reference.forward(checkpoint, ids).astype(np.float32)
            tokens, logits = reference.greedy(checkpoint, ids, GREEDY)
        arrays[f"{name}_greedy"] = np.array(tokens)
        best = np.sort(logits, axis=1)
        print(f"{name:16} smallest margin {(best[:, -1] - best[:, -2]).min():.4f}")
    np.savez_compressed(ROOT / "tests" / "models" / "kimi_k3_golden.npz", **arrays)


if __name__ == "__main__":
    main()
