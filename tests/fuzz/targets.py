"""The Python fuzz targets: functions that a fuzzer, or a test, calls with any bytes.

A target returns for every input; an exception that it lets through is a finding. It calls a parser,
accepts the exceptions that the parser documents, and checks that parsed values can be written and
read again. `run` bounds the time and the memory of an input.
"""

import dataclasses
import json
import random
import resource
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any, Final

from tests.fuzz import damage, http2, models
from tests.shortcuts.addresses import pack_host
from tests.sim.disk import SimDisk
from tests.traffic_model import check, check_properties
from turbopump.broker.config import config as broker_config
from turbopump.engine import fastjson
from turbopump.engine.compression import COMPRESSED_FLAG
from turbopump.engine.disk import checkpoint
from turbopump.engine.disk.config_files import BACKUP, ConfigFiles
from turbopump.engine.queues.batch_queue import inner_count
from turbopump.engine.queues.dispatcher import parse_properties
from turbopump.engine.types import StoreError
from turbopump.namesrv.config import NamesrvConfig
from turbopump.net.wire import hosts, java_properties, message, message_id, properties
from turbopump.net.wire.bodies import BadBody, encode_json, load
from turbopump.net.wire.command import Codec, WireError, decode, encode
from turbopump.net.wire.groups import SubscriptionGroupConfig
from turbopump.net.wire.header import BadHeader, read_header, write_header
from turbopump.net.wire.headers import admin, clients, offsets, pull, routes, send
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.registration.register import MAPPING_SINCE_VERSION, RegisterBrokerBody
from turbopump.net.wire.route import ClusterInfo, TopicRouteData
from turbopump.net.wire.sql.compiler import compile_sql
from turbopump.net.wire.sql.words import SqlError
from turbopump.net.wire.subscription import SubscriptionData, parse_subscription
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs
from turbopump.pyx.index import java_hash, key_hash

SECONDS_MAX: Final = 2.0
"""Maximum CPU time of an input of a few KB, some hundred times that of the slowest."""

MEMORY_MAX: Final = 256 << 20
"""Bytes that one input may add to the process: inflated bodies have limits of up to 64 MiB."""

MODULES: Final = (admin, clients, offsets, pull, routes, send)
HEADERS: Final = tuple(
    value
    for module in MODULES
    for _, value in sorted(vars(module).items())
    if dataclasses.is_dataclass(value) and value.__module__ == module.__name__
)

BODIES: Final[tuple[Callable[[bytes], Any], ...]] = (
    HeartbeatData.decode,
    TopicConfigs.decode,
    SubscriptionGroupConfig.decode,
    TopicRouteData.decode,
    ClusterInfo.decode,
    TopicConfig.decode,
    DataVersion.decode,
    lambda body: MessageQueue.from_json(load(body)),
    lambda body: SubscriptionData.from_json(load(body)),
)


class TooMuch(AssertionError):
    """An input that took more time or memory than its size can explain."""


def run(name: str, data: bytes) -> None:
    """Give a target an input; raises TooMuch or whatever the target lets through."""
    before, peak = time.process_time(), _peak()
    TARGETS[name](data)
    seconds, grown = time.process_time() - before, _peak() - peak
    if seconds > SECONDS_MAX:
        raise TooMuch(f"{seconds:.1f} s for {len(data)} bytes")
    if grown > MEMORY_MAX:
        raise TooMuch(f"{grown >> 20} MiB for {len(data)} bytes")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def command(data: bytes) -> None:
    """A frame; the first byte chooses whether the rest is a frame or the header of a good one."""
    frame = data[1:]
    if data[:1] < b"\x80":
        codec = data[0] & 1 if data else 0
        head = codec << 24 | len(frame)
        frame = (len(frame) + 4).to_bytes(4, "big") + head.to_bytes(4, "big") + frame
    try:
        found = decode(frame)
    except WireError:
        return
    pieces = b"".join(map(bytes, encode(found)))
    again = decode(pieces)
    assert again == found, f"{again} is not {found}"
    found.codec = Codec.JSON
    again = decode(b"".join(map(bytes, encode(found))))
    assert again == found, f"{again} is not {found}"


def headers(data: bytes) -> None:
    """A header class, and the values of its members."""
    cls = HEADERS[data[0] % len(HEADERS)] if data else HEADERS[0]
    members = dataclasses.fields(cls)
    fields: dict[str, str] = {}
    for member, piece in zip(members, data[1:].split(b"\0"), strict=False):
        words = member.name.split("_")
        key = member.metadata.get("key") or words[0] + "".join(map(str.capitalize, words[1:]))
        if piece != b"\x01":
            fields[key] = str(piece, "utf-8", "replace")
    try:
        header = read_header(cls, fields)
    except BadHeader as error:
        assert error.field
        return
    written = write_header(header)
    assert write_header(read_header(cls, written)) == written
    if isinstance(header, send.SendMessageRequest):
        for code in (10, 310):
            other = send.write_send(code, header)
            assert send.write_send(code, send.read_send(code, other)) == other


def json_dialect(data: bytes) -> None:
    """fastjson's dialect: read, written, read, and written to the same text."""
    try:
        value = fastjson.loads(data)
    except ValueError:
        return
    text = fastjson.dumps(value)
    text.encode()
    if _is_stable(value):
        for again in (text, fastjson.dumps(value, pretty=True)):
            assert fastjson.dumps(fastjson.loads(again)) == text


def _is_stable(value: Any) -> bool:
    """Whether a value is the same once written and read.

    A value that was too large to replace a reference may be small enough then, and numbers beyond a
    double are null.
    """
    text = json.dumps(value)
    return not any(word in text for word in ("Infinity", "NaN", "$ref"))


def json_strict(data: bytes) -> None:
    """Strict JSON against the standard library, through the strict and the loose parser."""
    text = str(data, "utf-8", "replace")
    if "$ref" in text:
        return
    try:
        value = json.loads(text, parse_constant=_refuse)
        if "\\ud" in text or "\\uD" in text:
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return
    if models.depth_of(value) >= fastjson.DEPTH_MAX:
        return
    wanted = repr(value)
    assert repr(fastjson.loads(text)) == wanted
    assert repr(fastjson.loads(f"{{x:{text}}}")["x"]) == wanted


def _refuse(word: str) -> None:
    raise ValueError(word)


def bodies(data: bytes) -> None:
    """A typed body decodes or is refused; a decoded one is stable when written and read again."""
    read = BODIES[data[0] % len(BODIES)] if data else BODIES[0]
    try:
        value = read(data[1:])
    except BadBody:
        return
    text = encode_json(value.to_json())
    again = encode_json(read(text).to_json())
    assert again == text or not _is_stable(value.to_json())


def register(data: bytes) -> None:
    """The body of a registration; the first byte: compressed as it is, compressed here, plain."""
    mode = data[0] if data else 0
    body = zlib.compress(data[1:], 1) if mode & 3 == 1 else data[1:]
    version = MAPPING_SINCE_VERSION if mode & 4 else 36 if mode & 8 else 100
    try:
        found = RegisterBrokerBody.decode(body, compressed=mode & 3 < 2, version=version)
    except BadBody:
        return
    found.encode(compressed=True)
    text = found.encode()
    again = RegisterBrokerBody.decode(text).encode()
    assert again == text or not _is_stable(found.topics.to_json())


def messages(data: bytes) -> None:
    """Records, compressed bodies and batches as a client gets them."""
    mode, rest = (data[0], data[1:]) if data else (0, b"")
    try:
        if mode & 3 < 2:
            for found in message.decode_messages(rest, check_crc=mode & 1 == 1):
                assert found.topic is not None and 0 <= found.size <= len(rest)
                assert found.offset_message_id or found.log_offset < 0
        elif mode & 3 == 2:
            elements = list(message.decode_batch(rest))
            assert list(message.decode_batch(message.encode_batch(elements))) == elements
        else:
            body = zlib.compress(rest) if mode & 4 else rest
            message.decompress_body((mode >> 3) << 8 | COMPRESSED_FLAG, body)
    except BadBody:
        pass


def texts(data: bytes) -> None:
    """Properties, tag expressions, message ids, host names, hashes."""
    found = properties.decode_properties(data)
    assert properties.decode_properties(properties.encode_properties(found)) == found
    assert 0 < inner_count(parse_properties(data)) < 1 << 15
    text = str(data, "utf-8", "replace")
    assert java_hash(data) == models.java_hash(text)
    assert key_hash(data) == max(0, abs(java_hash(data)) if java_hash(data) != -(1 << 31) else 0)
    for kind in (None, "TAG", "SQL92"):
        try:
            bean = parse_subscription("topic", text, kind).to_json()
            assert SubscriptionData.from_json(bean).to_json() == bean
        except ValueError as error:
            assert type(error) is ValueError
    for read, write in ((message_id.decode_message_id, None), (pack_host, hosts.unpack_host)):
        try:
            packed = read(text)
            if write is not None:
                assert read(write(packed)) == packed
        except ValueError as error:
            assert not isinstance(error, UnicodeError)


def filters(data: bytes) -> None:
    """A filter expression and, after a newline, the properties of a message."""
    text, _, given = data.rpartition(b"\n")
    try:
        compiled = compile_sql(str(text, "utf-8", "replace"))
    except SqlError as error:
        assert len(str(error)) < 200
        return
    try:
        assert compiled.evaluate(given) in (True, False, None)
    except ValueError as error:
        assert type(error) is ValueError


def requests(data: bytes) -> None:
    """A traffic request, made as in `command`, through the native codec and through net.wire."""
    frame = data[1:]
    if data[:1] >= b"\x80":
        check_properties(str(frame, "utf-8", "replace").encode())
    else:
        codec = data[0] & 1 if data else 0
        head = codec << 24 | len(frame)
        frame = (len(frame) + 5).to_bytes(4, "big") + head.to_bytes(4, "big") + frame + b"x"
    check(frame)


def config(data: bytes) -> None:
    """A configuration of the broker or the name server; its shown text can be read again."""
    mode = data[0] if data else 0
    text = str(data[1:], "utf-8", "replace")
    node: Any = NamesrvConfig() if mode & 1 else broker_config.BrokerConfig()
    try:
        warnings = node.update_keys(java_properties.parse_properties(text))
    except java_properties.PropertiesError as error:
        assert str(error).isprintable(), "not one line of text"
        return
    assert all(map(str.isprintable, warnings))
    shown = java_properties.format_properties(node.values_as_text())
    shown.encode()
    other = type(node)()
    other.update_keys(java_properties.parse_properties(shown))
    assert java_properties.format_properties(other.values_as_text()) == shown


def checkpoints(data: bytes) -> None:
    """A checkpoint file of any bytes; and one of any numbers, whole and with one byte changed."""
    disk = _disk()
    path = f"/{checkpoint.FILE_NAME}"
    disk.write(path, data)
    found = checkpoint.load(disk, "")
    assert found.safe_timestamp_ms >= 0
    checkpoint.save(disk, "", found)
    assert checkpoint.load(disk, "") == found
    numbers = [abs(number) for (number,) in struct.iter_unpack(">q", data[: len(data) // 8 * 8])]
    count = len(checkpoint.DurableMarks._fields)
    if len(numbers) <= count or min(numbers) < 0 or max(numbers) >> 63:
        return
    marks = checkpoint.DurableMarks(*numbers[1 : count + 1])  # type: ignore[arg-type]
    whole = found._replace(marks=marks)
    checkpoint.save(disk, "", whole)
    assert checkpoint.load(disk, "") == whole
    image = bytearray(disk.read(path))
    at = numbers[0] % len(image)
    image[at] ^= data[-1] or 1
    disk.write(path, bytes(image))
    assert checkpoint.load(disk, "").marks in (None, marks)


def config_files(data: bytes) -> None:
    """A file of config/ and its backup, each of any bytes or missing."""
    mode = data[0] if data else 0
    parts = data[1:].split(b"\xff\xfe", 1)
    disk = _disk()
    disk.make_folders("/config")
    for bit, (name, content) in enumerate(zip(("a", "a" + BACKUP), parts, strict=False)):
        if not mode >> bit & 1:
            disk.write(f"/config/{name}", content)
    files = ConfigFiles(disk, "/config")
    try:
        value = files.load("a")
    except StoreError:
        return
    if value is None:
        return  # there is no certificate, so none is saved
    files.save("a", value)
    files.save("a", files.load("a"))
    assert fastjson.dumps(files.load("a")) == fastjson.dumps(value) or not _is_stable(value)


def _disk() -> SimDisk:
    return SimDisk(random.Random(0), lambda: 0)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "bodies": bodies,
    "checkpoints": checkpoints,
    "command": command,
    "config": config,
    "config_files": config_files,
    "filters": filters,
    "grpc_answers": http2.grpc_answers,
    "grpc_calls": http2.grpc_calls,
    "grpc_messages": http2.grpc_messages,
    "headers": headers,
    "http2": http2.http2,
    "json_dialect": json_dialect,
    "json_strict": json_strict,
    "messages": messages,
    "records": models.check_records,
    "register": register,
    "requests": requests,
    "store": damage.check_store,
    "texts": texts,
}
