"""A broker with full tables, and for each of its request codes the largest requests it accepts."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.fuzz.holds.generic import generic
from tests.fuzz.holds.meter import Case, Hold, Meter, OtherThread, ask, connect
from tests.unit.broker.conftest import World
from tests.unit.broker.handlers.hostile.test_hostile_names import NAMES, numbers
from turbopump.broker.handlers.json_responses import MAX_LISTED
from turbopump.broker.tables import locks as lock_table
from turbopump.broker.tables.groups import FORBIDDEN_READ
from turbopump.cli.gc_tuning import GcTuning
from turbopump.engine import fastjson
from turbopump.engine.deferred import Deferred
from turbopump.engine.timer.timer_metrics import MAX_TOPICS
from turbopump.engine.types import NewMessage, QueueOffset
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.heartbeat import ConsumerData, HeartbeatData, ProducerData
from turbopump.net.wire.message import encode_batch
from turbopump.net.wire.message_id import encode_message_id
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.subscription import SubscriptionData
from turbopump.net.wire.topics import TopicConfig

MANY: Final = 60_000
"""Number of topics, of groups, of a group's topics, of a topic's groups, and of a topic's queues.
"""
MEMBERS: Final = 2_000
"""Number of connections of a group."""
STORED: Final = 1_000
"""Topics that have queues in the store."""
BANS: Final = 20_000

_TOPICS = {"topic", "b", "originTopic", "statsKey"}
_SMALL = "Scratch"
_WIDE, _GROUP, _CROWD = "Wide", "wide", "crowd"


class _World(World):
    """World whose disk work runs on other threads."""

    def __init__(self, folder: Path, meter: Meter) -> None:
        self.meter = meter
        super().__init__(folder, "")

    def open(self) -> None:
        self.disk = self.config_disk = OtherThread(self.meter)  # type: ignore[assignment]
        super().open()


class BrokerWalk:
    """A broker with requests for all of its codes."""

    def __init__(self, folder: Path, many: int = MANY) -> None:
        self.meter = Meter()
        self.gc_tuning = GcTuning()
        self.many = many
        self.world = _World(folder, self.meter)
        self.broker = self.world.broker
        self.broker.register_topics = lambda names: _done()
        self.disk: OtherThread = self.world.disk  # type: ignore[assignment]
        self._fill()
        self.disk.run()
        gc.collect()
        self.gc_tuning.begin_freezing()

    @property
    def codes(self) -> frozenset[int]:
        """All codes of the broker's dispatch table."""
        return self.world.table.codes

    def ask(self, code: int, case: Case) -> Hold:
        """The longest part of a request."""
        with self.meter.watching():
            return ask(self.meter, self.world.table, self.disk, code, case, self.world.now_ms)

    def close(self) -> None:
        """Stop the broker."""
        self.gc_tuning.end_freezing()
        self.world.broker.store.close(self.world.now_ms)

    def cases(self, code: int, attempt: int = 0) -> list[Case]:
        """Requests of a code; each attempt uses names that no earlier attempt used.

        KeyError: there is no large request for the code.
        """
        made = _LARGE[RequestCode(code)](self, f"{attempt}_{code}")
        return [*generic(fields_of(_SMALL, "scratch")), *made]

    def _fill(self) -> None:
        broker, now_ms, many = self.broker, self.world.now_ms, self.many
        topics = [TopicConfig(name) for name in _named("T", many)]
        wide = TopicConfig(_WIDE, many, many)
        broker.topics.put_all([*topics, wide, TopicConfig(_SMALL)], now_ms)
        groups = [SubscriptionGroupConfig(name) for name in _named("G", many)]
        large = (_GROUP, _CROWD, "scratch")
        groups += [SubscriptionGroupConfig(name) for name in large]
        broker.groups.put_all(groups, now_ms)
        for number, topic in enumerate(topics):
            broker.offsets.commit(_GROUP, topic.topic_name, 0, QueueOffset(1), now_ms)
            broker.offsets.commit(f"H{number}", _SMALL, 0, QueueOffset(1), now_ms)
        for queue_id in range(many):
            broker.offsets.commit(_GROUP, _WIDE, queue_id, QueueOffset(1), now_ms)
            broker.offsets.commit_pull(_GROUP, _WIDE, queue_id, QueueOffset(1))
        # One call for each would copy the masks of the group for each.
        broker.groups._forbidden[_GROUP] = dict.fromkeys(_named("T", BANS), FORBIDDEN_READ)
        self._fill_clients()
        self._fill_store()

    def _fill_clients(self) -> None:
        broker, steady_ms = self.broker, self.world.steady_ms
        wide = {one: SubscriptionData(one) for one in _named("T", 10_000)}
        for number in range(MEMBERS):
            peer = connect()
            name = f"client {number}"
            subscribed = list(wide.values()) if number == 0 else []
            broker.consumers.register(
                peer,
                name,
                ConsumerData(_CROWD, subscription_data_set=subscribed),
                steady_ms,
                with_subscriptions=number == 0,
            )
            broker.producers.register(peer, name, _CROWD, steady_ms)
            for group in range(20):
                broker.producers.register(peer, name, f"{number} {group}", steady_ms)
        old_ms = steady_ms - lock_table.LEASE_MS - 1
        queues = [MessageQueue(_WIDE, "b", number) for number in range(4 * self.many)]
        broker.locks.lock(_CROWD, "gone", queues, old_ms)

    def _fill_store(self) -> None:
        for name in (*_named("S", STORED), _SMALL):
            self._put(name)
        for queue_id in range(self.many // 60):
            self._put(_WIDE, queue_id)
        for _ in range(5_000):
            self._put(_SMALL)

    def _put(self, topic: str, queue_id: int = 0) -> None:
        broker = self.broker
        broker.store.append(
            NewMessage(
                topic,
                queue_id,
                b"body",
                properties=b"KEYS\x01k\x02",
                born_timestamp_ms=self.world.now_ms,
                born_host=broker.store_host,
                store_host=broker.store_host,
            ),
            self.world.now_ms,
        )


Made = Callable[[BrokerWalk, str], list[Case]]


def fields_of(topic: str, group: str, **more: object) -> dict[str, str]:
    """A header that is complete for any code."""
    fields = numbers(1_700_000_000_000) | dict.fromkeys(NAMES, group)
    fields |= dict.fromkeys(_TOPICS, topic) | {"defaultTopic": "TBW102", "c": "TBW102"}
    fields |= {"topicList": "", "filterGroups": "", "attributes": ""} | more
    return {key: str(value) for key, value in fields.items()}


def _done() -> Deferred[None]:
    later: Deferred[None] = Deferred()
    later.resolve(None)
    return later


def _named(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:05d}{'x' * 40}" for number in range(count)]


def _header(name: str, topic: str = _SMALL, group: str = _GROUP, **more: object) -> Made:
    return lambda walk, run: [Case(name, fields_of(topic, group, **more))]


def _none(_walk: BrokerWalk, _run: str) -> list[Case]:
    """No requests of its own: the work depends neither on the named things nor on a table."""
    return []


def _json(name: str, value: object, **more: object) -> Case:
    body = fastjson.dumps(value).encode()
    return Case(name, fields_of(_SMALL, _GROUP, **more), body)


def _send(_walk: BrokerWalk, _run: str) -> list[Case]:
    large = b"x" * (4 << 20)
    properties = "".join(f"k{number}\x01v\x02" for number in range(4_000))
    retry = fields_of(f"%RETRY%{_CROWD}", _GROUP)
    names = fields_of(_SMALL, _GROUP)
    return [
        Case("4 MiB", names, large),
        Case("beyond 4 MiB", names, large + b"x" * 100_000),
        Case("4,000 properties", names | {"properties": properties}, b"x"),
        Case("4,000 properties, short names", names | {"i": properties}, b"x"),
        Case("to a group with as many locks as there can be", retry, b"x"),
    ]


def _send_batch(walk: BrokerWalk, run: str) -> list[Case]:
    batch = {"m": "true", "batch": "true"}
    names = fields_of(_SMALL, _GROUP) | batch
    multi = "INNER_MULTI_DISPATCH"
    found = [
        Case(f"batch of {count}", names, encode_batch([(0, b"", b"")] * count))
        for count in (32_768, 65_536, 190_000, 700_000)
    ]
    full = encode_batch([(0, bytes(60), b"KEYS\x01k\x02" + b"TAGS\x01t\x02")] * 32_768)
    found.append(Case("batch of 32768, 4 MiB", names, full))
    elements = [(0, b"", multi.encode())] + [(0, b"", b"")] * 65_000
    found.append(Case("batch that names light queues", names, encode_batch(elements)))
    found.append(Case("batch that is none", names, b"\0" * (4 << 20)))
    inner = TopicConfig("Inner", attributes={"queue.type": "BatchCQ"})
    walk.broker.topics.put(inner, walk.world.now_ms)
    fields = fields_of("Inner", _GROUP) | batch
    fields |= dict.fromkeys(("properties", "i"), "UNIQ_KEY\x01u\x02")
    found.append(Case("inner batch", fields, encode_batch([(0, b"", b"")] * 65_000)))
    return [*_send(walk, run), *found]


def _heartbeat(walk: BrokerWalk, run: str) -> list[Case]:
    groups = [ConsumerData(f"g{run}_{number}") for number in range(1_000)]
    producers = [ProducerData(f"p{run}_{number}") for number in range(20_000)]
    topics = [SubscriptionData(f"T{number}", "*") for number in range(7_000)]
    alone = [ConsumerData(f"alone{run}", subscription_data_set=topics)]
    crowd = [ConsumerData(_CROWD, subscription_data_set=topics[:1])]
    found = [
        ("1,000 new groups", HeartbeatData("c", [], groups)),
        ("20,000 producer groups", HeartbeatData("c", producers, [])),
        ("7,000 subscriptions", HeartbeatData("c", [], alone)),
        (f"joins {MEMBERS} others", HeartbeatData("c", [], crowd)),
    ]
    names = fields_of(_SMALL, _GROUP)
    return [Case(name, names, one.encode(), closes=True) for name, one in found]


def _locks(_walk: BrokerWalk, run: str) -> list[Case]:
    queues = [{"topic": f"T{run}", "brokerName": "b", "queueId": each} for each in range(19_000)]
    body = {"consumerGroup": "g", "clientId": f"c{run}", "mqSet": queues}
    return [_json("19,000 queues", body)]


def _topic_list(_walk: BrokerWalk, run: str) -> list[Case]:
    bean = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    topics = [{"topicName": f"t{run}_{each}", **bean} for each in range(MAX_LISTED)]
    return [_json("10,000 new topics", {"topicConfigList": topics})]


def _group_list(_walk: BrokerWalk, run: str) -> list[Case]:
    groups = [{"groupName": f"g{run}_{each}"} for each in range(MAX_LISTED)]
    return [_json("10,000 new groups", {"groupConfigList": groups})]


def _delete_topic(walk: BrokerWalk, run: str) -> list[Case]:
    broker, now_ms = walk.broker, walk.world.now_ms
    name = f"Doomed{run}"
    broker.topics.put(TopicConfig(name, 1, 1), now_ms)
    for number in range(walk.many // 3):
        broker.offsets.commit(f"K{number}", name, 0, QueueOffset(1), now_ms)
    for queue_id in range(100):
        walk._put(name, queue_id)
    return [
        Case("topic without queues", fields_of(walk_topic(walk, run), _GROUP)),
        Case("topic of 20,000 groups, with 100 queues", fields_of(name, _GROUP)),
    ]


def walk_topic(walk: BrokerWalk, run: str) -> str:
    """A topic of its own for one request."""
    name = f"Own{run}"
    walk.broker.topics.put(TopicConfig(name), walk.world.now_ms)
    return name


def _clean_unused(walk: BrokerWalk, run: str) -> list[Case]:
    for number in range(50):
        walk._put(f"Unused{run}_{number}")
    return [Case("50 topics", fields_of(_SMALL, _GROUP))]


def _delete_group(walk: BrokerWalk, run: str) -> list[Case]:
    broker, now_ms, name = walk.broker, walk.world.now_ms, f"doomed{run}"
    broker.groups.put(SubscriptionGroupConfig(name), now_ms)
    for topic in _named("T", walk.many // 3):
        broker.offsets.commit(name, topic, 0, QueueOffset(1), now_ms)
    fields = fields_of(_SMALL, name, cleanOffset="true")
    return [Case("group of 20,000 topics", fields)]


def _consume_stats(walk: BrokerWalk, _run: str) -> list[Case]:
    return [
        Case("topic of 60,000 queues", fields_of(_WIDE, _GROUP)),
        Case("group of 60,000 topics", fields_of("", _GROUP)),
        Case("a list of topics", fields_of("", _GROUP, topicList=";".join(_named("T", 2_000)))),
    ]


def _clone(_walk: BrokerWalk, run: str) -> list[Case]:
    return [
        Case(
            "group of 60,000 topics",
            fields_of("", _GROUP, srcGroup=_GROUP, destGroup=f"d{run}", offline="true"),
        ),
        Case(
            "topic of 60,000 queues",
            fields_of(_WIDE, _GROUP, srcGroup=_GROUP, destGroup=f"w{run}", offline="true"),
        ),
    ]


def _reset(walk: BrokerWalk, _run: str) -> list[Case]:
    fields = fields_of(_WIDE, _GROUP, timestamp=-1, queueId=-1, isForce="true")
    return [
        Case("topic of 60,000 queues", fields),
        Case("by time", fields | {"timestamp": "1700000000000"}),
    ]


def _correction(_walk: BrokerWalk, _run: str) -> list[Case]:
    filtered = ",".join(f"H{number}" for number in range(10_000))
    return [
        Case("topic of 60,000 groups", fields_of(_SMALL, _GROUP, filterGroups=filtered)),
        Case("topic of 60,000 queues", fields_of(_WIDE, _GROUP, compareGroup=_GROUP)),
    ]


def _config(_walk: BrokerWalk, _run: str) -> list[Case]:
    names = fields_of(_SMALL, _GROUP)
    lines = b"".join(b"key%05d=v\n" % number for number in range(1_900))
    known = b"".join(b"fileReservedTime=%d\n" % number for number in range(1_900))
    return [Case("unknown keys", names, lines), Case("a key often", names, known)]


def _asked(**more: object) -> dict[str, object]:
    return {"topic": _WIDE, "consumerGroup": _CROWD, "clientId": "client 7", **more}


def _assignment(walk: BrokerWalk, run: str) -> list[Case]:
    """Assignments of a topic with 60,000 queues: for a crowd, for one member, for each."""
    walk.broker.consumers.register(connect(), "client 7", ConsumerData(f"one{run}"), 1)
    return [
        _json("a crowd, sticky", _asked(strategyName="STICKY")),
        _json("a crowd, another strategy", _asked(strategyName="CONSISTENT_HASH")),
        _json("one member", _asked(consumerGroup=f"one{run}")),
        _json("broadcast", _asked(messageModel="BROADCASTING")),
    ]


def _query(_walk: BrokerWalk, _run: str) -> list[Case]:
    fields = fields_of(_SMALL, _GROUP, key="k", maxNum=64, endTimestamp=2**62)
    return [Case("64 of 5,000", fields), Case("none", fields | {"key": "absent"})]


def _set_forbidden(walk: BrokerWalk, run: str) -> list[Case]:
    return [Case("one of 20,000 bans", fields_of(f"N{run}", _GROUP, readable="false"))]


def _expressions() -> dict[str, dict[str, str]]:
    """SQL that takes long to read, or to evaluate."""
    texts = {
        "2,000 words": " OR ".join(["a = 1"] * 510),
        "64 KiB of a comment": "/*" + "*x" * 32_000,
        "32 searches": " OR ".join(["KEYS CONTAINS 'kkkky'"] * 32),
        "10,000 brackets": "(" * 10_000 + "a = 1" + ")" * 10_000,
    }
    return {what: {"subscription": text, "expressionType": "SQL92"} for what, text in texts.items()}


def _pull(_walk: BrokerWalk, _run: str) -> list[Case]:
    more = {"maxMsgNums": "1000000", "sysFlag": "4", "expressionType": "TAG"}
    tags = "||".join(f"t{number}" for number in range(12_000))
    return [
        Case("5,000 messages", fields_of(_SMALL, _CROWD) | more | {"subscription": "*"}),
        Case("12,000 tags", fields_of(_SMALL, _CROWD) | more | {"subscription": tags}),
        *(
            Case(what, fields_of(_SMALL, _CROWD) | more | sql)
            for what, sql in _expressions().items()
        ),
    ]


def _pop(walk: BrokerWalk, _run: str) -> list[Case]:
    tags = "||".join(f"t{number}" for number in range(12_000))
    more = {
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "60000",
        "pollTime": "0",
        "bornTime": "0",
        "initMode": "0",
        "expType": "TAG",
    }
    return [
        Case("60,000 queues", fields_of(_WIDE, _CROWD) | more | {"exp": "*"}),
        Case("12,000 tags", fields_of(_SMALL, _CROWD) | more | {"exp": tags}),
    ]


def _batch_acks(walk: BrokerWalk, _run: str) -> list[Case]:
    entry = {"c": _CROWD, "t": _SMALL, "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1}
    return [
        _json("5,000 check points", {"brokerName": "b", "acks": [entry | {"b": "/w=="}] * 5_000}),
        _json("20,000 without bits", {"brokerName": "b", "acks": [entry] * 20_000}),
    ]


def _relays(walk: BrokerWalk, _run: str) -> list[Case]:
    message = encode_message_id(walk.broker.store_host, 0)
    fields = fields_of(_SMALL, _CROWD, clientId="client 0", msgId=message, clientAddr="")
    return [Case(f"group of {MEMBERS}", fields)]


def _units(_walk: BrokerWalk, _run: str) -> list[Case]:
    return [Case("4,096 units", fields_of(_SMALL, _CROWD, count=1 << 30, index=0))]


def _replicas(_walk: BrokerWalk, _run: str) -> list[Case]:
    ids = {"syncStateSet": list(range(20_000)), "syncStateSetEpoch": 1}
    return [_json("20,000 ids", ids)]


_stats = _header("a topic", statsName="TOPIC_PUT_NUMS", statsKey=_SMALL)


def _timers(walk: "BrokerWalk", _run: str) -> list[Case]:
    for topic in _named("T", MAX_TOPICS):
        walk.broker.timers.metrics.change_count(topic, 1, walk.world.now_ms)
    return [Case("as many topics as are counted", {})]


_LARGE: dict[RequestCode, Made] = {
    RequestCode.SEND_MESSAGE: _send,
    RequestCode.SEND_MESSAGE_V2: _send_batch,
    RequestCode.SEND_BATCH_MESSAGE: _send_batch,
    RequestCode.END_TRANSACTION: _header("no half message", commit_log_offset=0),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _header("a message"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _header("a message", offset=0, group=_CROWD),
    RequestCode.PULL_MESSAGE: _pull,
    RequestCode.LITE_PULL_MESSAGE: _pull,
    RequestCode.POP_MESSAGE: _pop,
    RequestCode.ACK_MESSAGE: _header("a message", extraInfo="0 1 1 0 0 b 0 0", offset=0),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _header(
        "a message", extraInfo="0 1 1 0 0 b 0 0", offset=0, invisibleTime=1
    ),
    RequestCode.BATCH_ACK_MESSAGE: _batch_acks,
    RequestCode.PEEK_MESSAGE: _header("60,000 queues", _WIDE, queueId=-1, maxMsgNums=32),
    RequestCode.NOTIFICATION: _header("60,000 queues", _WIDE, queueId=-1, pollTime=0, bornTime=0),
    RequestCode.POLLING_INFO: _header("60,000 queues", _WIDE, queueId=-1),
    RequestCode.QUERY_MESSAGE: _query,
    RequestCode.VIEW_MESSAGE_BY_ID: _header("a message"),
    RequestCode.QUERY_CONSUME_QUEUE: _units,
    RequestCode.QUERY_CONSUMER_OFFSET: _header("60,000 queues", _WIDE),
    RequestCode.UPDATE_CONSUMER_OFFSET: _header("60,000 queues", _WIDE),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _header("5,000 messages", timestamp=1_700_000_000_000),
    RequestCode.GET_MAX_OFFSET: _header("60,000 queues", _WIDE),
    RequestCode.GET_MIN_OFFSET: _header("60,000 queues", _WIDE),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _header("60,000 queues", _WIDE),
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _header(f"group of {MEMBERS}", group=_CROWD),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _header(f"group of {MEMBERS}", group=_CROWD),
    RequestCode.CHECK_CLIENT_CONFIG: lambda walk, run: [
        _json("12,000 tags", {"subscriptionData": {"tagsSet": ["t"] * 12_000}}),
        *(
            _json(
                what,
                {"subscriptionData": {"expressionType": "SQL92", "subString": sql["subscription"]}},
            )
            for what, sql in _expressions().items()
        ),
    ],
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _header(f"group of {MEMBERS}", group=_CROWD),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _header(f"group of {MEMBERS}", group=_CROWD),
    RequestCode.GET_ALL_PRODUCER_INFO: _header(f"{20 * MEMBERS} groups"),
    RequestCode.QUERY_ASSIGNMENT: _assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: lambda walk, run: [
        _json("3,000 queues", _asked(mode="PULL", queues={"c": ["broker:1"] * 3_000})),
    ],
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: lambda walk, run: [
        Case("an assignment of all queues", fields_of(_WIDE, _CROWD, assignmentsVersion="")),
    ],
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.SEND_REPLY_MESSAGE: _send,
    RequestCode.SEND_REPLY_MESSAGE_V2: _send,
    RequestCode.UPDATE_AND_CREATE_TOPIC: lambda walk, run: [
        Case("attributes", fields_of(f"t{run}", _GROUP, attributes="+a=b," * 10_000)),
        Case("a topic more", fields_of(f"u{run}", _GROUP)),
    ],
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _topic_list,
    RequestCode.DELETE_TOPIC_IN_BROKER: _delete_topic,
    RequestCode.GET_TOPIC_STATS_INFO: _header("60,000 queues", _WIDE),
    RequestCode.GET_TOPIC_CONFIG: _header("a topic"),
    RequestCode.GET_ALL_TOPIC_CONFIG: lambda walk, run: [
        Case("all", {}),
        Case("a page", {"topicSeq": "0", "maxTopicNum": "2000"}),
        Case("a page of ours", {"topicSeq": "0", "maxTopicNum": "2000", "deletedTopics": "true"}),
    ],
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _header("of 60,000 topics"),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _header("topic of 60,000 groups"),
    RequestCode.CLEAN_UNUSED_TOPIC: _clean_unused,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _none,
    RequestCode.DELETE_EXPIRED_COMMITLOG: _none,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: lambda walk, run: [
        _json("a group more", {"groupName": f"n{run}"})
    ],
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _group_list,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _delete_group,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: lambda walk, run: [
        Case("all", {}),
        Case("a page", {"groupSeq": "0", "maxGroupNum": "2000"}),
    ],
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: lambda walk, run: [
        Case("a group more", fields_of(_SMALL, f"m{run}"))
    ],
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _set_forbidden,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _header("group of 60,000 topics"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _header("10,000 topics", group=_CROWD),
    RequestCode.GET_CONSUME_STATS: _consume_stats,
    RequestCode.GET_BROKER_CONSUME_STATS: _header("all"),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _header("60,000 queues", _WIDE),
    RequestCode.QUERY_CORRECTION_OFFSET: _correction,
    RequestCode.CLONE_GROUP_OFFSET: _clone,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _reset,
    RequestCode.GET_ALL_CONSUMER_OFFSET: _header("180,000 queues"),
    RequestCode.GET_ALL_DELAY_OFFSET: _none,
    RequestCode.GET_TIMER_CHECK_POINT: _none,
    RequestCode.GET_TIMER_METRICS: _timers,
    RequestCode.RECALL_MESSAGE: _header("a handle", topic=_SMALL, recallHandle="A" * 4_096),
    RequestCode.UPDATE_BROKER_CONFIG: _config,
    RequestCode.GET_BROKER_CONFIG: _none,
    RequestCode.GET_BROKER_RUNTIME_INFO: _none,
    RequestCode.VIEW_BROKER_STATS_DATA: _stats,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _relays,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _relays,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _relays,
    RequestCode.GET_BROKER_HA_STATUS: _none,
    RequestCode.RESET_MASTER_FLUSH_OFFSET: _none,
    RequestCode.GET_BROKER_EPOCH_CACHE: _none,
    RequestCode.EXCHANGE_BROKER_HA_INFO: _none,
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: _replicas,
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: _none,
}
