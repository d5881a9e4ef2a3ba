"""Locks of ordered consumers by a majority of the group's brokers (lockInStrictMode, RIP-32).

Owns the counting of votes; each voter keeps its own locks in broker/tables/locks.py.

A client asks one broker, which asks the others (41 with onlyThisBroker). It gets a queue that

    a majority of totalReplicas gave, this broker included, and
    brokers gave that did not start recently, enough for every majority to have one

The second condition is needed because a starting broker has lost its table. A client relies on its
lock for 30 s (RocketMQ: ProcessQueue.isLockExpired); in any majority that gave it, one vote is of a
broker that still knows it. So no two clients hold a queue, after any crash, partition or return; a
group of two neither gives nor renews locks while one of the two is away.
"""

from collections.abc import Callable, Sequence
from typing import Final

from turbopump.broker.replication import LockRequest
from turbopump.engine.deferred import Deferred
from turbopump.net.transport.calls import Call
from turbopump.net.wire import bodies
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.queues import MessageQueue

YOUNG: Final = "lockTableIsYoung"
"""Field of the answer to 41, of this project only: the voter may have forgotten a lock it gave."""
YOUNG_MS: Final = 35_000
"""Time in ms after its start in which a broker sets this field: 30 s for a client's lock, plus the
time of the answer."""
TIMEOUT_MS: Final = 700
"""Time-out in ms of a request to another broker: a client waits a second for the whole (RocketMQ: 1
s and 2 s, longer than its clients wait)."""

RESPONSE_MAX: Final = 256 << 10
"""Bytes of a voter's answer at most: bodies.READ queues with the longest names take less. It is
read in one step."""


class LockQuorum:
    """Locks of queues for ordered consumers that a majority of the group's brokers must grant
    (lockInStrictMode): asks the other brokers for their votes. Loop thread only; times are of the
    monotonic clock."""

    def __init__(
        self,
        others: Callable[[], Sequence[str]],
        total: int,
        call: Call,
        steady_ms: Callable[[], int],
    ) -> None:
        """`others` returns the addresses `host:port` of the group's other brokers; `total` is
        totalReplicas, this broker included."""
        self._others, self._total = others, total
        self._call, self._steady_ms = call, steady_ms
        self._began_ms = steady_ms()

    @property
    def is_young(self) -> bool:
        """Whether a lock that this broker granted before its restart may still be valid: for
        YOUNG_MS after its start."""
        return self._steady_ms() - self._began_ms < YOUNG_MS

    def request_votes(self, wanted: LockRequest) -> Deferred[list[MessageQueue]]:
        """Ask the other brokers for their votes; resolves after at most TIMEOUT_MS to the queues,
        in the order of `wanted.queues`, that get enough votes if this broker locks them, too. The
        caller locks them here. A broker without a readable answer has no vote."""
        others = self._others() if wanted.queues else []
        if self._total == 1 and not others:
            return Deferred.resolved(list(wanted.queues))  # a single broker needs no votes
        asked: Deferred[list[MessageQueue]] = Deferred()
        total = max(self._total, 1 + len(others))
        votes = _Votes(wanted.queues, total, own_is_old=not self.is_young)
        waiting = len(others)

        def answered(response: Command | str) -> None:
            nonlocal waiting
            waiting -= 1
            votes.count(response)
            if not asked.done and (waiting == 0 or len(votes.granted_queues) == len(wanted.queues)):
                asked.resolve(votes.granted_queues)

        for address in others:
            request = _make_request(RequestCode.LOCK_BATCH_MQ, wanted)
            self._call(address, request, TIMEOUT_MS).then(answered)
        if not others:
            asked.resolve(votes.granted_queues)
        return asked

    def release_locks(self, wanted: LockRequest) -> None:
        """Send the release of the queues to the other brokers, without waiting for answers; an
        unreachable broker keeps the locks until they expire. The caller releases them here."""
        for address in self._others():
            request = _make_request(RequestCode.UNLOCK_BATCH_MQ, wanted)
            self._call(address, request, TIMEOUT_MS).then(lambda _answer: None)


def _make_request(code: int, wanted: LockRequest) -> Command:
    """Build a request of this code (lock or unlock) to another broker of the group, which must not
    ask others."""
    members = {
        "consumerGroup": wanted.group,
        "clientId": wanted.client_id,
        "mqSet": [queue.to_json() for queue in wanted.queues],
        "onlyThisBroker": True,
    }
    return new_request(code, None, bodies.encode_json(members))


class _Votes:
    """Counts the votes of the group's brokers for the queues of a lock request."""

    def __init__(self, queues: Sequence[MessageQueue], total: int, *, own_is_old: bool) -> None:
        self._needed = total // 2 + 1
        self._old_needed = total - self._needed + 1
        self._queues = queues
        self._all = dict.fromkeys(queues, 1)
        self._old = dict.fromkeys(queues, int(own_is_old))

    def count(self, response: Command | str) -> None:
        """Count the votes in another broker's answer; a failed or unreadable answer has no vote."""
        if isinstance(response, str) or response.code != ResponseCode.SUCCESS:
            return
        if len(response.body) > RESPONSE_MAX:
            return
        try:
            members = bodies.load_object(response.body)
            given = bodies.read_list(members, "lockOKMQSet", MessageQueue.from_json)
            is_old = not bodies.read_flag(members, YOUNG)
        except BadBody:
            return
        for queue in self._all.keys() & set(given):
            self._all[queue] += 1
            self._old[queue] += is_old

    @property
    def granted_queues(self) -> list[MessageQueue]:
        """The queues for which enough brokers have voted."""
        return [
            queue
            for queue in self._queues
            if self._all[queue] >= self._needed and self._old[queue] >= self._old_needed
        ]
