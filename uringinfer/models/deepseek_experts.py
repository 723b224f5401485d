"""The feed-forward parts of DeepSeek's architecture and of those that took it over: some dense layers first,
then experts with a shared network beside them.
"""

from __future__ import annotations

from uringinfer.layers.activation import Activation
from uringinfer.layers.moe import Moe
from uringinfer.layers.router import Router
from uringinfer.layers.router_gate import RouterGate
from uringinfer.models.common import Common
from uringinfer.models.config import ConfigReader
from uringinfer.models.decoder import FeedForward
from uringinfer.models.experts import read_expert_count, read_top_k, split_or_stacked_experts


def read_feed_forwards(reader: ConfigReader, common: Common) -> list[FeedForward]:
    """Every layer's feed-forward part, with the router of DeepSeek-V3: sigmoid scores, a correction that
    counts for the choice only, groups of experts worth the sum of their two best."""
    reader.choice("scoring_func", {"sigmoid": "sigmoid"}, "sigmoid")
    reader.choice("topk_method", {"noaux_tc": "noaux_tc"}, "noaux_tc")
    count = read_expert_count(reader)
    groups, top_groups = _read_groups(reader, count)
    router = Router(
        read_top_k(reader, count),
        "sigmoid",
        reader.flag("norm_topk_prob", True),
        scaling=reader.number("routed_scaling_factor", 1.0),
        num_groups=groups,
        top_groups=top_groups,
        group_score="best_two",
    )
    if groups > 1 and count // groups < 2:
        raise reader.refuse("n_group", "at least two experts in each group")
    return _feed_forwards(reader, common, count, router, corrected=True)


def read_softmax_feed_forwards(reader: ConfigReader, common: Common) -> list[FeedForward]:
    """Every layer's feed-forward part, with the router of DeepSeek-V2: a softmax, the best experts of all or
    of the best groups, a group worth its best expert."""
    reader.choice("scoring_func", {"softmax": "softmax"}, "softmax")
    limited = reader.choice("topk_method", {"greedy": "", "group_limited_greedy": "groups"}, "greedy")
    count = read_expert_count(reader)
    groups, top_groups = _read_groups(reader, count)
    router = Router(
        read_top_k(reader, count),
        "softmax",
        renormalize=False,
        scaling=reader.number("routed_scaling_factor", 1.0),
        num_groups=groups if limited else 1,
        top_groups=top_groups if limited else 1,
        group_score="best",
    )
    return _feed_forwards(reader, common, count, router, corrected=False)


def skipped_layers(reader: ConfigReader, layers: int) -> tuple[str, ...]:
    """Patterns of the checkpoint's layers behind the last one, which predict further tokens ahead and take
    no part in ordinary inference."""
    extra = reader.integer("num_nextn_predict_layers", 0, minimum=0)
    reader.integer("num_mtp_layers", 0, minimum=0)  # the same number under its newer name
    return tuple(rf"model\.layers\.{layers + number}\..*" for number in range(min(extra, 16)))


def _read_groups(reader: ConfigReader, count: int) -> tuple[int, int]:
    """How many groups the experts are split into, and how many of them a token may use."""
    groups = reader.integer("n_group", 1)
    top_groups = reader.integer("topk_group", 1)
    if count % groups:
        raise reader.refuse("n_group", f"a divisor of the number of experts, {count}")
    if top_groups > groups:
        raise reader.refuse("topk_group", f"at most n_group, {groups}")
    return groups, top_groups


def _read_dense_layers(reader: ConfigReader, layers: int) -> list[bool]:
    """Whether each layer is dense: by `mlp_layer_types`, else the first `first_k_dense_replace`."""
    if reader.integer("moe_layer_freq", 1) != 1:
        raise reader.refuse("moe_layer_freq", "experts in every layer behind the dense ones")
    first = reader.integer("first_k_dense_replace", 1, minimum=0)
    kinds = reader.per_layer("mlp_layer_types", layers, ("dense", "sparse"))
    if kinds is not None:
        return [kind == "dense" for kind in kinds]
    return [layer < first for layer in range(layers)]


def _feed_forwards(
    reader: ConfigReader, common: Common, count: int, router: Router, *, corrected: bool
) -> list[FeedForward]:
    inner = reader.integer("moe_intermediate_size")
    shared = inner * reader.integer("n_shared_experts", 0, minimum=0)
    dense = _read_dense_layers(reader, common.layers)

    def moe(layer: int) -> Moe:
        name = f"layers.{layer}.mlp"
        source = f"{common.source_prefix}model.{name}"
        correction = f"{source}.gate.e_score_correction_bias" if corrected else None
        return Moe(
            common.hidden,
            inner,
            split_or_stacked_experts(layer, count, f"{source}.experts", common.hidden, inner),
            RouterGate(f"{name}.gate", f"{source}.gate", count, common.hidden, router, correction=correction),
            activation=Activation(common.activation),
            shared=common.mlp(layer, part="mlp.shared_experts", inner=shared) if shared else None,
        )

    return [common.mlp(layer) if dense[layer] else moe(layer) for layer in range(common.layers)]
