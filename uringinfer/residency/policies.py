"""Which resident expert to give up when a slot is needed.

A policy holds no weights and knows no reader. The expert cache and the simulator drive it in the same way,
so what `uringinfer simulate` says about a policy is what a run does:

    begin_turn(layer, experts)      the layer's router has chosen
    touch(key) or insert(key)       each of them, in order: it is resident, or it takes a slot
    victim(pinned)                  before an insert, if every slot is taken

`insert` without a turn is a guess that was read ahead, `discard` a guess that was taken back. None of this
may change what a model computes, only when.

- `lru` gives up the one unused for longest. - `lfu` gives up the one used least often since it came in; the
count is forgotten with it. - `lfru`, the default, keeps two decayed shares of turns for every expert,
resident or not, and gives up the one
  whose next use it expects last.
- `belady` knows the future, and so only simulates: no policy can hit more often.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np

from uringinfer.errors import ResidencyError, UsageError

ExpertKey = tuple[int, int]
"""(layer, expert)"""

ONLINE_POLICIES = ("lru", "lfu", "lfru")
"""Policies that a run can use."""
POLICIES = (*ONLINE_POLICIES, "belady")
DEFAULT_POLICY = "lfru"


_KEEP = np.array([[0.6], [0.98]])
"""What a turn leaves of the shares of earlier ones: memories of about two and of about fifty turns."""
_MIX = np.array([[1 / 3], [2 / 3]])
"""How much each memory says in the estimated chance."""
_LEAST_CHANCE = 1e-3
"""Experts hardly ever used are told apart by recency alone."""
_NONE = -np.inf
"""The wait of an expert that may not go: shorter than any."""


class Policy(Protocol):
    """See the module's docstring. Keys given to `touch` are resident; `victim` takes its answer out."""

    name: str

    def begin_turn(self, layer: int, experts: Collection[int], tokens: int = 1) -> None:
        """`layer` is about to use `experts`, chosen for `tokens` tokens: one entry for each choice."""
        ...

    def touch(self, key: ExpertKey) -> None:
        """A resident expert is used."""
        ...

    def insert(self, key: ExpertKey) -> None:
        """An expert takes a slot, to be used now or because it was guessed."""
        ...

    def discard(self, key: ExpertKey) -> None:
        """A resident expert is resident no longer, without having been a victim."""
        ...

    def victim(self, pinned: Collection[ExpertKey] = ()) -> ExpertKey:
        """The resident expert to give up, none of `pinned`; it is no longer resident afterwards.

        Raises ResidencyError if every resident expert is pinned.
        """
        ...


def make_policy(name: str, layers: Sequence[int], num_experts: int) -> Policy:
    """The online policy `name` for a model with `num_experts` experts in each of `layers` (in order of
    execution).

    Raises UsageError naming the policies there are.
    """
    if name == "lru":
        return Lru()
    if name == "lfu":
        return Lfu()
    if name == "lfru":
        return Lfru(layers, num_experts)
    raise UsageError(
        f"no cache policy is called '{name}'", hint=f"choose one of {', '.join(ONLINE_POLICIES)}"
    )


def _all_pinned() -> ResidencyError:
    return ResidencyError("an expert needs a slot and every resident expert is in use")


class Lru:
    """Least recently used; O(1)."""

    name = "lru"

    def __init__(self) -> None:
        self._order: OrderedDict[ExpertKey, None] = OrderedDict()

    def begin_turn(self, layer: int, experts: Collection[int], tokens: int = 1) -> None:
        """Recency needs no turns."""

    def touch(self, key: ExpertKey) -> None:
        self._order.move_to_end(key)

    def insert(self, key: ExpertKey) -> None:
        self._order[key] = None

    def discard(self, key: ExpertKey) -> None:
        del self._order[key]

    def victim(self, pinned: Collection[ExpertKey] = ()) -> ExpertKey:
        for key in self._order:
            if key not in pinned:
                del self._order[key]
                return key
        raise _all_pinned()


class Lfu:
    """Least frequently used since it came in, of those the least recently used; O(1) but for the number of
    different counts."""

    name = "lfu"

    def __init__(self) -> None:
        self._uses: dict[ExpertKey, int] = {}
        self._by_uses: defaultdict[int, OrderedDict[ExpertKey, None]] = defaultdict(OrderedDict)

    def begin_turn(self, layer: int, experts: Collection[int], tokens: int = 1) -> None:
        """Counting needs no turns."""

    def touch(self, key: ExpertKey) -> None:
        uses = self._remove(key)
        self._add(key, uses + 1)

    def insert(self, key: ExpertKey) -> None:
        self._add(key, 1)

    def discard(self, key: ExpertKey) -> None:
        self._remove(key)

    def victim(self, pinned: Collection[ExpertKey] = ()) -> ExpertKey:
        for uses in sorted(self._by_uses):
            for key in self._by_uses[uses]:
                if key not in pinned:
                    self._remove(key)
                    return key
        raise _all_pinned()

    def _add(self, key: ExpertKey, uses: int) -> None:
        self._uses[key] = uses
        self._by_uses[uses][key] = None

    def _remove(self, key: ExpertKey) -> int:
        uses = self._uses.pop(key)
        del self._by_uses[uses][key]
        if not self._by_uses[uses]:
            del self._by_uses[uses]
        return uses


class Lfru:
    """Gives up the expert whose next use is expected last.

    Layers take turns in a fixed order, so it is known when a layer can use its experts next, only not which
    of them. For every expert, resident or not, two decayed shares estimate the chance c that its layer's
    next turn uses it: one remembers about two turns and follows the topic, the other about fifty and knows
    the favourites. If d (0 to 1) is the part of a full round until the layer's turn, the next use is
    expected after d + (1 / c - 1) rounds. The resident expert with the largest such number goes; of equals
    in a layer, the one unused for longest. What the current turn has chosen stays until the turn is over.

    A victim costs one look at the experts of each layer that something happened to since the last one, which
    is two a turn, and O(layers) beside that, whatever the number of slots.
    """

    name = "lfru"

    def __init__(self, layers: Sequence[int], num_experts: int) -> None:
        count, shape = len(layers), (len(layers), num_experts)
        self._layers = tuple(layers)
        self._place = {layer: place for place, layer in enumerate(layers)}
        self._shares = np.zeros((len(_KEEP), *shape))
        self._weights = np.zeros((len(_KEEP), count, 1))
        """What the weights of a layer's turns add up to: below 1 while its memory is young."""
        self._wait = np.full(shape, 1 / _LEAST_CHANCE)
        """1 / c."""
        self._last_use = np.zeros(shape, np.int64)
        self._clock = 0
        self._resident = np.zeros(shape, bool)
        self._may_go = np.full(shape, _NONE)
        """1 / c of the experts that may go, _NONE for all others."""
        self._longest = np.full(count, _NONE)
        """The largest of each layer in `_may_go`."""
        self._changed: set[int] = set()
        """Places of layers whose `_longest` is out of date."""
        self._passed_over: set[tuple[int, int]] = set()
        """(place, expert) of what might have gone and was pinned; taken out of `_may_go` meanwhile."""
        places = np.arange(count)
        self._distances = (places - places[:, None]) % count / count
        np.fill_diagonal(self._distances, 1.0)
        self._turn = 0
        """Place of the layer whose turn it is."""
        self._chosen = np.zeros(num_experts, bool)

    def begin_turn(self, layer: int, experts: Collection[int], tokens: int = 1) -> None:
        left, place = self._turn, self._place[layer]
        self._may_go[left] = np.where(self._resident[left], self._wait[left], _NONE)
        used = np.bincount(np.fromiter(experts, np.intp, len(experts)), minlength=len(self._chosen))
        keep = _KEEP**tokens
        shares, weights = self._shares[:, place], self._weights[:, place]
        shares += (1 - keep) * (np.minimum(used / tokens, 1.0) - shares)
        weights += (1 - keep) * (1 - weights)
        chance = (_MIX * shares / weights).sum(axis=0)
        self._wait[place] = 1 / np.maximum(chance, _LEAST_CHANCE)
        self._turn, self._chosen = place, used > 0
        stays = self._chosen | ~self._resident[place]
        self._may_go[place] = np.where(stays, _NONE, self._wait[place])
        self._changed.update((left, place))
        self._passed_over = {one for one in self._passed_over if one[0] not in (left, place)}

    def touch(self, key: ExpertKey) -> None:
        self._clock += 1
        self._last_use[self._place[key[0]], key[1]] = self._clock

    def insert(self, key: ExpertKey) -> None:
        self.touch(key)
        place, expert = self._place[key[0]], key[1]
        self._resident[place, expert] = True
        if place != self._turn or not self._chosen[expert]:
            self._let_go(place, expert)

    def discard(self, key: ExpertKey) -> None:
        place, expert = self._place[key[0]], key[1]
        self._resident[place, expert] = False
        self._keep(place, expert)
        self._passed_over.discard((place, expert))

    def victim(self, pinned: Collection[ExpertKey] = ()) -> ExpertKey:
        for place, expert in [one for one in self._passed_over if self._key(*one) not in pinned]:
            self._passed_over.remove((place, expert))
            self._let_go(place, expert)
        key = None
        while key is None and (last := self._expected_last()) is not None:
            self._keep(*last)
            key = self._key(*last)
            if key in pinned:
                self._passed_over.add(last)
                key = None
        if key is None:
            key = self._oldest_of_this_turn(pinned)
        self._resident[self._place[key[0]], key[1]] = False
        return key

    def _key(self, place: int, expert: int) -> ExpertKey:
        return self._layers[place], expert

    def _let_go(self, place: int, expert: int) -> None:
        self._may_go[place, expert] = self._wait[place, expert]
        self._changed.add(place)

    def _keep(self, place: int, expert: int) -> None:
        self._may_go[place, expert] = _NONE
        self._changed.add(place)

    def _expected_last(self) -> tuple[int, int] | None:
        """Place and number of the expert, of those that may go, whose next use is expected last."""
        for changed in self._changed:
            self._longest[changed] = self._may_go[changed].max()
        self._changed.clear()
        place = int((self._longest + self._distances[self._turn]).argmax())
        longest = self._longest[place]
        if longest == _NONE:
            return None
        equals = np.flatnonzero(self._may_go[place] == longest)
        return place, int(equals[self._last_use[place, equals].argmin()])

    def _oldest_of_this_turn(self, pinned: Collection[ExpertKey]) -> ExpertKey:
        """Only the turn's own experts are left, as when a chunk uses more of them than there are slots."""
        layer = self._layers[self._turn]
        chosen = np.flatnonzero(self._chosen & self._resident[self._turn])
        for expert in chosen[self._last_use[self._turn, chosen].argsort()].tolist():
            if (layer, expert) not in pinned:
                return layer, expert
        raise _all_pinned()


class Belady:
    """Gives up the expert whose next use is farthest away in `requests`, which must then come in that
    order."""

    name = "belady"

    def __init__(self, requests: Sequence[ExpertKey]) -> None:
        never = len(requests)
        self._next_use = [never] * never
        following: dict[ExpertKey, int] = {}
        for position in range(never - 1, -1, -1):
            key = requests[position]
            self._next_use[position] = following.get(key, never)
            following[key] = position
        self._position = 0
        self._resident: dict[ExpertKey, int] = {}
        """Next use of each resident expert."""
        self._heap: list[tuple[int, ExpertKey]] = []
        """(-next use, key), farthest first, with entries that are out of date."""

    def begin_turn(self, layer: int, experts: Collection[int], tokens: int = 1) -> None:
        """The future is known request by request."""

    def touch(self, key: ExpertKey) -> None:
        following = self._next_use[self._position]
        self._position += 1
        self._resident[key] = following
        heapq.heappush(self._heap, (-following, key))

    def insert(self, key: ExpertKey) -> None:
        self.touch(key)

    def discard(self, key: ExpertKey) -> None:
        del self._resident[key]

    def victim(self, pinned: Collection[ExpertKey] = ()) -> ExpertKey:
        kept = []
        try:
            while self._heap:
                entry = heapq.heappop(self._heap)
                key = entry[1]
                if self._resident.get(key) != -entry[0]:
                    continue
                if key not in pinned:
                    del self._resident[key]
                    return key
                kept.append(entry)
            raise _all_pinned()
        finally:
            for entry in kept:
                heapq.heappush(self._heap, entry)
