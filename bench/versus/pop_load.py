"""Pops and acknowledgements: messages of any queue, each acknowledged by a separate request.

Owns the requests of that load, and the messages that it pops. It must never know the broker's kind.
To run it by hand: `python -m bench.versus.pop_load HOST:PORT`.
"""

import sys
from functools import partial
from typing import Final

from bench.versus import connections
from bench.versus.native_load import Result, encode_frame, run

from turbopump.cli.bench.frames import Parts, Templates
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Codec, new_request
from turbopump.net.wire.headers.pop import PopMessageRequest
from turbopump.pyx.load import FOLLOW_ACKS, Load
from turbopump.pyx.load_parts import OPAQUE_BASE

TOPIC: Final = "Popped"
GROUP: Final = "versus-pop"
CONNECTIONS: Final = 16
ACK: Final = (
    f'{{"code":200051,"flag":0,"language":"JAVA","opaque":{OPAQUE_BASE + 1},'
    '"serializeTypeCurrentRPC":"JSON","version":513,"extFields":{"consumerGroup":"'
    f'{GROUP}","topic":"{TOPIC}","queueId":"\2","extraInfo":"\3 \5 \6 \7 \4 %s \2 \1","offset":"\1"'
    "}}"
)
"""The header of an acknowledgement; the control characters stand for values, see set_follow."""


def fill_topic(address: str, count: int) -> int:
    """Send `count` messages, in batches, to all queues of the topic; see connections.fill_topic."""
    return connections.fill_topic(address, TOPIC, count)


def measure_pops(
    address: str,
    size: int,
    duration_s: float,
    invisible_ms: int,
    *,
    acks: bool = True,
    broker: str = "broker-a",
) -> Result:
    """Pop `size` messages at a time and acknowledge each (`acks`); latencies are of pops.

    It ends after some seconds, or when no message is left.
    """

    def encode_pop(parts: Parts) -> bytes:
        born_ms, order = parts.born_ms, False
        header = PopMessageRequest(
            GROUP, TOPIC, -1, size, invisible_ms, 0, born_ms, 0, "TAG", "*", order
        )
        return encode_frame(new_request(RequestCode.POP_MESSAGE, header), parts)

    templates = Templates()
    templates.add(Codec.JSON, "pop", encode_pop)
    text = (ACK % broker if acks else "").encode()
    follow = partial(Load.set_follow, kind=FOLLOW_ACKS, text=text)
    return run(address, CONNECTIONS, templates, follow, duration_s=duration_s)


def main() -> None:
    """Measure pops at the broker of the command line, and print the results."""
    fill_topic(sys.argv[1], 400_000)
    for size in (32, 1):
        print(size, measure_pops(sys.argv[1], size, 5.0, 60_000))


if __name__ == "__main__":
    main()
