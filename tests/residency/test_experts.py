"""The expert cache against a reader whose completions are scripted."""

import numpy as np
import pytest
from expert_bench import EXPERTS, LAYERS, PARTS, RECORD, Bench
from trunk_fakes import GARBAGE

from uringinfer.errors import IntegrityError, ResidencyError
from uringinfer.residency.checker import ReadChecker
from uringinfer.residency.simulate import simulate
from uringinfer.residency.trace import Trace, Turn
from uringinfer.storage.reader import Priority


def test_each_distinct_expert_comes_once_with_its_own_weights(bench):
    cache = bench.cache(8)
    assert bench.use_chunk(cache, 1, [[3, 5], [5, 7], [3, 7]]) == [3, 5, 7]
    weights = None
    with cache.demand(1, np.array([[3]])) as arriving:
        for ((_, weights),) in arriving:
            assert weights.matrices["gate"].rows == 8 and weights.matrices["down"].cols == 8


def _weights(cache, expert):
    with cache.demand(1, np.array([[expert]])) as arriving:
        ((_, weights),) = next(arriving)
    return weights


def test_views_of_an_expert_are_made_once_as_long_as_it_is_resident(tmp_path):
    bench = Bench(tmp_path, PARTS[:3])
    cache = bench.cache(3, "lru", poison=True)
    bench.use(cache, 1, 5)
    assert _weights(cache, 5).network is _weights(cache, 5).network
    for expert in (6, 7, 8, 5):  # 5 goes, and comes back in another slot
        assert bench.use(cache, 1, expert) == [expert]
    assert bench.use(cache, 1, 5, 7, 8) == [5, 7, 8]


def test_copies_of_an_experts_biases_are_not_kept(bench):
    cache = bench.cache(3)
    assert _weights(cache, 5) is not _weights(cache, 5)


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
    cache = bench.cache(8, checker=ReadChecker(bench.reader))
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
