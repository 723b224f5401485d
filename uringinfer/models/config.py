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
    hidden_dropout_prob resid_pdrop embd_pdrop attn_pdrop gradient_checkpointing router_aux_loss_coef
    router_z_loss_coef router_jitter_noise aux_loss_alpha seq_aux
"""
_RUNNING = """
    use_cache pretraining_tp ep_size chunk_size_feed_forward output_router_logits output_attentions
    output_hidden_states return_dict use_return_dict max_length min_length do_sample temperature top_p top_k
    quantization_config
"""
HARMLESS = frozenset(f"{_HOUSEKEEPING} {_TRAINING} {_RUNNING}".split())
"""Keys that say nothing about inference in float32. `quantization_config` is judged by `ConfigReader`."""

_QUANT_METHODS = ("fp8", "mxfp4", "compressed-tensors", "modelopt", "awq", "gptq", "fbgemm_fp8")
_FP8_BLOCKS = (16, 32, 64, 128)
_LEAST_NUMBER = 1e-12


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
            f"{self.family}: config key '{key}' is {shown}", hint=f"this model needs {wanted}"
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
            unread = key not in self._read and key not in HARMLESS
            if unread and value not in (None, False, [], {}, ""):
                raise self.refuse(key, "it to be absent: it is not known to be harmless")

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
