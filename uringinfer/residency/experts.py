"""The expert cache: routed experts in a fixed number of slots, read when a router asks for them.

Routing depends on the data, so unlike the trunk this is a real cache: a policy decides which expert gives up
its slot. What is demanded stays until it was used, what was guessed stays until its layer's turn came, and
what is being read stays until the read is over; the policy chooses among the others. Every access is O(1)
beside the policy's own work.

A turn is one layer's demand. All its misses go to the reader in one batch, ahead of everything else; the
experts that are there are handed out meanwhile, in batches, and the others as their bytes come. A
chunk of a prompt may demand more experts than there are slots; then the rest is submitted as slots come free.
Nothing of this shows in what a model computes, which adds in the router's order.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import IntegrityError, ResidencyError
from uringinfer.residency.checker import ReadChecker
from uringinfer.residency.expert_statistics import COUNTED_AS, ExpertStatistics
from uringinfer.residency.lease import POISON, Lease, Slot
from uringinfer.residency.lookahead import Lookahead
from uringinfer.residency.policies import ExpertKey, Policy
from uringinfer.residency.record_checks import RecordChecks
from uringinfer.residency.records import ExpertRecords, ExpertWeights
from uringinfer.residency.turn import Resident, Turn
from uringinfer.storage.reader import Bytes, Priority, Reader

Ids = NDArray[np.int64]

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""

PRELOAD_BATCH = 64
"""Experts in the reader's queue at once while slots are filled at the start."""

FEW_TOKENS = 16
"""So many tokens or fewer, of a batch that decodes, compute quickly on each expert."""
BATCH_BYTES = 16 << 20
"""Experts of one token are handed out in batches of about so many bytes: enough to multiply that starting
threads does not show, little enough that the reader is polled before the drive has nothing to do."""

OnRouted = Callable[[int, Ids], None]
"""Called with (layer, experts of each token [T, K]) at every demand."""


class ExpertCache:
    """The routed experts of one model. `lookahead` is how many experts of the next layer are guessed.

    `checker` checks every record that was read, before it is used; `poison` overwrites a slot when its expert
    goes; `on_routed` hears of every demand.
    """

    def __init__(
        self,
        records: ExpertRecords,
        reader: Reader,
        slots: Sequence[Bytes],
        policy: Policy,
        *,
        lookahead: int = 0,
        checker: ReadChecker | None = None,
        poison: bool = False,
        on_routed: OnRouted | None = None,
    ) -> None:
        self.lookahead = lookahead
        self.on_routed = on_routed
        self.checks = RecordChecks(records, checker)
        self._records = records
        self._reader = reader
        self._policy = policy
        self._poison = poison
        if not slots:
            raise ResidencyError("an expert cache needs at least one slot")
        self._slot_count = len(slots)
        self._free = [Slot(memory) for memory in reversed(slots)]
        self._resident: dict[ExpertKey, Resident] = {}
        self._missing = {layer: records.count(layer) for layer in records.layers}
        """Experts of each layer that have no slot."""
        self._pinned: set[ExpertKey] = set()
        self._hinted: list[Resident] = []
        self._orphans: dict[ExpertKey, Resident] = {}
        """Being read, and no turn waits for them any more."""
        self._turn_size = 0
        self._guesses = Lookahead()
        self._counts = {"hits": 0, "misses": 0, "prefetched": 0, "guesses": 0}
        self._bytes = dict.fromkeys(COUNTED_AS.values(), 0)
        self._wait_seconds = 0.0

    def preload(self, keys: Sequence[ExpertKey], progress: Progress | None = None) -> None:
        """Fills slots with experts, the most wanted first in `keys`, as many as there are free slots."""
        chosen = [key for key in keys if key not in self._resident][: len(self._free)]
        entries = [Resident(key, self._free.pop()) for key in chosen]
        for entry in entries:
            self._resident[entry.key] = entry
            self._missing[entry.key[0]] -= 1
        for entry in reversed(entries):  # a policy takes what came in last for the most recent
            self._policy.insert(entry.key)
        total = sum(self._records.nbytes(layer) for layer, _ in chosen)
        done = 0
        for start in range(0, len(entries), PRELOAD_BATCH):
            batch = entries[start : start + PRELOAD_BATCH]
            self._read(batch, Priority.TRUNK)
            for entry in batch:
                self._finish_read(entry)
                self._let_go(entry)
                done += self._records.nbytes(entry.key[0])
                if progress is not None:
                    progress(done, total)

    @contextmanager
    def demand(
        self, layer: int, routed: Ids, meanwhile: Callable[[], None] | None = None
    ) -> Iterator[Iterator[list[tuple[int, ExpertWeights]]]]:
        """Asks for the experts of `routed` [T, K], each token's in the router's order.

        What is missing is submitted to the reader before this returns, as far as slots can be had. The
        iterator gives each distinct expert once, several at a time, with their weights, which are valid
        until the iterator is advanced or the context is left. Raises IntegrityError for a record that cannot
        be read or is damaged.

        `meanwhile` is work that can wait for as long as the drive is busy and there is something to compute,
        as a guess can: called once, before this returns or between two batches.
        """
        if self.on_routed is not None:
            self.on_routed(layer, routed)
        turn = self._begin_turn(layer, routed)
        try:
            if meanwhile is not None and not turn.overlaps:
                meanwhile()
                meanwhile = None
            with contextlib.closing(self._arriving(turn, meanwhile)) as arriving:
                yield arriving
        finally:
            for entry in (*turn.here, *turn.coming):  # only if the turn was abandoned
                entry.is_used = False
                self._let_go(entry)

    def wants_guess(self, layer: int) -> bool:
        """Whether a guess about `layer`, whose turn is next, could save a read."""
        return self.lookahead > 0 and self._missing[layer] > 0

    def hint(self, layer: int, guessed: Ids, *, late: bool = False) -> None:
        """Says that `layer`, whose turn is next, may demand `guessed` [N], best first.

        Those not in memory are read when nothing else wants the drive, if guesses of their rank are right
        often enough. None of them goes before its layer's turn; a guess never takes a slot that a turn as
        large as the last one would need. The slots of the turn that goes on will be free by then. A `late`
        guess knows better than the one before: what only that one named is not read if it was not begun.
        """
        self._settle_orphans()
        experts = (guessed if late else guessed[: self.lookahead]).tolist()
        likely = self._guesses.guess(layer, experts, late=late)
        if late:
            named = set(experts)
            self._hinted = [e for e in self._hinted if e.key[1] in named or not self._withdraw(e)]
        new = []
        for expert in experts:
            entry = self._resident.get((layer, expert))
            if entry is None and expert in likely and self._has_room_for_guess():
                entry = self._admit((layer, expert))
                if entry is not None:
                    entry.is_guess = True
                    new.append(entry)
            if entry is not None and not entry.is_hinted:
                entry.is_hinted = True
                self._hinted.append(entry)
                self._orphans.pop(entry.key, None)
                self._pinned.add(entry.key)
        self._counts["guesses"] += len(new)
        self._read(new, Priority.EXPECTED if late else Priority.SPECULATION)

    def _has_room_for_guess(self) -> bool:
        """Whether, with one guess more, the next turn would still find its slots if all guesses are wrong."""
        return self._slot_count - len(self._hinted) - len(self._orphans) > self._turn_size

    def statistics(self) -> ExpertStatistics:
        return ExpertStatistics(
            **self._counts,
            demanded_bytes=self._bytes["demanded"],
            guessed_bytes=self._bytes["guessed"],
            preloaded_bytes=self._bytes["preloaded"],
            wait_seconds=self._wait_seconds,
            recall_demanded=self._guesses.demanded,
            recall_named=self._guesses.named,
        )

    def close(self) -> None:
        """Waits for the reads in flight and lets go of the memory; the cache is of no use afterwards."""
        for entry in self._resident.values():
            if entry.slot.ticket is not None:
                with contextlib.suppress(IntegrityError):  # nobody will use these bytes
                    self._reader.wait(entry.slot.ticket)
        self._resident.clear()
        self._free.clear()
        self._hinted.clear()
        self._orphans.clear()

    def _begin_turn(self, layer: int, routed: Ids) -> Turn:
        choices = routed.reshape(-1).tolist()
        chosen = dict.fromkeys(choices)
        self._turn_size = len(chosen)
        self._settle_orphans()
        self._policy.begin_turn(layer, choices, len(routed))
        self._guesses.judge(layer, chosen)
        # first of all pin what is there: a miss must not take the slot of a hit behind it
        for expert in chosen:
            entry = self._resident.get((layer, expert))
            if entry is not None:
                entry.is_used = True
                self._orphans.pop(entry.key, None)
                self._pinned.add(entry.key)
        self._end_hints()
        # a chunk computes long on each expert, and may need its slot for the next
        batch = max(1, BATCH_BYTES // self._records.nbytes(layer)) if len(routed) <= FEW_TOKENS else 1
        turn = Turn(layer, batch, [], [], deque())
        missing, under_way = [], []
        for expert in chosen:
            entry = self._resident.get((layer, expert))
            if entry is None:
                self._counts["misses"] += 1
                turn.waiting.append((layer, expert))
                missing += self._admit_waiting(turn)
                continue
            self._policy.touch(entry.key)
            self._counts["prefetched" if entry.is_guess else "hits"] += 1
            if entry.is_guess and entry.slot.ticket is not None and not entry.slot.ticket.done:
                under_way.append(entry.slot.ticket)
            entry.is_guess = False
            if entry.failed:
                missing.append(entry)
            if entry.failed or entry.slot.ticket is not None:
                turn.coming.append(entry)
            else:
                turn.here.append(entry)
        if under_way:
            self._reader.promote(under_way)
        self._read(missing, Priority.DEMAND)
        return turn

    def _arriving(
        self, turn: Turn, meanwhile: Callable[[], None] | None
    ) -> Generator[list[tuple[int, ExpertWeights]], None, None]:
        while turn.here or turn.coming or turn.waiting:
            if not (turn.here or turn.coming):
                self._make_room()
                self._read(self._admit_waiting(turn), Priority.DEMAND)
                continue
            self._reader.poll()
            batch = turn.next_batch()
            for entry in batch:
                self._finish_read(entry)
            leases = [self._lease(entry) for entry in batch]
            try:
                yield [
                    (entry.key[1], self._weights(entry, lease))
                    for entry, lease in zip(batch, leases, strict=True)
                ]
            finally:
                turn.remove(batch)
                for entry, lease in zip(batch, leases, strict=True):
                    lease.release()
                    entry.is_used = False
                    self._let_go(entry)
            if turn.waiting:
                self._read(self._admit_waiting(turn), Priority.DEMAND)
            if meanwhile is not None:
                meanwhile()
                meanwhile = None

    def _lease(self, entry: Resident) -> Lease:
        return Lease(self._records.name(entry.key), entry.slot, self._records.nbytes(entry.key[0]))

    def _weights(self, entry: Resident, lease: Lease) -> ExpertWeights:
        """The expert's weights. Views are kept while it is resident; biases, which are copied, are not."""
        record = lease.data
        if entry.weights is not None:
            return entry.weights
        weights = self._records.weights(entry.key[0], record)
        if not weights.biases:
            entry.weights = weights
        return weights

    def _admit_waiting(self, turn: Turn) -> list[Resident]:
        """Gives what waits for a slot one, in order, as far as slots can be had -> those, still unread."""
        admitted = []
        while turn.waiting:
            entry = self._admit(turn.waiting[0])
            if entry is None:
                break
            turn.waiting.popleft()
            entry.is_used = True
            self._pinned.add(entry.key)
            turn.coming.append(entry)
            admitted.append(entry)
        return admitted

    def _admit(self, key: ExpertKey) -> Resident | None:
        """Takes a slot for `key`, free or another expert's; None if no expert may go."""
        if self._free:
            slot = self._free.pop()
        elif len(self._pinned) < len(self._resident):
            victim = self._policy.victim(self._pinned)
            slot = self._resident.pop(victim).slot
            self._missing[victim[0]] += 1
            slot.expire()
            if self._poison:
                slot.memory.fill(POISON)
        else:
            return None
        entry = self._resident[key] = Resident(key, slot)
        self._missing[key[0]] -= 1
        self._policy.insert(key)
        return entry

    def _read(self, entries: Sequence[Resident], priority: Priority) -> None:
        """Submits the reads of `entries` in one batch."""
        requests = [self._records.request(entry.key, entry.slot.memory, priority) for entry in entries]
        self._bytes[COUNTED_AS[priority]] += sum(request.destination.size for request in requests)
        for entry, ticket in zip(entries, self._reader.submit_each(requests), strict=True):
            self.checks.began(entry, ticket)
            self._pinned.add(entry.key)

    def _finish_read(self, entry: Resident) -> None:
        """Waits until the expert is there. Raises IntegrityError if it cannot be read or is damaged."""
        ticket = entry.slot.ticket
        if ticket is None:
            return
        began, waits = time.perf_counter(), not ticket.done
        try:
            self._reader.wait(ticket)
            if waits:
                self._wait_seconds += time.perf_counter() - began
            self.checks.confirm(entry)
        except IntegrityError:
            entry.failed = True
            self.checks.over(entry)
            raise
        self.checks.over(entry)

    def _let_go(self, entry: Resident) -> None:
        """The policy may choose `entry` again, at once or when its read is over."""
        if entry.is_used or entry.is_hinted:
            return
        if entry.slot.ticket is not None:
            self._orphans[entry.key] = entry
        else:
            self._pinned.discard(entry.key)

    def _settle_orphans(self) -> None:
        """Lets those go whose reads are over. One that failed is read again if it is ever demanded."""
        for entry in list(self._orphans.values()):
            if not entry.is_coming:
                self._forget_orphan(entry)

    def _forget_orphan(self, entry: Resident) -> None:
        with contextlib.suppress(IntegrityError):
            self._finish_read(entry)
        del self._orphans[entry.key]
        self._let_go(entry)

    def _end_hints(self) -> None:
        for entry in self._hinted:
            entry.is_hinted = False
            if not self._withdraw(entry):
                self._let_go(entry)
        self._hinted.clear()

    def _withdraw(self, entry: Resident) -> bool:
        """Takes back the read of a wrong guess, if it has not begun: the drive has better things to do."""
        ticket = entry.slot.ticket
        if entry.is_used or not entry.is_guess or ticket is None:
            return False
        entry.failed = True  # before it is: an interruption must not leave an expert that was never read
        if not self._reader.withdraw(ticket):
            entry.failed = False
            return False
        self._counts["guesses"] -= 1
        self._bytes["guessed"] -= self._records.nbytes(entry.key[0])
        del self._resident[entry.key]
        self._missing[entry.key[0]] += 1
        self._policy.discard(entry.key)
        self._pinned.discard(entry.key)
        self.checks.over(entry)
        self._free.append(entry.slot)
        return True

    def _make_room(self) -> None:
        """Frees a slot where guesses and forgotten reads hold all of them."""
        if self._orphans:
            self._forget_orphan(next(iter(self._orphans.values())))
        else:
            self._end_hints()
