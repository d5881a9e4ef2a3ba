"""The plan of a load, and its checks before anything is connected.

Owns the plan and its bounds. It must never open a socket.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turbopump.cli.bench.corpus import Corpus
from turbopump.cli.bench.frames import Shape
from turbopump.cli.errors import UserError
from turbopump.net.client.sending import check_group, check_topic
from turbopump.net.wire.command import FRAME_MAX
from turbopump.pyx.load import WINDOW_MAX

if TYPE_CHECKING:
    from turbopump.net.client.credentials import Credentials

CONNECTIONS_MAX = 10_000  # a larger number tests the kernel instead of a broker
TEMPLATES_MAX = 200_000  # of queues and tags: some 100 MB of prepared requests
RATE_MAX = 100_000_000.0  # beyond it a request would be due every few nanoseconds
SECONDS_MAX = 86_400.0  # one row of figures a second is kept
DURATION_S = 30.0  # of a load without any other limit
HEADER_ROOM = 65_536  # bytes of a frame reserved for its header


@dataclass(frozen=True)
class Plan:
    """The plan of a load: connections that send and pull, message form, rate, and duration or
    number of messages."""

    namesrv: list[str]
    """`host:port` of the name servers."""
    topic: str = "BenchmarkTest"
    topics: int = 1
    """Number of topics; see `topic_names`."""
    queues: int = 8
    """Queues of a topic that is created."""
    shape: Shape = field(default_factory=Shape)
    body: bytes | None = None
    """Body of each message; None: random."""
    corpus: Corpus | None = None
    """Bodies that are sent in rotation instead of `body`; the shape's size is the largest's."""
    send_connections: int = 0
    """Connections that send; 0: none."""
    in_flight: int = 1
    """Unanswered requests per sending connection, at most."""
    rate: float = 0.0
    """Messages per second; 0: each response is followed by the next request."""
    pull_connections: int = 0
    """Connections that pull; 0: none."""
    pull_size: int = 32
    """Messages per pull, at most."""
    group: str = "benchmark_consumer"
    """Consumer group of the pulls; no offset is committed."""
    from_end: bool = False
    """Whether pulls begin at the queues' ends; else at their first messages."""
    follow: bool = False
    """Whether pulls wait for new messages; else they end at the queues' ends at the start."""
    check_crc: bool = False
    """Whether the CRC of each pulled body is checked."""
    messages: int = 0
    """Number of messages after which the load ends, warm-up included; 0: no limit."""
    duration_s: float = 0.0
    """Measured time; 0: until another limit, or DURATION_S without any."""
    warmup_s: float = 0.0
    """Time before the measured time."""
    credentials: "Credentials | None" = None
    """Name and secret that sign the sends, which then have no UNIQ_KEY and the same born time; None
    in a plan that pulls or sends a corpus."""

    def topic_names(self) -> list[str]:
        """Return the names of all topics: `topic` itself, or `topics` names TOPIC-0, TOPIC-1..."""
        if self.topics == 1:
            return [self.topic]
        return [f"{self.topic}-{number}" for number in range(self.topics)]

    def check_possible(self) -> "Plan":
        """Return this plan unchanged; raises UserError for an impossible plan."""
        from turbopump.net.client.errors import InvalidArgument

        try:
            for name in (self.topic, self.topic_names()[-1]):
                check_topic(name)
            check_group(self.group)
        except InvalidArgument as error:
            raise UserError(str(error)) from None
        content = self.shape.size + self.shape.property_size
        if content * self.shape.batch > FRAME_MAX - HEADER_ROOM:
            raise UserError(f"{content * self.shape.batch} bytes do not fit into one request")
        if not math.isfinite(self.rate) or not 0 <= self.rate <= RATE_MAX:
            raise UserError(f"a rate of {self.rate} messages a second is not from 0 to 100 million")
        for seconds in (self.duration_s, self.warmup_s):
            if not math.isfinite(seconds) or not 0 <= seconds <= SECONDS_MAX:
                raise UserError(f"{seconds} seconds are not from 0 to a day")
        if self.send_connections + self.pull_connections > CONNECTIONS_MAX:
            raise UserError(f"more than {CONNECTIONS_MAX} connections")
        if self.credentials is not None and (self.pull_connections or self.corpus is not None):
            raise UserError(
                "the load generator signs sends of fixed bodies alone: give no credentials, nor"
                " TURBOPUMP_ACCESS_KEY or TURBOPUMP_CREDENTIALS"
            )
        if not 0 < self.in_flight <= WINDOW_MAX:
            raise UserError(f"{self.in_flight} requests in flight are not from 1 to {WINDOW_MAX}")
        return self

    def describe_as_json(self) -> dict[str, Any]:
        """Return the plan as repeated in the JSON result."""
        shape = self.shape
        return {
            "topic": self.topic,
            "topics": self.topics,
            "size": shape.size,
            "batch": shape.batch,
            "keys": shape.keys,
            "tags": shape.tag_count,
            "property_size": shape.property_size,
            "delay_level": shape.delay_level,
            "unique_key": bool(shape.unique_prefix),
            "signed": self.credentials is not None,
            "encoding": shape.codec.name,
            "send_connections": self.send_connections,
            "in_flight": self.in_flight,
            "rate": self.rate,
            "pull_connections": self.pull_connections,
            "pull_size": self.pull_size,
            "follow": self.follow,
            "check_crc": self.check_crc,
            "messages": self.messages,
            "duration_s": self.duration_s,
            "warmup_s": self.warmup_s,
            "replay": str(self.corpus.path) if self.corpus is not None else None,
        }
