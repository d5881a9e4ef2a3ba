"""Small seeds for the fuzzers, cut from the golden frames and stores of a real RocketMQ.

A seed is an input of a target: its control bytes, then a piece of golden data.
"""

import contextlib
import functools
import io
import json
import re
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import zstandard

from tests.fuzz.damage import store_seeds
from tests.fuzz.http2 import grpc_answer_seeds, grpc_message_seeds, http2_seeds
from tests.fuzz.targets import HEADERS
from turbopump.broker.config.config import BrokerConfig
from turbopump.namesrv.config import NamesrvConfig
from turbopump.net.wire.sql.compiler import program_of
from turbopump.net.wire.sql.words import RESERVED, SqlError
from turbopump.pyx import record, traffic
from turbopump.pyx.region import Region

GOLDEN: Final = Path(__file__).resolve().parent.parent / "golden"
STORES: Final = ("shapes-v4", "shapes-v6", "prop-crc-ext")
SMALL: Final = 3000
"""Bytes of a seed where there is a choice: a fuzzer changes small inputs faster."""

MANY: Final = 60
"""Maximum number of seeds of a kind of file."""

INDEX_SIZE: Final = (500, 1000)
"""Slots and entries of the golden stores' index files."""


@functools.cache
def frames() -> list[tuple[dict[str, Any], bytes]]:
    """The smallest frame of each code, kind and codec, with its truth."""
    found: dict[tuple[Any, ...], tuple[dict[str, Any], bytes]] = {}
    for path in sorted((GOLDEN / "frames").glob("*.bin.zst")):
        data = _unpacked(path)
        for line in _unpacked(path.with_name(path.name.replace(".bin", ".jsonl"))).splitlines():
            truth = json.loads(line)
            frame = data[truth["at"] : truth["at"] + truth["length"]]
            key = (truth["requestName"], truth["kind"], truth["codec"], truth["bodyLength"] > 0)
            if key not in found or len(frame) < len(found[key][1]):
                found[key] = (truth, frame)
    return list(found.values())


@functools.cache
def store_files() -> dict[str, bytes]:
    """The parts of the golden stores that are small or a log, by their name in the archive."""
    packed = (GOLDEN / "stores" / "stores.tar.zst").read_bytes()
    reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(packed)
    found = {}
    with tarfile.open(fileobj=io.BytesIO(reader.read())) as archive:
        for item in archive:
            folder = item.name.split("/")[0]
            if folder in STORES and item.isfile() and "/timer" not in item.name:
                file = archive.extractfile(item)
                assert file is not None
                found[item.name] = file.read()
    return found


@functools.cache
def logs() -> list[bytes]:
    """Runs of records of different shapes: one of each size class and flag, and their followers."""
    found: dict[tuple[int, ...], bytes] = {}
    for name, data in store_files().items():
        if "/commitlog/" not in name:
            continue
        region, position = Region(data), 0
        while True:
            result = record.scan(region, position, region.size)
            rows = result.rows.tolist() if result.count else []
            for row in rows:
                at, size = row[record.POSITION], row[record.SIZE]
                shape = (
                    row[record.MAGIC],
                    row[record.SYS_FLAG],
                    size.bit_length(),
                    row[record.PROPERTIES_SIZE].bit_length(),
                    row[record.TOPIC_SIZE] & 7,
                )
                if size < SMALL and shape not in found:
                    found[shape] = data[at : min(at + SMALL, result.position)]
            position = result.position
            if result.status != record.OK or not rows:
                break
        found[len(found), position] = data[position : position + 64]
    return list(found.values())


def seeds_of(target: str) -> Iterator[bytes]:
    """The seeds of a target; none for an unknown one."""
    make = _MAKERS.get(target)
    if make is not None:
        yield from make()


def words_of(target: str) -> list[str]:
    """Words that the target's inputs are made of, for the fuzzer to put in."""
    words: set[str] = set()
    if target == "config":
        words = {
            *BrokerConfig().values_as_text(),
            *NamesrvConfig().values_as_text(),
            *BrokerConfig.TLS,
        }
        words |= {"true", "false", "SYNC_FLUSH", "ASYNC_FLUSH", "1s 5s 10m", "\\\\ud83d"}
    elif target in ("requests", "traffic"):
        for seed in seeds_of(target):
            words.update(name.decode() for name in re.findall(rb'"(\w+)":', seed))
        words |= {"UNIQ_KEY\\x01", "WAIT\\x01", "\\\\u0001", "\\\\u0022", "\\\\ud83d", "2147483648"}
    elif target in ("bodies", "register", "json_dialect", "json_strict", "command"):
        for seed in _json():
            words.update(str(name) for name in re.findall(rb'"(\w+)":', seed)[:50])
        words = {word[2:-1] for word in words}
        words |= {"$ref", "$.a[0]", "{{", "\\\\ud83d", "1e999", "-9223372036854775808"}
    elif target in ("columns", "record", "records", "dispatch", "messages", "texts"):
        words = {"KEYS\\x01", "TAGS\\x01", "UNIQ_KEY\\x01", "DELAY\\x01", "__CRC32#\\x01"}
        words |= {"\\xda\\xa3\\x20\\xa7", "\\xda\\xa3\\x20\\xab", "\\xcb\\xd4\\x31\\x94"}
        words |= {"SCHEDULE_TOPIC_XXXX", "INNER_BASE\\x01", "INNER_NUM\\x01"}
    elif target == "filters":
        words = {*RESERVED, "<>", "<=", "''", "-- ", "/*", "*/", "2147483648L", "1e308", "a\\x01"}
    return sorted(words)


def _unpacked(path: Path) -> bytes:
    return zstandard.decompress(path.read_bytes(), max_output_size=1 << 24)


def _body(truth: dict[str, Any], frame: bytes) -> bytes:
    return frame[len(frame) - truth["bodyLength"] :]


def _files(part: str, limit: int = SMALL) -> list[bytes]:
    found = {data[:limit] for name, data in store_files().items() if part in name and any(data)}
    return sorted(found, key=len)[:MANY]


def _batches() -> Iterator[bytes]:
    for truth, frame in frames():
        if "BATCH" in str(truth["requestName"]) and truth["bodyLength"]:
            yield _body(truth, frame)
    for log in logs()[:20]:
        yield b"\0" * 12 + b"\0\0\0\1\0\0\0\x10" + log[:16] + b"\0\x08KEYS\x01ab\x02"


def _native_record() -> Iterator[bytes]:
    for number, log in enumerate(logs()):
        yield bytes([number & 31, 0]) + bytes(7) + log


def _native_columns() -> Iterator[bytes]:
    for number, log in enumerate(logs()):
        rooms = (b"\x0f" + b"\xff\xff" * 2 + b"\xff", b"\1\0\4\0\4\7", b"\3\0\1\x40\0\xff")[
            number % 3
        ]
        yield bytes([1 | number & 30]) + bytes(7) + rooms + log


def _native_batch() -> Iterator[bytes]:
    for number, body in enumerate(_batches()):
        yield bytes([number & 31, 9]) + body


def _native_frame() -> Iterator[bytes]:
    small = sorted((frame for _, frame in frames()), key=len)[:60]
    for number in range(0, len(small) - 3, 3):
        yield b"\xff\xff\x02" + bytes([number * 4]) + b"".join(small[number : number + 3])


def _native_queue() -> Iterator[bytes]:
    for number, units in enumerate(_files("/consumequeue/", 600)):
        codes = number % 3
        wish = bytes([codes]) + bytes(4 * codes) + b"\x20\x20\0\0\1\0\0"
        yield b"\0" + bytes(8) + wish + units


def _native_index() -> Iterator[bytes]:
    slots, entries = (size - 1 for size in INDEX_SIZE)
    head = slots.to_bytes(2, "little") + entries.to_bytes(2, "little")
    for image in _files("/index/", 1 << 20):
        first = 40 + 4 * INDEX_SIZE[0] + 20
        calls = b"".join(
            bytes([kind])
            + image[first : first + 4][::-1]
            + image[first + 4 : first + 12][::-1]
            + bytes(10)
            for kind in (0x20, 1, 2, 3, 1)
        )
        yield head + b"\5" + calls + image
    yield b"\3\0\7\0\4" + b"".join(bytes([kind]) + bytes(22) for kind in (3, 3, 1, 2))


def _native_dispatch() -> Iterator[bytes]:
    for number, log in enumerate(logs()):
        yield bytes([number & 7, 3, 6]) + bytes(7) + b"\0\0" + log
        yield bytes([1, 3, 6]) + bytes(7) + b"\x28\0" + bytes(24) + b"\0" * 16 + log


def _native_pop() -> Iterator[bytes]:
    times = (60_000).to_bytes(8, "little") + bytes(16)
    for mode in range(16):
        for queue_id, count in ((255, 1), (255, 32), (0, 8), (3, 2)):
            pops = b"".join(bytes([draw, queue_id, count]) + times for draw in range(6))
            yield bytes([mode, mode, 90]) + bytes(5) + pops
            yield bytes([mode & 1, mode, 40, 2, 60, 1, 5, 9, 2, 1]) + b"\1\7\0\x80" * 4 + pops


def _native_held() -> Iterator[bytes]:
    hold, grow, walk = bytes([5, 1, 0, 9]), bytes([2 + 8]), bytes([4 + 8 * 9, 0x55])
    yield hold * 6 + grow + walk * 2 + grow + walk
    yield hold * 6 + bytes([1, 1 + 8 * 3]) + grow + bytes([4 + 8 * 2, 0]) + hold + grow + walk
    yield bytes([5, 2, 1, 7, 6, 1, 2, 3]) * 5 + bytes([0, 5, 0, 9])


def _native_crc() -> Iterator[bytes]:
    for size in (1, 31, 32, 33, 63, 64, 65, 127, 130, 300):
        yield b"\x11\0" + logs()[0][:size]


def _commands() -> Iterator[bytes]:
    for _, frame in frames():
        if len(frame) < SMALL:
            yield b"\x80" + frame
            header_size = int.from_bytes(frame[5:8], "big")
            yield bytes([frame[4]]) + frame[8 : 8 + header_size]


def _requests() -> Iterator[bytes]:
    for truth, frame in frames():
        if truth["code"] in traffic.CODES and truth["kind"] != "response":
            yield b"\x80" + frame
            yield bytes([frame[4]]) + _header(frame)
            for text in re.findall(rb"[A-Z]\w+\x01[^\x00]*\x02", frame):
                yield b"\x80" + text


def _native_traffic() -> Iterator[bytes]:
    for truth, frame in frames():
        if truth["code"] in traffic.CODES and truth["kind"] != "response":
            yield b"\2\0" + frame
            yield bytes([4 | frame[4], 0]) + _header(frame)


def _header(frame: bytes) -> bytes:
    return frame[8 : 8 + int.from_bytes(frame[5:8], "big")]


def _headers() -> Iterator[bytes]:
    for number in range(len(HEADERS)):
        for piece in (b"1", b"-1\0", b"true\0topic\0", b"\x01\0"):
            yield bytes([number]) + piece * 12
    for truth, _ in frames():
        values = [str(value).encode() for value in (truth["extFields"] or {}).values()]
        yield bytes([len(values) * 3]) + b"\0".join(values)


def _json() -> Iterator[bytes]:
    for truth, frame in frames():
        body = _body(truth, frame)
        if body[:1] in (b"{", b"[") and len(body) < 2 * SMALL:
            yield body
        if truth["codec"] == "JSON":
            yield frame[8 : len(frame) - truth["bodyLength"]]
    yield from _files("/config/", 2 * SMALL)
    yield b'{{"a":1}:{\'b\':[1,-2.5e3,true,null]},3:{"$ref":"$.x[0]"},x:[{}]}'
    yield b'["\\ud83d\\ude00","\\ud800"]'


def _bodies() -> Iterator[bytes]:
    for body in _json():
        for number in (0, 1, 2, 3, 4, 5, 7, 8) if len(body) < 1000 else (1, 3):
            yield bytes([number]) + body


def _register() -> Iterator[bytes]:
    for truth, frame in frames():
        if truth["requestName"] == "REGISTER_BROKER" and truth["kind"] == "request":
            yield b"\6" + _body(truth, frame)[: 2 * SMALL]
            yield b"\4" + _body(truth, frame)[: 2 * SMALL]
    line = b'TopicTest 8 8 6 SINGLE_TAG {"+a":"b"}'
    version = b'{"counter":1,"stateVersion":0,"timestamp":1}'
    pieces = [version, b"\0\0\0\1", line, b"[]", b"\0\0\0\1", b'{"topic":"TopicTest"}']
    sized = b"".join(
        piece if len(piece) == 4 else len(piece).to_bytes(4, "big") + piece for piece in pieces
    )
    yield b"\5" + sized


def _messages() -> Iterator[bytes]:
    for number, log in enumerate(logs()):
        yield bytes([number & 1]) + log
    for body in _batches():
        yield b"\2" + body
        yield b"\x07" + body
    for kind, packed in ((2, zstandard.compress(b"a" * 500)),):
        yield bytes([3 | kind << 3]) + packed


def _texts() -> Iterator[bytes]:
    for log in logs():
        row = record.scan(Region(log), 0, len(log), 1).rows
        if len(row.shape) == 2:
            at, size = row[0, record.PROPERTIES_AT], row[0, record.PROPERTIES_SIZE]
            yield log[at : at + size]
    yield from (b"a || b||c", b"C0A80001000078BF0000000000000001", b"127.0.0.1:80", b"[::1]:80")


def _configs() -> Iterator[bytes]:
    for path in sorted((GOLDEN / "stores").glob("*.conf")):
        yield b"\0" + path.read_bytes()
    yield b"\1listenPort=9876\nkvConfigPath : a\\u0041\\\n b\n# no\ntls.server.mode=permissive\n"
    yield b"\0brokerIP1=\\ud83d\\ude00\\ud800\n"
    yield b"\0messageDelayLevel = 1s 2m\nflushDiskType=SYNC_FLUSH\nnamesrvAddr=a:1;b:2\n"


def _checkpoints() -> Iterator[bytes]:
    yield from _files("/checkpoint", 4096)
    yield bytes(range(128))


def _config_files() -> Iterator[bytes]:
    for value in _files("/config/", 1000):
        yield b"\0" + value
        yield b"\0" + value[:-1] + b"\xff\xfe" + value


def _answers() -> Iterator[tuple[str, str]]:
    """Expressions of many shapes, each with a properties text."""
    lines = _unpacked(GOLDEN / "filters" / "answers.jsonl.zst").splitlines()
    for line in lines[: 5 * MANY : 2]:
        one = json.loads(line)
        if one["answers"] is not None:
            yield one["sql"], one["properties"][0]


def _filters() -> Iterator[bytes]:
    for sql, properties in _answers():
        yield f"{sql}\n{properties}".encode()


def _native_filter() -> Iterator[bytes]:
    for sql, properties in _answers():
        with contextlib.suppress(SqlError):
            program, text = program_of(sql), properties.encode()
            _magic, names, depth, ops, entries, size = struct.unpack("<6I", program[:24])
            numbers = (names, depth, ops, entries, size, len(text))
            if max(numbers) < 256:
                yield bytes(numbers) + program[24:] + text


_MAKERS: Final = {
    "batch": _native_batch,
    "bodies": _bodies,
    "checkpoints": _checkpoints,
    "columns": _native_columns,
    "command": _commands,
    "config": _configs,
    "config_files": _config_files,
    "crc": _native_crc,
    "dispatch": _native_dispatch,
    "filter": _native_filter,
    "filters": _filters,
    "frame": _native_frame,
    "grpc_answers": grpc_answer_seeds,
    "grpc_calls": http2_seeds,
    "grpc_messages": grpc_message_seeds,
    "headers": _headers,
    "held": _native_held,
    "http2": http2_seeds,
    "index": _native_index,
    "json_dialect": _json,
    "json_strict": _json,
    "messages": _messages,
    "pop": _native_pop,
    "queue": _native_queue,
    "record": _native_record,
    "records": logs,
    "register": _register,
    "requests": _requests,
    "store": store_seeds,
    "texts": _texts,
    "traffic": _native_traffic,
}
