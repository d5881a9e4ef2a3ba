"""Replication under simulation: a part of the seeds that `make sim SUITE=ha` plays, and the proof
that the suite has teeth: each planted bug is found in seeds that find nothing without it.
"""

import random

import pytest

from tests.sim.ha import suite as ha_suite
from tests.sim.ha.carried import CARRIED
from tests.sim.ha.checkers import ALIKE_MAX, History, LogFiles
from tests.sim.ha.net import Network, Wire
from tests.sim.ha.planted import ABOUT, BUGS
from tests.sim.payments.test_seeds import what_is_committed_is_checked
from tests.sim.planting import Plant
from tests.sim.reminders.test_seeds import a_new_master_begins_at_its_own_time
from tests.sim.share import check_found, played
from tests.sim.timers.planted import a_slot_is_delivered_when_it_begins
from tests.sim.transactions.planted import half_messages_are_dispatched_by_recovery

SEEDS = range(240)
# Number of seeds for each bug, with the trouble that it needs as the theme.
THEMED_SEEDS = range(120)
# So that the processes of a parallel run share them.
PARTS = 4

# Seeds that found bugs which are mended.
REGRESSIONS: dict[str, tuple[int, tuple[str, ...]]] = {
    "a replica that does not know idle queues says it has nothing": (910181, ()),
    "a broker takes a timer and dies of that (of the suite)": (20516, ()),
    "a replica is elected before it knows how far idle queues are": (
        116,
        ("lost answers", "election"),
    ),
}


@pytest.mark.parametrize("part", range(PARTS))
def test_group(part: int) -> None:
    for seed in played(SEEDS)[part::PARTS]:
        ha_suite.run_seed(seed)


@pytest.mark.parametrize(("seed", "about"), REGRESSIONS.values(), ids=REGRESSIONS)
def test_past_finding(seed: int, about: tuple[str, ...]) -> None:
    ha_suite.run_seed(seed, about)


@pytest.mark.parametrize("about", sorted(set(ABOUT.values())), ids=" and ".join)
def test_group_about(about: tuple[str, ...]) -> None:
    for seed in played(THEMED_SEEDS):
        ha_suite.run_seed(seed, about)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_suite_finds(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    about = ABOUT.get(bug, ())
    # Which of them shows a rare one changes with all that draws from a seed.
    seeds = range(4 * len(THEMED_SEEDS if about else SEEDS))
    check_found(bug, monkeypatch, lambda seed: ha_suite.run_seed(seed, about), seeds)


CARRIED_BUGS: dict[Plant, range] = {
    a_slot_is_delivered_when_it_begins: range(120),
    a_new_master_begins_at_its_own_time: range(74, 194),
    half_messages_are_dispatched_by_recovery: range(120),
    what_is_committed_is_checked: range(120),
}
"""Bugs of timers, delay levels and transactions, with seeds that carry such messages."""


@pytest.mark.parametrize("bug", CARRIED_BUGS, ids=lambda bug: bug.__name__)
def test_the_carried_parts_find_planted_bugs(bug: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    about = ("election", "kill", CARRIED)
    check_found(bug, monkeypatch, lambda seed: ha_suite.run_seed(seed, about), CARRIED_BUGS[bug])


# The network itself


class Peer:
    """A host that notes the received bytes and events."""

    def __init__(self, network: Network, name: str) -> None:
        self.name = name
        self.up, self.paused = True, False
        self.wire = Wire(network, self)
        self.heard: list[object] = []
        network.hosts[name] = self

    def on_accept(self, link) -> None:
        self.wire.add(link)
        self.heard.append("accepted")

    def on_connected(self, link) -> None:
        self.heard.append("connected")

    def on_bytes(self, link, data: bytes) -> None:
        self.heard.append(data)

    def on_closed(self, link, reason: str) -> None:
        self.heard.append(reason)

    def on_writable(self, link) -> None:
        self.heard.append("writable")


def two() -> tuple[Network, Peer, Peer]:
    network = Network(random.Random(1))
    network.windows = (4,)
    return network, Peer(network, "a"), Peer(network, "b")


def test_bytes_arrive_in_order_and_the_end_behind_them() -> None:
    network, one, other = two()
    connection = one.wire.connect("b")
    network.drain(1)
    assert one.wire.send(connection, [b"123"])
    log = bytearray(b"456789")
    assert not one.wire.send(connection, [memoryview(log)])
    # bytes that the kernel has not taken yet are sent with their content at that time
    log[3:] = b"000"
    network.drain(10)
    assert b"".join(part for part in other.heard if isinstance(part, bytes)) == b"123456000"
    assert one.heard == ["connected", "writable"]
    one.wire.send(connection, [b"abcdef"])
    one.wire.close(connection)
    network.drain(10)
    assert other.heard[-2:] == [b"abcd", "closed by the other side"]


def test_a_blocked_direction_holds_sent_bytes() -> None:
    network, one, other = two()
    connection = one.wire.connect("b")
    network.drain(1)
    network.blocked.add(("a", "b"))
    one.wire.send(connection, [b"x"])
    network.drain(10)
    assert other.heard == ["accepted"]
    network.heal()
    network.drain(10)
    assert other.heard == ["accepted", b"x"]


def test_a_host_without_power_says_nothing_until_it_is_back() -> None:
    network, one, other = two()
    connection = one.wire.connect("b")
    network.drain(1)
    other.up = False
    network.gone(other, power=True)
    one.wire.send(connection, [b"x"])
    network.drain(10)
    assert one.heard == ["connected"]
    other.up = True
    network.drain(10)
    assert one.heard == ["connected", "reset"]


# The checkers themselves


class Bytes(LogFiles):
    """A log in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, start: int, stop: int, durable: bool = False) -> bytes:
        return self.data[start:stop]


def test_one_history() -> None:
    history = History()
    history.tell(1, Bytes(b"abcdef"), 0, 4, "confirmed")
    history.tell(2, Bytes(b"abcdeX"), 0, 5, "confirmed")
    assert history.log == b"abcde"
    with pytest.raises(AssertionError, match="byte 1, which had another value"):
        history.tell(3, Bytes(b"aXcdef"), 0, 6, "confirmed")
    with pytest.raises(AssertionError, match="up to 4, confirmed is 5"):
        history.begins(3, Bytes(b"abcd"), 0, 4)
    with pytest.raises(AssertionError, match="another byte 2"):
        history.begins(3, Bytes(b"abXdef"), 0, 6)


def test_cuts_of_confirmed_bytes_are_found() -> None:
    history = History()
    history.log += bytes(range(100))
    history.cuts(1, 100, 100, b"anything", 4096)
    history.cuts(1, 60, 60, b"another history", 4096)
    with pytest.raises(AssertionError, match="confirmed was 70"):
        history.cuts(1, 60, 70, b"", 4096)
    history.cuts(1, 20, 20, bytes(range(20, 20 + ALIKE_MAX - 1)), 4096)
    with pytest.raises(AssertionError, match="80 bytes at 20 that were confirmed"):
        history.cuts(1, 20, 20, bytes(range(20, 100)), 4096)


def test_one_writer_an_epoch() -> None:
    history = History()
    history.writes(1, 7)
    history.writes(1, 7)
    with pytest.raises(AssertionError, match="both write in epoch 7"):
        history.writes(2, 7)
