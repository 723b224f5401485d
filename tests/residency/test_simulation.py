import pytest

from uringinfer.errors import UsageError
from uringinfer.residency.policies import POLICIES
from uringinfer.residency.simulate import simulate, slots_of
from uringinfer.residency.trace import Trace, Turn

# two passes over two layers: 8 requests, 4 of them for an expert used before
TRACE = Trace((Turn(0, (1, 2)), Turn(1, (3, 4)), Turn(0, (1, 2)), Turn(1, (3, 4))), passes=2)


@pytest.mark.parametrize("policy", POLICIES)
def test_with_a_slot_for_each_expert_only_first_uses_miss(policy):
    result = simulate(TRACE, policy, 4)

    assert (result.requests, result.hits, result.hit_rate) == (8, 4, 0.5)


def test_lru_never_hits_in_a_cycle_longer_than_the_cache_and_belady_does():
    # keeping two and cycling the last two through the third slot: hits 1 and 2 once each, and 4 at the end
    assert simulate(TRACE, "lru", 3).hits == 0
    assert simulate(TRACE, "belady", 3).hits == 3


def test_bytes_per_token_are_the_misses_of_a_pass():
    assert simulate(TRACE, "lru", 4).bytes_per_token(1000) == 4 * 1000 / 2


def test_the_json_has_the_published_keys():
    assert simulate(TRACE, "lru", 4).to_json(record_bytes=1000) == {
        "policy": "lru",
        "slots": 4,
        "requests": 8,
        "hits": 4,
        "hit_rate": 0.5,
        "bytes_per_token": 2000.0,
    }
    assert simulate(TRACE, "lru", 4).to_json(record_bytes=None)["bytes_per_token"] is None


def test_a_cache_without_slots_is_refused():
    with pytest.raises(UsageError, match="0 slots"):
        simulate(TRACE, "lru", 0)


def test_capacities_become_whole_slots():
    assert slots_of([8 * 10**9, 16 * 10**9], 17_547_264) == [455, 911]
    with pytest.raises(UsageError, match="100 bytes holds no record of 17547264 bytes"):
        slots_of([100], 17_547_264)
