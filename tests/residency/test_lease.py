"""Leases: a view's right to its slot ends with the slot's generation."""

import numpy as np
import pytest

from uringinfer.errors import ResidencyError
from uringinfer.residency.lease import Lease, Slot


def test_a_lease_gives_the_first_bytes_of_its_slot():
    slot = Slot(np.arange(10, dtype=np.uint8))
    assert Lease("segment", slot, 4).data.tolist() == [0, 1, 2, 3]


def test_using_a_lease_after_its_release_names_it_and_both_generations():
    lease = Lease("segment 7", Slot(np.zeros(10, np.uint8)), 4)
    lease.release()
    with pytest.raises(ResidencyError, match=r"'segment 7' .* \(generation 0, the slot is at 1\)"):
        _ = lease.data


def test_a_lease_cannot_be_released_twice():
    calls = []
    lease = Lease("segment", Slot(np.zeros(10, np.uint8)), 4, lambda: calls.append(1))
    lease.release()
    with pytest.raises(ResidencyError, match="after it was over"):
        lease.release()
    assert calls == [1]


def test_an_old_lease_cannot_end_a_new_one_of_the_same_slot():
    slot = Slot(np.zeros(10, np.uint8))
    old = Lease("old", slot, 4)
    old.release()
    new = Lease("new", slot, 4)
    with pytest.raises(ResidencyError):
        old.release()
    old.cancel()
    assert new.data.size == 4


def test_cancelling_a_lease_ends_it_and_starts_nothing():
    calls = []
    lease = Lease("segment", Slot(np.zeros(10, np.uint8)), 4, lambda: calls.append(1))
    lease.cancel()
    with pytest.raises(ResidencyError):
        _ = lease.data
    assert calls == []
