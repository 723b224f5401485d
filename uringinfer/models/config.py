"""Reading a checkpoint's config.json, which is hostile input: every key is honoured, known to be harmless, or
refused by name. A setting that changes results is never skipped in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from uringinfer.errors import UnsupportedModelError
from uringinfer.models.bounds import BOUNDS, out_of_bounds

_HOUSEKEEPING = """
    model_type architectures auto_map torch_dtype dtype transformers_version transformers.js_config
    bos_token_id eos_token_id pad_token_id decoder_start_token_id sep_token_id cls_token_id unk_token_id
    is_llama_config is_decoder is_encoder_decoder id2label label2id problem_type task_specific_params
    finetuning_task tokenizer_class prefix torchscript use_bfloat16 pruned_heads add_cross_attention
    cross_attention_hidden_size tie_encoder_decoder _name_or_path _attn_implementation _commit_hash
    _attn_implementation_autoset _experts_implementation unsloth_fixed unsloth_version
"""
_TRAINING = """
    initializer_range initializer_factor attention_dropout attention_probs_dropout_prob hidden_dropout
    dropout dropout_rate attn_dropout embd_dropout embedding_dropout ffn_dropout classifier_dropout layerdrop
    init_std init_method_std rescale_prenorm_residual gradient_checkpointing_kwargs ddp_timeout
    hidden_dropout_prob resid_pdrop embd_pdrop attn_pdrop gradient_checkpointing router_aux_loss_coef
    router_z_loss_coef router_jitter_noise aux_loss_alpha seq_aux
"""
_RUNNING = """
    use_cache pretraining_tp ep_size chunk_size_feed_forward output_router_logits output_attentions
    output_hidden_states return_dict use_return_dict quantization_config attn_implementation use_flash_attn
    use_flash_attention use_flash_attention_2 flash_attention use_sdpa _flash_attn_2_enabled use_fused_rope
    use_fused_mlp max_sequence_length max_seq_len max_seq_length seq_length sequence_length seq_len
    model_max_length tokenizer_model_max_length max_position_embeddings_original
"""
_GENERATION = """
    max_length min_length max_new_tokens min_new_tokens do_sample temperature top_p top_k min_p typical_p
    epsilon_cutoff eta_cutoff num_beams num_beam_groups num_return_sequences early_stopping length_penalty
    repetition_penalty encoder_repetition_penalty diversity_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size bad_words_ids forced_bos_token_id forced_eos_token_id suppress_tokens
    begin_suppress_tokens exponential_decay_length_penalty remove_invalid_values renormalize_logits
    penalty_alpha output_scores output_logits return_dict_in_generate use_model_defaults
"""
HARMLESS = frozenset(f"{_HOUSEKEEPING} {_TRAINING} {_RUNNING} {_GENERATION}".split())
"""Keys that say nothing about what a forward pass computes in float32: older tools write the defaults of
generation into config.json as well. `quantization_config` is judged by `ConfigReader`."""

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "decoder_sparse_step": (1,),
    "embedding_multiplier": (1, 1.0),
    "hidden_activation": ("silu", "swish"),
    "layernorm_type": ("rmsnorm", "rms_norm"),
    "logit_scale": (1, 1.0),
    "logits_scaling": (1, 1.0),
    "moe_layer_freq": (1,),
    "n_group": (1,),
    "norm_type": ("rmsnorm", "rms_norm"),
    "normalization_type": ("rmsnorm", "rms_norm"),
    "partial_rotary_factor": (1, 1.0),
    "position_embedding_type": ("rope", "rotary"),
    "position_encoding_type": ("rope", "rotary"),
    "residual_multiplier": (1, 1.0),
    "rope_pct": (1, 1.0),
    "rope_ratio": (1, 1.0),
    "rotary_pct": (1, 1.0),
    "routed_scaling_factor": (1, 1.0),
    "topk_group": (1,),
    "use_rms_norm": (True,),
    "use_rmsnorm": (True,),
    "use_rotary": (True,),
}
"""Values at which a key that a family does not know changes nothing: what every family here does anyway."""

_QUANT_METHODS = ("fp8", "mxfp4", "compressed-tensors", "modelopt", "awq", "gptq", "fbgemm_fp8")
_FP8_BLOCKS = (16, 32, 64, 128)
_LEAST_NUMBER = 1e-12
_SHOWN_KEY = 80


def shown_key(key: str) -> str:
    """A key in quotes, in one line of ASCII, cut when long: its name is whoever made the file's."""
    return ascii(key if len(key) <= _SHOWN_KEY else f"{key[:_SHOWN_KEY]}...")


class ConfigReader:
    """Typed access to one config that remembers what was read; `finish` refuses whatever was not.

    A key whose value is null, false or empty switches nothing on, so it may stay unread. Numbers are within
    `bounds.BOUNDS` from the start, and only keys that stand there are read as numbers. Making one and every
    method raise UnsupportedModelError naming the family and the key.
    """

    def __init__(self, family: str, config: Mapping[str, Any]) -> None:
        self.family = family
        self._config = config
        self._read: set[str] = set()
        beyond = out_of_bounds(config)
        if beyond is not None:
            raise self.refuse(*beyond)

    def refuse(self, key: str, wanted: str) -> UnsupportedModelError:
        """The error for `key`, whose value is not what is `wanted`; to be raised."""
        value = repr(self._config.get(key, "missing"))
        shown = value if len(value) <= 80 else value[:77] + "..."
        return UnsupportedModelError(
            f"{self.family}: config key {shown_key(key)} is {shown}", hint=f"this model needs {wanted}"
        )

    def has(self, key: str) -> bool:
        """Whether the key is there, null or not."""
        return key in self._config

    def get(self, key: str) -> Any:
        """The raw value, None if missing or null; marks the key as read."""
        self._read.add(key)
        return self._config.get(key)

    def integer(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        """An integer >= `minimum`; `default` if missing or null, and required without one."""
        value, most = self.get(key), int(BOUNDS[key][1])
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= most:
            raise self.refuse(key, f"an integer from {minimum} to {most}")
        return value

    def number(self, key: str, default: float | None = None, *, above: float = 0.0) -> float:
        """A number > `above` of sane size; `default` if missing or null, and required without one."""
        value, most = self.get(key), BOUNDS[key][1]
        if value is None and default is not None:
            return default
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not above + _LEAST_NUMBER <= value <= most:
            raise self.refuse(key, f"a number above {above:g} and at most {most:g}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false; `default` if missing or null."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value

    def required_flag(self, key: str) -> bool:
        """True or false, and there."""
        value = self.get(key)
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value

    def choice(self, key: str, choices: Mapping[str, str], default: str | None = None) -> str:
        """What `choices` makes of the value, or of `default` if it is missing or null."""
        value = self.get(key)
        value = default if value is None else value
        if not isinstance(value, str) or value not in choices:
            raise self.refuse(key, f"one of {', '.join(sorted(choices))}")
        return choices[value]

    def per_layer(self, key: str, count: int, allowed: Iterable[Any]) -> list[Any] | None:
        """A list of at least `count` values out of `allowed`, cut to `count`; None if missing or null."""
        values = self.get(key)
        if values is None:
            return None
        known = list(allowed)
        if not isinstance(values, list) or len(values) < count or any(v not in known for v in values):
            raise self.refuse(key, f"a list for {count} layers out of {known}")
        return values[:count]

    def table(self, key: str) -> Mapping[str, Any] | None:
        """A nested object; None if missing or null."""
        value = self.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.refuse(key, "an object")
        return value

    def finish(self) -> None:
        """Refuses keys nobody read, and weight formats that are not plain."""
        if "quantization_config" not in self._read:
            self._judge_quantization()
        for key, value in self._config.items():
            if key in self._read or key in HARMLESS or value in (None, False, [], {}, ""):
                continue
            if not self._is_neutral(key, value):
                raise self.refuse(key, "it to be absent: it is not known to be harmless")

    def _is_neutral(self, key: str, value: Any) -> bool:
        """Whether a key that nobody read changes nothing at this value."""
        if key in ("layer_types", "attention_types"):
            full = isinstance(value, list) and all(kind == "full_attention" for kind in value)
            return full and not self._config.get("sliding_window", "by default")
        if key == "sliding_window":  # none, where it is switched off or no context is longer
            context = self._config.get("max_position_embeddings")
            return self._config.get("use_sliding_window") is False or (
                isinstance(value, int) and isinstance(context, int) and value >= context
            )
        if key == "max_window_layers":
            return not self._config.get("use_sliding_window")
        return value in NEUTRAL.get(key, ())

    def _judge_quantization(self) -> None:
        """Lets pass what `packing` keeps, which looks at the tensors itself; of FP8, square blocks alone."""
        quantization = self.table("quantization_config")
        if quantization is None:
            return
        method = quantization.get("quant_method")
        by_mlx = method is None and "bits" in quantization and self.table("quantization") == quantization
        if method not in _QUANT_METHODS and not by_mlx:
            raise self.refuse("quantization_config", f"a quant_method out of {', '.join(_QUANT_METHODS)}")
        blocks = quantization.get("weight_block_size")
        if method == "fp8" and blocks not in (None, *([block, block] for block in _FP8_BLOCKS)):
            raise self.refuse(
                "quantization_config", f"a square weight_block_size out of {', '.join(map(str, _FP8_BLOCKS))}"
            )
