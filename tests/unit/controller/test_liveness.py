"""Heartbeats: the last ones, the live brokers, and the reasons to count a broker as dead."""

from turbopump.controller import liveness
from turbopump.controller.liveness import Heartbeats, Key
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest

KEY: Key = ("c", "b", 1)


def beat(
    table: Heartbeats,
    now_ms: int,
    broker_id: int = 1,
    connection: int = 5,
    timeout_ms: int | None = None,
    max_offset: int | None = 10,
    epoch: int | None = 1,
) -> bool | None:
    header = BrokerHeartbeatRequest("c", "a", "b", broker_id, epoch, max_offset, 0, timeout_ms)
    return table.on_heartbeat(header, connection, now_ms)


def test_a_broker_lives_for_its_own_timeout() -> None:
    table = Heartbeats()
    assert not table.is_active(KEY, 0)
    assert beat(table, 0, timeout_ms=3_000) is True
    assert beat(table, 1_000, timeout_ms=3_000) is False
    assert table.is_active(KEY, 4_000) and not table.is_active(KEY, 4_001)
    assert table.remove_expired(4_000) == []
    assert table.remove_expired(4_001) == [KEY]
    assert table.remove_expired(4_002) == [] and len(table) == 0


def test_without_one_it_is_ten_seconds_and_no_one_is_believed_for_ever() -> None:
    table = Heartbeats()
    beat(table, 0)
    assert table.is_active(KEY, 10_000) and not table.is_active(KEY, 10_001)
    beat(table, 0, timeout_ms=2**62)
    assert not table.is_active(KEY, liveness.TIMEOUT_MAX_MS + 1)
    beat(table, 0, timeout_ms=-5)
    assert not table.is_active(KEY, liveness.TIMEOUT_MIN_MS + 1)


def test_the_newest_word_of_a_log_counts() -> None:
    """A broker that cut its log reports a shorter one: RocketMQ would keep the longer."""
    table = Heartbeats()
    beat(table, 0, max_offset=500, epoch=3)
    beat(table, 1, max_offset=100, epoch=2)
    newest = table.newest_report(KEY)
    assert newest is not None and (newest.epoch, newest.max_offset) == (2, 100)
    beat(table, 2, max_offset=None, epoch=None)
    assert table.newest_report(KEY) is None


def test_a_broker_that_sends_a_request_lives() -> None:
    table = Heartbeats()
    assert (
        table.record_request(KEY, 5, 0)
        and table.is_active(KEY, 0)
        and table.newest_report(KEY) is None
    )
    assert not table.record_request(KEY, 5, 1)
    assert beat(table, 2) is True  # the first report of its log is new
    table.record_request(KEY, 5, 9_000)
    assert table.newest_report(KEY) is not None and table.is_active(KEY, 19_000)


def test_a_closed_connection_kills_its_last_user() -> None:
    table = Heartbeats()
    beat(table, 0, 1, connection=5)
    beat(table, 0, 2, connection=5)
    beat(table, 1, 2, connection=6)
    assert table.on_closed(5) == [KEY] and table.is_disconnected(KEY)
    assert (
        table.on_closed(5) == []
        and not table.has_recent_heartbeat(KEY, 2)
        and table.may_be_alive(KEY, 2)
    )
    assert (
        table.record_death(KEY, 2)
        and not table.record_death(KEY, 2)
        and not table.may_be_alive(KEY, 2)
    )
    assert table.is_active(("c", "b", 2), 3)
    assert table.on_closed(6) == [("c", "b", 2)]
    assert table.record_death(("c", "b", 2), 4) and len(table) == 0


def test_a_broker_heard_over_another_connection_is_not_dead() -> None:
    table = Heartbeats()
    beat(table, 0, connection=5)
    table.on_closed(5)
    assert beat(table, 1, connection=6) is True  # it may be elected again
    assert not table.is_disconnected(KEY) and not table.record_death(KEY, 2)
    assert table.has_recent_heartbeat(KEY, 2) and table.on_closed(6) == [KEY]


def test_after_a_change_of_the_lead_silence_begins_anew() -> None:
    table = Heartbeats()
    beat(table, 0)
    table.begin_lead(9_000)
    assert table.remove_expired(18_999) == []
    assert not table.is_active(KEY, 10_001) and table.may_be_alive(KEY, 19_000)
    assert table.remove_expired(19_001) == [KEY]
    never: Key = ("c", "b", 9)
    assert table.may_be_alive(never, 19_000) and not table.may_be_alive(never, 19_001)
    assert not table.is_active(never, 9_000)


def test_whom_a_leader_waited_for_is_dead() -> None:
    """The broker's own timeout was shorter than the default timeout."""
    table = Heartbeats()
    beat(table, 500, timeout_ms=1_000)
    table.begin_lead(1_000)
    assert table.remove_expired(2_000) == [] and table.may_be_alive(KEY, 2_000)
    assert table.remove_expired(2_001) == [KEY] and not table.may_be_alive(KEY, 2_001)
    beat(table, 3_000, timeout_ms=1_000)
    assert table.may_be_alive(KEY, 3_000)
    assert table.remove_expired(4_001) == [KEY]
    table.begin_lead(4_500)  # a different controller led meanwhile: it may have granted a lease
    assert table.may_be_alive(KEY, 14_500) and not table.may_be_alive(KEY, 14_501)


def test_a_closed_connection_is_no_silence() -> None:
    table = Heartbeats()
    beat(table, 0)
    table.on_closed(5)
    assert table.record_death(KEY, 1_000)
    table.begin_lead(1_500)
    assert not table.may_be_alive(KEY, 1_501)
    table.remove_expired(11_001)
    table.begin_lead(12_000)  # too old for this lead
    assert table.may_be_alive(KEY, 12_001)


def test_a_life_that_is_over() -> None:
    table = Heartbeats()
    table.begin_lead(0)
    beat(table, 0)
    table.discard_reports(KEY, 1)
    assert (
        table.newest_report(KEY) is None
        and not table.may_be_alive(KEY, 2)
        and not table.is_active(KEY, 2)
    )
    assert table.on_closed(5) == []
    beat(table, 4)
    assert table.is_active(KEY, 5)


def test_requests_that_arrived_while_the_controller_slept_are_read_first() -> None:
    table = Heartbeats()
    beat(table, 0)
    for now_ms in range(0, 9_901, 100):
        table.on_tick(now_ms)
    table.on_tick(10_500)  # a pause too short for a credit; received heartbeats are not read yet
    assert table.remove_expired(10_500) == [] and table.may_be_alive(KEY, 10_500)
    beat(table, 10_501)
    table.on_tick(10_520)
    assert table.remove_expired(10_520) == [] and table.may_be_alive(KEY, 10_520)


def test_a_broker_without_a_connection_while_the_controller_slept_has_one_heartbeat_more() -> None:
    table = Heartbeats()
    table.on_tick(0)
    beat(table, 0)
    table.on_tick(30_000)
    table.on_tick(30_020)
    assert table.remove_expired(30_020) == [] and table.may_be_alive(KEY, 30_020)
    table.on_tick(30_000 + liveness.CREDIT_MS)
    table.on_tick(30_001 + liveness.CREDIT_MS)
    assert table.remove_expired(30_001 + liveness.CREDIT_MS) == [KEY]


def test_made_up_brokers_do_not_keep_a_registered_one_out(monkeypatch) -> None:
    monkeypatch.setattr(liveness, "BROKERS_MAX", 30)
    registered = {("c", "b", number) for number in range(1_000, 1_100)}
    table = Heartbeats(is_registered=registered.__contains__)
    taken = [beat(table, 0, number, connection=number % 7) for number in range(100)]
    assert taken.count(None) == 70
    assert all(beat(table, 1, number, connection=number) for _, _, number in registered)
    assert beat(table, 1, 200, connection=200) is None
    registered |= {("c", "b", number) for number in range(30)}
    assert beat(table, 2, 0) is not None, "a broker that registered later no longer counts"
    assert beat(table, 2, 200, connection=200)


def test_one_connection_has_few_brokers() -> None:
    table = Heartbeats()
    taken = [beat(table, 0, number, connection=1) for number in range(200)]
    assert taken.count(None) == 200 - liveness.CONNECTION_MAX
    assert beat(table, 0, 500, connection=2)


def test_the_dead_are_bounded_in_bytes(monkeypatch) -> None:
    monkeypatch.setattr(liveness, "NAMES_MAX", 1_000)
    table = Heartbeats(is_registered=KEY.__eq__)
    table.discard_reports(KEY, 0)
    for number in range(2, 500):
        table.discard_reports(("c", "b" * 100, number), 0)
        assert table._closed.size <= 1_000
    assert KEY in table._closed, "made-up names go first"
    for number in range(1, 200):
        beat(table, 0, number, connection=number)
    table.begin_lead(0)
    assert len(table.remove_expired(100_000)) > 3
    assert 0 < table._silent.size <= 1_000 and KEY in table._silent


def silent_under_a_stutter(stopped_ms: int, runs_ms: int) -> int:
    """The time at which a broker with a heartbeat at 0 expires in a controller that is paused
    repeatedly."""
    table = Heartbeats()
    now_ms = 0
    beat(table, now_ms)
    while True:
        for _ in range(runs_ms // 20):
            now_ms += 20
            table.on_tick(now_ms)
            if table.remove_expired(now_ms):
                return now_ms
        now_ms += stopped_ms


def test_a_controller_that_stutters_misses_a_silent_broker() -> None:
    """A silent broker was missed only after 80 s and 48 s while pauses were credited in full."""
    for stopped_ms, runs_ms in ((1_100, 140), (1_200, 300), (900, 20), (3_000, 20)):
        took_ms = silent_under_a_stutter(stopped_ms, runs_ms)
        assert 10_000 < took_ms <= 11_000 + 2 * stopped_ms, (stopped_ms, runs_ms, took_ms)


def test_a_broker_that_is_heard_under_a_stutter_lives() -> None:
    """The broker's heartbeats arrive during the pauses, and are read after the first tick."""
    table = Heartbeats()
    for now_ms in range(0, 120_000, 1_250):
        table.on_tick(now_ms)
        assert table.remove_expired(now_ms) == []
        beat(table, now_ms + 5)
        table.on_tick(now_ms + 20)
        assert table.remove_expired(now_ms + 20) == [] and table.may_be_alive(KEY, now_ms + 20)


def test_fresh_brokers_were_heard_just_now() -> None:
    table = Heartbeats()
    assert not table.has_recent_heartbeat(KEY, 0)
    beat(table, 0)
    assert (
        table.has_recent_heartbeat(KEY, 4_000)
        and not table.has_recent_heartbeat(KEY, 4_001)
        and table.is_active(KEY, 4_001)
    )


def test_a_lease_is_never_longer_than_a_new_leader_waits() -> None:
    table = Heartbeats(5_000)
    assert table.timeout_of(KEY) == 5_000
    beat(table, 0, timeout_ms=60_000)
    assert table.timeout_of(KEY) == 5_000
    beat(table, 0, timeout_ms=3_000)
    assert table.timeout_of(KEY) == 3_000


def test_a_name_that_no_broker_has_is_not_kept() -> None:
    table = Heartbeats()
    for cluster, name in (("c" * 256, "b"), ("c", "b" * 256)):
        header = BrokerHeartbeatRequest(cluster, "a", name, 1, 1, 10, 0, None)
        assert table.on_heartbeat(header, 5, 0) is None
    assert len(table) == 0


def test_made_up_brokers_do_not_fill_the_memory(monkeypatch) -> None:
    monkeypatch.setattr(liveness, "BROKERS_MAX", 3)
    table = Heartbeats()
    assert [beat(table, 0, broker_id) for broker_id in range(4)] == [True, True, True, None]
    assert beat(table, 1, 2) is False
    for broker_id in range(9):
        table.discard_reports(("c", "b", broker_id), 1)
    assert len(table._closed) == 3
