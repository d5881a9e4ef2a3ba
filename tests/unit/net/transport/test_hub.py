"""The common limit of connections: the choice of the connection to close when all together have too
many unsent bytes."""

import asyncio
from types import SimpleNamespace

import pytest

from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.hub import Hub
from turbopump.net.transport.options import MIB, ServerOptions
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.command import FRAME_MAX, new_request

DAY_MS = 86_400_000


class Unread:
    """A connection with `unsent` bytes, blocked since a time (0: it is not blocked)."""

    def __init__(self, name: str, unsent: int, blocked_since: float, log: list[str]) -> None:
        self.peer = SimpleNamespace(address=name)
        self.unsent, self.blocked_since, self._log = unsent, blocked_since, log

    def abort(self) -> None:
        self._log.append(self.peer.address)
        self.unsent = 0


def a_hub(now: float) -> Hub:
    loop = SimpleNamespace(time=lambda: now, call_soon=lambda callback: None)
    return Hub(Dispatcher(), ServerOptions(), lambda: 0, loop)


def test_those_are_cut_that_keep_much_for_long() -> None:
    cut: list[str] = []
    hub = a_hub(now=100.0)
    fresh = Unread("was just answered", 16 * MIB, 100.0, cut)
    slow = Unread("reads slowly", MIB, 70.0, cut)
    reading = Unread("reads", 20 * MIB, 0.0, cut)
    deaf = [Unread(f"deaf {number}", 10 * MIB, 90.0 - number, cut) for number in range(12)]
    for one in (slow, *deaf, reading, fresh):
        hub.note_unsent(one, one.unsent)
    assert cut and set(cut) <= {one.peer.address for one in deaf}
    assert cut[0] == "deaf 11"
    assert sum(one.unsent for one in (fresh, slow, reading, *deaf)) <= hub.options.unsent_max


def test_a_server_keeps_little_and_the_largest_answer_always_fits() -> None:
    options = ServerOptions()
    assert options.unsent_max <= 128 * MIB
    assert options.write_high_water <= MIB
    assert options.write_max >= FRAME_MAX + options.write_high_water


class Quiet:
    """A connection on which nothing is read or written."""

    def __init__(self, active_at: float) -> None:
        self.peer = SimpleNamespace(address="quiet")
        self.active_at, self.touched = active_at, False
        self.slow_since = self.closing_at = self.blocked_since = 0.0
        self.ends: list[str] = []

    def close(self) -> None:
        self.ends.append("close")

    def abort(self) -> None:
        self.ends.append("abort")


@pytest.mark.parametrize("step_ms", [-365 * DAY_MS, -1, 1, 365 * DAY_MS])
def test_a_stepped_clock_of_handlers_moves_no_limit_of_connections(step_ms: int) -> None:
    wall_ms, steady_s = 1_700_000_000_000, 1_000.0
    loop = SimpleNamespace(time=lambda: steady_s, call_soon=lambda callback: None)
    handled: list[int] = []
    table = Dispatcher()
    table.add(1, lambda request, peer, now_ms: handled.append(now_ms))
    hub = Hub(table, ServerOptions(), lambda: wall_ms, loop)
    idle_s = hub.options.idle_timeout_ms / 1_000
    live, half_sent, dead = Quiet(hub.clock()), Quiet(hub.clock()), Quiet(hub.clock() - idle_s)
    half_sent.slow_since = hub.clock() - hub.options.frame_timeout_ms / 1_000 + 1
    hub.connections |= {live, half_sent, dead}
    wall_ms += step_ms
    hub.sweep(hub.clock())
    assert (live.ends, half_sent.ends, dead.ends) == ([], [], ["close"])
    steady_s += idle_s
    hub.sweep(hub.clock())
    assert (live.ends, half_sent.ends) == (["close"], ["abort"])
    hub.dispatch(new_request(1), Peer("x:1", b"", None), None)  # type: ignore[arg-type]
    assert handled == [wall_ms], "handlers receive the stepped time"


def test_a_cancelled_close_leaves_no_connection_and_no_sweep() -> None:
    async def story() -> None:
        hub = Hub(Dispatcher(), ServerOptions(), lambda: 0, asyncio.get_running_loop())
        hub.start_sweeping()
        stuck = Quiet(hub.clock())
        hub.connections.add(stuck)  # type: ignore[arg-type]
        closing = asyncio.create_task(hub.close(60_000))
        await asyncio.sleep(0)
        assert stuck.ends == ["close"]
        closing.cancel()
        await asyncio.wait({closing})
        assert closing.cancelled() and stuck.ends == ["close", "abort"]
        assert hub._sweeper is None

    asyncio.run(story())
