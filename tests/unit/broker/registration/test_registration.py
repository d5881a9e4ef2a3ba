"""Registration at name servers: the content, the times, and the cost of a dead server."""

import itertools
from pathlib import Path

import pytest

from turbopump.broker.config.config import BrokerConfig, load_config
from turbopump.broker.registration.registration import (
    MAX_SINGLE_TOPICS,
    MAX_WAIT_MS,
    RETRY_MS,
    NameServerState,
    Registration,
    RegistrationOutcome,
    Work,
)
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.broker.tables.topics import TopicTable
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.net.wire.command import Command
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.routes import (
    QueryDataVersionRequest,
    RegisterBrokerRequest,
    UnRegisterBrokerRequest,
)
from turbopump.net.wire.java_properties import parse_properties
from turbopump.net.wire.registration.register import RegisterBrokerBody, body_crc32
from turbopump.net.wire.topics import TopicConfig


def test_the_period_may_change(tmp_path: Path) -> None:
    registration, _ = make(tmp_path, "registerNameServerPeriod=30000\n")
    server = registration.servers[0]
    registration._config.update_keys(parse_properties("registerNameServerPeriod=15000"))
    registration.reconfigure()
    assert register(server, 1_000) == Work(True, [])
    assert register(server, 15_999) is None
    assert register(server, 16_000) == Work(True, [])


def test_changed_topics_may_be_registered_with_all_others_from_now_on(tmp_path: Path) -> None:
    registration, _ = make(tmp_path, "enableSingleTopicRegister=true\n")
    server = registration.servers[0]
    assert register(server, 1_000) == Work(True, [])
    server.note_changed(["T"], 1_100)
    assert register(server, 1_100) == Work(False, ["T"])
    registration._config.update_keys(parse_properties("enableSingleTopicRegister=false"))
    registration.reconfigure()
    server.note_changed(["T"], 1_200)
    assert register(server, 1_200) == Work(True, ["T"])


@pytest.fixture
def server() -> NameServerState:
    return NameServerState("127.0.0.1:9876", 30_000, single=True)


def register(server: NameServerState, now_ms: int, ok: bool = True) -> Work | None:
    """Run a round: take the due registration and answer it."""
    work = server.take_due_registration(now_ms)
    if work is not None:
        server.apply_outcome(
            work, RegistrationOutcome.TAKEN if ok else RegistrationOutcome.REFUSED, now_ms
        )
    return work


def test_full_at_start_and_every_period(server: NameServerState) -> None:
    assert register(server, 1_000) == Work(True, [])
    assert register(server, 30_999) is None
    assert register(server, 31_000) == Work(True, [])


def test_one_request_at_a_time(server: NameServerState) -> None:
    work = server.take_due_registration(0)
    assert work is not None
    server.note_changed(["T"], 10)
    assert server.take_due_registration(20) is None
    server.apply_outcome(work, RegistrationOutcome.TAKEN, 30)
    assert server.take_due_registration(30) == Work(False, ["T"])


def test_changed_topic_goes_alone_once_the_broker_is_known(server: NameServerState) -> None:
    register(server, 0)
    result = server.note_changed(["T"], 100)
    server.note_changed(["T", "U"], 100)
    work = server.take_due_registration(100)
    assert work == Work(False, ["T", "U"])
    assert not result.done
    server.apply_outcome(work, RegistrationOutcome.TAKEN, 120)
    assert result.done


def test_before_the_first_success_everything_is_sent(server: NameServerState) -> None:
    work = server.take_due_registration(0)
    assert work is not None
    server.apply_outcome(work, RegistrationOutcome.REFUSED, 0)
    server.note_changed(["T"], 100)
    assert (
        server.take_due_registration(100) is None
    )  # the registration failed just now: the retry is due at 500
    assert server.take_due_registration(500) == Work(True, ["T"])


def test_restarted_name_server_gets_everything_at_once(server: NameServerState) -> None:
    register(server, 0)
    result = server.note_changed(["T"], 100)
    assert register(server, 100, ok=False) == Work(False, ["T"])
    assert not result.done
    assert register(server, 110) == Work(True, [])
    assert result.done


def test_one_that_is_away_is_asked_each_second(server: NameServerState) -> None:
    register(server, 0)
    times = []
    for now_ms in range(30_000, 60_000, 100):
        work = server.take_due_registration(now_ms)
        if work is not None:
            times.append(now_ms)
            server.apply_outcome(work, RegistrationOutcome.UNREACHED, now_ms)
    assert times == list(range(30_000, 60_000, RETRY_MS))
    # The time before the server answered does not count either: refusals start a new backoff.
    for now_ms in (60_000, 60_500, 61_500):
        assert register(server, now_ms, ok=False) is not None
    assert register(server, 63_500) == Work(True, [])


def test_a_lost_connection_is_registered_for_at_once_and_once_more(
    server: NameServerState,
) -> None:
    register(server, 0)
    server.on_connection_lost(5_000)
    assert register(server, 5_000) == Work(True, [])
    # RocketMQ's name server may remove the broker later, when it notices the closed connection.
    assert register(server, 5_000 + RETRY_MS - 1) is None
    assert register(server, 5_000 + RETRY_MS) == Work(True, [])
    assert register(server, 35_000) is None
    assert register(server, 36_000) == Work(True, [])


def test_behind_a_lost_connection_no_topic_goes_alone(server: NameServerState) -> None:
    """RocketMQ 4 would treat the request as the full topic list of an unknown broker."""
    register(server, 0)
    server.on_connection_lost(RETRY_MS)
    server.note_changed(["T"], RETRY_MS)
    assert register(server, RETRY_MS) == Work(True, ["T"])


def test_one_that_closes_each_connection_is_not_flooded(server: NameServerState) -> None:
    times = []
    for now_ms in range(0, 10_000, 10):
        if register(server, now_ms) is not None:
            times.append(now_ms)
            server.on_connection_lost(now_ms)
    assert times == list(range(0, 10_000, RETRY_MS))


def test_refusals_back_off_to_the_period(server: NameServerState) -> None:
    now_ms, times = 0, []
    for _ in range(9):
        while register(server, now_ms, ok=False) is None:
            now_ms += 100
        times.append(now_ms)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert gaps == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]


def test_dead_name_server_is_not_waited_for(server: NameServerState) -> None:
    register(server, 0, ok=False)
    assert server.note_changed(["T"], 100).done


def test_silent_name_server_is_waited_for_a_while(server: NameServerState) -> None:
    register(server, 0)
    result = server.note_changed(["T"], 100)
    assert server.take_due_registration(100) is not None  # never answered
    late = server.note_changed(["U"], 200)
    server.take_due_registration(100 + MAX_WAIT_MS)
    assert result.done
    assert not late.done
    server.take_due_registration(200 + MAX_WAIT_MS)
    assert late.done


def test_many_changes_go_in_parts(server: NameServerState) -> None:
    register(server, 0)
    names = [f"T{number}" for number in range(MAX_SINGLE_TOPICS + 2)]
    result = server.note_changed(names, 100)
    assert register(server, 100) == Work(False, names[:MAX_SINGLE_TOPICS])
    assert not result.done
    assert register(server, 100) == Work(False, names[MAX_SINGLE_TOPICS:])
    assert result.done
    assert server.take_due_registration(100) is None


def test_no_topic_named_means_all(server: NameServerState) -> None:
    register(server, 0)
    server.note_changed([], 100)
    assert server.take_due_registration(100) == Work(True, [])


def saver_of(folder: Path) -> TableSaver:
    return TableSaver(ConfigFiles(RealFiles(), str(folder)), InlineDisk())


def make(tmp_path: Path, properties: str = "") -> tuple[Registration, TopicTable]:
    """A registration at two name servers and its topics."""
    config, _ = load_config(f"namesrvAddr=127.0.0.1:1;127.0.0.1:2\n{properties}")
    topics = TopicTable(config, saver_of(tmp_path))
    topics.add_boot_topics(1)
    topics.put(TopicConfig("T", perm=6), 2)
    broker_id = config.broker_id
    return Registration(config, topics, "127.0.0.1:10911", lambda: broker_id), topics


def parse(request: Command) -> tuple[RegisterBrokerRequest, RegisterBrokerBody]:
    assert isinstance(request.body, bytes)
    header = read_header(RegisterBrokerRequest, request.fields)
    assert header.body_crc32 == body_crc32(request.body)
    return header, RegisterBrokerBody.decode(request.body)


def test_full_request_has_every_topic(tmp_path: Path) -> None:
    registration, topics = make(tmp_path)
    header, body = parse(registration.begin_request(Work(True, []))[1]())
    assert header.broker_addr == "127.0.0.1:10911"
    assert header.ha_server_addr == "127.0.0.1:10912"
    assert (header.cluster_name, header.broker_name, header.broker_id) == (
        "DefaultCluster",
        "broker-a",
        0,
    )
    assert body.topics.topic_config_table == topics.all_topics()
    assert body.topics.data_version == topics.data_version
    assert len(body.topics.topic_config_table) >= 2


def test_single_request_has_the_changed_topic(tmp_path: Path) -> None:
    registration, _ = make(tmp_path)
    _, body = parse(registration.begin_request(Work(False, ["T"]))[1]())
    assert list(body.topics.topic_config_table) == ["T"]


def test_only_a_request_without_the_other_topics_says_so(tmp_path: Path) -> None:
    """A name server may remove the topics that a registration does not name."""
    registration, topics = make(tmp_path)
    assert parse(registration.begin_request(Work(False, ["T"]))[1]())[0].changes_only
    assert not parse(registration.begin_request(Work(True, []))[1]())[0].changes_only
    topics.delete("T", 3)
    assert not parse(registration.begin_request(Work(False, ["T"]))[1]())[0].changes_only


def test_a_request_is_of_the_moment_it_was_asked_for(tmp_path: Path) -> None:
    """The request is encoded on a different thread while the broker changes its topics."""
    registration, topics = make(tmp_path)
    before, version = topics.all_topics(), topics.data_version
    count, make_request = registration.begin_request(Work(True, []))
    topics.put(TopicConfig("T", perm=2), 3)
    topics.delete("TBW102", 3)
    _, body = parse(make_request())
    assert count == len(before)
    assert body.topics.topic_config_table == before
    assert body.topics.data_version == version


def test_replica_registers_under_its_id_and_hears_of_its_master(tmp_path: Path) -> None:
    properties = "brokerRole=SLAVE\nbrokerId=2\nhaListenPort=7000\nbrokerIP2=10.0.0.9\n"
    registration, _ = make(tmp_path, properties)
    notified: list[tuple[str, str]] = []
    registration.on_master = lambda address, ha_address: notified.append((address, ha_address))
    header, _ = parse(registration.begin_request(Work(True, []))[1]())
    assert (header.broker_id, header.ha_server_addr) == (2, "10.0.0.9:7000")
    leaves = read_header(UnRegisterBrokerRequest, registration.unregister_request().fields)
    assert leaves.broker_id == 2
    assert registration.apply_response(Command(0), 5)
    assert notified == []
    fields = {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"}
    assert registration.apply_response(Command(0, fields=fields), 5)
    assert notified == [("10.0.0.1:10911", "10.0.0.1:10912")]


def test_signs_of_life(tmp_path: Path) -> None:
    """An old name server counts request 322 as a heartbeat if its version is the registered one."""
    registration, _ = make(tmp_path, "brokerRole=SLAVE\nbrokerId=2\nbrokerName=b\n")
    beat = registration.heartbeat_request()
    assert (beat.code, beat.is_oneway) == (904, True)
    old = registration.heartbeat_request(old=True)
    assert (old.code, old.is_oneway) == (322, True)
    asked = read_header(QueryDataVersionRequest, old.fields)
    assert (asked.broker_name, asked.broker_id) == ("b", registration._broker_id())
    _, registered = parse(registration.begin_request(Work(True, []))[1]())
    assert old.body == registered.topics.data_version.encode()


def test_deleted_topic_makes_the_request_full(tmp_path: Path) -> None:
    registration, topics = make(tmp_path)
    topics.delete("T", 3)
    _, body = parse(registration.begin_request(Work(False, ["T"]))[1]())
    assert body.topics.topic_config_table == topics.all_topics()


def test_permission_of_the_broker_masks_its_topics(tmp_path: Path) -> None:
    registration, topics = make(tmp_path, "brokerPermission=4\n")
    _, body = parse(registration.begin_request(Work(False, ["T"]))[1]())
    assert body.topics.topic_config_table["T"].perm == 4
    known = topics.get("T")
    assert known is not None
    assert known.perm == 6


def test_change_is_told_when_both_name_servers_know(tmp_path: Path) -> None:
    registration, _ = make(tmp_path)
    first, second = registration.servers
    register(first, 0)
    register(second, 0)
    result = registration.note_changed(["T"], 100)
    register(first, 100)
    assert not result.done
    register(second, 100)
    assert result.done


def test_without_name_servers_nothing_waits(tmp_path: Path) -> None:
    config, _ = load_config("")
    topics = TopicTable(config, saver_of(tmp_path))
    assert Registration(config, topics, "127.0.0.1:1").note_changed(["T"], 0).done


def test_answer_may_name_ordered_topics(tmp_path: Path) -> None:
    registration, topics = make(tmp_path)
    response = Command(0, flag=1, body=b'{"table":{"T":"broker-a:4","Gone":"broker-a:1"}}')
    assert registration.apply_response(response, 5)
    known = topics.get("T")
    assert known is not None
    assert known.order
    assert not registration.apply_response(Command(1, flag=1, remark="no"), 5)
    assert registration.apply_response(Command(0, flag=1, body=b"junk"), 5)


def test_name_servers_may_change_while_the_broker_runs(tmp_path: Path) -> None:
    """Operators of Kubernetes change namesrvAddr with updateBrokerConfig when pods move."""
    registration, _ = make(tmp_path)
    first, second = registration.servers
    for server in (first, second):
        assert register(server, 1_000) == Work(True, [])
    waits = registration.note_changed(["T"], 1_100)
    registration._config.update_keys(parse_properties("namesrvAddr=127.0.0.1:2;127.0.0.1:3"))
    (third,) = registration.reconfigure()
    assert [one.address for one in registration.servers] == ["127.0.0.1:2", "127.0.0.1:3"]
    assert registration.servers[0] is second, "it is not registered there again"
    assert register(third, 1_200) == Work(True, [])
    assert not waits.done
    register(second, 1_200)
    assert waits.done, "nothing waits for the server that is gone"
    assert registration.find("127.0.0.1:1") is None
    assert BrokerConfig.accepts_change("namesrvAddr")
