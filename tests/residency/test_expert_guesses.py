"""The expert cache's guesses: what is read ahead, what is given up for it, what is taken back."""

import numpy as np
import pytest
from expert_bench import EXPERTS, LAYERS, RECORD

from uringinfer.storage.reader import Priority


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


def test_a_late_guess_goes_before_an_early_one_and_counts_as_guessed_too(bench):
    cache = bench.cache(8, lookahead=2)
    cache.hint(1, np.array([5, 6]))
    cache.hint(1, np.array([5, 7]), late=True)
    assert [[request.priority for request in batch] for batch in bench.reader.batches] == [
        [Priority.SPECULATION] * 2,
        [Priority.EXPECTED],
    ]
    bench.use(cache, 1, 5, 7)
    assert cache.statistics().guessed_bytes == 2 * RECORD  # expert 6 was taken back


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


@pytest.mark.parametrize(("loaded", "at_once"), [((1, 2), True), ((1,), False), ((), True)])
def test_a_guess_waits_while_the_drive_is_busy_and_there_is_something_to_compute(bench, loaded, at_once):
    cache = bench.cache(8, lookahead=2)
    if loaded:
        bench.use(cache, 0, *loaded)
    guesses = []
    with cache.demand(
        0, np.array([[1, 2]]), lambda: guesses.append(len(bench.reader.open_tickets))
    ) as arriving:
        assert len(guesses) == at_once
        next(arriving)
        assert len(guesses) == at_once
        list(arriving)
    assert guesses == [2 - len(loaded)]  # before anything is waited for, and once


def test_a_guess_that_fails_leaves_no_expert_behind_that_cannot_go(bench):
    cache = bench.cache(2, "lru", lookahead=2)

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), cache.demand(0, np.array([[1, 2]]), fail):
        pass
    assert sorted(bench.use(cache, 1, 5, 6)) == [5, 6]


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


def test_a_guess_is_judged_by_its_own_layer_alone(bench):
    cache = bench.cache(8, lookahead=2)
    cache.hint(1, np.array([5, 6]))
    bench.use(cache, 2, 5, 6)
    assert cache.statistics().recall is None


def test_a_late_guess_takes_back_what_it_does_not_name_and_adds_what_only_it_names(bench):
    cache = bench.cache(8, poison=True, lookahead=3)
    bench.reader.begun.add(6 * RECORD)
    cache.hint(1, np.array([5, 6, 7]))
    cache.hint(1, np.array([5, 8, 9, 10]), late=True)
    assert bench.reader.withdrawn == [7 * RECORD]
    assert [request.offset for request in bench.reader.batches[-1]] == [8 * RECORD, 9 * RECORD, 10 * RECORD]
    assert sorted(bench.use(cache, 1, 5, 6, 8, 9, 7)) == [5, 6, 7, 8, 9]
    assert bench.reader.withdrawn == [7 * RECORD, 10 * RECORD]
    statistics = cache.statistics()
    assert (statistics.guesses, statistics.prefetched, statistics.misses) == (4, 4, 1)


def test_a_late_guess_that_agrees_with_the_early_one_reads_nothing_twice(bench):
    cache = bench.cache(8, lookahead=2)
    cache.hint(1, np.array([5, 6]))
    cache.hint(1, np.array([6, 5]), late=True)
    assert len(bench.reader.requests) == 2
    assert sorted(bench.use(cache, 1, 5, 6)) == [5, 6]
    bench.use(cache, 2, 1, 2, 3, 4)
    bench.use(cache, 0, 1, 2, 3, 4)  # needs their slots: nothing holds them any more
    assert cache.statistics().misses == 8


def test_guesses_that_turn_out_right_are_read_with_the_urgency_of_demand(bench):
    cache = bench.cache(8, lookahead=3)
    bench.use(cache, 1, 4)
    cache.hint(1, np.array([5, 6, 7]))
    bench.reader.complete(6 * RECORD)
    bench.use(cache, 1, 4, 5, 6, 9)
    assert bench.reader.promoted == [5 * RECORD]


def test_an_expert_that_arrived_before_its_turn_is_handed_out_with_those_in_memory(bench):
    cache = bench.cache(8, lookahead=1)
    bench.use(cache, 1, 4)
    cache.hint(1, np.array([5]))
    bench.reader.complete(5 * RECORD)
    with cache.demand(1, np.array([[4, 5, 6]])) as arriving:
        batches = [[expert for expert, _ in batch] for batch in arriving]
    assert batches == [[4, 5], [6]]
