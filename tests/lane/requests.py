"""Requests and changes that a broker may get, for hypothesis to choose from."""

from hypothesis import strategies as st
from tests.lane.world import SQL, TOPICS

from turbopump.net.wire.command import Codec
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.net.wire.message import encode_batch

names = st.sampled_from(
    [
        "UNIQ_KEY", "KEYS", "TAGS", "WAIT", "DELAY", "TRAN_MSG", "POP_CK", "MSG_REGION",
        "INNER_NUM", "TIMER_DELAY_SEC", "INNER_MULTI_DISPATCH", "own", "ünï", "",
    ]
)  # fmt: skip
values = st.sampled_from(["true", "false", "1", "0", "a b", "täg", "x" * 200, "", "7F00\x01"])
properties = st.one_of(
    st.just("UNIQ_KEY\x017F0000010000558C00000000000000EE\x02WAIT\x01false"),
    st.lists(st.tuples(names, values), max_size=4).map(
        lambda pairs: "UNIQ_KEY\x01U\x02" + "".join(f"{n}\x01{v}\x02" for n, v in pairs)
    ),
    st.text(alphabet="a\x01\x02é\x00", max_size=12),
    st.none(),
)


def replaced(batch: bytes, size: int, at: int) -> bytes:
    """A batch in which the element at `at` has another size field."""
    return batch[:at] + size.to_bytes(4, "big", signed=True) + batch[at + 4 :]


bodies = st.one_of(
    st.binary(min_size=1, max_size=300),
    st.integers(0, 4200).map(lambda size: b"b" * size),
    st.lists(
        st.tuples(st.integers(0, 3), st.binary(max_size=60), st.just(b"KEYS\x01k\x02")), max_size=5
    ).map(encode_batch),
    st.tuples(st.sampled_from([-8, 0, 22, 1 << 30]), st.sampled_from([0, 23])).map(
        lambda damage: replaced(encode_batch([(0, b"x", b"")] * 2), *damage)
    ),
)
sends = st.fixed_dictionaries(
    {
        "code": st.sampled_from([10, 310, 320]),
        "codec": st.sampled_from(Codec),
        "topic": st.sampled_from(["Plain", "Plain", *TOPICS]),
        "queue_id": st.sampled_from([0, 0, 1, 3, 4, -1, 99]),
        "sys_flag": st.sampled_from([0, 0, 0, 1, 2, 4, 8, 12, 64, 128]),
        "flag": st.integers(-5, 5),
        "reconsume_times": st.sampled_from([None, 0, 3]),
        "batch": st.sampled_from([None, None, False, True]),
        "oneway": st.sampled_from([False, False, False, True]),
        "properties": properties,
        "body": bodies,
        "version": st.sampled_from([513, 400]),
    }
)
plain = st.fixed_dictionaries(
    {
        "code": st.sampled_from([10, 310]),
        "codec": st.sampled_from(Codec),
        "topic": st.sampled_from(["Plain", "Other"]),
        "queue_id": st.sampled_from([0, 0, 1]),
        "sys_flag": st.sampled_from([0, 1]),
        "flag": st.just(0),
        "reconsume_times": st.just(None),
        "batch": st.just(None),
        "oneway": st.just(False),
        "properties": st.sampled_from(
            [
                "UNIQ_KEY\x017F0000010000558C00000000000000EF\x02WAIT\x01true\x02TAGS\x01TagA\x02",
                "UNIQ_KEY\x017F0000010000558C00000000000000EE\x02KEYS\x01k1 k2",
            ]
        ),
        "body": st.binary(min_size=1, max_size=900),
        "version": st.just(513),
    }
)
KEY = "UNIQ_KEY\x017F0000010000558C000000000000"
HALF = "TRAN_MSG\x01true\x02PGROUP\x01producers\x02"
kept = st.fixed_dictionaries(
    {
        "code": st.sampled_from([10, 310]),
        "codec": st.sampled_from(Codec),
        "topic": st.sampled_from(["Plain", "Plain", "Plain", "Plain", "Other", "Multi"]),
        "queue_id": st.sampled_from([0, 0, 1]),
        "sys_flag": st.sampled_from([0, 4, 12]),
        "flag": st.just(3),
        "reconsume_times": st.sampled_from([None] * 7 + [1]),
        "batch": st.just(None),
        "oneway": st.sampled_from([False, False, True]),
        "properties": st.tuples(
            st.integers(10, 99).map(lambda number: f"{KEY}{number:04d}\x02"),
            st.sampled_from(
                [
                    *[HALF] * 8,
                    *["TIMER_DELAY_SEC\x011\x02"] * 4,
                    "KEYS\x01k1 k2\x02" + HALF + "WAIT\x01false",
                    "TRAN_MSG\x01TRUE\x02PGROUP\x01other\x02",
                    "TRAN_MSG\x01no\x02",
                    HALF + "REAL_TOPIC\x01Other\x02",
                    HALF + "CHECK_IMMUNITY_TIME_IN_SECONDS\x019\x02",
                    HALF + "TIMER_DELAY_SEC\x015\x02",
                    HALF + "DELAY\x011\x02",
                    "TIMER_DELAY_MS\x011500",
                    "TIMER_DELAY_MS\x01150\x02WAIT\x01true\x02",
                    "TIMER_DELIVER_MS\x015\x02TIMER_DELAY_MS\x0120\x02",
                    "TIMER_DELAY_MS\x01x\x02TIMER_DELAY_SEC\x012\x02",
                    "TIMER_DELIVER_MS\x01{now}300\x02",
                    "TIMER_DELIVER_MS\x019223372036854775807\x02",
                    "TIMER_DELAY_SEC\x01-1\x02",
                    "TIMER_DELAY_SEC\x0199999999999\x02",
                    "TIMER_DELAY_SEC\x011\x02TIMER_OUT_MS\x015\x02",
                    "TIMER_DELAY_SEC\x011\x02TIMER_DEL_UNIQKEY\x01a\x02",
                    "TIMER_DELAY_SEC\x012\x02INNER_NUM\x011\x02",
                ]
            ),
        ).map("".join),
        "body": st.binary(min_size=1, max_size=900),
        "version": st.just(513),
    }
)
ends = st.fixed_dictionaries(
    {
        "half": st.integers(0, 30),
        "codec": st.sampled_from(Codec),
        "version": st.just(513),
        "commit": st.sampled_from([8] * 6 + [12, 12, 0, 4]),
        "oneway": st.booleans(),
        "wrong": st.sampled_from([None] * 15 + ["group", "state", "log", "id", "check"]),
    }
)
of_transactions = st.integers(0, 19).flatmap(
    lambda number: (
        kept
        if number < 7
        else ends
        if number < 15
        else plain
        if number < 18
        else st.sampled_from(["time", "time", "tick", "readonly", "long"])
    )
)
changes = st.sampled_from(
    [
        "time", "back", "tick", "other code", "delete", "narrow", "readonly", "region",
        "heartbeat", "reset", "ban", "damage", "slave read",
    ]
)  # fmt: skip
of_replicas = st.sampled_from(["ack", "ack", "ack", "leave", "too few", "wait", "end"])
pulls = st.fixed_dictionaries(
    {
        "codec": st.sampled_from(Codec),
        "version": st.sampled_from([513, 400]),
        "header": st.builds(
            PullMessageRequest,
            consumer_group=st.sampled_from(["live", "live", "live", "tagged", "sql", "new group"]),
            topic=st.sampled_from(["Plain", "Plain", "Other", "Inner", "None"]),
            queue_id=st.sampled_from([0, 0, 0, 1, 3, 9]),
            queue_offset=st.sampled_from([0, 0, 0, 1, 2, 3, 9, 12]),
            max_msg_nums=st.sampled_from([32, 32, 2, 1, 0, 40]),
            sys_flag=st.sampled_from([0, 0, 1, 4, 4, 5]),
            commit_offset=st.integers(-1, 3),
            suspend_timeout_millis=st.just(0),
            sub_version=st.sampled_from([0, 0, 5, 99]),
            subscription=st.sampled_from([None, "*", "TagA", "TagA || b", "none", SQL, "TAGS ="]),
            expression_type=st.sampled_from([None, "TAG", "TAG", "SQL92", "SQL92"]),
        ),
    }
)
plain_pulls = st.fixed_dictionaries(
    {
        "codec": st.sampled_from(Codec),
        "version": st.just(513),
        "header": st.builds(
            PullMessageRequest,
            consumer_group=st.sampled_from(["live", "tagged", "sql"]),
            topic=st.sampled_from(["Plain", "Other"]),
            queue_id=st.sampled_from([0, 0, 1]),
            queue_offset=st.sampled_from([0, 0, 1, 2]),
            max_msg_nums=st.sampled_from([32, 2]),
            sys_flag=st.sampled_from([0, 0, 1]),
            commit_offset=st.just(1),
            suspend_timeout_millis=st.just(0),
            sub_version=st.just(0),
        ),
    }
)
steps = st.integers(0, 21).flatmap(
    lambda number: (
        plain
        if number < 8
        else plain_pulls
        if number < 14
        else pulls
        if number < 17
        else sends
        if number < 20
        else changes
    )
)
