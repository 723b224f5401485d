"""The first law for mixtures of experts: cache size, policy, reader, lookahead and chunk change no bit."""

import json

import numpy as np
import pytest
from greedy_logits import greedy_logits, load_for_logits
from tiny_models import MOE, pack_moe

from uringinfer.engine.generation import GenerationOptions
from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.errors import IntegrityError, UsageError
from uringinfer.packing.sharder import shard
from uringinfer.residency.trace import TraceWriter, read_trace
from uringinfer.residency.usage import USAGE_FILE

PER_TOKEN, EXPERTS, LAYERS = MOE["per_token"], MOE["experts"], MOE["layers"]
PROMPT = [(13 * n) % 300 for n in range(24)]
STEPS = 12
GREEDY = GenerationOptions(max_tokens=STEPS, ignore_eos=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return pack_moe(tmp_path_factory.mktemp("moe"))


@pytest.fixture(scope="module")
def moe(path):
    return open_model(path)


@pytest.fixture(scope="module")
def native(moe):
    if moe.kernels.name != "native":
        pytest.skip(f"needs the native kernels: {'; '.join(moe.kernels.notes)}")
    return moe


@pytest.fixture(scope="module")
def record_bytes(moe):
    return moe.container.manifest.banks[0].record_bytes


def run(opened, **options):
    """Logits of every position of the prompt and of greedy steps, as bytes; and what the cache counted."""
    with load_for_logits(opened, **options) as engine:
        return greedy_logits(engine, PROMPT, STEPS).tobytes(), engine.experts.statistics()


@pytest.fixture(scope="module")
def reference(native, record_bytes):
    logits, statistics = run(native, cache_budget=LAYERS * EXPERTS * record_bytes, lookahead=0, io="preadv")
    assert statistics.misses <= LAYERS * EXPERTS
    return logits


@pytest.mark.parametrize("io", ["uring", "preadv"])
@pytest.mark.parametrize("lookahead", [0, 4])
@pytest.mark.parametrize("slots", [PER_TOKEN, 2 * PER_TOKEN, LAYERS * EXPERTS // 4, LAYERS * EXPERTS])
def test_logits_are_the_same_for_every_cache_size(native, reference, record_bytes, slots, lookahead, io):
    logits, statistics = run(native, cache_budget=slots * record_bytes, lookahead=lookahead, io=io)
    assert logits == reference
    assert statistics.misses > 0


@pytest.mark.parametrize("policy", ["lru", "lfu", "lfru"])
def test_logits_are_the_same_for_every_policy(native, reference, record_bytes, policy):
    logits, _ = run(native, cache_budget=10 * record_bytes, cache_policy=policy, lookahead=3)
    assert logits == reference


@pytest.mark.parametrize(
    ("slots", "policy", "lookahead"), [(PER_TOKEN, "lru", 0), (2 * PER_TOKEN, "lfu", 4), (12, "lfru", 4)]
)
def test_numpy_logits_are_the_same_for_every_cache(path, record_bytes, slots, policy, lookahead):
    opened = open_model(path, native=False)
    all_there, _ = run(opened, cache_budget=LAYERS * EXPERTS * record_bytes, lookahead=0)
    logits, statistics = run(
        opened, cache_budget=slots * record_bytes, cache_policy=policy, lookahead=lookahead
    )
    assert logits == all_there
    assert statistics.misses > LAYERS * EXPERTS  # some had to be read again


@pytest.mark.parametrize("chunk", [1, 5, 24])
@pytest.mark.parametrize("trunk_budget", [40_000, 1 << 30])
def test_logits_are_the_same_for_every_chunk_and_trunk(native, reference, record_bytes, chunk, trunk_budget):
    logits, _ = run(native, chunk=chunk, trunk_budget=trunk_budget, cache_budget=8 * record_bytes)
    assert logits == reference


@pytest.mark.parametrize("drives", [1, 2, 3])
def test_logits_are_the_same_when_experts_are_spread_over_drives(native, reference, tmp_path, drives):
    path = pack_moe(tmp_path)
    directories = [tmp_path / f"drive{number}" for number in range(drives)]
    for directory in directories:
        directory.mkdir()
    shard(path, directories)
    opened = open_model(path)
    budget = 10 * opened.container.manifest.banks[0].record_bytes
    assert run(opened, cache_budget=budget, lookahead=3)[0] == reference


def test_a_chunk_reads_each_expert_once(moe, record_bytes):
    whole, stepwise = (
        run(moe, chunk=chunk, cache_budget=2 * PER_TOKEN * record_bytes, lookahead=0)[1] for chunk in (24, 1)
    )
    assert whole.demanded_bytes < stepwise.demanded_bytes / 1.5


def test_guesses_are_made_judged_and_used(moe, record_bytes):
    statistics = run(moe, cache_budget=20 * record_bytes, lookahead=6)[1]
    assert statistics.guesses > 0 and statistics.prefetched > 0
    assert 0 < statistics.recall <= 1
    assert statistics.recall_demanded == STEPS * (LAYERS - 1) * PER_TOKEN


def test_statistics_of_a_generation_name_experts_and_their_bytes(moe, record_bytes):
    with moe.load(LoadOptions(context=64, cache_budget=12 * record_bytes)) as engine:
        stats = engine.generate(PROMPT, GREEDY).stats
    decode = stats.to_json()["decode"]["experts"]
    assert decode["hits"] + decode["misses"] + decode["prefetched"] == (STEPS - 1) * LAYERS * PER_TOKEN
    assert decode["demanded_bytes"] == decode["misses"] * record_bytes
    assert "experts: " in stats.to_text() and "expert cache" in stats.setup.to_text()


@pytest.mark.parametrize("kind", ["jsonl", "pairs"])
def test_a_trace_holds_what_each_token_used(moe, tmp_path, kind):
    with moe.load(LoadOptions(context=64, chunk=10)) as engine, TraceWriter(tmp_path / "t", kind) as writer:
        engine.trace_to(writer)
        engine.generate(PROMPT, GREEDY)
        engine.end_trace()
    trace = read_trace(tmp_path / "t")
    assert trace.passes == len(PROMPT) + STEPS - 1
    assert trace.requests == trace.passes * LAYERS * PER_TOKEN


def test_what_was_learned_fills_the_cache_at_the_next_start(tmp_path):
    path = pack_moe(tmp_path)
    opened = open_model(path)
    budget = 24 * opened.container.manifest.banks[0].record_bytes
    misses = []
    for _ in range(2):
        with open_model(path).load(LoadOptions(context=64, cache_budget=budget, lookahead=0)) as engine:
            generation = engine.generate(PROMPT, GREEDY)
            misses.append(generation.stats.prompt.experts.misses + generation.stats.decode.experts.misses)
            engine.learn()
    assert misses[1] < misses[0]
    assert open_model(path).usage.recall is None  # nothing was guessed
    uses = sum(map(sum, json.loads((path / USAGE_FILE).read_text())["layers"].values()))
    assert uses == 2 * (len(PROMPT) + STEPS - 1) * LAYERS * PER_TOKEN


def test_how_good_guesses_were_is_learned_once_and_planned_with(tmp_path):
    path = pack_moe(tmp_path)
    options = LoadOptions(context=64, lookahead=4)
    assert open_model(path).plan(options).cache.recall is None
    with open_model(path).load(options) as engine:
        engine.generate(PROMPT, GREEDY)
        counted = engine.experts.statistics()
        engine.learn()
        engine.learn()
    recall = open_model(path).plan(options).cache.recall
    assert recall == counted.recall_named / counted.recall_demanded
    assert open_model(path).usage.guessed_about == counted.recall_demanded > 0
    assert open_model(path).plan(LoadOptions(context=64, lookahead=0)).cache.recall is None


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 1, "container": "another", "layers": {}}'])
def test_a_usage_file_that_cannot_be_used_is_left_out_with_a_note(tmp_path, content):
    path = pack_moe(tmp_path)
    (path / USAGE_FILE).write_text(content)
    with open_model(path).load(LoadOptions(context=64)) as engine:
        assert any("usage.json is left out" in note for note in engine.notes)
        assert len(engine.generate(PROMPT, GREEDY).tokens) == STEPS


def test_a_damaged_record_is_named_when_reads_are_verified(tmp_path):
    path = pack_moe(tmp_path)
    bank = open_model(path).container.manifest.banks[1]
    data = bytearray((path / bank.file).read_bytes())
    for expert in range(EXPERTS):
        data[expert * bank.record_bytes + 9] ^= 4
    (path / bank.file).write_bytes(data)
    with (
        open_model(path).load(LoadOptions(context=64)) as engine,
        pytest.raises(IntegrityError, match=rf"expert \d+ of layer {bank.layer}: checksum mismatch"),
    ):
        engine.generate(PROMPT, GREEDY)


def test_experts_per_token_changes_the_answer_and_nothing_else_does(path, moe):
    logits = []
    for count in (None, 2):
        with open_model(path, experts_per_token=count).load(LoadOptions(context=64)) as engine:
            logits.append(engine.session().feed(PROMPT))
    assert not np.allclose(logits[0], logits[1])


@pytest.mark.parametrize(("count", "is_said"), [(None, False), (PER_TOKEN, False), (2, True)])
def test_another_number_of_experts_per_token_is_said_to_change_answers(path, count, is_said):
    with open_model(path, experts_per_token=count).load(LoadOptions(context=64)) as engine:
        note = "2 experts per token instead of the model's 3: this changes answers"
        assert (note in engine.notes) == is_said


def test_a_dense_model_has_no_trace_and_nothing_to_learn(tiny):
    with tiny.load(LoadOptions(context=64)) as engine:
        for call in (engine.learn, engine.end_trace):
            with pytest.raises(UsageError, match="has no routed experts"):
                call()
