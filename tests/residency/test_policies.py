"""The oracles here are naive: they look through the whole history, or try everything."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uringinfer.errors import ResidencyError, UsageError
from uringinfer.residency.policies import (
    DEFAULT_POLICY,
    ONLINE_POLICIES,
    Belady,
    Lfru,
    Lfu,
    Lru,
    make_policy,
)

LAYERS = (3, 4, 7)
EXPERTS = 5

turns = st.lists(
    st.tuples(st.integers(0, 2), st.sets(st.integers(0, EXPERTS - 1), min_size=1, max_size=3)),
    min_size=1,
    max_size=40,
).map(lambda drawn: [(LAYERS[place], sorted(experts)) for place, experts in drawn])
requests = st.lists(st.integers(0, 5), min_size=1, max_size=11).map(lambda keys: [(0, key) for key in keys])


def evictions(policy, trace, slots, pinned=()):
    """Drives `policy` as a cache does; the victims in order."""
    resident, out = set(), []
    for layer, experts in trace:
        policy.begin_turn(layer, experts)
        for key in [(layer, expert) for expert in experts]:
            if key in resident:
                policy.touch(key)
                continue
            if len(resident) == slots:
                victim = policy.victim(pinned)
                resident.remove(victim)
                out.append(victim)
            policy.insert(key)
            resident.add(key)
    return out


def naive_evictions(trace, slots, choose):
    """The same with `choose(resident, history)`, where history holds the requests so far, turns marked."""
    resident, out, history = [], [], []
    for layer, experts in trace:
        history.append((layer, tuple(experts)))
        uses = []
        for key in [(layer, expert) for expert in experts]:
            if key not in resident:
                if len(resident) == slots:
                    victim = choose(resident, history, uses)
                    resident.remove(victim)
                    out.append(victim)
                resident.append(key)
            uses.append(key)
    return out


def all_uses(history, uses):
    past = [(layer, expert) for layer, experts in history[:-1] for expert in experts]
    return past + uses


@given(turns, st.integers(1, 8))
def test_lru_gives_up_the_one_unused_for_longest(trace, slots):
    def choose(resident, history, uses):
        order = all_uses(history, uses)
        return min(resident, key=lambda key: max(i for i, used in enumerate(order) if used == key))

    assert evictions(Lru(), trace, slots) == naive_evictions(trace, slots, choose)


@given(turns, st.integers(1, 8))
def test_lfu_gives_up_the_fewest_uses_since_it_came_in(trace, slots):
    counts, last, out, time = {}, {}, [], 0
    for layer, experts in trace:
        for key in [(layer, expert) for expert in experts]:
            time += 1
            if key not in counts and len(counts) == slots:
                victim = min(counts, key=lambda key: (counts[key], last[key]))
                del counts[victim]
                out.append(victim)
            counts[key] = counts.get(key, 0) + 1
            last[key] = time

    assert evictions(Lfu(), trace, slots) == out


keys = st.tuples(st.sampled_from(LAYERS), st.integers(0, EXPERTS - 1))


@given(turns, st.integers(3, 10), st.sets(keys, max_size=2))
def test_lfru_gives_up_the_one_whose_next_use_is_expected_last(trace, slots, pinned):
    def chance(key, history):
        own = [experts for layer, experts in history if layer == key[0]][::-1]

        def share(keep):
            weights = [keep**age for age in range(len(own))]
            return sum(w for w, experts in zip(weights, own, strict=True) if key[1] in experts) / sum(weights)

        return share(0.6) / 3 + share(0.98) * 2 / 3

    def choose(resident, history, uses):
        layer, chosen = history[-1]
        order = all_uses(history, uses)

        def last_use(key):
            return max(i for i, used in enumerate(order) if used == key)

        def wait(key):
            distance = (LAYERS.index(key[0]) - LAYERS.index(layer)) % 3 / 3 or 1.0
            return round(distance + 1 / max(chance(key, history), 1e-3), 9)

        may_go = [key for key in resident if key not in pinned]
        free = [key for key in may_go if key[0] != layer or key[1] not in chosen]
        if not free:
            return min(may_go, key=last_use)
        return max(free, key=lambda key: (wait(key), -last_use(key)))

    assert evictions(Lfru(LAYERS, EXPERTS), trace, slots, pinned) == naive_evictions(trace, slots, choose)


@settings(max_examples=50)
@given(requests, st.integers(1, 4))
def test_belady_misses_as_rarely_as_any_choice_of_victims_can(keys, slots):
    @cache
    def fewest(position, resident):
        if position == len(keys):
            return 0
        key = keys[position]
        if key in resident:
            return fewest(position + 1, resident)
        if len(resident) < slots:
            return 1 + fewest(position + 1, resident | {key})
        return 1 + min(fewest(position + 1, resident - {victim} | {key}) for victim in resident)

    trace = [(0, [expert]) for _, expert in keys]
    misses = len(evictions(Belady(keys), trace, slots)) + min(slots, len(set(keys)))

    assert misses == fewest(0, frozenset())


def a_policy(name):
    every = [(layer, expert) for layer in LAYERS for expert in range(EXPERTS)]
    return Belady(every * 2) if name == "belady" else make_policy(name, LAYERS, EXPERTS)


@pytest.mark.parametrize("name", [*ONLINE_POLICIES, "belady"])
def test_what_is_pinned_stays_and_comes_back_into_its_place(name):
    def filled():
        policy = a_policy(name)
        for layer in LAYERS:
            policy.begin_turn(layer, [0, 1])
            policy.insert((layer, 0))
            policy.insert((layer, 1))
        return policy

    reference = filled()
    order = [reference.victim() for _ in range(6)]

    policy = filled()

    assert [policy.victim(order[:2]) for _ in range(3)] == order[2:5]
    assert [policy.victim() for _ in range(3)] == [*order[:2], order[5]]


@pytest.mark.parametrize("name", [*ONLINE_POLICIES, "belady"])
def test_without_anything_to_give_up_there_is_an_error(name):
    policy = a_policy(name)
    policy.begin_turn(3, [0])
    policy.insert((3, 0))

    with pytest.raises(ResidencyError, match="every resident expert is in use"):
        policy.victim([(3, 0)])
    assert policy.victim() == (3, 0)


def test_lfru_remembers_an_expert_that_was_given_up():
    policy = Lfru(LAYERS, EXPERTS)
    for _ in range(10):
        policy.begin_turn(3, [0])
    policy.begin_turn(3, [1])
    for expert in (0, 1):
        policy.insert((3, expert))
    policy.begin_turn(4, [2])

    assert policy.victim() == (3, 1)


def test_lfru_weighs_a_chunk_by_its_tokens():
    # 8 tokens in one turn: expert 0 chosen by all of them, expert 1 by one
    policy = Lfru((0, 1), EXPERTS)
    policy.begin_turn(0, [0] * 8 + [1], tokens=8)
    for expert in (0, 1):
        policy.insert((0, expert))
    policy.begin_turn(1, [0])

    assert policy.victim() == (0, 1)


@pytest.mark.parametrize(("pinned", "victim"), [([], (7, 1)), ([(7, 1)], (4, 0))])
def test_lfru_knows_nothing_of_a_guess_so_a_pin_must_keep_it(pinned, victim):
    policy = Lfru(LAYERS, EXPERTS)
    policy.begin_turn(4, [0])
    policy.insert((4, 0))
    policy.insert((7, 1))
    policy.begin_turn(3, [0])

    assert policy.victim(pinned) == victim


def test_an_unknown_policy_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match=r"'random'.*lru, lfu, lfru"):
        make_policy("random", LAYERS, EXPERTS)


def test_the_default_policy_is_lfru():
    assert isinstance(make_policy(DEFAULT_POLICY, LAYERS, EXPERTS), Lfru)


@pytest.mark.parametrize("name", ["lru", "lfu", "lfru"])
def test_what_was_discarded_is_no_victim_and_can_come_back(name):
    policy, (layer, other, *_) = a_policy(name), LAYERS
    for expert in (0, 1):
        policy.begin_turn(layer, [expert])
        policy.insert((layer, expert))
    policy.begin_turn(other, [0])
    policy.discard((layer, 0))
    assert policy.victim() == (layer, 1)
    with pytest.raises(ResidencyError):
        policy.victim()
    policy.insert((layer, 0))
    assert policy.victim() == (layer, 0)
