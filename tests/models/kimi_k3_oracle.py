"""Kimi K3 in float64 numpy, written from the description of the architecture; shares no code with the
package.

Every position is computed from scratch, one token and one head at a time where that is the plainest form.
Each mechanism is one function, so that `scripts/mutate_kimi_k3.py` can put a mistake into one of them.
"""

import json
from pathlib import Path

import numpy as np

FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


class Checkpoint:
    """The tensors of a directory of safetensors files, read when they are asked for."""

    def __init__(self, directory):
        directory = Path(directory)
        self.config = json.loads((directory / "config.json").read_text())["text_config"]
        self._entries = {}
        for path in sorted(directory.glob("*.safetensors")):
            raw = np.fromfile(path, np.uint8)
            start = 8 + int.from_bytes(raw[:8].tobytes(), "little")
            for name, entry in json.loads(raw[8:start].tobytes()).items():
                if name != "__metadata__":
                    begin, end = entry["data_offsets"]
                    self._entries[name] = (entry, raw[start + begin : start + end])

    def __contains__(self, name):
        return name in self._entries

    def __iter__(self):
        return iter(self._entries)

    def expert_matrix(self, name):
        """A routed expert's matrix, by the name that it has, or would have, in plain bfloat16."""
        if name in self:
            return self[name]
        return mxfp4(self.raw(f"{name}_packed"), self.raw(f"{name}_scale"))

    def raw(self, name):
        """uint8 tensors as they are."""
        entry, data = self._entries[name]
        assert entry["dtype"] == "U8"
        return data.reshape(entry["shape"])

    def __getitem__(self, name):
        """float64 values."""
        entry, data = self._entries[name]
        if entry["dtype"] == "F32":
            values = data.view(np.float32)
        else:
            assert entry["dtype"] == "BF16"
            values = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float64).reshape(entry["shape"])


class Scope:
    """The tensors below a prefix."""

    def __init__(self, checkpoint, prefix):
        self.checkpoint, self.prefix = checkpoint, prefix

    def below(self, name):
        return Scope(self.checkpoint, f"{self.prefix}{name}.")

    def __getitem__(self, name):
        full = self.prefix + name
        return self.checkpoint[full if full in self.checkpoint else f"{full}.weight"]

    def expert_matrix(self, name):
        return self.checkpoint.expert_matrix(f"{self.prefix}{name}.weight")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def rms(x, weight, eps):
    return weight * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def mxfp4(packed, scale):
    """[R, C/2] and [R, C/32] bytes -> [R, C]."""
    rows, half = packed.shape
    codes = np.empty((rows, 2 * half), np.uint8)
    codes[:, 0::2] = packed & 15
    codes[:, 1::2] = packed >> 4
    values = np.where(codes & 8, -1.0, 1.0) * FP4[codes & 7]
    factors = 2.0 ** (scale.astype(np.int64) - 127)
    return (values.reshape(rows, -1, 32) * factors[:, :, None]).reshape(rows, -1)


def situ(gate, up, config):
    beta, linear = config["activation_situ_beta"], config["activation_situ_linear_beta"]
    capped_gate = beta * np.tanh(gate / beta)
    capped_up = linear * np.tanh(up / linear)
    return capped_gate * sigmoid(gate) * capped_up


def residual(sources, norm, projection, eps):
    """One token's mixture of its sources [E]."""
    scores = np.array([rms(source, norm, eps) @ projection for source in sources])
    share = softmax(scores)
    return sum(part * source for part, source in zip(share, sources, strict=True))


def convolution(x, taps):
    """x [T, C], taps [C, N] -> [T, C]; the last tap meets the current token."""
    count = taps.shape[1]
    y = np.zeros_like(x)
    for t in range(len(x)):
        for back in range(min(count, t + 1)):
            y[t] += taps[:, count - 1 - back] * x[t - back]
    return y * sigmoid(y)


def unit(x):
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6)


def delta_attention(x, w, config):
    linear = config["linear_attn_config"]
    heads, size = linear["num_heads"], linear["head_dim"]

    def mixed(letter):
        filters = w[f"{letter}_conv1d"][:, 0]
        return convolution(x @ w[f"{letter}_proj"].T, filters).reshape(len(x), heads, size)

    q, k, v = unit(mixed("q")) / np.sqrt(size), unit(mixed("k")), mixed("v")
    beta = sigmoid(x @ w["b_proj"].T)
    z = (w["f_b_proj"] @ (w["f_a_proj"] @ x.T)).T + w["dt_bias"]
    rates = np.exp(w["A_log"])[:heads]
    decay = np.exp(linear["gate_lower_bound"] * sigmoid(z.reshape(q.shape) * rates[:, None]))
    y = np.zeros_like(v)
    for h in range(heads):
        state = np.zeros((size, size))
        for t in range(len(x)):
            state = decay[t, h][:, None] * state
            wrong = v[t, h] - k[t, h] @ state
            state = state + np.outer(k[t, h], beta[t, h] * wrong)
            y[t, h] = q[t, h] @ state
    gate = sigmoid(x @ w["g_proj"].T).reshape(y.shape)
    y = rms(y, w["o_norm"], config["rms_norm_eps"]) * gate
    return y.reshape(len(x), -1) @ w["o_proj"].T


def latent_attention(x, w, config, eps):
    heads, rank = config["num_attention_heads"], config["kv_lora_rank"]
    nope, rope, size = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    q = (rms(x @ w["q_a_proj"].T, w["q_a_layernorm"], eps) @ w["q_b_proj"].T).reshape(len(x), heads, -1)
    both = x @ w["kv_a_proj_with_mqa"].T
    latent, shared = rms(both[:, :rank], w["kv_a_layernorm"], eps), both[:, rank:]
    pairs = (latent @ w["kv_b_proj"].T).reshape(len(x), heads, nope + size)
    scale = 1 / np.sqrt(nope + rope)
    y = np.zeros((len(x), heads, size))
    for h in range(heads):
        keys, values = pairs[:, h, :nope], pairs[:, h, nope:]
        for t in range(len(x)):
            seen = slice(0, t + 1)
            scores = keys[seen] @ q[t, h, :nope] + shared[seen] @ q[t, h, nope:]
            y[t, h] = softmax(scale * scores) @ values[seen]
    y = y.reshape(len(x), -1)
    if config["mla_use_output_gate"]:
        y = y * sigmoid(x @ w["g_proj"].T)
    return y @ w["o_proj"].T


def route(x, w, config):
    """One token [E] -> the numbers of its experts and their shares."""
    scores = sigmoid(w["weight"] @ x)
    ranked = scores + w["e_score_correction_bias"]
    chosen = sorted(range(len(ranked)), key=lambda e: (-ranked[e], e))[: config["num_experts_per_token"]]
    share = scores[chosen]
    if config["moe_renormalize"] and len(chosen) > 1:
        share = share / (share.sum() + 1e-20)
    return chosen, config["routed_scaling_factor"] * share


def mlp(x, w, config):
    return situ(x @ w["gate_proj"].T, x @ w["up_proj"].T, config) @ w["down_proj"].T


def expert(z, w, config):
    gate, up = w.expert_matrix("w1") @ z, w.expert_matrix("w3") @ z
    return w.expert_matrix("w2") @ situ(gate, up, config)


def latent_moe(x, w, config):
    y = np.zeros_like(x)
    for t in range(len(x)):
        chosen, shares = route(x[t], w.below("gate"), config)
        z = w["routed_expert_down_proj"] @ x[t]
        mixture = np.zeros_like(z)
        for number, share in zip(chosen, shares, strict=True):
            mixture += share * expert(z, w.below(f"experts.{number}"), config)
        if config["latent_moe_use_norm"]:
            mixture = rms(mixture, w["routed_expert_norm"], config["rms_norm_eps"])
        y[t] = w["routed_expert_up_proj"] @ mixture
    return y + mlp(x, w.below("shared_experts"), config)


def forward(checkpoint, ids, latent_eps=None):
    """Logits [T, vocabulary] of `ids`. `latent_eps` None: the norms of MLA's latents use rms_norm_eps."""
    config = checkpoint.config
    eps = config["rms_norm_eps"]
    latent_eps = latent_eps or eps
    model = Scope(checkpoint, "language_model.model.")

    def mixed(sources, w, name):
        norm, projection = w[f"{name}_norm"], w[f"{name}_proj"][0]
        tokens = range(len(ids))
        return np.array([residual([s[t] for s in sources], norm, projection, eps) for t in tokens])

    hidden = model["embed_tokens"][list(ids)]
    blocks = []
    for layer in range(config["num_hidden_layers"]):
        w = model.below(f"layers.{layer}")
        x = mixed([*blocks, hidden], w, "self_attention_res")
        opens = layer % config["attn_res_block_size"] == 0
        if opens:
            blocks.append(hidden)
        x = rms(x, w["input_layernorm"], eps)
        if layer + 1 in config["linear_attn_config"]["full_attn_layers"]:
            y = latent_attention(x, w.below("self_attn"), config, latent_eps)
        else:
            y = delta_attention(x, w.below("self_attn"), config)
        hidden = y if opens else hidden + y
        x = mixed([*blocks, hidden], w, "mlp_res")
        x = rms(x, w["post_attention_layernorm"], eps)
        if layer < config["first_k_dense_replace"]:
            hidden = hidden + mlp(x, w.below("mlp"), config)
        else:
            hidden = hidden + latent_moe(x, w.below("block_sparse_moe"), config)
    hidden = mixed([*blocks, hidden], model, "output_attn_res")
    return rms(hidden, model["norm"], eps) @ checkpoint["language_model.lm_head.weight"].T
