"""Acting replicas in groups with controllers: the choice of the acting replica, and the first
requests of an elected master."""

from collections.abc import Callable

import pytest
from tests.unit.broker.conftest import World
from tests.unit.broker.ha.acting.test_acting_group import (
    MASTER,
    NAMES,
    OTHER,
    SLAVE,
    Alone,
    Bench,
    Names,
)

from turbopump.broker.ha.acting.acting_state import (
    MASTER_COMING_MS,
    NO_MASTER_MS,
    REPORT_AGE_MAX_MS,
)
from turbopump.broker.ha.acting.pre_online import ELECTED_TIMEOUT_MS
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS, QueueOffset
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.routes import ExchangeHaInfo
from turbopump.net.wire.topics import TopicConfig

TEXT = (
    f"brokerName=b\nnamesrvAddr={NAMES}\nenableSlaveActingMaster=true\nbrokerId=-1\n"
    "enableControllerMode=true\ncontrollerAddr=10.0.0.8:9878\n"
)


class Elector(Bench):
    """A broker whose controllers' answers are set by the test."""

    def __init__(self, world: World, address: str, names: Names) -> None:
        super().__init__(world, address, names)
        self.named_ms, self.leased = LONG_AGO_MS, True
        self.group.acting_state._named_ms = lambda: self.named_ms
        world.broker.role.has_lease = lambda: self.leased
        self.leads = True

    def acts(self) -> bool:
        return self.world.broker.role.is_acting

    def loses_master(self) -> None:
        self.has_master = True
        self.world.pass_time(100)
        self.has_master = False


@pytest.fixture
def make(make_world: Callable[..., World]) -> Callable[..., Elector]:
    names = Names()

    def made(address: str, own_id: int, more: str = "") -> Elector:
        world = make_world(TEXT + more, folder=address.partition(":")[0])
        world.broker.topics.put(TopicConfig("T", 1, 1), 1)
        world.broker.groups.put(SubscriptionGroupConfig("G"), 1)
        broker = Elector(world, address, names)
        world.broker.role.become_replica(own_id)
        world.broker.offsets.versions.following = True
        world.broker.delay.durable.versions = world.broker.offsets.versions
        return broker

    return made


def test_a_replica_acts_when_no_master_was_there_for_a_while(
    make: Callable[..., Elector],
) -> None:
    replica = make(SLAVE, 2)
    replica.say(_2=SLAVE, _3=OTHER)
    replica.loses_master()
    replica.world.pass_time(NO_MASTER_MS - 200)
    assert not replica.acts(), "another broker is elected at this moment"
    replica.world.pass_time(300)
    assert replica.acts()
    assert (replica.commit(5), replica.lock()) == (0, 0)
    assert replica.connections.followed == [], "the controllers name the broker that it follows"


def test_newer_reports_of_controllers_count(make: Callable[..., Elector]) -> None:
    replica = make(SLAVE, 2)
    replica.say(_2=SLAVE)
    replica.loses_master()
    replica.named_ms = replica.world.broker.steady_ms() - 1
    replica.world.pass_time(NO_MASTER_MS + 100)
    assert replica.acts(), "they named the master that is gone"
    replica.loses_master()
    replica.world.pass_time(1_000)
    replica.named_ms = replica.world.broker.steady_ms()
    replica.world.pass_time(NO_MASTER_MS)
    assert not replica.acts()
    replica.world.pass_time(REPORT_AGE_MAX_MS)
    assert replica.acts(), "they may be gone since"


def test_a_master_without_a_lease_acts_while_name_servers_show_it(
    make: Callable[..., Elector],
) -> None:
    master = make(MASTER, 1)
    role = master.world.broker.role
    role.become_master(Alone())
    master.say(_0=MASTER, _2=SLAVE)
    assert not master.acts()
    assert master.commit(3) == 0
    master.leased = False
    master.world.pass_time(1_000)
    assert master.commit(4) == 14
    master.world.pass_time(NO_MASTER_MS)
    assert master.acts() and role.is_master
    assert master.commit(4) == 0
    master.say(_0=OTHER, _1=MASTER)
    assert not master.acts(), "another broker was elected"
    master.say(_0=MASTER)
    assert master.acts()
    header = ExchangeHaInfo("10.0.0.3:10912", 0, OTHER, 7)
    assert master.world.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, header).code == 0
    assert not master.acts()
    online = ExchangeHaInfo(return_number=7, is_online=True)
    assert master.world.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, online).code == 0
    master.world.pass_time(MASTER_COMING_MS - 500)
    assert not master.acts(), "it is not followed yet"
    master.leased = True
    assert master.world.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, header).code == 1


def test_an_elected_master_reads_acting_replicas_before_it_serves(
    make: Callable[..., Elector],
) -> None:
    replica, elected = make(SLAVE, 2), make(OTHER, 3)
    replica.say(_2=SLAVE, _3=OTHER)
    elected.world.pass_time(1_500)
    assert replica.acts()
    replica.commit(8)
    term = Alone()
    assert elected.group.on_elected(term)
    assert (elected.online, elected.offset()) == (1, 8), "its heartbeat counted at once"
    assert not replica.acts()
    assert not elected.group.on_elected(term), "it is over"


def test_a_broker_elected_as_it_starts_waits_for_a_name_server(
    make: Callable[..., Elector],
) -> None:
    replica, elected = make(SLAVE, 2), make(OTHER, 3)
    replica.say(_2=SLAVE, _3=OTHER)
    replica.commit(8)
    assert elected.group.on_elected(Alone())
    assert elected.online == 0, "it does not know the members of the group"
    elected.world.pass_time(300)
    assert (elected.online, elected.offset()) == (1, 8)


def test_without_a_name_server_it_serves_nevertheless(make: Callable[..., Elector]) -> None:
    elected = make(OTHER, 3)
    elected.names.dead.add(NAMES)
    assert elected.group.on_elected(Alone())
    elected.world.pass_time(ELECTED_TIMEOUT_MS - 200)
    assert elected.online == 0
    elected.world.pass_time(500)
    assert elected.online == 1


def test_a_silent_broker_delays_no_election(make: Callable[..., Elector]) -> None:
    replica, elected = make(SLAVE, 2), make(OTHER, 3)
    elected.say(_0=MASTER, _2=SLAVE, _3=OTHER)
    elected.names.dead |= {MASTER, SLAVE}
    assert elected.group.on_elected(Alone())
    assert elected.online == 1
    replica.world.broker.offsets.commit("G", "T", 0, QueueOffset(6), 1)
    elected.names.dead.clear()
    elected.connections.hosts = ["10.0.0.2"]
    elected.say(_0=OTHER, _2=SLAVE)
    assert elected.offset() == 6, "it is asked while the master serves"
    assert ELECTED_TIMEOUT_MS < 3_000


@pytest.mark.parametrize("more", ["", "enableRemoteEscape=true\n"])
def test_an_elected_master_takes_progress_only_of_forwarded_messages(
    make: Callable[..., Elector], more: str
) -> None:
    """A deposed broker has deliveries that are in no other log."""
    replica, elected = make(SLAVE, 2), make(OTHER, 3, more)
    replica.world.broker.delay.durable.current = {1: QueueOffset(7)}
    elected.leads = False
    elected.say(_2=SLAVE, _3=OTHER)
    assert elected.group.on_elected(Alone())
    assert elected.online == 1
    assert elected.world.broker.delay.copy_progress() == ({1: 7} if more else {})


def test_a_broker_deposed_meanwhile_serves_nothing(make: Callable[..., Elector]) -> None:
    elected = make(OTHER, 3)
    elected.say(_2=SLAVE, _3=OTHER)
    elected.group._call = lambda address, request, timeout_ms: Deferred()
    assert elected.group.on_elected(Alone())
    assert (elected.online, elected.group.waits_to_lead) == (0, True)
    elected.group.on_deposed()
    elected.world.pass_time(5_000)
    assert (elected.online, elected.group.waits_to_lead) == (0, False)
