"""The responses to senders and readers as a ledger, and the audit of a run's stores with it.

A line is written when a response has arrived; the brokers' truncations are taken from their logs,
elections from the controllers. Any thread may write.
"""

import re
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from turbopump.net.wire.command import Command
from turbopump.net.wire.message import MessageView
from turbopump.spark.audit.job import Audit, AuditOptions, run
from turbopump.spark.audit.ledger import Claim, Cut, Elected, Entry, decode, digest_of, encode

CUT = re.compile(r"the log was cut at (\d+), (\d+) bytes went")


class Ledger:
    """The ledger of a topic."""

    def __init__(self, file: Path, topic: str) -> None:
        self.file = file
        self._topic = topic
        self._opened = file.open("a")
        self._elected: set[Elected] = set()
        # Text files of Python 3.11 are not thread-safe: while one thread writes the buffer, the
        # line of another is counted and lost, and uninitialized memory is written in its place.
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; later events are not recorded."""
        self._opened.close()

    def acked(self, broker: str, queue: int, response: Command, body: bytes) -> None:
        """A sender got SEND_OK."""
        place = Claim(False, self._topic, queue, int(response.fields["queueOffset"]))
        at = decode(encode(place)[:-2] + f',"id":"{response.fields["msgId"]}"}}')
        assert isinstance(at, Claim)
        self._write(
            Claim(False, *place.place, digest_of(body), log_offset=at.log_offset, broker=broker)
        )

    def read(self, broker: str, message: MessageView) -> None:
        """A reader got a message."""
        self._write(
            Claim(
                True,
                message.topic,
                message.queue_id,
                message.queue_offset,
                digest_of(bytes(message.body)),
                log_offset=message.log_offset,
                broker=broker,
            )
        )

    def elected(self, epoch: int, broker: str, log_offset: int | None = None) -> None:
        """Record the master of an epoch, and its first log offset."""
        entry = Elected(epoch, broker, log_offset)
        if entry not in self._elected:
            self._elected.add(entry)
            self._write(entry)

    def cuts(self, broker: str, logs: list[Path]) -> int:
        """Record the truncations that a broker logged; return their number."""
        found = [hit for log in logs for hit in CUT.finditer(log.read_text(errors="replace"))]
        for hit in found:
            at, size = int(hit[1]), int(hit[2])
            self._write(Cut(broker, at + size, at))
        return len(found)

    def audit(self, stores: dict[str, Path]) -> Audit:
        """Audit the stores, by their brokers' names, with everything written so far."""
        self._opened.flush()
        named = tuple(f"{name}={path}" for name, path in stores.items())
        return run(None, AuditOptions(named, (str(self.file),)))

    def _write(self, entry: Entry) -> None:
        with self._lock:
            self._opened.write(encode(entry))
