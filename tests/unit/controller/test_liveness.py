"""Heartbeats: who was heard, who is alive, what kills."""

from turbopump.controller import liveness
from turbopump.controller.liveness import Heartbeats, Key
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest

KEY: Key = ("c", "b", 1)


def beat(
    table: Heartbeats, now_ms: int, broker_id: int = 1, connection: int = 5,
    timeout_ms: int | None = None, max_offset: int | None = 10, epoch: int | None = 1,
) -> bool | None:  # fmt: skip
    header = BrokerHeartbeatRequest("c", "a", "b", broker_id, epoch, max_offset, 0, timeout_ms)
    return table.on_heartbeat(header, connection, now_ms)


def test_a_broker_lives_for_its_own_timeout() -> None:
    table = Heartbeats()
    assert not table.heard(KEY, 0)
    assert beat(table, 0, timeout_ms=3_000) is True
    assert beat(table, 1_000, timeout_ms=3_000) is False
    assert table.heard(KEY, 4_000) and not table.heard(KEY, 4_001)
    assert table.expire(4_000) == []
    assert table.expire(4_001) == [KEY]
    assert table.expire(4_002) == [] and len(table) == 0


def test_without_one_it_is_ten_seconds_and_no_one_is_believed_for_ever() -> None:
    table = Heartbeats()
    beat(table, 0)
    assert table.heard(KEY, 10_000) and not table.heard(KEY, 10_001)
    beat(table, 0, timeout_ms=2**62)
    assert not table.heard(KEY, liveness.TIMEOUT_MAX_MS + 1)
    beat(table, 0, timeout_ms=-5)
    assert not table.heard(KEY, liveness.TIMEOUT_MIN_MS + 1)


def test_the_newest_word_of_a_log_counts() -> None:
    """One that cut its log has a shorter one: RocketMQ would keep the longer."""
    table = Heartbeats()
    beat(table, 0, max_offset=500, epoch=3)
    beat(table, 1, max_offset=100, epoch=2)
    newest = table.newest(KEY)
    assert newest is not None and (newest.epoch, newest.max_offset) == (2, 100)
    beat(table, 2, max_offset=None, epoch=None)
    assert table.newest(KEY) is None


def test_who_asks_for_something_lives() -> None:
    table = Heartbeats()
    assert table.touch(KEY, 5, 0) and table.heard(KEY, 0) and table.newest(KEY) is None
    assert not table.touch(KEY, 5, 1)
    assert beat(table, 2) is True  # the first word of its log is news
    table.touch(KEY, 5, 9_000)
    assert table.newest(KEY) is not None and table.heard(KEY, 19_000)


def test_a_closed_connection_kills_who_used_it_last() -> None:
    table = Heartbeats()
    beat(table, 0, 1, connection=5)
    beat(table, 0, 2, connection=5)
    beat(table, 1, 2, connection=6)
    assert table.on_closed(5, 2) == [KEY]
    assert table.on_closed(5, 2) == []
    assert table.heard(("c", "b", 2), 3)
    assert table.on_closed(6, 4) == [("c", "b", 2)] and len(table) == 0


def test_after_a_change_of_the_lead_silence_begins_anew() -> None:
    table = Heartbeats()
    beat(table, 0)
    table.lead(9_000)
    assert table.expire(18_999) == []
    assert not table.heard(KEY, 10_001) and table.alive(KEY, 19_000)
    assert table.expire(19_001) == [KEY]
    never: Key = ("c", "b", 9)
    assert table.alive(never, 19_000) and not table.alive(never, 19_001)
    assert not table.heard(never, 9_000)


def test_whom_a_leader_waited_for_is_dead() -> None:
    """Its own timeout was shorter than that of brokers of which nothing is known."""
    table = Heartbeats()
    beat(table, 500, timeout_ms=1_000)
    table.lead(1_000)
    assert table.expire(2_000) == [] and table.alive(KEY, 2_000)
    assert table.expire(2_001) == [KEY] and not table.alive(KEY, 2_001)
    beat(table, 3_000, timeout_ms=1_000)
    assert table.alive(KEY, 3_000)
    assert table.expire(4_001) == [KEY]
    table.lead(4_500)  # another one led meanwhile: it may have granted a lease
    assert table.alive(KEY, 14_500) and not table.alive(KEY, 14_501)


def test_a_closed_connection_is_no_silence() -> None:
    table = Heartbeats()
    beat(table, 0)
    table.on_closed(5, 1_000)
    table.lead(1_500)
    assert not table.alive(KEY, 1_501)
    table.expire(11_001)
    table.lead(12_000)  # too long ago to mean anything
    assert table.alive(KEY, 12_001)


def test_a_life_that_is_over() -> None:
    table = Heartbeats()
    table.lead(0)
    beat(table, 0)
    table.bury(KEY, 1)
    assert table.newest(KEY) is None and not table.alive(KEY, 2) and not table.heard(KEY, 2)
    assert table.on_closed(5, 3) == []
    beat(table, 4)
    assert table.heard(KEY, 5)


def test_what_the_controller_slept_is_nobodys_silence() -> None:
    table = Heartbeats()
    table.on_tick(0)
    beat(table, 0)
    table.on_tick(liveness.STALL_MS)
    assert not table.heard(KEY, 10_001)
    table.on_tick(30_000)
    assert table.expire(30_000) == [] and table.heard(KEY, 30_000)
    assert table.expire(39_000 + liveness.STALL_MS + 1) == [KEY]


def test_fresh_is_who_was_heard_just_now() -> None:
    table = Heartbeats()
    assert not table.fresh(KEY, 0)
    beat(table, 0)
    assert table.fresh(KEY, 4_000) and not table.fresh(KEY, 4_001) and table.heard(KEY, 4_001)


def test_a_lease_is_never_longer_than_a_new_leader_waits() -> None:
    table = Heartbeats(5_000)
    assert table.timeout_of(KEY) == 5_000
    beat(table, 0, timeout_ms=60_000)
    assert table.timeout_of(KEY) == 5_000
    beat(table, 0, timeout_ms=3_000)
    assert table.timeout_of(KEY) == 3_000


def test_made_up_brokers_do_not_fill_the_memory(monkeypatch) -> None:
    monkeypatch.setattr(liveness, "BROKERS_MAX", 3)
    table = Heartbeats()
    assert [beat(table, 0, broker_id) for broker_id in range(4)] == [True, True, True, None]
    assert beat(table, 1, 2) is False
    for broker_id in range(9):
        table.bury(("c", "b", broker_id), 1)
    assert len(table._closed) == 3
