"""Timers and transactions at a broker, and the lateness of timers at a consumer.

Owns the requests of these loads and the consumer. It must never know the broker's kind. To run it
by hand: `python -m bench.versus.later_load HOST:PORT`.
"""

import asyncio
import re
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.versus.connections import (
    BODY,
    QUEUES,
    ask_until_success,
    connect,
    count_stored,
    topic_request,
)
from bench.versus.native_load import Result, encode_frame, run

from turbopump.cli.bench.frames import Parts, Templates, first_difference
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Codec, new_request
from turbopump.net.wire.headers.pull import SUBSCRIPTION_FLAG, SUSPEND_FLAG, PullMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequestV2
from turbopump.net.wire.headers.transactions import EndTransactionRequest
from turbopump.pyx.load import FOLLOW_END, Load

TOPIC: Final = "Later"
GROUP: Final = "versus"
CONNECTIONS: Final = 64
UNIQUE: Final = "7F0000010000558C0000"
PULL_SIZE: Final = 32
PULL_MS: Final = 1_000
PAUSE_US: Final = 1_000
"""Pause of the whole load after a refusal: RocketMQ is sometimes busy."""
_FOUND, _NOTHING = 0, (19, 20)
_DUE = re.compile(rb"TIMER_DELIVER_MS\x01([0-9]{13})")
_DUE_MS, _OTHER_DUE_MS = "1000000000000", "2111111111111"
"""Times to deliver that differ in each digit."""


@dataclass(frozen=True)
class Lateness:
    """Lateness of timers at consumers, in ms."""

    seen: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    early: int


def _send_templates(properties: str, sys_flag: int) -> Templates:
    """The request templates of a send to each queue, with these properties and this sysFlag."""

    def encode_send(queue_id: int, parts: Parts) -> bytes:
        text = f"UNIQ_KEY\x01{UNIQUE}{parts.serial}\x02WAIT\x01true\x02{properties}"
        header = SendMessageRequestV2(
            GROUP, TOPIC, "TBW102", 4, queue_id, sys_flag, parts.born_ms, 0, text
        )
        return encode_frame(new_request(RequestCode.SEND_MESSAGE_V2, header, BODY), parts)

    templates = Templates()
    for queue_id in range(QUEUES):
        templates.add(Codec.JSON, "send", partial(encode_send, queue_id))
    return templates


def send_timers(address: str, count: int, due_ms: int, spread_ms: int) -> Result:
    """Send `count` timers, due at each millisecond from `due_ms` in turn, for `spread_ms`."""
    templates = _send_templates(f"TIMER_DELIVER_MS\x01{_DUE_MS}\x02", 0)
    other = _send_templates(f"TIMER_DELIVER_MS\x01{_OTHER_DUE_MS}\x02", 0)
    due_at = first_difference(bytes(templates.texts), bytes(other.texts))
    due = partial(Load.set_due, at=due_at, first_ms=due_ms, spread_ms=spread_ms)
    return run(address, CONNECTIONS, templates, due, messages=count, pause_us=PAUSE_US)


def send_transactions(address: str, count: int) -> Result:
    """Send `count` transactions: a half message, and its commit, which is not answered."""
    header = EndTransactionRequest(GROUP, 0, 0, 8, "\3", False, None, TOPIC, "broker")
    end = new_request(RequestCode.END_TRANSACTION, header, oneway=True)
    end.fields["commitLogOffset"], end.fields["tranStateTableOffset"] = "\1", "\2"
    text = encode_frame(end, Parts())[8:]
    for escaped, value in ((rb"\u0001", b"\1"), (rb"\u0002", b"\2"), (rb"\u0003", b"\3")):
        text = text.replace(escaped, value)
    follow = partial(Load.set_follow, kind=FOLLOW_END, text=text)
    templates = _send_templates(f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02", 4)
    return run(address, CONNECTIONS, templates, follow, messages=count, pause_us=PAUSE_US)


async def _consume_timers(
    address: str, queue_id: int, late_ms: list[float], until: float, count: int
) -> None:
    """Consume a queue until `count` timers were seen at all queues, or the time `until` (epoch
    seconds); adds the lateness of each timer in ms to `late_ms`."""
    connection, at = await connect(address), 0
    while time.time() < until and len(late_ms) < count:
        flags = SUBSCRIPTION_FLAG | SUSPEND_FLAG
        header = PullMessageRequest(
            GROUP, TOPIC, queue_id, at, PULL_SIZE, flags, 0, PULL_MS, 0, "*", "TAG"
        )
        response = await connection.ask(new_request(RequestCode.PULL_MESSAGE, header))
        now_ms = time.time() * 1000
        if response.code == _FOUND:
            assert not isinstance(response.body, list), "a decoded body is one buffer"
            late_ms += [now_ms - int(due) for due in _DUE.findall(response.body)]
        else:
            assert response.code in _NOTHING, response.remark
        at = int(response.fields["nextBeginOffset"])


async def _watch_timers(address: str, until: float, count: int) -> list[float]:
    """Consume all queues of the topic as `_consume_timers`; return the lateness of each timer in
    ms, sorted."""
    late_ms: list[float] = []
    each = (_consume_timers(address, one, late_ms, until, count) for one in range(QUEUES))
    await asyncio.gather(*each)
    return sorted(late_ms)


def make_topic(address: str) -> None:
    """Make the topic for timers and transactions."""
    ask_until_success(address, partial(topic_request, TOPIC))


def watch_timers(address: str, until: float, count: int) -> Lateness:
    """Consume the topic until `count` timers were seen, or until a time (epoch seconds)."""
    late = asyncio.run(_watch_timers(address, until, count)) or [0.0]
    p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
    return Lateness(len(late), p50, p99, late[-1], sum(one < -1 for one in late))


def main() -> None:
    """Measure timers and transactions at the broker of the command line, and print the results."""
    address = sys.argv[1]
    make_topic(address)
    print(send_transactions(address, 50_000))
    hour_ms = int(time.time() * 1000) + 3_600_000
    print(send_timers(address, 50_000, hour_ms, 3_600_000))
    print("stored", count_stored(address, TOPIC))
    begin = time.time() + 8
    print(send_timers(address, 100_000, int(begin * 1000), 5_000))
    print(watch_timers(address, begin + 15, 100_000))


if __name__ == "__main__":
    main()
