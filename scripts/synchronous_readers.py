"""Readers for comparison: what an engine does that reads synchronously. Nothing is read ahead, nothing is
computed while something is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uringinfer.storage.reader import Reader, ReadRequest, Ticket


class _Blocking:
    """A reader over `reader` that is done with every request when `submit` returns."""

    overlaps = False

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def submit(self, requests: Sequence[ReadRequest]) -> Ticket:
        ticket = self._reader.submit(requests)
        self._reader.wait(ticket)
        return ticket


class BatchAtATime(_Blocking):
    """All reads of one call are in flight together; the caller goes on when the last is done. Asked for the
    experts that a layer lacks, it brings all of them before the first is computed."""

    def submit_each(self, requests: Sequence[ReadRequest]) -> Sequence[Ticket]:
        tickets = self._reader.submit_each(requests)
        for ticket in tickets:
            self._reader.wait(ticket)
        return tickets


class _Later:
    """A read that begins when somebody waits for it."""

    def __init__(self, request: ReadRequest) -> None:
        self.request = request
        self.done = False


class OneAtATime(_Blocking):
    """Each request of a call is one blocking read, made when somebody waits for it: an expert is read when
    the sum comes to it. The reader below must not split a record, or several pieces are in flight."""

    def submit_each(self, requests: Sequence[ReadRequest]) -> Sequence[Ticket]:
        return [_Later(request) for request in requests]

    def wait(self, ticket: Ticket) -> None:
        if not isinstance(ticket, _Later):
            self._reader.wait(ticket)
        elif not ticket.done:
            self.submit([ticket.request])
            ticket.done = True
