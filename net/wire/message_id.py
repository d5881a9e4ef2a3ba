"""The two ids of a message: the broker's (where it lies) and the client's (who made it when).

Owns their text forms. It must never read a clock of its own. Called by the broker's send and query
handlers, by producers and by the admin client. Both have 32 or 56 digits: length does not
distinguish them.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from turbopump.engine.types import LogOffset
from turbopump.net.wire.hosts import PACKED_V4_SIZE, PACKED_V6_SIZE


def encode_message_id(store_host: bytes, log_offset: LogOffset) -> str:
    """Upper-case hex of packed host and log offset (RocketMQ: MessageDecoder.createMessageId)."""
    assert len(store_host) in (PACKED_V4_SIZE, PACKED_V6_SIZE), "not a packed host"
    return (store_host + log_offset.to_bytes(8, "big", signed=True)).hex().upper()


def encode_message_ids(store_host: bytes, log_offsets: Sequence[LogOffset]) -> str:
    """The ids of several messages, with a comma between them: a batch has up to 32,768."""
    assert len(store_host) in (PACKED_V4_SIZE, PACKED_V6_SIZE), "not a packed host"
    host = store_host.hex().upper()
    return ",".join([f"{host}{log_offset:016X}" for log_offset in log_offsets])


def decode_message_id(text: str) -> tuple[bytes, LogOffset]:
    """(packed host, log offset) of an offset message id; raises ValueError.

    A client's id of the same length decodes to a nonsense host: the caller must expect that.
    """
    if len(text) not in (2 * (PACKED_V4_SIZE + 8), 2 * (PACKED_V6_SIZE + 8)):
        raise ValueError(f"a message id has 32 or 56 digits, not {len(text)}")
    packed = bytes.fromhex(text)
    return packed[:-8], LogOffset(int.from_bytes(packed[-8:], "big", signed=True))


class UniqueIds:
    """Makes UNIQ_KEYs: ip, pid, a constant, milliseconds of the month, counter.

    `ip` is packed (4 or 16 bytes), `constant` any int32 of this process (RocketMQ puts the hash of
    its class loader there), `now_ms` the wall clock (RocketMQ: MessageClientIDSetter).
    """

    def __init__(self, ip: bytes, pid: int, constant: int, now_ms: Callable[[], int]) -> None:
        assert len(ip) in (4, 16), "not a packed ip"
        fixed = ip + (pid & 0xFFFF).to_bytes(2, "big") + (constant & 0xFFFFFFFF).to_bytes(4, "big")
        self._prefix = fixed.hex().upper()
        self._now_ms = now_ms
        self._month_begin_ms = 0
        self._month_end_ms = 0
        self._count = 0

    def next(self) -> str:
        """A new id; 65,536 of one millisecond are distinct."""
        now_ms = self._now_ms()
        if not self._month_begin_ms <= now_ms < self._month_end_ms:
            self._start_month(now_ms)
        self._count = (self._count + 1) & 0xFFFF
        passed_ms = (now_ms - self._month_begin_ms) & 0xFFFFFFFF
        return f"{self._prefix}{passed_ms:08X}{self._count:04X}"

    def _start_month(self, now_ms: int) -> None:
        now = datetime.fromtimestamp(now_ms / 1000)
        begin = datetime(now.year, now.month, 1)
        end = datetime(now.year + now.month // 12, now.month % 12 + 1, 1)
        self._month_begin_ms = int(begin.timestamp() * 1000)
        self._month_end_ms = int(end.timestamp() * 1000)
