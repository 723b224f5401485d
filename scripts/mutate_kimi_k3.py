#!/usr/bin/env python
"""Shows that the tests of Kimi K3 tell it from plausible mistakes.

usage: mutate_kimi_k3.py

Each mutation puts one mistake into the oracle (tests/models/kimi_k3_oracle.py) and runs it on the checkpoints
that the tests use. A mistake is detected if the logits of some checkpoint move by more than the tests
tolerate: an engine that made it would fail there. Exit code 1 if any is not. Shown: the largest change
relative to the largest logit, and the checkpoint where it is largest.
"""

import sys
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "models")]
import kimi_k3_oracle as oracle  # noqa: E402
from kimi_k3_cases import CASES, make, prompt  # noqa: E402

TOLERANCE = 1e-5
"""That of tests/models/test_kimi_k3.py."""

MUTATIONS = {
    # MXFP4
    "nibbles swapped": (
        "codes[:, 0::2] = packed & 15\n    codes[:, 1::2] = packed >> 4",
        "codes[:, 1::2] = packed & 15\n    codes[:, 0::2] = packed >> 4",
    ),
    "scale bias 126": ("scale.astype(np.int64) - 127", "scale.astype(np.int64) - 126"),
    "scales read column by column": ("factors[:, :, None]", "factors.T.reshape(factors.shape)[:, :, None]"),
    "codes 4 and 6 off by one": ("3, 4, 6])", "3, 5, 7])"),
    # router
    "router's bias ignored": ('ranked = scores + w["e_score_correction_bias"]', "ranked = scores"),
    "weights from biased scores": ("share = scores[chosen]", "share = ranked[chosen]"),
    "no renormalisation": ('if config["moe_renormalize"] and', "if False and"),
    "routed_scaling_factor ignored": ('config["routed_scaling_factor"] * share', "share"),
    "softmax instead of sigmoid": ('scores = sigmoid(w["weight"] @ x)', 'scores = softmax(w["weight"] @ x)'),
    # experts
    "no latent norm": ('if config["latent_moe_use_norm"]:', "if False:"),
    "latent norm for each expert": (
        'share * expert(z, w.below(f"experts.{number}"), config)',
        'share * rms(expert(z, w.below(f"experts.{number}"), config), w["routed_expert_norm"]'
        ' if config["latent_moe_use_norm"] else 1.0, config["rms_norm_eps"])',
    ),
    "w1 and w3 exchanged": (
        'gate, up = w.expert_matrix("w1") @ z, w.expert_matrix("w3") @ z',
        'up, gate = w.expert_matrix("w1") @ z, w.expert_matrix("w3") @ z',
    ),
    "no shared experts": ('return y + mlp(x, w.below("shared_experts"), config)', "return y"),
    # SiTU
    "sigmoid of the capped gate": ("capped_gate * sigmoid(gate)", "capped_gate * sigmoid(capped_gate)"),
    "gate not capped": ("capped_gate = beta * np.tanh(gate / beta)", "capped_gate = gate"),
    "up not capped": ("capped_up = linear * np.tanh(up / linear)", "capped_up = up"),
    # latent attention
    "no MLA output gate": ('if config["mla_use_output_gate"]:', "if False:"),
    "rope part dropped": (" + shared[seen] @ q[t, h, nope:]", ""),
    "scale from the nope part": ("np.sqrt(nope + rope)", "np.sqrt(nope)"),
    "MLA eps 1e-6": ("latent_eps = latent_eps or eps", "latent_eps = latent_eps or 1e-6"),
    "rope key normed too": ("both[:, rank:]\n", "rms(both[:, rank:], 1.0, eps)\n"),
    "value before key": (
        "pairs[:, h, :nope], pairs[:, h, nope:]",
        "pairs[:, h, size:], pairs[:, h, :size]",
    ),
    "heads interleaved in kv_b": (
        ".reshape(len(x), heads, nope + size)",
        ".reshape(len(x), nope + size, heads).swapaxes(1, 2)",
    ),
    "not causal": ("seen = slice(0, t + 1)", "seen = slice(None)"),
    # delta attention
    "L2 norm with the mean": ("np.sum(x * x, axis=-1", "np.mean(x * x, axis=-1"),
    "query not scaled": ('unit(mixed("q")) / np.sqrt(size)', 'unit(mixed("q"))'),
    "output from the old state": (
        "            state = state + np.outer(k[t, h], beta[t, h] * wrong)\n"
        "            y[t, h] = q[t, h] @ state\n",
        "            y[t, h] = q[t, h] @ state\n"
        "            state = state + np.outer(k[t, h], beta[t, h] * wrong)\n",
    ),
    "error before the decay": (
        "            state = decay[t, h][:, None] * state\n            wrong = v[t, h] - k[t, h] @ state",
        "            wrong = v[t, h] - k[t, h] @ state\n            state = decay[t, h][:, None] * state",
    ),
    "decay on the value side": ("decay[t, h][:, None] * state", "decay[t, h] * state"),
    "A_log ignored": ('rates = np.exp(w["A_log"])[:heads]', "rates = np.ones(heads)"),
    "A_log read by channel": (
        "z.reshape(q.shape) * rates[:, None]",
        'z.reshape(q.shape) * np.exp(w["A_log"])',
    ),
    "dt_bias ignored": (' + w["dt_bias"]', ""),
    "gate_lower_bound ignored": ('linear["gate_lower_bound"] *', "-5.0 *"),
    "no beta": ("beta[t, h] * wrong", "wrong"),
    "gate before the norm": (
        'rms(y, w["o_norm"], config["rms_norm_eps"]) * gate',
        'rms(y * gate, w["o_norm"], config["rms_norm_eps"])',
    ),
    "no KDA output gate": ('config["rms_norm_eps"]) * gate', 'config["rms_norm_eps"])'),
    "taps reversed": ("taps[:, count - 1 - back]", "taps[:, back]"),
    "convolution without SiLU": ("return y * sigmoid(y)", "return y"),
    "convolution forgets history": ("range(min(count, t + 1))", "range(1)"),
    # the residual stream
    "residual mixes normed sources": (
        "sum(part * source for",
        "sum(part * rms(source, 1.0, eps) for",
    ),
    "block sum not restarted": ("hidden = y if opens else hidden + y", "hidden = hidden + y"),
    "blocks one layer late": ('config["attn_res_block_size"] == 0', 'config["attn_res_block_size"] == 1'),
    "no residual before attention": (
        'x = mixed([*blocks, hidden], w, "self_attention_res")',
        "x = hidden",
    ),
    "no residual before the MLP": ('x = mixed([*blocks, hidden], w, "mlp_res")', "x = hidden"),
    "no residual at the end": ('hidden = mixed([*blocks, hidden], model, "output_attn_res")', ""),
    "full_attn_layers taken from zero": ("if layer + 1 in", "if layer in"),
    "first_k_dense_replace taken as 1": ('layer < config["first_k_dense_replace"]', "layer < 1"),
    "rms_norm_eps 1e-6 everywhere": (
        "    config = checkpoint.config\n    eps = ",
        '    config = checkpoint.config = checkpoint.config | {"rms_norm_eps": 1e-6}\n    eps = ',
    ),
}


def mutant(before, after):
    """The oracle with `after` in place of `before`, which must stand there once."""
    source = Path(oracle.__file__).read_text()
    if source.count(before) != 1:
        raise ValueError(f"not exactly once in the oracle: {before!r}")
    module = ModuleType("mutant")
    exec(compile(source.replace(before, after), module.__name__, "exec"), module.__dict__)
    return module


def change(module, directory, name, expected):
    """How far the mutant's logits are from `expected`, relative to the largest; infinity if it cannot run."""
    try:
        logits = module.forward(module.Checkpoint(directory), prompt(name))
    except (KeyError, ValueError):  # a tensor that is not there, or of another shape
        return np.inf
    return np.abs(logits - expected).max() / np.abs(expected).max()


def main():
    undetected = 0
    with tempfile.TemporaryDirectory() as root:
        directories = {name: Path(root) / name for name in CASES}
        for name, directory in directories.items():
            make(name, directory)
        expected = {
            name: oracle.forward(oracle.Checkpoint(directory), prompt(name))
            for name, directory in directories.items()
        }
        for mistake, (before, after) in MUTATIONS.items():
            module = mutant(before, after)
            changes = {name: change(module, directories[name], name, expected[name]) for name in CASES}
            where = max(changes, key=changes.get)
            found = changes[where] > TOLERANCE
            undetected += not found
            shown = "cannot run" if np.isinf(changes[where]) else f"{changes[where]:10.2g}"
            print(f"{mistake:34} {shown:>10}  {where:14}  {'detected' if found else 'NOT DETECTED'}")
    print(f"{len(MUTATIONS) - undetected} of {len(MUTATIONS)} detected")
    return 1 if undetected else 0


if __name__ == "__main__":
    sys.exit(main())
