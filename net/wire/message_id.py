"""The ids of a message: the broker's (host and log offset) and the client's (process, time,
counter); also the handle to recall a timer (RocketMQ: common/producer/RecallMessageHandle).

Owns their text forms. It must never read a clock of its own. Both ids have 32 or 56 digits, so the
length does not distinguish them.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from turbopump.engine.types import LogOffset
from turbopump.net.wire.hosts import PACKED_V4_SIZE, PACKED_V6_SIZE

HANDLE_VERSION: Final = "v1"
"""First word of a decoded recall handle."""
MAX_HANDLE: Final = 4_096
"""Maximum characters of a handle; the longest names result in some 600."""
INVALID: Final = "recall handle is invalid"
"""RocketMQ's remark for an invalid handle."""


def encode_message_id(store_host: bytes, log_offset: LogOffset) -> str:
    """Encode a message id: upper-case hex of packed host and log offset (RocketMQ:
    MessageDecoder.createMessageId)."""
    assert len(store_host) in (PACKED_V4_SIZE, PACKED_V6_SIZE), "not a packed host"
    return (store_host + log_offset.to_bytes(8, "big", signed=True)).hex().upper()


def encode_message_ids(store_host: bytes, log_offsets: Sequence[LogOffset]) -> str:
    """Encode the ids of several messages of a packed host as `encode_message_id` does, in their
    order, joined by commas: a batch has up to 32,768."""
    assert len(store_host) in (PACKED_V4_SIZE, PACKED_V6_SIZE), "not a packed host"
    host = store_host.hex().upper()
    return ",".join([f"{host}{log_offset:016X}" for log_offset in log_offsets])


def decode_message_id(text: str) -> tuple[bytes, LogOffset]:
    """Decode an offset message id into (packed host, log offset); raises ValueError.

    A client's id of the same length decodes to a meaningless host: the caller must expect that.
    """
    if len(text) not in (2 * (PACKED_V4_SIZE + 8), 2 * (PACKED_V6_SIZE + 8)):
        raise ValueError(f"a message id has 32 or 56 digits, not {len(text)}")
    packed = bytes.fromhex(text)
    return packed[:-8], LogOffset(int.from_bytes(packed[-8:], "big", signed=True))


class UniqueIds:
    """Generates UNIQ_KEYs: upper-case hex of ip, pid, a constant, milliseconds of the month (local
    time), counter; 32 digits for an IPv4 ip, 56 for IPv6.

    `ip` is packed (4 or 16 bytes), `constant` any int32 of this process (RocketMQ uses the hash of
    its class loader), `now_ms` the wall clock in epoch milliseconds (RocketMQ:
    MessageClientIDSetter).
    """

    def __init__(self, ip: bytes, pid: int, constant: int, now_ms: Callable[[], int]) -> None:
        assert len(ip) in (4, 16), "not a packed ip"
        fixed = ip + (pid & 0xFFFF).to_bytes(2, "big") + (constant & 0xFFFFFFFF).to_bytes(4, "big")
        self._prefix = fixed.hex().upper()
        self._now_ms = now_ms
        self._month_begin_ms = 0
        self._month_end_ms = 0
        self._count = 0

    def next_id(self) -> str:
        """Generate a new id; 65,536 within a millisecond are distinct."""
        now_ms = self._now_ms()
        if not self._month_begin_ms <= now_ms < self._month_end_ms:
            self._start_month(now_ms)
        self._count = (self._count + 1) & 0xFFFF
        passed_ms = (now_ms - self._month_begin_ms) & 0xFFFFFFFF
        return f"{self._prefix}{passed_ms:08X}{self._count:04X}"

    def _start_month(self, now_ms: int) -> None:
        """Set the begin and the end of the month (local time) that contains `now_ms`."""
        now = datetime.fromtimestamp(now_ms / 1000)
        begin = datetime(now.year, now.month, 1)
        end = datetime(now.year + now.month // 12, now.month % 12 + 1, 1)
        self._month_begin_ms = int(begin.timestamp() * 1000)
        self._month_end_ms = int(end.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """A recall handle: URL-safe Base64 of `v1 topic brokerName timestamp messageId`.

    `timestamp` is a text of epoch milliseconds, the time of delivery, as received; `message_id` is
    the client's.
    """

    topic: str
    broker_name: str
    timestamp: str
    message_id: str

    def encode(self) -> str:
        """Encode the handle as URL-safe Base64 text with padding."""
        parts = (HANDLE_VERSION, self.topic, self.broker_name, self.timestamp, self.message_id)
        return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()


def decode_handle(text: str) -> RecallHandle:
    """Decode a recall handle, with or without padding; raises ValueError with the text INVALID,
    RocketMQ's remark, if it is malformed. The timestamp is not checked."""
    if len(text) > MAX_HANDLE or not text.isascii():
        raise ValueError(INVALID)
    try:
        padded = text + "=" * (-len(text) % 4)
        parts = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError(INVALID) from None
    if len(parts) < 5 or parts[0] != HANDLE_VERSION:
        raise ValueError(INVALID)
    return RecallHandle(*parts[1:5])
