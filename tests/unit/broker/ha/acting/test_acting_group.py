"""A replica that acts for its master, and the master's return (RIP-32)."""

import json
from collections.abc import Callable

import pytest
from tests.unit.broker.conftest import World, offset_json

from turbopump.broker.ha.acting.acting_group import ActingGroup
from turbopump.broker.ha.acting.acting_state import MASTER_COMING_MS, STALE_ROUTES_MS
from turbopump.broker.ha.acting.group_members import FRESH_MS, SETTLED_MS, GroupMembers
from turbopump.broker.introspection.runtime_info import runtime_table
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import LONG_AGO_MS, NewMessage, QueueOffset
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request, new_response
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.headers.routes import ExchangeHaInfo
from turbopump.net.wire.topics import TopicConfig

MASTER, SLAVE, OTHER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
NAMES = "10.0.0.9:9876"
ACTING = f"brokerName=b\nnamesrvAddr={NAMES}\nenableSlaveActingMaster=true\ntotalReplicas=2\n"
AS_SLAVE = ACTING + "brokerRole=SLAVE\nbrokerId=1\n"


class Names:
    """Name servers by address, their members of the group, and other brokers."""

    def __init__(self) -> None:
        self.members: dict[int, str] = {}
        self.dead: set[str] = set()
        self.is_old = False
        self.asked: list[tuple[str, Command]] = []
        self.worlds: dict[str, World] = {}

    def __call__(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        self.asked.append((address, request))
        later: Deferred[Command | str] = Deferred()
        later.resolve(self._answer(address, request))
        return later

    def _answer(self, address: str, request: Command) -> Command | str:
        if address in self.dead:
            return f"{address}: no answer"
        if address in self.worlds:
            body = bytes(request.body)
            again = new_request(request.code, None, body, fields=request.fields)
            response = self.worlds[address].dispatch(again)
            return response.value if isinstance(response, Deferred) else response
        if address != NAMES:
            return f"{address}: refused"
        addresses = {str(key): at for key, at in self.members.items()}
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            assert request.fields["topic"] == "rmq_sys_SYNC_BROKER_MEMBER_b"
            group = {"cluster": "DefaultCluster", "brokerName": "b", "brokerAddrs": addresses}
            return new_response(request, 0, body=json.dumps({"brokerDatas": [group]}).encode())
        if self.is_old:
            return new_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        assert request.code == RequestCode.GET_BROKER_MEMBER_GROUP
        body = {"brokerMemberGroup": {"brokerAddrs": addresses, "brokerName": "b"}}
        return new_response(request, 0, body=json.dumps(body).encode())


class Connections:
    """Replication connections: the copying replicas, and the followed masters."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.followed: list[str] = []

    def copying_hosts(self) -> list[str]:
        return self.hosts

    def follow_anew(self, address: str) -> None:
        self.followed.append(address)


class Alone:
    """A term whose sends wait for no replica."""

    has_ended = False

    def copies_needed(self) -> int:
        return 1


class Bench:
    """A broker in a group with acting replicas."""

    def __init__(self, world: World, address: str, names: Names) -> None:
        self.world, self.names, self.connections = world, names, Connections()
        world.broker.address, world.broker.ha_address = address, address.replace("10911", "10912")
        self.has_master = False
        self.online = 0
        self.leads = False
        """Whether it takes its role when it is online."""
        self.group = ActingGroup(
            world.broker,
            self.connections,
            names,
            self._pause,
            lambda: world.now_ms,
            lambda: self.has_master,
            on_acts=lambda: None,
            on_master_reported=lambda address, ha_address: None,
            named_ms=lambda: LONG_AGO_MS,
            ask_controllers=lambda: None,
        )
        self.group.on_online = self._went_online
        world.broker.acting = self.group
        world.ticks.append(lambda _now_ms: self.group.tick())
        names.worlds[address] = world

    @staticmethod
    def _pause() -> Deferred[None]:
        later: Deferred[None] = Deferred()
        later.resolve(None)
        return later

    def _went_online(self) -> None:
        self.online += 1
        if self.leads:
            self.world.broker.role.become_master(Alone())

    def say(self, **members: str) -> None:
        """Set the members that name servers return, and wait until they are settled."""
        self.names.members = {int(key[1:]): at for key, at in members.items()}
        self.world.pass_time(SETTLED_MS + 1_200)

    def commit(self, queue_offset: int) -> int:
        fields = {
            "consumerGroup": "G",
            "topic": "T",
            "queueId": "0",
            "commitOffset": str(queue_offset),
        }
        return self.world.ask_fields(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code

    def lock(self) -> int:
        body = {
            "consumerGroup": "G",
            "clientId": "c",
            "mqSet": [{"topic": "T", "brokerName": "b", "queueId": 0}],
        }
        return self.world.ask(RequestCode.LOCK_BATCH_MQ, None, json.dumps(body).encode()).code

    def offset(self) -> int:
        return self.world.broker.offsets.query("G", "T", 0)


@pytest.fixture
def make(make_world: Callable[..., World]) -> Callable[..., Bench]:
    names = Names()

    def made(text: str, address: str) -> Bench:
        world = make_world(text, folder=address.partition(":")[0])
        broker = world.broker
        broker.topics.put(TopicConfig("T", 1, 1), 1)
        broker.groups.put(SubscriptionGroupConfig("G"), 1)
        bench = Bench(world, address, names)
        if broker.config.replication.is_slave:
            broker.offsets.versions.following = True
            broker.delay.durable.versions = broker.offsets.versions
        return bench

    return made


@pytest.fixture
def slave(make: Callable[..., Bench]) -> Bench:
    return make(AS_SLAVE, SLAVE)


# Members of the group


def test_the_answers_of_several_name_servers_are_one(world: World) -> None:
    groups: dict[str, dict[str, str] | None] = {"n1:1": {"0": MASTER}, "n2:1": {"1": SLAVE}}

    def call(address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        later: Deferred[Command | str] = Deferred()
        members = groups[address]
        body = json.dumps({"brokerMemberGroup": {"brokerAddrs": members}}).encode()
        later.resolve("gone" if members is None else new_response(request, 0, body=body))
        return later

    members = GroupMembers("c", "b", call, lambda: world.steady_ms)
    members.tick(groups, 1_000)
    assert members.members == {0: MASTER, 1: SLAVE}
    groups["n1:1"] = None
    world.now_ms += FRESH_MS
    members.tick(groups, 1_000)
    assert members.members == {0: MASTER, 1: SLAVE}, "it is not silent for long"
    world.now_ms += 1_000
    members.tick(groups, 1_000)
    assert members.members == {1: SLAVE}
    groups["n2:1"] = None
    world.now_ms += 2 * FRESH_MS
    members.tick(groups, 1_000)
    assert members.members == {0: MASTER, 1: SLAVE}, "their last answers"


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"brokerMemberGroup":{"brokerAddrs":{"x":"a:1"}}}',
        b'{"brokerMemberGroup":{"brokerAddrs":{"0":[]}}}',
        json.dumps({"brokerMemberGroup": {"brokerAddrs": {"0": "a" * 5_000}}}).encode(),
        json.dumps(
            {"brokerMemberGroup": {"brokerAddrs": {str(key): "a:1" for key in range(99)}}}
        ).encode(),
    ],
)
def test_masters_unknown_to_name_servers_are_not_believed(world: World, body: bytes) -> None:
    def call(address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        later: Deferred[Command | str] = Deferred()
        later.resolve(new_response(request, 0, body=body))
        return later

    members = GroupMembers("c", "b", call, lambda: world.steady_ms)
    members.tick(["n:1"], 1_000)
    assert members.members == {}
    assert members.answered_ms < 0


def test_an_old_name_server_is_asked_for_a_route(slave: Bench) -> None:
    slave.names.is_old = True
    slave.say(_1=SLAVE)
    slave.world.pass_time(3_000)
    assert slave.group.members.members == {1: SLAVE}
    assert slave.group.members.is_old(*slave.world.broker.config.namesrv_addr)
    assert slave.world.broker.role.is_acting


def test_a_notice_is_a_reason_to_ask_at_once(slave: Bench) -> None:
    slave.say(_0=MASTER, _1=SLAVE)
    count = len(slave.names.asked)
    slave.world.pass_time(200)
    assert len(slave.names.asked) == count
    fields = {"minBrokerId": "1", "minBrokerAddr": "evil:1", "offlineBrokerAddr": MASTER}
    assert slave.world.ask_fields(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, fields).code == 0
    slave.world.pass_time(100)
    assert len(slave.names.asked) == count + 1
    assert not slave.world.broker.role.is_acting, "name servers answer otherwise"


# Choice of the acting replica


def test_the_lowest_replica_acts_while_no_master_lives(slave: Bench) -> None:
    role = slave.world.broker.role
    slave.say()
    assert not role.is_acting, "no client is led here"
    slave.say(_0=MASTER, _1=SLAVE)
    assert not role.is_acting
    assert (slave.commit(5), slave.lock()) == (14, 14)
    slave.say(_1=SLAVE, _2=OTHER)
    assert role.is_acting
    assert slave.connections.followed == [""], "the master notifies of its return"
    assert (slave.commit(5), slave.lock(), slave.offset()) == (0, 0, 5)
    slave.say(_0=MASTER, _1=SLAVE)
    assert not role.is_acting
    assert (slave.commit(6), slave.offset()) == (14, 5)


def test_the_acting_replica_and_its_time_are_reported(slave: Bench) -> None:
    slave.say(_0=MASTER, _1=SLAVE)
    runtime = runtime_table(slave.world.broker, slave.world.now_ms)
    assert "actingSince" not in runtime
    slave.say(_1=SLAVE)
    since_ms = slave.world.now_ms - (slave.group.acts_for_ms or 0)
    slave.world.pass_time(5_000)
    runtime = runtime_table(slave.world.broker, slave.world.now_ms)
    assert runtime["actingSince"] == str(since_ms)


def test_messages_another_replica_took_are_known_before_one_acts(
    make: Callable[..., Bench],
) -> None:
    slave = make(AS_SLAVE, SLAVE)
    other = make(AS_SLAVE.replace("brokerId=1", "brokerId=2"), OTHER)
    other.say(_2=OTHER)
    other.commit(7)
    assert other.offset() == 7
    slave.say(_1=SLAVE, _2=OTHER)
    assert slave.world.broker.role.is_acting
    assert slave.offset() == 7


def test_another_replica_does_not_act(slave: Bench) -> None:
    slave.world.broker.role.broker_id = 2
    slave.say(_1=OTHER, _2=SLAVE)
    assert not slave.world.broker.role.is_acting


def test_a_follower_of_a_master_does_not_act_whatever_name_servers_report(slave: Bench) -> None:
    slave.has_master = True
    slave.say(_1=SLAVE)
    assert not slave.world.broker.role.is_acting
    assert slave.group.acting_state.may_get_clients, "its readers are not sent on to itself"
    slave.has_master = False
    slave.world.pass_time(100)
    assert slave.world.broker.role.is_acting


def test_an_acting_replica_writes_nothing(slave: Bench) -> None:
    slave.say(_1=SLAVE)
    end = slave.world.broker.store.max_log_offset
    fields = {"a": "PG", "b": "T", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0"}
    response = slave.world.dispatch(new_request(310, None, b"x", fields=fields))
    assert isinstance(response, Command)
    assert response.code != 0
    slave.world.pass_time(5_000)
    assert slave.world.broker.store.max_log_offset == end


def test_offsets_committed_to_an_acting_replica_are_news_to_its_master(slave: Bench) -> None:
    offsets = slave.world.broker.offsets
    slave.say(_1=SLAVE)
    slave.commit(9)
    slave.commit(4)
    assert offsets.last_reset_ms("G", "T", 0) > 0, "it was set back"
    before = offsets.data_version
    for _ in range(500):
        slave.commit(10)
    assert offsets.data_version.counter > before.counter


def test_a_master_that_says_it_is_back_ends_it(slave: Bench) -> None:
    role = slave.world.broker.role
    slave.say(_1=SLAVE)
    header = ExchangeHaInfo("10.0.0.1:10912", 0, MASTER)
    assert slave.world.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, header).code == 0
    assert not role.is_acting
    assert slave.connections.followed == ["", "10.0.0.1:10912"]
    assert slave.commit(5) == 14
    slave.world.pass_time(MASTER_COMING_MS)
    assert role.is_acting, "it did not come"
    slave.has_master = True
    slave.world.pass_time(100)
    assert not role.is_acting
    assert slave.group.acting_state.may_get_clients
    slave.say(_0=MASTER, _1=SLAVE)
    slave.world.pass_time(STALE_ROUTES_MS)
    assert not slave.group.acting_state.may_get_clients


def test_a_replica_that_knew_its_master_serves_acts_as_soon_as_it_dies(
    make: Callable[..., Bench],
) -> None:
    slave, master = make(AS_SLAVE, SLAVE), make(ACTING, MASTER)
    slave.say(_1=SLAVE)
    slave.has_master, master.connections.hosts = True, ["10.0.0.2"]
    master.world.pass_time(1_500)
    assert master.online == 1
    slave.has_master = False
    slave.world.pass_time(200)
    assert slave.world.broker.role.is_acting


def test_reports_of_a_masters_last_life_end_no_waiting(slave: Bench) -> None:
    slave.say(_1=SLAVE)
    for number in (1, 2):
        header = ExchangeHaInfo("10.0.0.1:10912", 0, MASTER, number)
        assert slave.world.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, header).code == 0
    for number, acts in ((1, False), (None, False), (2, True)):
        online = ExchangeHaInfo(return_number=number, is_online=True)
        assert slave.world.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, online).code == 0
        slave.world.pass_time(200)
        assert slave.world.broker.role.is_acting == acts


@pytest.mark.parametrize("address", ["", "no port", "a" * 5_000 + ":1"])
def test_an_invalid_address_of_a_master_changes_nothing(slave: Bench, address: str) -> None:
    slave.say(_1=SLAVE)
    header = ExchangeHaInfo(address, 0, MASTER)
    assert slave.world.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, header).code == 1
    assert slave.world.broker.role.is_acting


# The master's return


def test_a_master_serves_once_it_knows_the_state_of_its_replicas(
    make: Callable[..., Bench],
) -> None:
    slave, master = make(AS_SLAVE, SLAVE), make(ACTING, MASTER)
    master.world.broker.offsets.commit("G", "T", 0, QueueOffset(3), 1)
    slave.say(_1=SLAVE)
    slave.commit(8)
    master.world.pass_time(1_500)
    assert master.online == 0
    assert "does not copy this log" not in master.group.reason_not_serving, "it is given some time"
    assert not slave.world.broker.role.is_acting, "its offsets no longer change"
    assert (master.commit(4), master.lock()) == (14, 14)
    master.connections.hosts = ["10.0.0.2"]
    master.world.pass_time(200)
    assert (master.online, master.offset()) == (1, 8)
    assert master.group.reason_not_serving == ""
    assert "ownOffsetTable" not in offset_json(master.world.broker.offsets)


def test_the_higher_offset_stays_unless_it_was_set_back(make: Callable[..., Bench]) -> None:
    slave, master = make(AS_SLAVE, SLAVE), make(ACTING, MASTER)
    master.connections.hosts = ["10.0.0.2"]
    slave.names.members = {1: SLAVE}
    slave.world.broker.offsets.commit("G", "T", 0, QueueOffset(5), 1)  # copied a while ago
    master.world.broker.offsets.commit("G", "T", 0, QueueOffset(9), 1)
    master.world.pass_time(1_500)
    assert (master.online, master.offset()) == (1, 9)
    again = make(ACTING.replace("=b\n", "=b\nlistenPort=10931\n"), "10.0.0.4:10911")
    again.connections.hosts = ["10.0.0.2"]
    again.world.broker.offsets.commit("G", "T", 0, QueueOffset(9), 1)
    slave.world.pass_time(MASTER_COMING_MS + 1_000)
    assert slave.world.broker.role.is_acting
    slave.commit(9)
    slave.commit(2)
    again.world.pass_time(1_500)
    assert (again.online, again.offset()) == (1, 2)


def test_a_replica_that_cannot_be_heard_keeps_its_master_waiting(
    make: Callable[..., Bench],
) -> None:
    make(AS_SLAVE, SLAVE)
    master = make(ACTING, MASTER)
    names = master.names
    names.members = {1: SLAVE}
    names.dead.add(SLAVE)
    master.connections.hosts = ["10.0.0.2"]
    master.world.pass_time(5_000)
    assert master.online == 0
    assert master.group.reason_not_serving.startswith("replica 1 at 10.0.0.2:10911: ")
    master.say()
    master.world.pass_time(1_000)
    assert master.online == 1, "no name server knows it now"


def test_a_master_alone_serves_once_a_name_server_says_so(make: Callable[..., Bench]) -> None:
    master = make(ACTING, MASTER)
    master.names.dead.add(NAMES)
    master.world.pass_time(3_000)
    assert master.online == 0
    assert master.group.reason_not_serving == "no name server has returned the group's members yet"
    master.names.dead.clear()
    master.world.pass_time(2_000)
    assert master.group.reason_not_serving == "name servers may not know all replicas yet"
    master.world.pass_time(3_000)
    assert master.online == 1


def test_a_master_that_waits_asks_at_its_own_pace(make: Callable[..., Bench]) -> None:
    """A master came online only after an hour if syncBrokerMemberGroupPeriod was an hour."""
    master = make(ACTING + "syncBrokerMemberGroupPeriod=3600000\n", MASTER)
    master.world.pass_time(8_000)
    assert master.online == 1, master.group.reason_not_serving


def test_a_connection_that_is_lost_meanwhile_begins_it_anew(make: Callable[..., Bench]) -> None:
    make(AS_SLAVE, SLAVE)
    master = make(ACTING, MASTER)
    other = make(AS_SLAVE.replace("brokerId=1", "brokerId=2"), OTHER)
    master.names.members = {1: SLAVE, 2: OTHER}
    master.connections.hosts = ["10.0.0.3"]
    master.world.pass_time(1_500)
    assert other.world.broker.config.broker_id == 2
    master.connections.hosts = ["10.0.0.2"]
    master.world.pass_time(500)
    assert master.online == 0
    assert master.group.reason_not_serving == "the replica at 10.0.0.3 no longer follows"
    master.connections.hosts = ["10.0.0.2", "10.0.0.3"]
    master.world.pass_time(1_500)
    assert master.online == 1


def test_without_pre_online_a_master_serves_at_once(make: Callable[..., Bench]) -> None:
    master = make(ACTING + "skipPreOnline=true\n", MASTER)
    assert not master.group.waits_to_lead
    assert master.world.broker.role.is_master
    assert master.commit(4) == 0


def test_a_master_that_was_not_heard_asks_while_it_serves(make: Callable[..., Bench]) -> None:
    slave, master = make(AS_SLAVE, SLAVE), make(ACTING + "skipPreOnline=true\n", MASTER)
    master.connections.hosts = ["10.0.0.2"]
    slave.say(_1=SLAVE)
    slave.commit(8)
    master.world.pass_time(1_500)
    assert master.offset() == -1
    master.world.now_ms += 6_000  # the process stood still
    master.world.pass_time(2_000)
    assert (master.online, master.offset()) == (0, 8)
    master.group.on_registration_lost()
    slave.world.pass_time(MASTER_COMING_MS + 1_000)
    slave.commit(9)
    master.world.pass_time(2_000)
    assert master.offset() == 9


def test_a_replica_that_comes_later_is_asked(make: Callable[..., Bench]) -> None:
    slave, master = make(AS_SLAVE, SLAVE), make(ACTING, MASTER)
    slave.say(_1=SLAVE)
    slave.commit(8)
    master.leads = True
    master.say()
    assert (master.online, master.offset()) == (1, -1), "no name server knows a replica"
    slave.has_master, master.connections.hosts = True, ["10.0.0.2"]
    master.say(_0=MASTER, _1=SLAVE)
    assert master.offset() == 8
    count = len(master.names.asked)
    master.world.pass_time(900)
    assert all(one.code == 901 for _, one in master.names.asked[count:]), "it is asked once"


def test_an_unreachable_master_hides_no_serving_one(
    make: Callable[..., Bench],
) -> None:
    slave, master = make(AS_SLAVE, SLAVE), make(ACTING, MASTER)
    slave.say(_1=SLAVE)
    slave.commit(8)
    master.leads = True
    master.say()
    slave.has_master, master.connections.hosts = True, ["10.0.0.2"]
    master.say(_0=MASTER, _1=SLAVE, _2=OTHER)
    assert master.offset() == 8
    asked = [one.code for at, one in master.names.asked if at == SLAVE]
    master.world.pass_time(5_000)
    assert [one.code for at, one in master.names.asked if at == SLAVE] == asked, (
        "its heartbeat arrived"
    )


def test_an_acting_replica_asks_a_replica_that_comes_later(make: Callable[..., Bench]) -> None:
    slave = make(AS_SLAVE, SLAVE)
    other = make(AS_SLAVE.replace("brokerId=1", "brokerId=2"), OTHER)
    other.say(_2=OTHER)
    other.commit(7)
    slave.say(_1=SLAVE)
    assert (slave.world.broker.role.is_acting, slave.offset()) == (True, -1)
    slave.say(_1=SLAVE, _2=OTHER)
    assert slave.offset() == 7


def test_progress_of_deliveries_is_the_furthest_one(make: Callable[..., Bench]) -> None:
    slave, master = make(AS_SLAVE, SLAVE), make(ACTING, MASTER)
    slave.world.broker.delay.durable.current = {1: QueueOffset(7), 2: QueueOffset(1)}
    master.world.broker.delay.durable.current = {1: QueueOffset(4), 2: QueueOffset(2)}
    master.connections.hosts = ["10.0.0.2"]
    slave.say(_1=SLAVE)
    master.world.pass_time(1_500)
    assert master.online == 1
    assert master.world.broker.delay.copy_progress() == {1: 7, 2: 2}


def test_progress_of_a_longer_log_is_left(make: Callable[..., Bench]) -> None:
    slave, master = make(AS_SLAVE, SLAVE), make(ACTING, MASTER)
    slave.world.broker.delay.durable.current = {1: QueueOffset(7)}
    log = slave.world.broker.store.as_replicated(slave.world.now_ms, plain=True)
    log.to_master(-1, slave.world.now_ms)
    slave.world.broker.store.append(NewMessage("T", 0, b"x", b""), slave.world.now_ms)
    master.connections.hosts = ["10.0.0.2"]
    slave.say(_1=SLAVE)
    master.world.pass_time(1_500)
    assert master.online == 1
    assert master.world.broker.delay.copy_progress() == {}


def test_forwarded_messages_are_not_delivered_by_the_master(make: Callable[..., Bench]) -> None:
    slave, master = make(AS_SLAVE, SLAVE), make(ACTING, MASTER)
    slave.say(_1=SLAVE)
    slave.world.broker.delay.delivered_elsewhere(3, QueueOffset(7), slave.world.now_ms)
    master.connections.hosts = ["10.0.0.2"]
    master.world.pass_time(1_500)
    assert (master.online, master.world.broker.delay.copy_progress()) == (1, {3: 7})


def test_messages_another_replica_forwarded_are_known_before_one_acts(
    make: Callable[..., Bench],
) -> None:
    escapes = AS_SLAVE + "enableRemoteEscape=true\n"
    slave = make(escapes, SLAVE)
    other = make(escapes.replace("brokerId=1", "brokerId=2"), OTHER)
    other.world.broker.delay.delivered_elsewhere(3, QueueOffset(7), other.world.now_ms)
    slave.say(_1=SLAVE, _2=OTHER)
    assert slave.world.broker.role.is_acting
    assert slave.world.broker.delay.copy_progress() == {3: 7}
    slave.world.broker.delay.begin_save()
    assert slave.world.broker.delay.take_unsaved_content() is not None
