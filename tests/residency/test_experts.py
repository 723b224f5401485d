"""The expert cache against a reader whose completions are scripted."""

import os

import numpy as np
import pytest
from trunk_fakes import GARBAGE, ScriptedReader

from uringinfer.container.checksum import crc32
from uringinfer.container.manifest import Bank, TensorPart
from uringinfer.errors import IntegrityError, ResidencyError
from uringinfer.residency.experts import ExpertCache
from uringinfer.residency.policies import make_policy
from uringinfer.residency.records import ExpertRecords
from uringinfer.residency.simulate import simulate
from uringinfer.residency.trace import Trace, Turn
from uringinfer.storage.direct import Direct, StorageFile
from uringinfer.storage.reader import Priority

LAYERS, EXPERTS, RECORD = 3, 12, 4096
PARTS = (
    TensorPart("gate", "f32", (8, 16), 0, 8, 0, 512),
    TensorPart("up", "f32", (8, 16), 0, 8, 512, 512),
    TensorPart("down", "f32", (16, 8), 0, 16, 1024, 512),
    TensorPart("down_bias", "f32", (16,), 0, 16, 1536, 64),
)


class Bench:
    """Banks on disk with random records, a scripted reader, and caches over both."""

    def __init__(self, directory):
        rng = np.random.default_rng(11)
        self.contents, banks, files = {}, [], {}
        for layer in range(LAYERS):
            records = rng.standard_normal((EXPERTS, RECORD // 4), np.float32)
            path = directory / f"experts-L{layer}.bin"
            path.write_bytes(records.tobytes())
            self.contents[layer] = records
            checksums = tuple(crc32(record.view(np.uint8), 0) for record in records)
            banks.append(Bank(layer, path.name, EXPERTS, RECORD, PARTS, checksums))
            direct = Direct(False, "a test's file", 1, 1)
            files[layer] = [StorageFile(path, os.open(path, os.O_RDONLY), path.stat().st_size, direct)]
        self.paths = {layer: file.path for layer, (file,) in files.items()}
        self.records = ExpertRecords(banks, files, lambda bank, expert: (0, expert * bank.record_bytes))
        self.reader = ScriptedReader()

    def cache(self, slots, policy="lfru", **options):
        memory = [np.zeros(RECORD, np.uint8) for _ in range(slots)]
        return ExpertCache(
            self.records, self.reader, memory, make_policy(policy, range(LAYERS), EXPERTS), **options
        )

    def is_right(self, layer, expert, weights):
        """Whether these are the weights of this expert."""
        content = self.contents[layer][expert]
        return (
            np.array_equal(weights.matrices["gate"].data.view(np.float32), content[:128])
            and np.array_equal(weights.matrices["up"].data.view(np.float32), content[128:256])
            and np.array_equal(weights.matrices["down"].data.view(np.float32), content[256:384])
            and np.array_equal(weights.biases["down_bias"], content[384:400])
        )

    def use(self, cache, layer, *experts):
        """Demands `experts` for one token; the order in which they came, each checked."""
        return self.use_chunk(cache, layer, [experts])

    def use_chunk(self, cache, layer, routed):
        order = []
        with cache.demand(layer, np.array(routed)) as arriving:
            for batch in arriving:
                assert all(self.is_right(layer, expert, weights) for expert, weights in batch)
                order += [expert for expert, _ in batch]
        return order


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_each_distinct_expert_comes_once_with_its_own_weights(bench):
    cache = bench.cache(8)
    assert bench.use_chunk(cache, 1, [[3, 5], [5, 7], [3, 7]]) == [3, 5, 7]
    weights = None
    with cache.demand(1, np.array([[3]])) as arriving:
        for ((_, weights),) in arriving:
            assert weights.matrices["gate"].rows == 8 and weights.matrices["down"].cols == 8


def test_all_misses_of_a_turn_go_to_the_reader_in_one_batch_before_anything_is_computed(bench):
    cache = bench.cache(8)
    bench.use(cache, 0, 1, 2)
    with cache.demand(0, np.array([[1, 6, 2, 9]])):
        batch = bench.reader.batches[-1]
        assert [request.offset for request in batch] == [6 * RECORD, 9 * RECORD]
        assert all(request.priority is Priority.DEMAND for request in batch)
    assert len(bench.reader.batches) == 2


def test_experts_in_memory_come_first_and_the_others_as_they_arrive(bench):
    cache = bench.cache(8)
    bench.use(cache, 0, 4, 5)
    order = []
    with cache.demand(0, np.array([[1, 2, 4, 3, 5]])) as arriving:
        for batch in arriving:
            order.append([expert for expert, _ in batch])
            if order == [[4, 5]]:
                bench.reader.complete(2 * RECORD)
                bench.reader.complete(3 * RECORD)
    assert order == [[4, 5], [2, 3], [1]]


def test_what_is_in_memory_is_not_read_again(bench):
    cache = bench.cache(4)
    for _ in range(3):
        bench.use(cache, 2, 0, 5)
    assert len(bench.reader.requests) == 2
    statistics = cache.statistics()
    assert (statistics.hits, statistics.misses) == (4, 2)
    assert statistics.demanded_bytes == 2 * RECORD


@pytest.mark.parametrize("policy", ["lru", "lfu", "lfru"])
@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_a_chunk_may_use_more_experts_than_there_are_slots(bench, slots, policy):
    cache = bench.cache(slots, policy, poison=True)
    rng = np.random.default_rng(slots)
    for turn in range(12):
        routed = rng.permuted(np.tile(np.arange(EXPERTS), (6, 1)), axis=1)[:, :3]
        assert sorted(bench.use_chunk(cache, turn % LAYERS, routed)) == sorted(set(routed.ravel().tolist()))


def test_a_hit_is_not_given_up_for_a_miss_of_the_same_turn(bench):
    cache = bench.cache(3, "lru")
    bench.use(cache, 0, 1)
    bench.use(cache, 1, 2)
    bench.use(cache, 2, 3)
    # expert 1 is the least recently used, and it is used behind a miss
    bench.use(cache, 0, 7, 1)
    assert cache.statistics().hits == 1


def test_a_view_kept_beyond_its_turn_is_overwritten_when_its_expert_goes(bench):
    cache = bench.cache(1, poison=True)
    with cache.demand(0, np.array([[1]])) as arriving:
        kept = next(arriving)[0][1].matrices["gate"].data
    with cache.demand(0, np.array([[2]])):
        assert np.all(kept == GARBAGE)  # the scripted reader's own, after the poison


def test_poison_is_in_a_slot_before_its_next_read_is_submitted(bench, monkeypatch):
    cache = bench.cache(1, poison=True)
    bench.use(cache, 0, 1)
    monkeypatch.setattr(bench.reader, "submit_each", lambda requests: seen.extend(requests) or [Done()])
    seen = []
    with cache.demand(0, np.array([[2]])):
        assert np.all(seen[0].destination == 0xFF)


class Done:
    done = True


def test_a_guess_is_read_behind_everything_else_and_counts_as_prefetched(bench):
    cache = bench.cache(8, lookahead=3)
    with cache.demand(0, np.array([[1, 2]])) as arriving:
        cache.hint(1, np.array([5, 6, 7, 8]))
        list(arriving)
    bench.reader.begun |= {expert * RECORD for expert in range(EXPERTS)}
    assert [request.priority for request in bench.reader.batches[-1]] == [Priority.SPECULATION] * 3
    bench.use(cache, 1, 5, 6, 9)
    statistics = cache.statistics()
    assert (statistics.guesses, statistics.prefetched, statistics.misses) == (3, 2, 3)
    assert statistics.guessed_bytes == 3 * RECORD
    assert (statistics.recall_demanded, statistics.recall_named) == (3, 2)


def test_a_prefetched_expert_is_an_ordinary_hit_the_next_time(bench):
    cache = bench.cache(8, lookahead=3)
    cache.hint(1, np.array([5]))
    bench.use(cache, 1, 5)
    bench.use(cache, 1, 5)
    assert (cache.statistics().prefetched, cache.statistics().hits) == (1, 1)


def test_no_expert_goes_between_its_hint_and_its_turn(bench):
    cache = bench.cache(4, "lru", lookahead=3)
    for layer, expert in ((1, 5), (2, 1), (2, 2), (2, 3)):
        bench.use(cache, layer, expert)
    # expert 5 is the least recently used, and both other guesses need a slot
    cache.hint(1, np.array([5, 6, 7]))
    before = len(bench.reader.requests)
    bench.use(cache, 1, 5, 6, 7)
    assert len(bench.reader.requests) == before


def test_guesses_of_a_rank_that_is_mostly_wrong_are_not_read(bench):
    cache = bench.cache(8, lookahead=2)
    for _ in range(40):
        cache.hint(1, np.array([5, 6]))
        bench.use(cache, 1, 5, 7)
    before = len(bench.reader.requests)
    cache.hint(1, np.array([9, 11]))
    assert [request.offset for request in bench.reader.requests[before:]] == [9 * RECORD]


def test_a_layer_whose_experts_are_all_in_memory_wants_no_guess(bench):
    cache = bench.cache(2 * EXPERTS, lookahead=2)
    assert cache.wants_guess(1)
    bench.use_chunk(cache, 1, [list(range(EXPERTS))])
    assert not cache.wants_guess(1)
    assert cache.wants_guess(2)
    for layer in (0, 2):
        bench.use_chunk(cache, layer, [list(range(EXPERTS))])
    assert cache.wants_guess(1)  # some of its experts had to go
    assert not bench.cache(4).wants_guess(1)  # nothing is guessed at all


def test_what_was_loaded_at_the_start_needs_no_guess(bench):
    cache = bench.cache(EXPERTS, lookahead=2)
    cache.preload([(1, expert) for expert in range(EXPERTS)])
    assert not cache.wants_guess(1)


def test_a_guess_leaves_the_slots_that_a_turn_needs(bench):
    cache = bench.cache(5, lookahead=4)
    bench.use(cache, 2, 1, 2)
    cache.hint(1, np.array([5, 6, 7, 8]))
    assert cache.statistics().guesses == 3
    assert [request.offset for request in bench.reader.batches[-1]] == [5 * RECORD, 6 * RECORD, 7 * RECORD]


def test_slots_for_two_turns_are_enough_to_guess_a_whole_turn_while_another_goes_on(bench):
    cache = bench.cache(6, lookahead=3)
    bench.reader.begun |= {expert * RECORD for expert in range(EXPERTS)}
    with cache.demand(0, np.array([[1, 2, 3]])) as arriving:
        cache.hint(1, np.array([5, 6, 7]))
        list(arriving)
    assert cache.statistics().guesses == 3
    assert sorted(bench.use(cache, 1, 5, 6, 7)) == [5, 6, 7]
    assert (cache.statistics().prefetched, cache.statistics().misses) == (3, 3)


def test_a_guess_takes_no_slot_of_the_turn_that_goes_on(bench):
    cache = bench.cache(3, poison=True, lookahead=3)
    with cache.demand(0, np.array([[1, 2]])) as arriving:
        cache.hint(1, np.array([5, 6, 7]))
        order = [expert for batch in arriving for expert, _ in batch]
    assert sorted(order) == [1, 2]
    assert cache.statistics().guesses == 1


def test_a_guess_that_is_still_being_read_is_waited_for_not_read_twice(bench):
    cache = bench.cache(8, lookahead=2)
    cache.hint(1, np.array([5, 6]))
    assert len(bench.reader.in_flight) == 2
    assert sorted(bench.use(cache, 1, 5, 6)) == [5, 6]
    assert len(bench.reader.requests) == 2


def test_a_wrong_guess_whose_read_has_not_begun_is_taken_back(bench):
    cache = bench.cache(4, poison=True, lookahead=3)
    bench.reader.begun.add(6 * RECORD)
    cache.hint(1, np.array([5, 6, 7]))
    bench.use(cache, 1, 5, 1)
    assert bench.reader.withdrawn == [7 * RECORD]
    statistics = cache.statistics()
    assert (statistics.guesses, statistics.guessed_bytes) == (2, 2 * RECORD)
    bench.use(cache, 2, 8)  # in the slot of the guess that was taken back: nobody else had to go
    assert sorted(bench.use(cache, 1, 5, 6)) == [5, 6]
    assert cache.statistics().misses == 2
    assert bench.use(cache, 1, 7) == [7]
    assert cache.statistics().misses == 3


@pytest.mark.parametrize("policy", ["lru", "lfu", "lfru"])
def test_guesses_taken_back_turn_after_turn_leave_a_cache_that_works(bench, policy):
    cache = bench.cache(6, policy, poison=True, lookahead=3)
    rng = np.random.default_rng(7)
    for turn in range(300):
        guess, used = (rng.permutation(EXPERTS)[:count] for count in (3, 2))
        bench.reader.begun = {int(expert) * RECORD for expert in rng.permutation(EXPERTS)[:6]}
        cache.hint(turn % LAYERS, guess)
        assert sorted(bench.use(cache, turn % LAYERS, *used.tolist())) == sorted(used.tolist())
    assert bench.reader.withdrawn


def test_guesses_that_were_wrong_make_room_when_their_reads_are_over(bench):
    cache = bench.cache(4, lookahead=3)
    bench.reader.begun |= {expert * RECORD for expert in range(EXPERTS)}
    cache.hint(1, np.array([5, 6, 7]))
    assert bench.use(cache, 1, 1, 2, 3, 4) != []
    assert sorted(bench.use(cache, 2, 8, 9, 10, 11)) == [8, 9, 10, 11]


def test_a_guess_whose_read_failed_harms_nobody_and_is_read_again_on_demand(bench):
    cache = bench.cache(8, lookahead=2)
    bench.reader.failing.add(5 * RECORD)
    cache.hint(1, np.array([5]))
    bench.use(cache, 2, 1)
    bench.reader.complete(5 * RECORD)
    bench.use(cache, 2, 2)
    bench.reader.failing.clear()
    assert bench.use(cache, 1, 5) == [5]


def test_a_failed_read_of_a_demanded_expert_is_an_error_and_a_later_demand_reads_again(bench):
    cache = bench.cache(8)
    bench.reader.failing.add(5 * RECORD)
    with pytest.raises(IntegrityError, match="as scripted"):
        bench.use(cache, 1, 4, 5)
    bench.reader.failing.clear()
    assert sorted(bench.use(cache, 1, 4, 5)) == [4, 5]


def test_a_damaged_record_is_named(bench):
    with bench.paths[1].open("r+b") as file:
        file.seek(7 * RECORD + 100)
        file.write(b"\x00\x01")
    cache = bench.cache(8, verify=True)
    bench.use(cache, 1, 6)
    with pytest.raises(IntegrityError, match="expert 7 of layer 1: checksum mismatch"):
        bench.use(cache, 1, 7)


def test_an_abandoned_turn_leaves_a_cache_that_works(bench):
    cache = bench.cache(3, lookahead=2)
    for _ in range(4):
        with pytest.raises(ZeroDivisionError), cache.demand(0, np.array([[1, 2, 3]])) as arriving:
            cache.hint(1, np.array([5, 6]))
            next(arriving)
            raise ZeroDivisionError
        assert sorted(bench.use(cache, 1, 7, 8, 9)) == [7, 8, 9]
        assert sorted(bench.use(cache, 0, 1, 2, 3)) == [1, 2, 3]


def test_slots_are_filled_at_the_start_with_what_is_wanted_most(bench):
    cache = bench.cache(3)
    steps = []
    cache.preload([(0, 4), (1, 4), (2, 4), (0, 5)], lambda done, total: steps.append((done, total)))
    assert steps == [(RECORD, 3 * RECORD), (2 * RECORD, 3 * RECORD), (3 * RECORD, 3 * RECORD)]
    for layer in range(LAYERS):
        assert bench.use(cache, layer, 4) == [4]
    statistics = cache.statistics()
    assert (statistics.hits, statistics.misses, statistics.preloaded_bytes) == (3, 0, 3 * RECORD)


def test_every_demand_is_told_to_who_listens(bench):
    told = []
    cache = bench.cache(4, on_routed=lambda layer, routed: told.append((layer, routed.tolist())))
    bench.use_chunk(cache, 1, [[3, 5], [5, 7]])
    assert told == [(1, [[3, 5], [5, 7]])]


def test_a_cache_without_slots_is_refused(bench):
    with pytest.raises(ResidencyError, match="at least one slot"):
        bench.cache(0)


def test_a_run_hits_what_the_simulator_says(bench):
    rng = np.random.default_rng(5)
    # turns of two experts, drawn unevenly: the cache of nine slots can keep some of them
    weights = 1 / np.arange(1, EXPERTS + 1)
    turns = tuple(
        Turn(n % LAYERS, tuple(rng.choice(EXPERTS, 2, replace=False, p=weights / weights.sum()).tolist()))
        for n in range(300)
    )
    cache = bench.cache(9, "lfru")
    for turn in turns:
        bench.use(cache, turn.layer, *turn.experts)
    assert cache.statistics().hits == simulate(Trace(turns, 100), "lfru", 9).hits


def test_what_was_wanted_most_is_the_last_of_what_was_loaded_to_go(bench):
    cache = bench.cache(3, "lru")
    cache.preload([(0, 4), (1, 4), (2, 4)])
    bench.use(cache, 0, 9)
    assert bench.use(cache, 0, 4) == [4]
    assert (cache.statistics().hits, cache.statistics().misses) == (1, 1)


def test_a_guess_is_judged_by_its_own_layer_alone(bench):
    cache = bench.cache(8, lookahead=2)
    cache.hint(1, np.array([5, 6]))
    bench.use(cache, 2, 5, 6)
    assert cache.statistics().recall is None


def test_an_abandoned_turns_experts_can_be_given_up_again(bench):
    cache = bench.cache(2)
    bench.use(cache, 0, 1, 2)
    with pytest.raises(ZeroDivisionError), cache.demand(0, np.array([[1, 2]])):
        raise ZeroDivisionError
    batches = len(bench.reader.batches)
    with cache.demand(1, np.array([[3, 4]])):
        assert len(bench.reader.batches[batches]) == 2


def test_closing_waits_for_what_is_in_flight(bench):
    cache = bench.cache(8, lookahead=2)
    cache.hint(1, np.array([5, 6]))
    cache.close()
    assert bench.reader.in_flight == []
