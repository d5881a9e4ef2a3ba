"""Creates topics at a broker, at a fixed rate or as fast as possible.

It uses updateTopic, or a send to an unknown topic. Owns the requests of that load. It must never
know the broker's kind. To run it by hand: `python -m bench.versus.topic_load --help`.
"""

import argparse
import json
from functools import partial
from typing import Final

from bench.versus.connections import BODY, ask_until_success, topic_request
from bench.versus.native_load import Result, encode_frame, run

from turbopump.cli.bench.frames import Parts, Templates
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Codec, new_request
from turbopump.net.wire.headers.send import SendMessageRequest
from turbopump.net.wire.topics import TopicConfig

LISTED: Final = 500
"""Topics in a request that makes many."""
QUEUES: Final = 4
KINDS: Final = ("update", "send")


def _creation_frame(kind: str, parts: Parts) -> bytes:
    """The frame that creates topic `parts.serial`, by updateTopic ("update") or a send."""
    topic = f"Created_{parts.serial}"
    if kind == "update":
        return encode_frame(topic_request(topic, QUEUES), parts)
    header = SendMessageRequest("versus", topic, "TBW102", QUEUES, 0, 0, parts.born_ms, 0, "", 0)
    return encode_frame(new_request(RequestCode.SEND_MESSAGE, header, BODY), parts)


def create(
    address: str,
    kind: str,
    first: int,
    count: int,
    connections: int,
    rate: float = 0.0,
    limit_s: float = 0.0,
) -> Result:
    """Make the topics with the numbers from `first` on.

    With `rate`, that many per second; with `limit_s`, at most for that time. Each connection waits
    for its answer. Raises RuntimeError if one is refused.
    """
    templates = Templates()
    templates.add(Codec.JSON, kind, partial(_creation_frame, kind))
    found = run(
        address,
        connections,
        templates,
        messages=count,
        serial=first,
        duration_s=limit_s,
        rate=rate,
    )
    if found.refused:
        raise RuntimeError(f"{address} refuses {found.refused} topics")
    return found


def make_topics(address: str, count: int) -> None:
    """Make `count` topics before the measurement, many per request."""
    for number in range(-(-count // LISTED)):
        topics = [TopicConfig(f"Filled_{number}_{one}", QUEUES, QUEUES) for one in range(LISTED)]
        body = json.dumps({"topicConfigList": [topic.to_json() for topic in topics]}).encode()
        ask_until_success(
            address, partial(new_request, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)
        )


def main() -> None:
    """Create topics at the broker of the command line, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.versus.topic_load")
    parser.add_argument("address", help="host:port of a broker")
    parser.add_argument("--kind", choices=KINDS, default="update")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument(
        "--rate", type=float, default=0.0, help="topics a second; 0: as fast as possible"
    )
    print(create(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
