"""Samples broker groups periodically: name server, controllers and every broker.

Owns the choice of the nodes to ask and the memory between samples. It must never compare (that is
group_view.find_changes) or print.

Tests: tests/unit/net/client/admin/test_group_view.py
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from turbopump.net.client.admin import parse as admin_parse
from turbopump.net.client.admin.calls import RESPONSES, AdminCalls, await_all
from turbopump.net.client.admin.controller import ControllerAdmin, properties_of
from turbopump.net.client.admin.group_view import (
    ACTING,
    MASTER,
    SLAVE,
    BrokerView,
    ControllerView,
    GroupView,
    LagView,
    PopView,
    Sample,
    WaitingView,
    leader_of,
)
from turbopump.net.client.admin.results import ReplicaLine, SyncStateLine
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.route import (
    MASTER_ID,
    BrokerData,
    ClusterInfo,
)

CONTROLLER_ADDR: Final = "controllerAddr"
"""Key of a broker's configuration: the controllers' addresses, with ";" between."""

# Keys of a broker's runtime table; all but TIMERS and LOG_END exist only in Turbopump
# (broker/introspection/runtime_info.py).
EPOCH: Final = "haEpoch"
"""Key: the broker's last master epoch, a number."""
STATE: Final = "haState"
"""Key of a replica: the state of its replication."""
UNFIT: Final = "storeUnfit"
"""Key: the reason why the store takes no messages; absent if it does."""
SLOW: Final = "storeSlow"
"""Key: "true" while syncs of the disk take too long."""
LEASE: Final = "haLease"
"""Key: "true" if the broker's membership holds its lease, "false" if not."""
MEMBERSHIP: Final = "haMembership"
"""Key: the stage of the membership in a group with elected masters, and perhaps a reason."""
MEMBERS: Final = "haSyncStateSet"
"""Key of a master: broker ids of the SyncStateSet, with "," between."""
ACTING_SINCE: Final = "actingSince"
"""Key of a replica that acts for its master: since when, epoch ms."""
MASTER_WAITS: Final = "masterWaits"
"""Key of a master that does not serve yet: the reason."""
ESCAPED_PREFIX: Final = "escapedTo_"
"""Keys of an acting replica: followed by a broker name, the messages forwarded to that group."""
ESCAPED_TEXT: Final = re.compile(r"([0-9]{1,18}) messages, last at [0-9]{1,18}")
"""Value under ESCAPED_PREFIX; group 1: the number of messages."""
ESCAPE_WAITS: Final = "escapeWaits"
"""Key of an acting replica: the reason why other messages are not forwarded."""
LOG_END: Final = "commitLogMaxOffset"
"""Key: the log offset of the log's end."""
LAG_PREFIX: Final = "haReplicaLag_"
"""Keys of a master: followed by a replica's broker id, that replica's lag."""
LAG_TEXT: Final = re.compile(r"(-?[0-9]{1,19}) B, ([0-9]{1,19}) ms")
"""Value under LAG_PREFIX; groups: bytes, milliseconds."""
GROUP_LAG_PREFIX: Final = "consumerLag_"
"""Keys: followed by `topic@group`, the lag of a consumer group."""
GROUP_POP_PREFIX: Final = "consumerPop_"
"""Keys: followed by a consumer group that pops, its figures."""
GROUP_POP_TEXT: Final = re.compile(
    r"(\d{1,18}\.\d) popped/s, (\d{1,18}\.\d) acked/s, (\d{1,18}) in flight"
)
"""Value under GROUP_POP_PREFIX; groups: popped a second, acknowledged a second, in flight."""
GROUP_LAG_TEXT: Final = re.compile(
    r"([0-9]{1,19}) messages, (>=)?([0-9]{1,19}|\?) ms, ([0-9]{1,9}) members"
)
"""Value under GROUP_LAG_PREFIX; groups: messages, ">=" for a lower bound, age of the oldest in ms
or "?", members."""
TIMERS: Final = "timerCongestNum"
"""Key: the number of waiting timers."""
NEXT_DUE: Final = "timerNextDue"
"""Key: the time at which the next timer is due, epoch ms."""
BACKLOG: Final = "timerBacklog"
"""Key: timers by span, as BACKLOG_TEXT with ", " between."""
BACKLOG_TEXT: Final = re.compile(r"([0-9]{1,9}) s: ([0-9]{1,10})")
"""An item of BACKLOG; groups: the span in seconds, the number of timers."""
HALVES: Final = "transactionsOpen"
"""Key: the number of open transactions."""
ASKED: Final = "transactionsAsked"
"""Key: the number of checks sent since the master's start."""
UNASKED: Final = "transactionsWithoutProducer"
"""Key: the number of checks for which no producer was connected."""
GIVEN_UP: Final = "transactionsGivenUp"
"""Key: the number of transactions given up after too many checks."""

SETTLED: Final = "MEMBER"
"""Value of MEMBERSHIP of a full member, which `top` does not show."""
NO_LEASE: Final = "no lease: it acknowledges nothing"
"""Text of a master without a lease in BrokerView.state."""

NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
"""A whole number in a runtime table."""

Table = dict[str, str] | str
"""A broker's runtime table, or the reason why it is missing."""


class GroupWatch:
    """Samples of every group that a name server knows, or of `broker_name` alone.

    If a node does not answer, its last known facts are used, with their age, and the sample's
    errors name it. The controllers are the given ones, else those in a broker's configuration, if
    any. `client` must be started.
    """

    def __init__(
        self,
        client: SharedClient,
        controllers: Sequence[str] = (),
        broker_name: str | None = None,
    ) -> None:
        self._client, self._instance = client, instance_of(client)
        self._calls = AdminCalls(self._instance)
        self._given = list(controllers)
        self._peers: dict[str, str] = {}
        """Id to address, once a controller gave it."""
        self._names: dict[str, str] = {}
        """Address to id: names for the controllers while no controller answers."""
        self._broker_name = broker_name
        self._info = ClusterInfo()
        self._states: dict[str, SyncStateLine] = {}
        self._errors: list[str] = []
        self._info_at_ms = self._states_at_ms = self._asked_at_ms = 0
        self._answered_at_ms: dict[str, int] = {}
        """Time of each shown address's last answer, by the steady clock."""

    async def sample(self) -> Sample:
        """Query the nodes and return a new sample; calls must not overlap. A node that does not
        answer is an error in the sample, not an exception."""
        self._errors = []
        at_ms, self._asked_at_ms = self._instance.now_ms(), self._instance.steady_ms()
        await self._find_nodes()
        controllers = await self._query_controllers()
        await self._ask_leader(controllers)
        names = sorted(self._info.broker_addr_table.keys() | self._states.keys())
        shown = [name for name in names if self._broker_name in (None, name)]
        groups = await await_all(self._query_group(name) for name in shown)
        controllers = [replace(each, age_ms=self._age_ms(each)) for each in controllers]
        groups = [self._with_ages(group) for group in groups]
        shown_now = {each.address for each in controllers}
        shown_now |= {broker.address for group in groups for broker in group.brokers}
        for stale in self._answered_at_ms.keys() - shown_now:
            del self._answered_at_ms[stale]
        return Sample(at_ms, controllers, groups, self._errors)

    def _age_ms(self, view: ControllerView | BrokerView) -> int | None:
        """Return the time in ms since the node's last answer; None if it never answered. An
        answer in this sample is noted as 0."""
        if not view.error:
            self._answered_at_ms[view.address] = self._asked_at_ms
        last = self._answered_at_ms.get(view.address)
        return None if last is None else self._asked_at_ms - last

    def _with_ages(self, group: GroupView) -> GroupView:
        """Return a copy of the group's view with the ages of its facts, in ms."""
        told_at_ms = self._states_at_ms if group.broker_name in self._states else self._info_at_ms
        brokers = [replace(each, age_ms=self._age_ms(each)) for each in group.brokers]
        return replace(group, brokers=brokers, age_ms=self._asked_at_ms - told_at_ms)

    async def _find_nodes(self) -> None:
        """Ask a name server for the groups, and if no controllers were given, the brokers for
        theirs."""
        try:
            self._info = await self._calls.cluster_info()
            self._info_at_ms = self._asked_at_ms
        except RESPONSES as error:
            self._errors.append(f"name server: {error}")
        if self._given:
            return
        for data in self._info.broker_addr_table.values():
            for address in data.broker_addrs.values():
                try:
                    response = await self._instance.ask(address, RequestCode.GET_BROKER_CONFIG)
                    named = properties_of(response).get(CONTROLLER_ADDR, "")
                except RESPONSES:
                    continue
                self._given = [part.strip() for part in named.split(";") if part.strip()]
                return

    async def _query_controllers(self) -> list[ControllerView]:
        """Return the views of all controllers, asked at the same time."""
        if not self._given:
            return []
        peers = self._peers or await self._find_peers()
        views = await await_all(self._query_controller(*peer) for peer in sorted(peers.items()))
        if all(view.error for view in views):
            self._peers = {}  # the next sample begins with the given controllers again
        return views

    async def _find_peers(self) -> dict[str, str]:
        """Return the addresses of the controllers by id, from the nodes that answer; until then
        an address is its own id."""
        try:
            self._peers = (await ControllerAdmin(self._client, self._given).metadata()).peers
            self._names = {address: number for number, address in self._peers.items()}
        except RESPONSES:
            self._peers = {}
        return self._peers or {self._names.get(each, each): each for each in self._given}

    async def _query_controller(self, number: str, address: str) -> ControllerView:
        """Ask a controller for its view; if it does not answer, the view has an error."""
        try:
            metadata = await ControllerAdmin(self._client, [address]).metadata()
        except RESPONSES as error:
            return ControllerView(number, address, error=str(error))
        return ControllerView(
            number, address, metadata.is_leader, metadata.leader_id, metadata.term
        )

    async def _ask_leader(self, controllers: list[ControllerView]) -> None:
        """Update the groups from the controllers' leader; without
        a leader they stay as they are."""
        leader = leader_of(controllers)
        if leader is None:
            if controllers:
                self._errors.append("controllers: no leader answers")
            return
        asked = ControllerAdmin(self._client, [leader.address])
        names = {*self._info.broker_addr_table, *self._states}
        if self._broker_name is not None:
            names = {self._broker_name}
        try:
            states = await asked.sync_state_sets(names)
        except RESPONSES as error:
            self._errors.append(f"controllers: {error}")
            return
        self._states = {state.broker_name: state for state in states}
        self._states_at_ms = self._asked_at_ms

    async def _query_group(self, name: str) -> GroupView:
        """Ask the brokers of a group and return the group's view."""
        state = self._states.get(name)
        data = self._info.broker_addr_table.get(name) or BrokerData("", name)
        replicas = _read_replicas(data, state)
        tables = await await_all(self._query_runtime(each.address, state) for each in replicas)
        return read_group(data, state, list(zip(replicas, tables, strict=True)))

    async def _query_runtime(self, address: str, state: SyncStateLine | None) -> Table:
        """Return a broker's runtime table, with the newest epoch if there is a controller; the
        reason as text if it does not answer."""
        try:
            table = await self._calls.query_runtime(address)
            if state is not None and EPOCH not in table:  # RocketMQ: only in its epochs
                body = await self._calls.ask(address, RequestCode.GET_BROKER_EPOCH_CACHE)
                epochs = admin_parse.broker_epochs(address, body).epochs
                table[EPOCH] = str(epochs[-1].epoch) if epochs else ""
            return table
        except RESPONSES as error:
            return str(error)


def read_group(
    data: BrokerData, state: SyncStateLine | None, tables: list[tuple[ReplicaLine, Table]]
) -> GroupView:
    """Build a group's view from the name server's data, the controller's state (None without
    controllers), and each replica with its own table, in the order of the view's brokers. The view
    has no `age_ms`."""
    if state is not None:
        members = sorted(replica.broker_id for replica in state.in_sync)
        master_id = state.master_id
    else:
        members = []
        master_id = MASTER_ID if MASTER_ID in data.broker_addrs else None
    master = next((found for who, found in tables if who.broker_id == master_id), "")
    ends = master if isinstance(master, dict) else {}
    # A replica that acts for its master reports on consumers, but not on the master's log.
    serves = ends or next(
        (found for _, found in tables if isinstance(found, dict) and ACTING_SINCE in found), {}
    )
    if state is None:
        members = [int(part) for part in ends.get(MEMBERS, "").split(",") if part.isdecimal()]
    brokers = [
        _broker_view(who, found, state, ends, who.broker_id == master_id) for who, found in tables
    ]
    return GroupView(
        data.cluster,
        data.broker_name,
        master_id,
        None if state is None else state.master_epoch,
        None if state is None else state.set_epoch,
        members,
        brokers,
        lags=_read_lags(serves),
        pops=_read_pops(serves),
        waiting=_read_waiting(serves),
    )


def _read_waiting(master: Mapping[str, str]) -> WaitingView:
    """Timers and transactions in a master's runtime table."""
    numbers = {
        key: int(text)
        for key in (TIMERS, NEXT_DUE, HALVES, ASKED, UNASKED, GIVEN_UP)
        if NUMBER.fullmatch(text := master.get(key, ""))
    }
    backlog = [BACKLOG_TEXT.fullmatch(part) for part in master.get(BACKLOG, "").split(", ")]
    return WaitingView(
        numbers.get(TIMERS, 0),
        numbers.get(NEXT_DUE),
        {f"{found[1]} s": int(found[2]) for found in backlog if found is not None},
        numbers.get(HALVES, 0),
        numbers.get(ASKED, 0),
        numbers.get(UNASKED, 0),
        numbers.get(GIVEN_UP, 0),
    )


def _read_lags(master: Mapping[str, str]) -> list[LagView]:
    """The consumer groups with the largest lags at a master; it reports no others."""
    found = []
    for key, text in master.items():
        parsed = GROUP_LAG_TEXT.fullmatch(text) if key.startswith(GROUP_LAG_PREFIX) else None
        topic, at, group = key.removeprefix(GROUP_LAG_PREFIX).partition("@")
        if parsed is not None and at:
            messages, least, behind, members = parsed.groups()
            waited = None if behind == "?" else int(behind)
            known = waited is not None and not least
            found.append(LagView(group, topic, int(messages), waited, known, int(members)))
    return sorted(found, key=lambda lag: (-lag.messages, lag.consumer_group, lag.topic))


def _read_pops(master: Mapping[str, str]) -> list[PopView]:
    """The consumer groups that pop at a master."""
    found = []
    late = master.get("popReviveBehind", "")
    for key, text in master.items():
        parsed = GROUP_POP_TEXT.fullmatch(text) if key.startswith(GROUP_POP_PREFIX) else None
        if parsed is not None:
            popped, acked, in_flight = parsed.groups()
            group = key.removeprefix(GROUP_POP_PREFIX)
            behind_ms = int(late) if late.isdecimal() and len(late) < 19 else 0
            found.append(PopView(group, float(popped), float(acked), int(in_flight), behind_ms))
    return sorted(found, key=lambda pop: (-pop.in_flight, pop.consumer_group))


def _read_replicas(data: BrokerData, state: SyncStateLine | None) -> list[ReplicaLine]:
    """The replicas of a group, by id. The name server gives every master the id 0; the controller's
    ids are permanent."""
    found: dict[int, ReplicaLine] = {}
    if state is not None:
        found = {each.broker_id: each for each in [*state.in_sync, *state.not_in_sync]}
    known = {each.address for each in found.values()}
    for number, address in data.broker_addrs.items():
        if address not in known and number not in found:
            found[number] = ReplicaLine(data.broker_name, number, address, alive=False)
    return [found[number] for number in sorted(found)]


def _broker_view(
    who: ReplicaLine,
    found: Table,
    state: SyncStateLine | None,
    master: Mapping[str, str],
    is_master: bool,
) -> BrokerView:
    """Return the view of the broker `who`, from its runtime table `found` or the reason of its
    missing answer; `master` is the table of the group's master, empty if it did not answer."""
    in_state = state is not None and who in (*state.in_sync, *state.not_in_sync)
    alive = who.alive if in_state else None
    in_sync = who in state.in_sync if state is not None else None
    if isinstance(found, str):
        return BrokerView(who.broker_id, who.address, alive=alive, in_sync=in_sync, error=found)
    line = admin_parse.broker_line("", who.broker_name, who.broker_id, who.address, found, 0)
    lag, lag_ms = (None, None) if is_master else _read_lag(who.broker_id, found, master)
    return BrokerView(
        who.broker_id,
        who.address,
        _read_role(found, is_master),
        alive,
        in_sync,
        _number_or_none(found.get(EPOCH)),
        _number_or_none(found.get(LOG_END)),
        _number_or_none(found.get("haConfirmOffset")),
        lag,
        lag_ms,
        line.in_tps,
        line.out_tps,
        _replication_state(found),
        acting_since_ms=_number_or_none(found.get(ACTING_SINCE)),
    )


def _read_role(found: Mapping[str, str], is_master: bool) -> str:
    """A broker's role. Turbopump's brokers report it, and a joining broker has no role yet; for
    RocketMQ's it follows from the master's id."""
    if ACTING_SINCE in found:
        return ACTING
    if STATE in found:
        return SLAVE
    if MEMBERS in found:
        return MASTER
    if MEMBERSHIP in found:
        return ""
    return MASTER if is_master else SLAVE


def _replication_state(found: Mapping[str, str]) -> str:
    """Return the state of replication, and the reasons that keep a broker from its part in the
    group, as one text."""
    parts = [found.get(STATE, ""), found.get("haReason", "")]
    if UNFIT in found:
        parts.append(f"takes no messages: {found[UNFIT]}")
    elif found.get(SLOW) == "true":
        parts.append("its disk is slow")
    if MEMBERS in found and found.get(LEASE) == "false":
        parts.append(NO_LEASE)
    if found.get(MASTER_WAITS):
        parts.append(f"does not serve yet: {found[MASTER_WAITS]}")
    if found.get(MEMBERSHIP, SETTLED) != SETTLED:
        parts.append(found[MEMBERSHIP])
    if ACTING_SINCE in found:
        parts += _escape_texts(found)
    return " ".join(filter(None, parts))


def _escape_texts(found: Mapping[str, str]) -> list[str]:
    """Return texts about messages that an acting replica forwarded to masters of other groups,
    and the reason why it still keeps the rest."""
    matches = {
        key.removeprefix(ESCAPED_PREFIX): ESCAPED_TEXT.fullmatch(text)
        for key, text in sorted(found.items())
        if key.startswith(ESCAPED_PREFIX)
    }
    parts = [f"{text[1]} to {name}" for name, text in matches.items() if text is not None]
    escaped = [f"escaped: {', '.join(parts)}"] if parts else []
    waits = found.get(ESCAPE_WAITS)
    return [*escaped, f"cannot send what is due: {waits}"] if waits else escaped


def _read_lag(
    broker_id: int, found: Mapping[str, str], master: Mapping[str, str]
) -> tuple[int | None, int | None]:
    """Return (bytes, milliseconds) of a replica's lag: as the master counts them, else by the
    ends of both logs, which were read one after the other; None if unknown."""
    parsed = LAG_TEXT.fullmatch(master.get(f"{LAG_PREFIX}{broker_id}", ""))
    if parsed is not None:
        return max(0, int(parsed[1])), int(parsed[2])
    mine, other = _number_or_none(found.get(LOG_END)), _number_or_none(master.get(LOG_END))
    return (None, None) if mine is None or other is None else (max(0, other - mine), None)


def _number_or_none(text: str | None) -> int | None:
    return int(text) if text is not None and NUMBER.fullmatch(text) else None
