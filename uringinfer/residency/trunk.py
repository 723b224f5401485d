"""The streamed trunk: every weight besides routed experts, some pinned in memory, the others streaming.

Every pass over the model uses every segment once, in one order. So what to keep is not a question for a
cache (LRU over a cyclic scan hits exactly nothing) but for a plan: the pinned segments are read once, at the
start, and the others stream through the ring, pass after pass. `Trunk` owns that memory; `begin` starts a
pass, in which a model asks for its tensors by name.

The trunk knows segments, slots and the order; it does not know what a layer computes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from uringinfer.container.manifest import Segment
from uringinfer.container.row_checksums import Checksums
from uringinfer.errors import Interrupted, ResidencyError
from uringinfer.kernels import Kernels
from uringinfer.residency.checker import ReadChecker
from uringinfer.residency.embedding import EmbeddingRows
from uringinfer.residency.experts import ExpertCache
from uringinfer.residency.lease import Lease, Slot
from uringinfer.residency.order import Tensor, tensors_in_order
from uringinfer.residency.passes import TrunkPass
from uringinfer.residency.ring import SegmentRing, check_segment
from uringinfer.residency.tenure import Tenure
from uringinfer.residency.timeline import Timeline
from uringinfer.storage.direct import StorageFile
from uringinfer.storage.reader import Bytes, Priority, Reader, ReadRequest, Ticket

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""

LOAD_WINDOW = 8
"""Pinned segments in the reader's queue at once while loading: enough to keep it full, few enough that the
progress moves."""


@dataclass(frozen=True, slots=True)
class TrunkMemory:
    """The trunk's memory, carved out of an arena: one region for each pinned segment, by its number, the
    slots of the ring, and the staging buffer of embedding rows."""

    pinned: Mapping[int, Bytes]
    slots: Sequence[Bytes]
    staging: Bytes


@dataclass(frozen=True, slots=True)
class TrunkStatistics:
    """Counters since the trunk was made; bytes and seconds.

    `pinned_bytes` and `streamed_bytes` are what passes used from memory and from the ring;
    `embedding_bytes` is what rows read on demand took from the drive. The waits are those of the thread that
    computes. In `in_flight_seconds` the reader, which others may use too, had something in flight.
    """

    passes: int
    pinned_bytes: int
    streamed_bytes: int
    embedding_bytes: int
    ring_wait_seconds: float
    embedding_wait_seconds: float
    in_flight_seconds: float

    @property
    def wait_seconds(self) -> float:
        """Seconds that the computing thread waited for reads."""
        return self.ring_wait_seconds + self.embedding_wait_seconds

    @property
    def hit_rate(self) -> float:
        """Share of the bytes used by passes that was in memory already, 0 to 1."""
        used = self.pinned_bytes + self.streamed_bytes
        return self.pinned_bytes / used if used else 1.0


class Trunk:
    """The segments of one container, in memory and on their way there.

    `checker` checks every segment that was read, and by `row_checksums` (of segments by number) every row
    that was read on demand, before they are used; `poison` makes views that outlive
    their slot give NaN; `experts` is what a pass hands to models that have routed experts; `timeline` hears
    of passes and segments.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        file: StorageFile,
        reader: Reader,
        kernels: Kernels,
        memory: TrunkMemory,
        *,
        checker: ReadChecker | None = None,
        row_checksums: Mapping[int, Checksums] | None = None,
        poison: bool = False,
        experts: ExpertCache | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        self._segments = tuple(segments)
        self._file = file
        self._reader = reader
        self._kernels = kernels
        self._checker = checker
        self._experts = experts
        self._timeline = timeline
        tensors = tensors_in_order(segments)
        self._tables: dict[str, Tensor] = {tensor.name: tensor for tensor in tensors}
        self._order = tuple(t for t in tensors if self._segments[t.pieces[0].segment].streamed)
        self._pinned = {number: Slot(region) for number, region in memory.pinned.items()}
        streaming = [s for number, s in enumerate(segments) if s.streamed and number not in self._pinned]
        self._ring = SegmentRing(reader, file, streaming, memory.slots, checker=checker, poison=poison)
        self._embeddings = EmbeddingRows(
            reader,
            file,
            memory.staging,
            pinned=self._pinned_bytes,
            file_offset=lambda n: segments[n].offset,
            checker=checker,
            checksums=row_checksums,
        )
        self.tenure = Tenure(self.interrupt)
        self._is_ring_current = False
        self._stop_requested = False
        self._stop_after_pass = False
        self._passes = 0
        self._bytes_pinned = 0
        self._bytes_streamed = 0

    @property
    def kernels(self) -> Kernels:
        """What computes with the weights."""
        return self._kernels

    @property
    def overlaps(self) -> bool:
        """Whether segments are read while others are computed."""
        return self._ring.overlaps

    def load(self, progress: Progress | None = None) -> None:
        """Reads the pinned segments, then starts the ring. Raises IntegrityError for what cannot be read."""
        total = sum(self._segments[number].nbytes for number in self._pinned)
        done = 0
        in_flight: deque[tuple[int, Ticket]] = deque()
        waiting = deque(sorted(self._pinned))
        while waiting or in_flight:
            while waiting and len(in_flight) < LOAD_WINDOW:
                number = waiting.popleft()
                in_flight.append((number, self._submit_pinned(number)))
            number, ticket = in_flight.popleft()
            self._reader.wait(ticket)
            segment = self._segments[number]
            if self._checker is not None:
                check_segment(self._checker, segment, self._pinned_request(number), self._pinned[number])
            done += segment.nbytes
            if progress is not None:
                progress(done, total)
        self._restart_ring()

    @contextmanager
    def begin(self) -> Iterator[TrunkPass]:
        """Starts a pass. If the block raises, the pass is abandoned and the next one begins anew.

        Raises ResidencyError if a pass is open already, or if the block used too few tensors; Interrupted if
        the last pass was to be the last one; UsageError in a forked process, and when the trunk is closed.
        """
        with self.tenure.hold():
            if self._stop_after_pass:
                raise Interrupted("stopped as asked")
            if not self._is_ring_current:
                self._restart_ring()
            weights = TrunkPass(
                self._kernels,
                self._order,
                self._tables,
                self._embeddings,
                self._take,
                # called behind every product, so nothing is called that has nothing to do
                self._poll if self._is_early else self._reader.poll,
                self._experts,
            )
            if self._timeline is not None:
                self._timeline.begin_pass()
            try:
                yield weights
                weights.finish()
                self._passes += 1
                if self._timeline is not None:
                    self._timeline.end_pass()
            except BaseException:
                weights.abandon()
                self._is_ring_current = False
                raise

    def interrupt(self, *, after_pass: bool = False) -> None:
        """Makes the next segment that is asked for raise Interrupted, or `after_pass` the next pass that
        begins. Safe in a signal handler."""
        if after_pass:
            self._stop_after_pass = True
        else:
            self._stop_requested = True

    def resume(self) -> None:
        """Takes an interrupt back."""
        self._stop_requested = self._stop_after_pass = False

    def statistics(self) -> TrunkStatistics:
        return TrunkStatistics(
            self._passes,
            self._bytes_pinned,
            self._bytes_streamed,
            self._embeddings.bytes_read,
            self._ring.wait_seconds,
            self._embeddings.wait_seconds,
            self._reader.statistics().in_flight_seconds,
        )

    def close(self) -> None:
        """Waits for reads in flight and lets go of the memory; the trunk is of no use afterwards."""
        self._ring.close()
        self._embeddings.close()
        self._pinned.clear()

    def _submit_pinned(self, number: int) -> Ticket:
        return self._reader.submit([self._pinned_request(number)])

    def _pinned_request(self, number: int) -> ReadRequest:
        segment = self._segments[number]
        destination = self._pinned[number].memory[: segment.nbytes]
        return ReadRequest(self._file, segment.offset, destination, Priority.TRUNK)

    def _poll(self) -> None:
        """Keeps reads moving, and checks of what has arrived."""
        self._reader.poll()
        self._ring.poll()
        if self._experts is not None:
            self._experts.checks.poll()

    @property
    def _is_early(self) -> bool:
        """Whether there are reads so large that they are checked while others are computed."""
        return self._ring.is_early or (self._experts is not None and self._experts.checks.is_early)

    def _restart_ring(self) -> None:
        self._ring.restart()
        self._is_ring_current = True

    def _pinned_bytes(self, number: int) -> Bytes | None:
        slot = self._pinned.get(number)
        return None if slot is None else slot.memory

    def _take(self, number: int) -> Lease:
        if self._stop_requested:
            raise Interrupted("stopped as asked")
        if self._timeline is not None:
            self._timeline.mark(number)
        segment = self._segments[number]
        slot = self._pinned.get(number)
        if slot is not None:
            self._bytes_pinned += segment.nbytes
            return Lease(segment.name, slot, segment.nbytes)
        lease = self._ring.take()
        if lease.name != segment.name:
            raise ResidencyError(f"segment '{segment.name}' is needed and the ring holds '{lease.name}'")
        self._bytes_streamed += segment.nbytes
        return lease
