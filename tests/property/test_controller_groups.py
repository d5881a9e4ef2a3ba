"""Groups of the controller under random events: brokers come, die, lose bytes and are removed, the
lead changes, proposals fail and commit all the same. The agreed tables keep K1-K6 after every entry
(K7 is the brokers').

K6 has one exception, "Controllers may know less than their brokers" (elections.py): while a
broker's log is of a later epoch than the group's, the known set does not show which brokers have
all bytes.
"""

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.controller.groups import CLUSTER, NAME, Node, Refused

from turbopump.controller import events
from turbopump.controller.state import DAMAGED, Group, GroupTables
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.codes import RequestCode as Code
from turbopump.net.wire.command import Command
from turbopump.net.wire.controller import SyncStateSet
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers import controller as headers
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest

IDS = st.integers(1, 4)


@dataclass(frozen=True)
class Told:
    """A broker's newest heartbeat: the rank of its log, and whether its word of the epoch counts
    (a Java broker's does not, nor that of a life before)."""

    epoch: int
    size: int
    leased: bool


class ToldNode(Node):
    """A node that notes the reports of brokers, and the reports known when each entry was
    proposed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reported: dict[int, Told] = {}
        self.told_at: dict[int, dict[int, Told]] = {}
        """Known reports by the entry's index."""
        append = self.quorum.append

        def noted(body: bytes) -> Deferred[object]:
            self.told_at[len(self.quorum.entries)] = dict(self.reported)
            return append(body)

        self.quorum.append = noted  # type: ignore[method-assign]

    def ask(
        self, code: int, header: object = None, body: bytes = b"", connection: int = 0
    ) -> Deferred[Command]:
        if isinstance(header, BrokerHeartbeatRequest):
            broker_id, epoch, size = header.broker_id, header.epoch, header.max_offset
            assert broker_id is not None and epoch is not None and size is not None
            if not (header.leased and self._is_others(broker_id, header.broker_addr)):
                self.reported[broker_id] = Told(epoch, size, bool(header.leased))
        if isinstance(header, headers.RegisterBrokerToControllerRequest):
            broker_id = header.broker_id
            if broker_id in self.reported:
                self.reported[broker_id] = replace(self.reported[broker_id], leased=False)
        return super().ask(code, header, body, connection)

    def _is_others(self, broker_id: int, address: str) -> bool:
        """Whether the id was given to a broker at another address: its heartbeats alone count."""
        has = self.core.tables.has_broker
        return has(CLUSTER, NAME, broker_id) and not has(CLUSTER, NAME, broker_id, address)


class Journal:
    """Entries that every controller applies, and the invariants that they keep."""

    def __init__(self) -> None:
        self.tables = GroupTables()
        self.masters: dict[int, int] = {}
        self.codes: dict[int, str] = {}
        self.designated: set[int] = set()
        """Brokers that an administrator designated at any time."""
        self.marked: set[int] = set()
        """Since the master of the test looked last."""

    def applies(self, event: events.Event, reported: dict[int, Told]) -> None:
        """Apply and check an entry; `reported` has the brokers' reports at the time of its
        proposal."""
        before = self.tables.groups.get(NAME)
        was = None if before is None else before.with_events()
        self.tables.apply_event(event)
        now = self.tables.groups.get(NAME)
        if isinstance(event, events.MarkUnfit):
            self.marked.add(event.broker_id)
        if isinstance(event, events.ApplyBrokerId) and now is not None:
            self._gave(event, now)
        if was is not None and now is not None:
            assert now.master_epoch >= was.master_epoch and now.set_epoch >= was.set_epoch  # K1
        elif was is not None:
            left = self.tables.numbers_for_new_group(NAME)
            assert (left.master_epoch, left.set_epoch) >= (was.master_epoch, was.set_epoch)
        if now is None:
            return
        assert now.master_id is None or now.master_id in now.members  # K2
        if isinstance(event, events.ElectMaster) and event.broker_id is not None:
            assert was is not None
            self._elected(event.broker_id, was, now, reported)

    def _gave(self, event: events.ApplyBrokerId, now: Group) -> None:
        given = now.replicas[event.broker_id].check_code
        assert self.codes.setdefault(event.broker_id, given) == given  # K4

    def _elected(self, winner: int, was: Group, now: Group, reported: dict[int, Told]) -> None:
        assert now.members == {winner} and now.master_id == winner  # K2
        assert now.master_epoch > was.master_epoch
        assert self.masters.setdefault(now.master_epoch, winner) == winner  # K3
        if not (was.had_master and was.members):
            return
        fits = winner in self.designated or not was.is_unfit(winner)
        if winner not in was.candidates or not (fits or all(map(was.is_unfit, was.candidates))):
            self._knew_less(winner, was, now, reported)  # else K6

    def _knew_less(self, winner: int, was: Group, now: Group, reported: dict[int, Told]) -> None:
        """Check an election from outside of the set, or of an unfit broker.

        It is permitted only for a log of a later epoch, and only for the broker with most bytes,
        once all brokers are here, or the broker that an administrator names; the new epoch is
        greater than the log's.
        """
        logs = {one: reported[one] for one in was.replicas if one in reported}
        assert any(log.leased and log.epoch > was.master_epoch for log in logs.values())
        assert now.master_epoch > max(log.epoch for log in logs.values())
        if winner in self.designated:
            return
        assert logs.keys() == was.replicas.keys()
        assert was.replicas[winner].unfit != DAMAGED
        able = [log for one, log in logs.items() if was.replicas[one].unfit != DAMAGED]
        won = logs[winner]
        assert (won.epoch, won.size) == max((log.epoch, log.size) for log in able)


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = ToldNode()
        self.journal = Journal()
        applied = self.node.core.on_applied

        def on_applied(entry) -> None:
            happened = events.decode(entry.body)
            assert isinstance(happened, tuple)
            for event in happened:
                self.journal.applies(event, self.node.told_at[entry.index])
            applied(entry)

        self.node.core.on_applied = on_applied  # type: ignore[method-assign]
        self.known = (0, 0, 0)
        self.node.lead()
        self.node.tick()
        self.node.auto = True
        for broker_id in (1, 2, 3):
            self.node.join(broker_id)
        self.node.elect(1)
        self.node.alter(1, 2, 3)

    @property
    def group(self) -> Group | None:
        return self.node.core.tables.groups.get(NAME)

    @rule(code=st.integers(0, 3))
    def join(self, code: int) -> None:
        asked = headers.GetNextBrokerIdRequest(CLUSTER, NAME)
        response = self.node.ask(Code.CONTROLLER_GET_NEXT_BROKER_ID, asked)
        if response.done and response.value.code == 0:
            wanted = int(response.value.fields["nextBrokerId"])
            apply = headers.ApplyBrokerIdRequest(CLUSTER, NAME, wanted, f"a:{code};7")
            self.node.ask(Code.CONTROLLER_APPLY_BROKER_ID, apply)

    @rule(broker_id=IDS, code=st.integers(0, 3))
    def apply_again(self, broker_id: int, code: int) -> None:
        apply = headers.ApplyBrokerIdRequest(CLUSTER, NAME, broker_id, f"a:{code};7")
        self.node.ask(Code.CONTROLLER_APPLY_BROKER_ID, apply)

    @rule(broker_id=IDS, unclean=st.booleans(), damaged=st.booleans())
    def register(self, broker_id: int, unclean: bool, damaged: bool) -> None:
        header = headers.RegisterBrokerToControllerRequest(
            CLUSTER, NAME, broker_id, "a:1", None, unclean or None, damaged or None
        )
        self.node.ask(Code.CONTROLLER_REGISTER_BROKER, header, connection=broker_id)

    @rule(
        broker_id=IDS,
        late=st.integers(-1, 1),
        size=st.integers(0, 3),
        leased=st.booleans(),
        slow=st.sampled_from((None, False, True)),
    )
    def beat(self, broker_id: int, late: int, size: int, leased: bool, slow: bool | None) -> None:
        """Send a heartbeat with the agreed epoch, or with an earlier one."""
        epoch = -1 if self.group is None else self.group.master_epoch - late
        later = self.node.beat_later(broker_id, epoch, size, leased=leased, slow=slow)
        later.then(lambda response: self._alive(broker_id, epoch, response))

    def _alive(self, broker_id: int, epoch: int, answer: Command) -> None:
        response = read_header(headers.BrokerHeartbeatResponse, answer.fields)
        if response.lease_ms is None:
            return
        group = self.node.core.tables.groups[NAME]
        assert self.node.quorum.has_quorum(self.node.now_ms)
        assert (group.master_id, group.master_epoch) == (broker_id, epoch)
        assert not group.eligible, "what it acknowledges they would lack"

    @rule(broker_id=st.one_of(st.just(-1), IDS), designate=st.booleans())
    def elect(self, broker_id: int, designate: bool) -> None:
        header = headers.ElectMasterRequest(NAME, CLUSTER, broker_id, designate)
        if designate:
            self.journal.designated.add(broker_id)
        response = self.node.ask(Code.CONTROLLER_ELECT_MASTER, header, connection=max(broker_id, 0))
        response.then(self._answered)

    def _answered(self, response: Command) -> None:
        """Check that a response with a master names the master of that epoch."""
        found = read_header(headers.ElectMasterResponse, response.fields)
        if response.code in (0, 2011):
            assert found.master_epoch is not None
            assert self.journal.masters[found.master_epoch] == found.master_broker_id

    @precondition(lambda self: self.group is not None)
    @rule(
        members=st.frozensets(IDS),
        master=st.one_of(st.none(), IDS),
        older=st.integers(0, 1),
        older_set=st.integers(0, 1),
    )
    def alter(
        self, members: frozenset[int], master: int | None, older: int, older_set: int
    ) -> None:
        group = self.group
        assert group is not None
        asked = master or group.master_id or 0
        header = headers.AlterSyncStateSetRequest(NAME, asked, group.master_epoch - older)
        wanted = SyncStateSet(members, group.set_epoch - older_set)
        stale = older or older_set or asked != group.master_id
        node = self.node
        response = node.ask(
            Code.CONTROLLER_ALTER_SYNC_STATE_SET, header, wanted.encode(), connection=asked
        )
        if stale and response.done:
            assert response.value.code != 0  # K5

    @precondition(lambda self: self.group is not None)
    @rule()
    def look(self) -> None:
        group = self.group
        assert group is not None
        self.known = (group.master_id or 0, group.master_epoch, group.set_epoch)
        self.journal.marked.clear()

    @rule(members=st.frozensets(st.integers(1, 3)))
    def alter_as_known(self, members: frozenset[int]) -> None:
        """Propose a set as a master that has the state of its last look."""
        master, master_epoch, set_epoch = self.known
        header = headers.AlterSyncStateSetRequest(NAME, master, master_epoch)
        body = SyncStateSet(members, set_epoch).encode()
        code = Code.CONTROLLER_ALTER_SYNC_STATE_SET
        response = self.node.ask(code, header, body, connection=master)
        if response.done and response.value.code == 0:
            assert not members & self.journal.marked
            self.look()

    @rule()
    def slow_or_not(self) -> None:
        self.node.auto = not self.node.auto

    @rule(ids=st.frozensets(IDS, min_size=1, max_size=2), living=st.booleans())
    def clean(self, ids: frozenset[int], living: bool) -> None:
        text = ";".join(map(str, ids)) or None
        self.node.ask(
            Code.CLEAN_BROKER_DATA, headers.CleanBrokerDataRequest(NAME, CLUSTER, text, living)
        )

    @rule(broker_id=IDS)
    def close(self, broker_id: int) -> None:
        self.node.close(broker_id)

    @rule(after_ms=st.sampled_from([20, 600, 4_900, 10_600]))
    def tick(self, after_ms: int) -> None:
        self.node.tick(after_ms)

    @rule()
    def commit(self) -> None:
        self.node.commit()

    @precondition(lambda self: self.node.quorum.waiting)
    @rule()
    def fails_and_commits_all_the_same(self) -> None:
        entry, later = self.node.quorum.waiting.pop(0)
        later.resolve(Refused("no majority answered in time"))
        self.node.core.on_applied(entry)

    @rule()
    def another_leads_for_a_while(self) -> None:
        """Let another controller lead for a while: the next leader decides pending proposals before
        it leads.
        """
        self.node.lead(False)
        waiting, self.node.quorum.waiting = self.node.quorum.waiting, []
        for entry, later in waiting:
            later.resolve(Refused("the term is over"))
            self.node.core.on_applied(entry)
        self.node.lead()

    @rule()
    def starts_again_from_a_snapshot(self) -> None:
        data = self.node.core.snapshot()
        self.node.core.restore(data)
        assert self.node.core.snapshot() == data

    @rule()
    def sure_or_not(self) -> None:
        self.node.quorum.sure = not self.node.quorum.sure

    @invariant()
    def every_controller_has_the_same(self) -> None:
        assert self.journal.tables.snapshot() == self.node.core.snapshot()

    @invariant()
    def one_proposal_at_a_time(self) -> None:
        assert len(self.node.quorum.waiting) <= 1

    def teardown(self) -> None:
        """Check that a group with a member that can lead has a master once no operation fails."""
        node = self.node
        node.quorum.sure = node.auto = True
        node.lead()
        for _ in range(3):
            node.commit()
            group = self.group
            for broker_id in () if group is None else list(group.replicas):
                node.beat(broker_id)
            node.tick(600)
            node.commit()
        group = self.group
        if group is None or not group.had_master:
            return
        if any(group.replicas[member].unfit != DAMAGED for member in group.members):
            assert group.master_id is not None


Groups.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestGroups = Groups.TestCase


def test_a_heartbeat_under_the_id_of_another_broker_does_not_count() -> None:
    """Found by the state machine: the earlier report of id 4 ranks first in the election."""
    state = Groups()
    state.apply_again(broker_id=4, code=3)
    state.beat(broker_id=4, late=-1, leased=False, size=1, slow=None)
    state.beat(broker_id=4, late=0, leased=True, size=0, slow=None)
    state.beat(broker_id=1, late=-1, leased=True, size=0, slow=None)
    state.teardown()
