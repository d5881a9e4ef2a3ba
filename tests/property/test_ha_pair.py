"""Both machines of replication against each other: any split of the bytes, connections that break,
masters that come and go.

After each quiet moment the logs and the lists of epochs are the same (I2), and no confirmed byte
was truncated (I12).
"""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.net.ha.logs import MemoryLog, Shell, on_the_wire

from turbopump.engine.types import LogOffset
from turbopump.net.ha.actions import Acked, Action
from turbopump.net.ha.frames import HandshakeReply, MasterFramer
from turbopump.net.ha.primary import PrimaryConnection, PrimaryOptions
from turbopump.net.ha.replica import Replica, ReplicaOptions, State

OPTIONS = PrimaryOptions(transfer_batch_size=90)


class Node:
    """A log, and the replica's machine that feeds it while another node leads."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.log = MemoryLog()
        self.shell = Shell(Replica(ReplicaOptions(number + 1)), self.log)


class Link:
    """A connection of a replica to the master, as two queues of bytes."""

    def __init__(self, master: Node, replica: Node) -> None:
        self.master, self.replica = master, replica
        self.primary = PrimaryConnection(OPTIONS, master.log, 0)
        self.down = bytearray()
        self.acked = -1
        self.closed = False
        replica.shell.connect(replica.shell.replica._due_ms)

    def step(self, chance: random.Random) -> bool:
        """Some bytes in one direction; False if there was nothing to do."""
        shell = self.replica.shell
        if shell.closed or self.primary.state is State.SHUTDOWN:
            self.closed = True
            return False
        size = chance.choice([1, 3, 40, 500])
        if shell.sent and chance.random() < 0.5:
            part, shell.sent = bytes(shell.sent[:size]), shell.sent[size:]
            self._do(self.primary.on_bytes(part, 0))
            return True
        if self.down:
            part, self.down = bytes(self.down[:size]), self.down[size:]
            shell.feed(part)
            return True
        before = len(self.down)
        self._do(self.primary.send_available(0))
        return bool(shell.sent) or len(self.down) > before

    def _do(self, actions: list[Action]) -> None:
        self.down += on_the_wire(self.master.log, actions)
        for action in actions:
            if isinstance(action, Acked):
                self.acked = action.log_offset

    def cut(self) -> None:
        """Break the connection and drop the bytes on their way."""
        self.closed = True
        self.replica.shell.do(self.replica.shell.replica.on_closed("cut", 0))
        self.replica.shell.sent.clear()


class Group:
    """Two nodes, one of them the master; bytes that both have are confirmed."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.nodes = [Node(0), Node(1)]
        self.epoch = 0
        self.lead(0)

    def lead(self, number: int) -> None:
        """Make either node the master: both have all confirmed bytes."""
        master, other = self.nodes[number], self.nodes[1 - number]
        assert master.log.end >= other.log.confirm
        self.epoch += 1
        if getattr(self, "link", None):
            self.link.cut()
        master.shell.do(master.shell.replica.follow("", self.epoch, 0))
        master.log.epochs = master.log.epochs.with_epoch(self.epoch, master.log.end)
        self.master, self.other = master, other
        self.connect()

    def connect(self) -> None:
        shell = self.other.shell
        shell.do(shell.replica.follow("master", self.epoch, 0))
        if shell.replica.state is State.READY and not shell.replica._connecting:
            shell.do(shell.replica.on_tick(shell.replica._due_ms))
        shell.closed.clear()
        shell.take()
        self.link = Link(self.master, self.other)

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            worked = self.link.step(self.chance)
            acked = self.link.acked
            log = self.master.log
            if acked >= log.epochs.entries[-1].start and acked > log.confirm:
                log.confirm = LogOffset(acked)
            if self.link.closed or not worked:
                break

    def settle(self) -> None:
        if self.link.closed:
            self.connect()
        self.run(10**6)
        ours, theirs = self.master.log, self.other.log
        assert not self.other.shell.closed, self.other.shell.closed
        assert theirs.data == ours.data
        assert theirs.epochs == ours.epochs
        assert ours.confirm == ours.end == theirs.end


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "run", "run", "cut", "lead", "settle"]), st.integers(0, 400)
    ),
    max_size=30,
)


@settings(max_examples=150)
@given(STEPS, st.integers(0, 1 << 32))
def test_a_pair_through_any_story(steps: list[tuple[str, int]], seed: int) -> None:
    chance = random.Random(seed)
    group = Group(chance)
    for name, number in steps:
        confirmed = [bytes(node.log.data[: node.log.confirm]) for node in group.nodes]
        if name == "write":
            group.master.log.write(chance.randbytes(number))
        elif name == "run":
            group.run(number)
        elif name == "cut":
            group.link.cut()
            group.connect()
        elif name == "lead":
            group.lead(number % 2)
        else:
            group.settle()
        for node, before in zip(group.nodes, confirmed, strict=True):
            assert bytes(node.log.data).startswith(before), "confirmed bytes were cut"
    group.settle()


def test_the_stream_begins_with_the_reply() -> None:
    group = Group(random.Random(1))
    group.master.log.write(b"x" * 100)
    while not group.link.down:
        group.link.step(group.chance)
    (reply,) = MasterFramer().feed(bytes(group.link.down))
    assert isinstance(reply, HandshakeReply) and reply.log_end == 100
