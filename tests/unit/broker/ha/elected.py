"""Brokers whose controllers are a script: each request waits until the test answers it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.unit.broker.ha.network import Broker, Group

from turbopump.broker.ha.control.controller_protocol import BrokerGroupName, GroupState
from turbopump.broker.ha.control.membership import Membership
from turbopump.broker.ha.control.options import MembershipOptions
from turbopump.broker.ha.control.previous_shutdown import PreviousShutdown
from turbopump.broker.ha.leader import Leader
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.real_files import RealFiles
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.controller import ElectMasterBody, SyncStateSet
from turbopump.net.wire.headers import controller as headers
from turbopump.net.wire.headers.routes import ExchangeHaInfo

CLUSTER, NAME = "cluster", "broker"
LEADER, FOLLOWER = "controller-1:9878", "controller-2:9878"
TIMEOUT_MS, LEASE_MS = 9_000, 7_200
CODES = RequestCode


@dataclass
class Asked:
    """A request that waits for the test's answer."""

    address: str
    request: Command
    later: Deferred[Command | str] = field(default_factory=Deferred)

    def answer(
        self,
        header: Any = None,
        body: bytes = b"",
        code: int = 0,
        *,
        language: str = "PYTHON",
        remark: str | None = None,
    ) -> None:
        found = new_response(self.request, code, remark, header, body)
        found.language = language
        self.later.resolve(found)

    def fail(self) -> None:
        self.later.resolve(f"{self.address} did not answer")


class Script:
    """A controller client: `calls` records requests. Heartbeats and leader lookups are answered at
    once while `leads` names the leader and `grants` is set."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.leads = LEADER
        self.grants = True
        self.holds_beats = False
        """Whether heartbeats wait for an answer, too."""
        self.dead: set[str] = set()
        self.language = "PYTHON"
        self.beats: list[Command] = []

    def __call__(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        asked = Asked(address, request)
        if address in self.dead:
            asked.fail()
        elif request.code == CODES.CONTROLLER_GET_METADATA_INFO and self.leads:
            header = headers.GetMetaDataResponse("g", address == self.leads, "", "n0", self.leads)
            asked.answer(header, language=self.language)
        elif request.code == CODES.BROKER_HEARTBEAT and not self.holds_beats:
            self.beats.append(request)
            self.grant(asked)
        else:
            self.asked.append(asked)
        return asked.later

    def grant(self, asked: Asked) -> None:
        """Answer a pending heartbeat with success."""
        lease = LEASE_MS if self.grants and asked.address == self.leads else None
        header = None if self.language == "JAVA" else headers.BrokerHeartbeatResponse(lease)
        asked.answer(header, language=self.language)

    def codes(self) -> list[int]:
        return [one.request.code for one in self.asked]

    def take(self, code: int) -> Asked:
        """Remove and return the first pending request with that code, which the test then
        answers."""
        found = next((one for one in self.asked if one.request.code == code), None)
        assert found is not None, f"{code} was not asked: {self.codes()}"
        self.asked.remove(found)
        return found


class Member:
    """A broker of the network, and its membership in the group."""

    def __init__(self, group: Group, broker: Broker, **options: Any) -> None:
        self.group = group
        self.broker = broker
        self.script = Script()
        settings: dict[str, Any] = {
            "name": BrokerGroupName(CLUSTER, NAME),
            "controller_addr": (LEADER, FOLLOWER),
            "identity_path": f"{broker.root}/{broker.number}/brokerIdentity",
            "last_life": PreviousShutdown(),
            **options,
        }
        self.membership = Membership(
            MembershipOptions(**settings),
            broker.service,
            broker.log,
            files=RealFiles(),
            call=self.script,
            wall_ms=lambda: group.network.now_ms,
            steady_ms=lambda: group.network.now_ms,
            on_doubt_reported=lambda: None,
        )
        broker.service.sync_set_proposals = self.membership.sync_set_proposals
        broker.service.lease = self.membership.has_lease

    @property
    def address(self) -> str:
        return address_of(self.broker.number)

    def start(self) -> None:
        self.membership.start(self.address, self.broker.address)

    def pass_time(self, duration_ms: int = 100) -> None:
        for _ in range(max(1, duration_ms // 100)):
            self.group.settle(100)
            self.membership.tick()
            self.group.network.run()

    # Answers of the controllers

    def give_id(self, broker_id: int) -> None:
        """The first two of the three steps."""
        ask = self.script.take(CODES.CONTROLLER_GET_NEXT_BROKER_ID)
        ask.answer(headers.GetNextBrokerIdResponse(CLUSTER, NAME, broker_id))
        self.script.take(CODES.CONTROLLER_APPLY_BROKER_ID).answer(
            headers.ApplyBrokerIdResponse(CLUSTER, NAME)
        )

    def registered(self, word: GroupState | None = None) -> Command:
        """Answer the third step; returns the request."""
        asked = self.script.take(CODES.CONTROLLER_REGISTER_BROKER)
        header = headers.RegisterBrokerToControllerResponse(CLUSTER, NAME)
        body = b""
        if word is not None:
            header.master_broker_id, header.master_address = word.master, word.address
            header.master_epoch, header.sync_state_set_epoch = word.epoch, word.set_epoch
            body = SyncStateSet(word.members, word.set_epoch).encode()
        asked.answer(header, body)
        return asked.request

    def elected(self, word: GroupState, code: int = 0) -> None:
        """Answer the pending request 1002 (elect a master)."""
        header = headers.ElectMasterResponse(
            word.master, word.address or None, word.epoch, word.set_epoch
        )
        body = ElectMasterBody(word.members).encode()
        self.script.take(CODES.CONTROLLER_ELECT_MASTER).answer(header, body, code)

    def info(self, word: GroupState) -> None:
        """Answer the pending request 1004 (replica info)."""
        header = headers.GetReplicaInfoResponse(word.master, word.address or None, word.epoch)
        body = SyncStateSet(word.members, word.set_epoch).encode()
        self.script.take(CODES.CONTROLLER_GET_REPLICA_INFO).answer(header, body)

    def forgotten(
        self, code: int, response: int = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    ) -> None:
        """Answer a pending request: the broker is unknown."""
        self.script.take(code).answer(code=response)

    def ha_info(self, ha_address: str | None, language: str = "PYTHON") -> str:
        """Answer the pending request 906; returns the address that it was sent to."""
        asked = self.script.take(CODES.EXCHANGE_BROKER_HA_INFO)
        asked.answer(ExchangeHaInfo(ha_address, 0, asked.address), language=language)
        return asked.address


def address_of(number: int) -> str:
    """The address at which clients reach a broker."""
    return f"broker-{number}:10911"


def word(
    epoch: int, master: int | None, members: Iterable[int] = (), set_epoch: int = 1
) -> GroupState:
    """A controller's notice; without `members` the set is the master alone."""
    found = frozenset(members) or (frozenset() if master is None else frozenset({master}))
    address = "" if master is None else address_of(master)
    return GroupState(epoch, master, address, found, set_epoch)


Make = Callable[..., Member]


def master(make: Make, **changes: Any) -> Member:
    """A new group's first broker, master of epoch 1."""
    member = make(**changes)
    member.start()
    member.give_id(1)
    member.registered()
    member.elected(word(1, 1))
    return member


def pair(make: Make) -> tuple[Member, Member]:
    """A master of epoch 1, and a replica that follows it; both in the set."""
    one, two = master(make), make(2)
    two.start()
    two.give_id(2)
    two.registered(word(1, 1))
    two.ha_info(one.broker.address)
    one.pass_time(300)
    agree(one, 2)
    return one, two


def agree(member: Member, set_epoch: int) -> frozenset[int]:
    asked = member.script.take(CODES.CONTROLLER_ALTER_SYNC_STATE_SET)
    wanted = SyncStateSet.decode(asked.request.body)  # type: ignore[arg-type]
    body = SyncStateSet(wanted.members, set_epoch).encode()
    asked.answer(headers.AlterSyncStateSetResponse(set_epoch), body)
    return wanted.members


def term(member: Member) -> Leader:
    found = member.broker.service.term
    assert isinstance(found, Leader)
    return found
