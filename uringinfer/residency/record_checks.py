"""Checks of expert records between their arrival and their use."""

from __future__ import annotations

from uringinfer.residency.checker import ReadChecker
from uringinfer.residency.policies import ExpertKey
from uringinfer.residency.records import ExpertRecords
from uringinfer.residency.turn import Resident
from uringinfer.storage.reader import Priority, Ticket


class RecordChecks:
    """What `checker` has to do for the records of one cache; nothing without one."""

    def __init__(self, records: ExpertRecords, checker: ReadChecker | None) -> None:
        self._records = records
        self._checker = checker
        self.is_early = checker is not None and checker.hands_over(records.slot_bytes)
        """Whether `poll` has anything to do: whether records are so large that they are checked ahead."""
        self._in_flight: dict[ExpertKey, Resident] = {}

    def began(self, entry: Resident, ticket: Ticket) -> None:
        """The read of `entry` was submitted: its slot waits for `ticket`."""
        entry.slot.ticket = ticket
        entry.failed = False
        if self.is_early:
            self._in_flight[entry.key] = entry

    def poll(self) -> None:
        """Begins to check what has arrived while something else is computed."""
        if self._checker is None:
            return
        for key, entry in self._in_flight.items():
            slot = entry.slot
            if slot.check is None and not entry.is_coming:
                slot.check = self._checker.start(slot.memory[: self._records.nbytes(key[0])])

    def confirm(self, entry: Resident) -> None:
        """Raises IntegrityError, naming the expert, if what was read is not what was packed."""
        if self._checker is None:
            return
        key, slot = entry.key, entry.slot
        started, slot.check = slot.check, None
        request = self._records.request(key, slot.memory, Priority.DEMAND)
        self._checker.confirm(self._records.name(key), request, self._records.checksum(key), started)

    def over(self, entry: Resident) -> None:
        """The read of `entry` is over, or was taken back: its slot waits for nothing any more."""
        self._in_flight.pop(entry.key, None)
        if entry.slot.check is not None:  # of a read that failed
            entry.slot.check.result()
            entry.slot.check = None
        entry.slot.ticket = None
