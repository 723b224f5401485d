"""Clocks that stand still but for products: each takes a tenth of a second."""

import time

import pytest
from tiny_models import MOE, pack_moe

from uringinfer.engine import weights_sample
from uringinfer.engine.compute_clock import clock_compute
from uringinfer.engine.opening import open_model
from uringinfer.storage.reader import Priority, open_reader


class SlowKernels:
    """The model's own kernels; each product moves the clock on by 0.1 s and is noted."""

    def __init__(self, kernels):
        self._kernels = kernels
        self.products = []
        self.multiplied_with = set()
        self.now = 0.0

    def __getattr__(self, name):
        return getattr(self._kernels, name)

    def matmul(self, weight, x, out=None):
        self._note(weight, x)
        return self._kernels.matmul(weight, x, out)

    def gated_networks(self, networks, inputs, *arguments, **options):
        for network, x in zip(networks, inputs, strict=True):
            for weight, _ in network.parts():
                self._note(weight, x)
        return self._kernels.gated_networks(networks, inputs, *arguments, **options)

    def _note(self, weight, x):
        self.now += 0.1
        self.products.append((weight, x.shape))
        self.multiplied_with.add(weight.data.tobytes())


@pytest.fixture(scope="module")
def moe(tmp_path_factory):
    return open_model(pack_moe(tmp_path_factory.mktemp("moe")))


def clocked(opened, seconds=0.0, **options):
    kernels = SlowKernels(opened.kernels)
    spent = clock_compute(
        opened.container, opened.model, kernels, seconds, clock=lambda: kernels.now, **options
    )
    return spent, kernels


def matrices(opened):
    """Pieces of matrices that one pass multiplies with."""
    parts = [part for segment in opened.container.streamed_segments for part in segment.parts]
    return [part for part in parts if len(part.shape) == 2]


def test_a_dense_token_costs_what_its_products_take(tiny):
    spent, kernels = clocked(tiny)

    assert spent.trunk == pytest.approx(0.1 * len(matrices(tiny)))
    assert spent.expert == 0.0
    assert all(rows == 1 for _, (rows, _) in kernels.products)


def test_an_expert_costs_its_three_products_and_the_trunk_the_rest(moe):
    spent, _ = clocked(moe)

    assert spent.expert == pytest.approx(0.3)
    # the router is multiplied with from a copy that it holds, not through the trunk
    routers = MOE["layers"]
    assert spent.trunk == pytest.approx(0.1 * len(matrices(moe)), abs=0.1 * routers + 1e-6)


def test_an_early_and_a_late_guess_cost_what_the_next_layers_router_takes(moe):
    spent, _ = clocked(moe, lookahead=2)

    assert spent.guess == pytest.approx(2 * 0.1)
    assert spent.expert == pytest.approx(0.3)
    assert clocked(moe)[0].guess == 0.0


class LateTicket:
    """Of a read that is not done before somebody has waited for it."""

    def __init__(self, ticket):
        self.ticket = ticket
        self.done = False


class CostlyReader:
    """A reader that moves the clock of `kernels` on: by `cost` for each request of `priorities`, and by five
    seconds more when that is waited for."""

    def __init__(self, kernels, cost, priorities):
        self._reader = open_reader("preadv")
        self._kernels = kernels
        self._cost = cost
        self._priorities = priorities

    def __getattr__(self, name):
        return getattr(self._reader, name)

    def submit(self, requests):
        return self._late(self._reader.submit(requests), requests)

    def submit_each(self, requests):
        tickets = self._reader.submit_each(requests)
        return [self._late(ticket, [request]) for ticket, request in zip(tickets, requests, strict=True)]

    def wait(self, ticket):
        if isinstance(ticket, LateTicket):
            self._kernels.now += 0.0 if ticket.done else 5.0
            ticket.done = True
            ticket = ticket.ticket
        self._reader.wait(ticket)

    def promote(self, tickets):
        self._reader.promote(
            [ticket.ticket if isinstance(ticket, LateTicket) else ticket for ticket in tickets]
        )

    def withdraw(self, ticket):
        return False

    def _late(self, ticket, requests):
        costly = [request for request in requests if request.priority in self._priorities]
        self._kernels.now += self._cost * len(costly)
        return LateTicket(ticket) if costly else ticket


@pytest.fixture
def costly(monkeypatch):
    """Makes reads costly; waits are counted by the kernels' clock as well."""

    def install(kernels, cost, *priorities):
        monkeypatch.setattr(
            weights_sample, "open_reader", lambda **options: CostlyReader(kernels, cost, priorities)
        )
        monkeypatch.setattr(time, "perf_counter", lambda: kernels.now)

    return install


@pytest.mark.parametrize("cost", [0.0, 0.5])
def test_a_read_costs_what_the_processor_does_for_it_but_not_the_wait(moe, costly, cost):
    kernels = SlowKernels(moe.kernels)
    costly(kernels, cost, Priority.DEMAND, Priority.SPECULATION)

    spent = clock_compute(moe.container, moe.model, kernels, 60.0, lookahead=2, clock=lambda: kernels.now)

    # medians of few passes are compared, which read one expert more or fewer
    assert spent.read == pytest.approx(cost, rel=0.3, abs=0.01)


def test_a_segment_that_is_read_costs_what_the_processor_does_for_it_but_not_the_wait(tiny, costly):
    kernels = SlowKernels(tiny.kernels)
    costly(kernels, 0.5, Priority.TRUNK)

    spent = clock_compute(tiny.container, tiny.model, kernels, 0.0, clock=lambda: kernels.now)

    segments = tiny.container.streamed_segments
    mean = sum(segment.nbytes for segment in segments) / len(segments)
    assert 0.2 / mean < spent.streamed < 1.0 / mean  # not all of them are read, and they are not alike


def test_a_sample_bounds_the_memory_that_clocking_takes(medium):
    def regions(**options):
        _, kernels = clocked(medium, **options)
        return {weight.data.ctypes.data for weight, _ in kernels.products}

    # everything has memory of its own; besides, there are two slots for what streams
    assert len(matrices(medium)) <= len(regions()) < 1.2 * len(matrices(medium))
    # layers are alike, so one of each segment's layout is enough
    assert len(regions(sample_bytes=1)) < len(matrices(medium)) / 2


def test_experts_share_the_memory_of_a_sample(moe):
    _, kernels = clocked(moe, sample_bytes=3 * moe.container.manifest.banks[0].record_bytes)
    inner, hidden = MOE["inner"], MOE["hidden"]

    regions = {w.data.ctypes.data for w, _ in kernels.products if (w.rows, w.cols) == (inner, hidden)}
    assert len(regions) == 2 * 3  # gate and up of three experts


def test_the_weights_are_the_models_own(with_numpy):
    _, kernels = clocked(with_numpy)

    trunk = with_numpy.container.trunk_path.read_bytes()
    assert kernels.multiplied_with
    assert all(data in trunk for data in kernels.multiplied_with)


def test_it_goes_on_for_the_seconds_that_were_asked_for(tiny):
    _, kernels = clocked(tiny, seconds=30.0)

    assert kernels.now >= 30.0
