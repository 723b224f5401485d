"""Small GGUF files, written by the gguf package's writer, and tokenizers to put into them."""

import json

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import quantize
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

HIDDEN, HEADS, KV_HEADS, INNER, LAYERS, VOCAB = 64, 4, 2, 96, 2, 320
TEXT = [
    "The capital of France is Paris, 12345 people said.",
    "def f(x):\n    return x + 1\n",
    "naïve café — 3.14",
]


def permute(weights, heads):
    """What llama.cpp's convert_hf_to_gguf.py does to query and key weights."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def weights(seed=0, *, tied=False, bias=False):
    """Hugging Face name -> float32 array of a tiny model."""
    rng = np.random.default_rng(seed)
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    if not tied:
        shapes["lm_head.weight"] = (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        keys = HIDDEN // HEADS * KV_HEADS
        shapes |= {
            prefix + "input_layernorm.weight": (HIDDEN,),
            prefix + "self_attn.q_proj.weight": (HIDDEN, HIDDEN),
            prefix + "self_attn.k_proj.weight": (keys, HIDDEN),
            prefix + "self_attn.v_proj.weight": (keys, HIDDEN),
            prefix + "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
            prefix + "post_attention_layernorm.weight": (HIDDEN,),
            prefix + "mlp.gate_proj.weight": (INNER, HIDDEN),
            prefix + "mlp.up_proj.weight": (INNER, HIDDEN),
            prefix + "mlp.down_proj.weight": (HIDDEN, INNER),
        }
        if bias:
            shapes |= {
                prefix + "self_attn.q_proj.bias": (HIDDEN,),
                prefix + "self_attn.k_proj.bias": (keys,),
                prefix + "self_attn.v_proj.bias": (keys,),
            }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def byte_level_tokenizer(pre_tokenizer):
    """A byte-level BPE tokenizer trained on TEXT, with one control token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<|endoftext|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 20, trainer)
    return tokenizer


def smollm_pre_tokenizer():
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def add_byte_level(writer, tokenizer, pre):
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{{ messages }}")


def make_gguf(path, tensors, *, arch="llama", kinds=None, tokenizer=None, extra=None):
    """Writes `tensors` (Hugging Face names, float32) as the converter would. `kinds`: name -> type."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    if tokenizer is not None:
        add_byte_level(writer, tokenizer, "smollm")
    if extra is not None:
        extra(writer)
    for name, values in tensors.items():
        if arch == "llama" and ("q_proj" in name or "k_proj" in name):
            values = permute(values, HEADS if "q_proj" in name else KV_HEADS)
        kind = (kinds or {}).get(name, Kind.F32)
        writer.add_tensor(gguf_name(name), quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
