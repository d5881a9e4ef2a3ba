"""The requests of a load as templates: whole frames, and the positions of their variable parts.

Owns the making of templates: net/wire encodes each request twice with different values, and a part
begins where the encodings differ, so that no layout is duplicated here. It must never open a
socket. csrc/load_frame.c patches the templates.
"""

import random
import string
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from turbopump.net.client.sending import DEFAULT_TOPIC_QUEUES
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Codec, Command, encode, new_request
from turbopump.net.wire.headers.pull import (
    SUBSCRIPTION_FLAG,
    SUSPEND_FLAG,
    PullMessageRequest,
)
from turbopump.net.wire.headers.send import SendMessageRequestV2, write_send
from turbopump.net.wire.message import encode_batch
from turbopump.net.wire.names import AUTO_CREATE_TOPIC
from turbopump.net.wire.properties import DELAY, KEYS, TAGS, UNIQ_KEY, WAIT, encode_properties
from turbopump.net.wire.queues import MessageQueue
from turbopump.pyx.load_parts import OPAQUE_BASE

OTHER_OPAQUE = 2_111_111_111  # differs from OPAQUE_BASE in each digit and in its first byte
BORN_MS = 1_000_000_000_000  # 13 digits, like every time from 2001 to 2286
OTHER_BORN_MS = 2_111_111_111_111  # differs from BORN_MS in each digit
SECONDS, OTHER_SECONDS = "1000000000", "2111111111"
"""Values of a message's key, its time in seconds, that differ in each digit."""
SERIAL, OTHER_SERIAL = "0" * 12, "F" * 12
"""Values of the last digits of a UNIQ_KEY that differ in each digit."""
LENGTH_SIZE = 4  # bytes of a frame's length field, which does not count itself
SUSPEND_MS = 15_000  # the value that RocketMQ's push consumer sends

Row = tuple[int, int, int, int, int, int, int, int]
"""A load_template: (position of the frame in `Templates.texts`, bytes of the frame, positions in
the frame of opaque, born time, key, UNIQ_KEY's serial and queue offset, codec); 0: not there."""


@dataclass(frozen=True)
class Shape:
    """The form of a load's messages and requests: body size, batch, keys, tags, properties."""

    size: int = 128
    """Bytes of a body."""
    batch: int = 1
    """Messages per request."""
    keys: bool = False
    """Whether each message has a key, the time in seconds."""
    tag_count: int = 0
    """Number of tags used in rotation; 0: none."""
    property_size: int = 0
    """Bytes of user properties, at least."""
    delay_level: int = 0
    """RocketMQ's delay level; 0: not delayed."""
    unique_prefix: str = ""
    """First digits of every UNIQ_KEY, without its last 12; empty: no UNIQ_KEY."""
    codec: Codec = Codec.ROCKETMQ
    """Encoding of request headers."""
    group: str = "benchmark_producer"
    """Producer group."""


@dataclass(frozen=True)
class Parts:
    """Values of the parts of a frame that differ between requests: opaque, serial, times."""

    opaque: int = OPAQUE_BASE
    born_ms: int = BORN_MS
    seconds: str = SECONDS
    serial: str = SERIAL
    queue_offset: int = 0


@dataclass
class Templates:
    """Request frames of a load, one after the other in `texts`, and for each the positions of its
    variable parts."""

    texts: bytearray = field(default_factory=bytearray)
    rows: list[Row] = field(default_factory=list)
    _positions: dict[object, tuple[int, int, int, int, int]] = field(default_factory=dict)

    def add(self, codec: Codec, kind: object, make: Callable[[Parts], bytes]) -> int:
        """Add the frame that `make` encodes, and return its row number.

        Frames of the same `kind` must have their variable parts at the same positions: these are
        found for the first one only.
        """
        frame = make(Parts())
        found = self._positions.get(kind)
        if found is None:
            others = (
                Parts(opaque=OTHER_OPAQUE),
                Parts(born_ms=OTHER_BORN_MS),
                Parts(seconds=OTHER_SECONDS),
                Parts(serial=OTHER_SERIAL),
                Parts(queue_offset=1),
            )
            opaque, born, keys, unique, offset = (
                first_difference(frame, make(it)) for it in others
            )
            found = self._positions[kind] = (opaque, born, keys, unique, offset)
        self.rows.append((len(self.texts), len(frame), *found, int(codec)))
        self.texts += frame
        return len(self.rows) - 1


def first_difference(frame: bytes, other: bytes) -> int:
    """Return the position of the first difference of two frames of equal length; 0 if they are
    equal."""
    assert len(frame) == len(other), "a part must not change its width"
    pairs = enumerate(zip(frame, other, strict=True))
    return next((at for at, (one, two) in pairs if one != two), 0)


def random_body(size: int, seed: int = 1) -> bytes:
    """Return `size` random letters and digits, as in RocketMQ's benchmark; equal seeds give equal
    bodies."""
    letters = string.ascii_letters + string.digits
    return "".join(random.Random(seed).choices(letters, k=size)).encode()


def padding_properties(size: int) -> dict[str, str]:
    """Return user properties of more than `size` bytes together, named and filled as in RocketMQ's
    benchmark; {} for 0."""
    made: dict[str, str] = {}
    total = number = 0
    value = 10
    while size > 0 and total <= size:
        pair = {f"prop{number}": f"hello{value}", f"prop{number + 1}": str(value)}
        total += sum(len(name) + len(text) for name, text in pair.items())
        made.update(pair)
        number, value = number + 2, value + 2
    return made


def _message_properties(shape: Shape, parts: Parts, tag: int) -> dict[str, str]:
    """The properties of a load's message with these variable parts and tag number."""
    values: dict[str, str] = {}
    if shape.keys:
        values[KEYS] = parts.seconds
    if shape.unique_prefix:
        values[UNIQ_KEY] = shape.unique_prefix + parts.serial
    values[WAIT] = "true"
    if shape.delay_level:
        values[DELAY] = str(shape.delay_level)
    if shape.tag_count:
        values[TAGS] = f"tag{tag}"
    return {**values, **padding_properties(shape.property_size)}


def batch_body(shape: Shape, content: bytes) -> tuple[bytes, int, int]:
    """Return (body of a batch of `shape.batch` messages with the body `content`, position of the
    first UNIQ_KEY's serial or 0, bytes from one message to the next)."""

    def element(parts: Parts) -> bytes:
        return encode_batch([(0, content, encode_properties(_message_properties(shape, parts, 0)))])

    one = element(Parts())
    return one * shape.batch, first_difference(one, element(Parts(serial=OTHER_SERIAL))), len(one)


def empty_element(shape: Shape) -> tuple[bytes, int]:
    """Return (a batch's message without its body, position of its UNIQ_KEY's serial or 0)."""
    one, unique_at, _ = batch_body(replace(shape, batch=1), b"")
    return one, unique_at


@dataclass(frozen=True)
class Signing:
    """Signatures of a load's sends, one for each template: the opaque, which is not signed, is the
    only part that differs between requests."""

    sign: Callable[[Command], None]
    """Sets the fields that sign a request."""
    body: bytes
    """Body of each send."""
    born_ms: int
    """Born time of all messages, epoch milliseconds."""

    def fields_of(self, code: int, fields: dict[str, str]) -> dict[str, str]:
        """Return `fields` and the fields of the signature."""
        request = Command(code, fields=fields, body=self.body)
        self.sign(request)
        return request.fields


def add_send(
    templates: Templates,
    shape: Shape,
    queue: MessageQueue,
    tag: int,
    body: int,
    signing: Signing | None = None,
) -> int:
    """Add the frame of a send to one queue with the tag number `tag`, and return its row number;
    its length field includes the `body` bytes that follow the frame. A signed shape has no
    `unique_prefix`."""
    code = RequestCode.SEND_BATCH_MESSAGE if shape.batch > 1 else RequestCode.SEND_MESSAGE_V2
    assert signing is None or not shape.unique_prefix, "a signed message cannot change"

    def encode_send(parts: Parts) -> bytes:
        if signing is not None:
            seconds = str(signing.born_ms // 1_000)
            parts = Parts(parts.opaque, born_ms=signing.born_ms, seconds=seconds)
        header = SendMessageRequestV2(
            producer_group=shape.group,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=parts.born_ms,
            flag=0,
            properties=encode_properties(_message_properties(shape, parts, tag)).decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=shape.batch > 1,
            broker_name=queue.broker_name,
        )
        fields = write_send(code, header)
        if signing is not None:
            fields = signing.fields_of(code, fields)
        frame = _encode_frame(Command(code, fields=fields), shape.codec, parts)
        return (len(frame) - LENGTH_SIZE + body).to_bytes(LENGTH_SIZE, "big") + frame[LENGTH_SIZE:]

    widths = (queue.topic, queue.broker_name, str(queue.queue_id), str(tag))
    return templates.add(shape.codec, ("send", *map(len, widths)), encode_send)


def add_pull(
    templates: Templates, codec: Codec, group: str, queue: MessageQueue, count: int, follow: bool
) -> int:
    """Add the frame of a pull of at most `count` messages, and return its row number; with `follow`
    the broker may hold it until messages arrive."""

    def encode_pull(parts: Parts) -> bytes:
        header = PullMessageRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=parts.queue_offset,
            max_msg_nums=count,
            sys_flag=SUBSCRIPTION_FLAG | (SUSPEND_FLAG if follow else 0),
            commit_offset=0,
            suspend_timeout_millis=SUSPEND_MS if follow else 0,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
            broker_name=queue.broker_name,
        )
        return _encode_frame(new_request(RequestCode.PULL_MESSAGE, header), codec, parts)

    widths = (queue.topic, queue.broker_name, str(queue.queue_id))
    return templates.add(codec, ("pull", *map(len, widths)), encode_pull)


def _encode_frame(command: Command, codec: Codec, parts: Parts) -> bytes:
    """Encode a request as a frame, with the opaque of `parts`."""
    command.codec, command.opaque = codec, parts.opaque
    return b"".join(bytes(part) for part in encode(command))
