"""The order of turns: connections with more requests, and requests in steps."""

from collections.abc import Callable

from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.fair_scheduler import (
    BYTES_PER_TURN,
    HANDSHAKE_REQUESTS,
    READ_PER_TURN,
    READERS_PER_TURN,
    REQUESTS_PER_TURN,
    FairScheduler,
    Steps,
)
from turbopump.net.transport.receive_buffer import SCRATCH_SIZE, SHORT_SIZE, Area
from turbopump.net.wire.bodies import BadBody, run_to_result
from turbopump.net.wire.command import Command, new_request, new_response


class Loop:
    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []
        self.area = Area(1 << 20)
        self.turns = FairScheduler(self.posted.append, self.area)

    def turn(self) -> None:
        posted = list(self.posted)
        self.posted.clear()
        for callback in posted:
            callback()


class Busy:
    """A connection with `left` received requests; a turn handles up to 8 of them."""

    def __init__(self, loop: Loop, name: str, left: int, log: list[str]) -> None:
        self.turns, self.name, self.left, self.log = loop.turns, name, left, log

    def continue_turn(self) -> None:
        for _ in range(8):
            if not self.left or not self.turns.begin_request():
                break
            self.left -= 1
            self.log.append(self.name)
        if self.left:
            self.turns.continue_later(self, fresh=False)


def test_a_turn_handles_a_bounded_number_and_goes_round() -> None:
    loop, log = Loop(), []
    for name in "abcdef":
        loop.turns.continue_later(Busy(loop, name, 100, log), fresh=False)
    loop.turn()
    assert log == [*"a" * 8, *"b" * 8, *"c" * 8, *"d" * 8]
    loop.turn()
    assert log[32:] == [*"e" * 8, *"f" * 8, *"a" * 8, *"b" * 8]
    while loop.posted:
        loop.turn()
    assert len(log) == 600


def test_a_new_connection_does_not_wait_for_those_that_had_a_turn() -> None:
    loop, log = Loop(), []
    for number in range(1_000):
        loop.turns.continue_later(Busy(loop, f"attacker {number}", 10_000, log), fresh=False)
    loop.turn()
    loop.turns.continue_later(Busy(loop, "honest", 1, log), fresh=True)
    loop.turn()
    assert "honest" in log[32:34]
    # And those are not starved by many new ones.
    log.clear()
    for number in range(1_000):
        loop.turns.continue_later(Busy(loop, f"new {number}", 1, log), fresh=True)
    loop.turn()
    assert sum(name.startswith("attacker") for name in log) >= 8


def test_reads_between_two_turns_share_their_number_of_requests() -> None:
    loop = Loop()
    assert sum(loop.turns.begin_request() for _ in range(100)) == REQUESTS_PER_TURN
    loop.turn()
    assert loop.turns.begin_request()


class Hungry(Busy):
    """A connection whose pulls return 1 MiB a turn."""

    def continue_turn(self) -> None:
        self.left -= 1
        self.log.append(self.name)
        self.turns.count_written(1 << 20)
        if self.left:
            self.turns.continue_later(self, fresh=False)


def test_bytes_of_all_pulls_in_a_turn_are_bounded() -> None:
    loop, log = Loop(), []
    for number in range(50):
        loop.turns.continue_later(Hungry(loop, f"{number}", 2, log), fresh=False)
    while loop.posted:
        before = len(log)
        loop.turn()
        assert len(log) - before <= BYTES_PER_TURN >> 20
    assert log == [f"{number}" for number in range(50)] * 2


def test_reads_between_two_turns_share_their_bytes() -> None:
    loop = Loop()
    assert loop.turns.count_written(1 << 18) and not loop.posted, "a single pull posts nothing"
    assert sum(loop.turns.count_written(1 << 18) for _ in range(100)) * (1 << 18) < BYTES_PER_TURN
    loop.turn()
    assert loop.turns.count_written(1 << 18)


def steps(log: list[str], name: str, count: int) -> Steps[str]:
    for _ in range(count):
        log.append(name)
        yield
    return name


def test_one_request_in_steps_at_a_time_and_hosts_in_turn() -> None:
    loop, log, done = Loop(), [], []
    for name, host in (("a1", b"a"), ("a2", b"a"), ("a3", b"a"), ("b1", b"b")):
        loop.turns.run_steps(host, steps(log, name, 2)).then(done.append)
    for number in range(1, 13):
        loop.turn()
        assert len(log) <= number
    assert log == ["a1", "a1", "b1", "b1", "a2", "a2", "a3", "a3"]
    assert done == ["a1", "b1", "a2", "a3"]
    assert not loop.posted


def test_a_request_that_ends_in_its_first_step_is_answered_at_once(peer) -> None:
    def handler(request: Command, *_) -> Steps[Command]:
        for _ in range(int(request.fields["steps"])):
            yield
        if "bad" in request.fields:
            raise BadBody("no body")
        return new_response(request, 0)

    reviewed = []

    def review(request, response, stepped):
        reviewed.append(stepped)
        return response

    table = Dispatcher(review)
    table.add(31, handler)
    assert table.dispatch(new_request(31, fields={"steps": "0"}), peer, 0).code == 0
    bad = {"steps": "0", "bad": ""}
    assert table.dispatch(new_request(31, fields=bad), peer, 0).remark == "BadBody: no body"
    assert run_to_result(table.dispatch(new_request(31, fields={"steps": "3"}), peer, 0)).code == 0
    bad["steps"] = "2"
    late = run_to_result(table.dispatch(new_request(31, fields=bad), peer, 0))
    assert late.remark == "BadBody: no body"
    assert reviewed == [False, True]


class Sender:
    """A connection that always has more bytes than a read returns."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.taken, self.paused = loop, 0, False

    def read(self) -> None:
        size = len(self.loop.area.room)
        self.taken += size
        self.paused = not self.loop.turns.count_read(size)
        if self.paused:
            self.loop.turns.read_later(self)

    def read_on(self) -> None:
        self.paused = False


def test_a_turn_reads_a_bounded_number_of_bytes_and_goes_round() -> None:
    loop = Loop()
    senders = [Sender(loop) for _ in range(100)]
    most, before = 0, 0
    for turn in range(200):
        for sender in senders:
            while not sender.paused:
                sender.read()
        taken = sum(sender.taken for sender in senders)
        if turn:
            most = max(most, taken - before)
        before = taken
        loop.turn()
        assert len(loop.area.room) == SCRATCH_SIZE
        assert sum(not sender.paused for sender in senders) == READERS_PER_TURN
    assert most <= READ_PER_TURN + SCRATCH_SIZE + READERS_PER_TURN * SHORT_SIZE
    sizes = [sender.taken for sender in senders]
    assert max(sizes) <= 2 * min(sizes) + READ_PER_TURN, "all get on"


def test_a_lone_sender_is_read_on_in_the_same_turn() -> None:
    loop = Loop()
    sender = Sender(loop)
    for _ in range(3):
        before = sender.taken
        while not sender.paused:
            sender.read()
        assert READ_PER_TURN <= sender.taken - before < READ_PER_TURN + SCRATCH_SIZE
        assert len(loop.area.room) == SHORT_SIZE, "another that is read now gives little"
        loop.turn()


def test_reads_that_are_small_in_sum_are_not_bounded_and_cost_no_turn() -> None:
    loop = Loop()
    assert loop.turns.count_read(READ_PER_TURN // 2)
    assert not loop.posted
    assert loop.turns.count_read(1) and loop.posted, "the next turn starts its own count"
    loop.turn()
    assert loop.turns.count_read(READ_PER_TURN - 1) and len(loop.area.room) == SCRATCH_SIZE


def test_a_turn_takes_a_bounded_number_of_handshake_steps() -> None:
    loop = Loop()
    taken = 0
    while loop.turns.begin_handshake():
        taken += 1
    assert taken == REQUESTS_PER_TURN // HANDSHAKE_REQUESTS
    loop.turn()
    assert loop.turns.begin_handshake()
