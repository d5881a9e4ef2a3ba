"""The common limit of connections: the choice of the connection to close when all together have too
many unsent bytes."""

from types import SimpleNamespace

from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.hub import Hub
from turbopump.net.transport.options import MIB, ServerOptions
from turbopump.net.wire.command import FRAME_MAX


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
