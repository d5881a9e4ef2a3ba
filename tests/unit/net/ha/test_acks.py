"""The number of copies that a send needs, and the time when it has them: the rows of ha.md 1.6, 2.1
and 3."""

import pytest

from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LogOffset, PutStatus
from turbopump.net.ha.acks import ALL, AckRules, Copies, Mode, copies_needed, safe_end
from turbopump.net.ha.sync_state import SyncOptions, SyncState
from turbopump.pyx.pending import PendingSends

OK, TIMEOUT = PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT
CONTROLLER, PLAIN = Mode.CONTROLLER, Mode.PLAIN


@pytest.mark.parametrize(
    ("mode", "replicas", "least", "everybody", "in_sync", "expected"),
    [
        (CONTROLLER, 2, 1, False, 1, 2),  # not held against the set's size
        (CONTROLLER, 2, 2, False, 1, None),
        (CONTROLLER, 2, 2, False, 2, 2),
        (CONTROLLER, 1, 1, True, 1, ALL),
        (CONTROLLER, 1, 2, True, 1, None),
        (PLAIN, 2, 2, True, 1, 2),  # nothing is checked before
        (PLAIN, 1, 1, False, 1, 1),
    ],
)
def test_how_many_copies(
    mode: Mode,
    replicas: int,
    least: int,
    everybody: bool,
    in_sync: int,
    expected: int | None,
) -> None:
    assert copies_needed(AckRules(mode, replicas, least, everybody), in_sync) == expected


def group(*members: int, acked: dict[int, int] | None = None) -> SyncState:
    state = SyncState(SyncOptions(1), frozenset(members), 1, LogOffset(0), LogOffset(0), 0)
    state.on_log(LogOffset(1000))
    for broker_id, at in (acked or {}).items():
        state.on_connected(broker_id, broker_id, broker_id >= 9, 0)
        state.on_ack(broker_id, broker_id, LogOffset(at), 0)
    return state


class Sends:
    """Pending sends that are released by the acknowledged copies, as in a term."""

    def __init__(self, copies: Copies, min_in_sync_replicas: int = 1) -> None:
        self.pending = PendingSends(OK, TIMEOUT, PutStatus.FLUSH_DISK_TIMEOUT)
        self.pending.replica_wait_ms = 3000
        self._copies, self._least = copies, min_in_sync_replicas
        self.release()

    def __len__(self) -> int:
        return self.pending.count

    def add(self, log_end: LogOffset, need: int) -> Deferred[PutStatus]:
        later: Deferred[PutStatus] = Deferred()
        self.pending.wait(log_end, need, later.resolve)
        return later

    def release(self) -> None:
        for need in (ALL, 2, 3):
            self.pending.replicated_to(need, safe_end(self._copies, need, self._least))


def status(later: Deferred[PutStatus]) -> PutStatus | None:
    return later.value if later.done else None


@pytest.mark.parametrize(
    ("need", "acked", "expected"),
    [
        (0, {}, OK),
        (1, {}, OK),
        (2, {}, None),
        (2, {2: 123}, None),
        (2, {2: 124}, OK),
        (2, {2: 125}, OK),
        (3, {2: 125}, None),
        (3, {2: 125, 3: 128}, OK),
        (3, {2: 123, 3: 128}, None),
        (2, {9: 125}, None),  # a learner: RocketMQ counts it
        (ALL, {2: 124}, None),
        (ALL, {2: 124, 3: 123}, None),
        (ALL, {2: 124, 3: 124}, OK),
    ],
)
def test_when_a_send_has_its_copies(
    need: int, acked: dict[int, int], expected: PutStatus | None
) -> None:
    sends = Sends(group(1, 2, 3, acked=acked))
    later = sends.add(LogOffset(124), need)
    assert status(later) == expected
    sends.pending.expire(2999)
    assert status(later) == expected
    sends.pending.expire(3000)
    assert status(later) == (expected or TIMEOUT)
    assert len(sends) == 0


def test_a_set_of_one_answers_at_once() -> None:
    assert status(Sends(group(1)).add(LogOffset(124), ALL)) is OK


def test_acknowledgements_release_in_order() -> None:
    state = group(1, 2, acked={2: 0})
    sends = Sends(state)
    laters = [sends.add(LogOffset(end), ALL) for end in (100, 200, 200, 300)]
    state.on_ack(2, 2, LogOffset(200), 1)
    sends.release()
    assert [status(later) for later in laters] == [OK, OK, OK, None]


def test_i6_the_minimum_holds_when_the_send_is_answered_too() -> None:
    """The set shrank below the message's need between the append and the response."""
    state = group(1, 2, acked={2: 0})
    sends = Sends(state, min_in_sync_replicas=2)
    later = sends.add(LogOffset(100), ALL)
    state.on_disconnected(2, 2, 1)
    state.on_agreed(frozenset({1}), 2, 2)
    sends.release()
    assert status(later) is None


def test_an_answer_may_demote_the_master() -> None:
    """A callback of a response may have any effect, also the end of the term."""
    state = group(1, 2, acked={2: 0})
    sends = Sends(state)
    laters = [sends.add(LogOffset(100), ALL) for _ in range(3)]
    laters[0].then(lambda _status: sends.pending.fail(PutStatus.SERVICE_NOT_AVAILABLE))
    state.on_ack(2, 2, LogOffset(100), 1)
    sends.release()
    refused = PutStatus.SERVICE_NOT_AVAILABLE
    assert [status(later) for later in laters] == [OK, refused, refused]


def test_a_demoted_master_fails_waiting_sends() -> None:
    """RocketMQ clears the set and releases the sends as successful: two acknowledged messages were
    lost."""
    sends = Sends(group(1, 2, acked={2: 0}))
    laters = [sends.add(LogOffset(100), ALL) for _ in range(3)]
    sends.pending.fail(PutStatus.FLUSH_SLAVE_TIMEOUT)
    assert [status(later) for later in laters] == [TIMEOUT] * 3 and len(sends) == 0


def test_bytes_the_master_does_not_count_yet_are_not_safe_alone_either() -> None:
    """The master's disk is slower than a replica that joins meanwhile: the replica must have the
    message, too."""
    state = group(1)
    sends = Sends(state)
    later = sends.add(LogOffset(1500), ALL)
    assert not later.done
    state.on_connected(2, 2, False, 0)
    state.on_ack(2, 2, LogOffset(1000), 0)
    assert state.on_agreed(frozenset({1, 2}), 2, 0)
    state.on_log(LogOffset(1500))
    sends.release()
    assert not later.done
    state.on_ack(2, 2, LogOffset(1500), 0)
    sends.release()
    assert status(later) is OK
