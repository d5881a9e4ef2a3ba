"""A check whether a record has the key of a search.

Owns the comparison of texts alone: the index has only the hash of a topic and a key, which other
keys and topics share. It must never read a body.

Tests: tests/unit/engine/queues/test_lookup.py
"""

from turbopump.engine.log.commit_log import CommitLog
from turbopump.engine.queues.dispatcher import parse_properties
from turbopump.pyx import record as kernel

KEY_SEPARATOR = " "
"""Separates the keys in the property KEYS."""


class KeyCheck:
    """A search for a key of a topic: `kind` "T" compares the property TAGS, any other kind a key of
    KEYS or UNIQ_KEY."""

    def __init__(self, log: CommitLog, topic: str, key: str, kind: str) -> None:
        self._log = log
        self._topic, self._key = _decode_as_java(_encode(topic)), _decode_as_java(_encode(key))
        self._is_tag = kind == "T"

    def record_has_key(self, log_offset: int) -> bool:
        """Whether the record at `log_offset` exists, is of that topic and has that key. The CRC of
        its body is not checked here but when the record is read for the response. A malformed
        record matches, so that the read notes its damage."""
        log = self._log
        if not log.min <= log_offset < log.end:
            return False
        start = log.segments.start_of(log_offset)
        region = log.region_of(start)
        if region is None:
            return True
        end = min(log.end - start, region.size)
        scanned = kernel.scan(region, log_offset - start, end, max_rows=1, check_crc=False)
        if not scanned.count:
            return True
        rows = scanned.rows
        topic = region.read(rows[0, kernel.TOPIC_AT], rows[0, kernel.TOPIC_SIZE])
        if _decode_as_java(topic) != self._topic:
            return False
        text = region.read(rows[0, kernel.PROPERTIES_AT], rows[0, kernel.PROPERTIES_SIZE])
        properties = parse_properties(text)
        if self._is_tag:
            return _decode_as_java(properties.get(b"TAGS", b"")) == self._key
        keys = _decode_as_java(properties.get(b"KEYS", b"")).split(KEY_SEPARATOR)
        return self._key in keys or self._key == _decode_as_java(properties.get(b"UNIQ_KEY", b""))


def _encode(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _decode_as_java(text: bytes) -> str:
    """Decode bytes as Java does; hashes are computed from the decoded text."""
    return text.decode("utf-8", "replace")
