"""Return of a master: it takes over newer progress of its replicas before it serves (RIP-32).

Owns the order of these requests, and their end. replication_setup.py makes this broker the master,
once `done` is called.

    for each replica that name servers know, the lowest id, which may be acting, last:
      906  address of the master         the replica follows, and stops acting
           its connection stands         it has as much of this log as possible
      43   deletions that it knows       its entries of a former life do not count
      43   notes of its pops             they are kept, and go into this log (broker/pop)
      43   consumer offsets              the higher offset stays, unless it was set back there
      28, 45, 60  log end, delay levels, timers: deliveries known to either count
    all connections stand, and the last 906 is too recent for a replica to act again -> done
    906 to each: the master serves, so replicas need not wait for it if it dies

Any failure starts this again from the beginning, a second later. So an unreachable replica that is
alive keeps its master from serving, until no name server knows the replica. A master that serves
already asks the others nevertheless, and repeats the failed one.

Tests: tests/unit/broker/ha/acting/test_acting_group.py,
    tests/unit/broker/ha/acting/test_notes_taken.py
"""

import ipaddress
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from turbopump.broker.context import BrokerContext
from turbopump.broker.ha.acting.acting_state import MASTER_COMING_MS
from turbopump.broker.ha.acting.group_members import (
    FRESH_MS,
    GroupMembers,
)
from turbopump.broker.ha.metadata import answers
from turbopump.broker.ha.metadata.former import LIVES, FormerLives
from turbopump.broker.pop.acting_journal import POP_NOTES, RETURN_NUMBER, read_page
from turbopump.broker.scheduled.delay import read_progress
from turbopump.broker.tables.offsets import Offsets
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS, LogOffset
from turbopump.net.transport.calls import Call
from turbopump.net.wire.bodies import BadBody, as_object
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.routes import ExchangeHaInfo
from turbopump.net.wire.hosts import split_host_port
from turbopump.net.wire.route import MASTER_ID

logger = logging.getLogger(__name__)

AGAIN_MS: Final = 1_000
"""Interval between two attempts in ms (RocketMQ: 1 s)."""
CONNECT_MS: Final = 3_000
"""Time in ms in which a replica must connect after it received the master's address; else it is
asked again."""
SURE_MS: Final = MASTER_COMING_MS // 2
"""Age in ms of a 906 up to which its replica surely does not act: clocks and frames may be slow."""
TIMEOUT_MS: Final = 3_000
"""Time-out of a request in ms, except ELECTED_TIMEOUT_MS."""
ELECTED_TIMEOUT_MS: Final = 1_000
"""Time-out of a request in ms while a whole group waits for the elected master."""


class ReplicaConnections(Protocol):
    """Source of the connections of replicas (broker/ha/service.py)."""

    def copying_hosts(self) -> Sequence[str]:
        """Return the IP addresses of replicas that follow this broker's log now; one for each
        connection."""


class NotYet(Exception):
    """Reason why a master may not serve yet, or why replicas must be asked again; the text is a
    part of a log line."""


@dataclass(slots=True)
class _AskedReplica:
    """A replica that has answered all requests of an attempt: its address, when it was asked, and
    the number in its 906."""

    address: str
    asked_ms: int
    number: int
    """Number of the 906 sent to it."""

    @property
    def host(self) -> str:
        """The host from which the replica connects: that of its address."""
        return split_host_port(self.address)[0]


class PreOnline:
    """Asks the replicas of a group for newer progress (offsets, notes of pops, deliveries) and
    takes it over: before a returned master serves, or later while it serves. Loop thread only;
    times are of the monotonic clock. It is driven by `tick`, changes the broker's tables, and ends
    once."""

    timeout_ms = TIMEOUT_MS
    """Time-out of each request to a replica in ms."""
    connect_ms = CONNECT_MS
    """Time in ms in which a replica must follow this log after 906; 0: no connection is awaited."""

    def __init__(
        self,
        broker: BrokerContext,
        members: GroupMembers,
        replicas: ReplicaConnections,
        call: Call,
        pause: Callable[[], Deferred[None]],
        done: Callable[[], None],
        *,
        wall_ms: Callable[[], int],
        serves: bool = False,
    ) -> None:
        """`done` is called once, at the successful end, not after `stop`. `serves`: this broker
        already serves as the master, and was unreachable for a while; its own progress of
        deliveries is the newest."""
        self.reason = "no name server has returned the group's members yet"
        """Reason why the last attempt failed, or there was none; "" after the end."""
        self.has_ended = False
        """Whether it has ended or was stopped."""
        self.heard: set[tuple[int, str]] = set()
        """The replicas whose offsets were taken over: pairs of broker id and address."""
        self._broker = broker
        self._members = members
        self._replicas = replicas
        self._call = call
        self._pause = pause
        self._done = done
        self._wall_ms = wall_ms
        self._serves = serves
        self._began_ms = broker.steady_ms()
        self._due_ms = LONG_AGO_MS
        self._round: answers.Steps[None] | None = None
        self._replica_count = 0
        self._seen: list[_AskedReplica] = []
        self._asked = ""
        """Address of the replica that is asked now."""
        self._waits = False
        """Whether it waits for the next tick."""

    def tick(self) -> None:
        """Begin an attempt if it is due, or go on with an attempt that waits for a connection;
        called every 100 ms. It may call `done`."""
        now_ms = self._broker.steady_ms()
        if self.has_ended:
            return
        if self._round is None and now_ms >= self._due_ms:
            self._round = self._ask_all()
            self._advance_steps(self._round, None)
        elif self._round is not None and self._waits:
            self._waits = False
            self._advance_steps(self._round, None)

    def stop(self) -> None:
        """End for good without calling `done`: pending answers are ignored; tables that were taken
        over stay."""
        self.has_ended = True
        if self._round is not None:
            self._round.close()
            self._round = None

    def _advance_steps(self, steps: answers.Steps[None], response: object) -> None:
        """Run the steps of an attempt, from `response` on, up to a request or wait that is not
        answered yet."""
        while self._round is steps:
            try:
                asked = steps.send(response)
            except StopIteration:
                self._end_attempt("")
                return
            except (NotYet, BadBody) as error:
                self._end_attempt(str(error))
                return
            later: Deferred[Any]
            if asked is None:
                self._waits = True
                return
            if isinstance(asked, Command):
                later = self._call(self._asked, asked, self.timeout_ms)
            elif isinstance(asked, Deferred):
                later = asked
            else:
                later = self._broker.saver.run_on_disk_thread(asked)
            if not later.done:
                later.then(partial(self._advance_steps, steps))
                return
            response = later.value

    def _end_attempt(self, reason: str) -> None:
        """End an attempt: `done` is called if `reason` is "", else another attempt follows after
        AGAIN_MS."""
        self._round = None
        self._due_ms = self._broker.steady_ms() + AGAIN_MS
        if reason and reason != self.reason:
            what = (
                "it lacks offsets or progress of its replicas"
                if self._serves
                else "it does not serve yet"
            )
            logger.warning("this broker is the master, %s: %s", what, reason)
        self.reason = reason
        if not reason:
            self.has_ended = True
            self._done()
            self._notify_online()

    # A round

    def _ask_all(self) -> answers.Steps[None]:
        """Ask all replicas that name servers show and that were not asked yet, the lowest id last.
        Raises NotYet, BadBody."""
        broker, members = self._broker, self._members
        now_ms = broker.steady_ms()
        if members.answered_ms < self._began_ms:
            raise NotYet("no name server has returned the group's members yet")
        if now_ms - members.answered_ms > FRESH_MS:
            raise NotYet("no name server answers")
        found = members.members
        replicas = {key: at for key, at in found.items() if key > 0 and at != broker.address}
        total = broker.config.replication.total_replicas
        is_whole = total > 1 and len(replicas) >= total - 1
        if not (is_whole or self._serves or members.is_stable):
            raise NotYet("name servers may not know all replicas yet")
        self._replica_count = len(replicas)
        self.heard &= set(replicas.items()) if self._serves else set()
        self._seen = []
        missing = ""
        for broker_id in sorted(replicas, reverse=True):
            self._asked = replicas[broker_id]
            if (broker_id, self._asked) in self.heard:
                continue
            try:
                self._seen.append((yield from self._ask_replica(broker_id)))
            except (NotYet, BadBody) as error:
                if not self._serves:
                    raise
                missing = str(error)
                continue
            self.heard.add((broker_id, self._asked))
            if self._serves:
                self._notify_online()
        self._check_asked()
        if missing:
            raise NotYet(missing)
        if members.members.keys() - found.keys() - {0}:
            raise NotYet("another replica has joined the group")

    def _check_asked(self) -> None:
        """Raise NotYet unless the answers of the asked replicas are still final: each follows this
        log, and its last 906 is recent enough that it does not act again."""
        for one in self._seen:
            if not self._is_connected_from(one.host):
                raise NotYet(f"the replica at {one.host} no longer follows")
            if self._broker.steady_ms() - one.asked_ms > SURE_MS:
                raise NotYet("the answers are too old: replicas may act again")

    def _notify_online(self) -> None:
        """Send the asked replicas a 906 that this master serves."""
        for one in self._seen:
            header = ExchangeHaInfo(return_number=one.number, is_online=True)
            request = new_request(RequestCode.EXCHANGE_BROKER_HA_INFO, header)
            self._call(one.address, request, TIMEOUT_MS)
        self._seen = []

    def _ask_replica(self, broker_id: int) -> answers.Steps[_AskedReplica]:
        """Ask a replica: announce the return (906), wait for its connection, then take over its
        notes, offsets and progress. Raises NotYet, BadBody."""
        broker, name = self._broker, f"replica {broker_id} at {self._asked}"
        asked_ms, number = broker.steady_ms(), broker.random.getrandbits(62)
        end = LogOffset(broker.store.max_log_offset)
        header = ExchangeHaInfo(broker.ha_address, end, broker.address, number)
        response = yield from self._request_replica(
            name, new_request(RequestCode.EXCHANGE_BROKER_HA_INFO, header)
        )
        if response.code != ResponseCode.SUCCESS:
            raise NotYet(f"{name} refused its master with code {response.code}: {response.remark}")
        host = split_host_port(self._asked)[0]
        while self.connect_ms and not self._is_connected_from(host):
            if broker.steady_ms() - asked_ms > self.connect_ms:
                raise NotYet(f"{name} does not copy this log, which ends at {end}")
            yield None
        former = yield from self._request_former_lives(name)
        yield from self._take_over_notes(name, former, number)
        yield from self._take_over_offsets(name, former)
        if self._takes_progress:
            yield from self._take_over_progress(name)
        return _AskedReplica(self._asked, asked_ms, number)

    @property
    def _takes_progress(self) -> bool:
        """Whether progress of deliveries is taken over, because a replica may know deliveries that
        this broker does not."""
        return not self._serves

    def _is_connected_from(self, host: str) -> bool:
        """Whether a replica at that host is connected. For a host name only the number of replicas
        is known."""
        hosts = self._replicas.copying_hosts()
        return host in hosts or (not _is_ip(host) and len(hosts) >= self._replica_count)

    def _request_replica(self, name: str, request: Command) -> answers.Steps[Command]:
        """Send a request to the replica that is being asked, and return its answer of any code;
        NotYet without an answer."""
        response = yield request
        if isinstance(response, str):
            raise NotYet(f"{name}: {response}")
        assert isinstance(response, Command), "a request's answer is a command"
        return response

    def _request_former_lives(self, name: str) -> answers.Steps[FormerLives]:
        """Request the deletions that the replica `name` knows; to be called before its notes and
        offsets, because it may learn of more meanwhile."""
        former = FormerLives(self._broker)
        if former.is_needed:
            request = new_request(RequestCode.GET_ALL_CONSUMER_OFFSET, fields={LIVES: "true"})
            response = yield from self._request_replica(name, request)
            former.read_response((yield from answers.read(response, as_object)))
        return former

    def _take_over_notes(
        self, name: str, former: FormerLives, return_number: int = 0
    ) -> answers.Steps[None]:
        """Take over the notes of pops and acknowledgements that the replica `name` made while it
        acted, and wait until they are saved. This comes before its offsets, which are later. A
        RocketMQ replica answers with offsets, without notes."""
        if self._broker.config.replication.is_elected and not self._broker.escape.is_enabled:
            return  # replicas do not pop then
        notes, after, pages = self._broker.pop.notes, 0, 0
        more: int | None = 0
        while more is not None:
            pages += 1
            fields = {POP_NOTES: str(after), RETURN_NUMBER: str(return_number)}
            request = new_request(RequestCode.GET_ALL_CONSUMER_OFFSET, fields=fields)
            response = yield from self._request_replica(name, request)
            page = (yield from answers.read(response, as_object)).get(POP_NOTES)
            if page is None:
                return
            generation, found, more = read_page(page)
            if more is not None and (more <= after or pages >= answers.MAX_PAGES):
                raise BadBody("pages of notes without an end")
            after = more or after
            ended = former.names_unknown_to_peer()
            found = [one for one in found if not ended.contains(one.key.topic, one.key.group)]
            if not notes.take_notes(generation, found):
                raise NotYet(f"there is no room for the notes of {name}")
        error = yield self._broker.saver.when_saved()
        if error is not None:
            raise NotYet(f"notes of {name} are not saved: {error}")

    def _take_over_offsets(self, name: str, former: FormerLives) -> answers.Steps[None]:
        """Take over the consumer offsets of the replica `name`, without entries of former lives of
        topics and groups."""
        response = yield from self._request_replica(
            name, new_request(RequestCode.GET_ALL_CONSUMER_OFFSET)
        )
        theirs = yield from answers.read(response, Offsets.from_json)
        offsets = self._broker.offsets
        for _ in offsets.adopt_offsets(theirs.without(*former.names_unknown_to_peer()), None):
            yield self._pause()
        if not offsets.versions.following:
            offsets.forget_marks()

    def _take_over_progress(self, name: str) -> answers.Steps[None]:
        """Take over the progress of deliveries of the replica `name`, all of which are in its log.
        A replica with a longer log is skipped: its deliveries may be lost here."""
        response = yield from self._request_replica(
            name, new_request(RequestCode.GET_BROKER_RUNTIME_INFO)
        )
        theirs, end = answers.log_end_of(response), LogOffset(self._broker.store.max_log_offset)
        if theirs > end:
            logger.warning(
                "%s has a longer log (%d > %d): its progress of deliveries is ignored",
                name,
                theirs,
                end,
            )
            return
        response = yield from self._request_replica(
            name, new_request(RequestCode.GET_ALL_DELAY_OFFSET)
        )
        self._broker.delay.adopt_newer(*read_progress(answers.object_of_success(response)))
        response = yield from self._request_replica(
            name, new_request(RequestCode.GET_TIMER_CHECK_POINT)
        )
        if response.code == ResponseCode.SUCCESS:  # RocketMQ without timers answers no checkpoint
            self._broker.timers.adopt_newer(
                answers.read_timer_checkpoint(response, self._wall_ms())
            )


class ElectedPreOnline(PreOnline):
    """The return of a broker elected by controllers. Acting brokers are notified before the term
    begins for clients, and their commits are taken over. An unreachable replica delays the end by a
    time-out only: it is asked again while this broker serves. Connections are not awaited, because
    the controllers name the master to the replicas."""

    timeout_ms = ELECTED_TIMEOUT_MS
    """See PreOnline."""
    connect_ms = 0
    """See PreOnline."""

    @property
    def _takes_progress(self) -> bool:
        """Whether escapes are on: only then is a replica's progress used. Otherwise a member of the
        set has copied it, and a deposed broker knows deliveries that are in no other log."""
        return self._broker.escape.is_enabled

    def _ask_all(self) -> answers.Steps[None]:
        """Ask all brokers of the group that name servers show, once each, the highest id first; a
        failure is logged."""
        broker, members = self._broker, self._members
        while broker.config.namesrv_addr and members.answered_ms < 0:  # the broker has just started
            if broker.steady_ms() - self._began_ms > self.timeout_ms:
                break
            yield None
        asked = {broker.address}
        while True:
            # Replicas may register meanwhile.
            others = [one for one in sorted(members.members.items()) if one[1] not in asked]
            if not others:
                return
            broker_id, address = others[-1]
            asked.add(address)
            self._asked = address
            try:
                self._seen.append((yield from self._ask_replica(broker_id)))
            except (NotYet, BadBody) as error:
                logger.warning("%s", error)
            else:
                self.heard.add((broker_id, address))


class OthersOffsets(PreOnline):
    """Asks the other replicas before this replica acts: another may have acted before, with newer
    offsets and escaped messages. No 906 is sent. An unreachable replica counts as gone after one
    time-out."""

    def _ask_all(self) -> answers.Steps[None]:
        """Take over notes, offsets and, with escapes, progress from each other replica; a failure
        is logged."""
        replicas = self._members.members
        for broker_id in sorted(replicas):
            self._asked = replicas[broker_id]
            if broker_id == MASTER_ID or self._asked == self._broker.address:
                continue
            name = f"replica {broker_id} at {self._asked}"
            try:
                former = yield from self._request_former_lives(name)
                yield from self._take_over_notes(name, former)
                yield from self._take_over_offsets(name, former)
                if self._broker.escape.is_enabled:
                    yield from self._take_over_progress(name)
            except (NotYet, BadBody) as error:
                logger.warning("%s", error)
            else:
                self.heard.add((broker_id, self._asked))


def _is_ip(host: str) -> bool:
    """Whether the host is an IP address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
