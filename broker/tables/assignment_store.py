"""The last assignment of queues for each topic of each group, in assignments.json.

Owns that file and the bounds of its content. It must never compute an assignment, nor decide which
member holds a queue now: a coordinator begins with these assignments after a restart, or after
another broker coordinated.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from turbopump.broker.tables.table_saver import TableSaver
from turbopump.engine.disk import config_changes
from turbopump.engine.disk.json_table import Content, JsonTable
from turbopump.net.allocation.shares import QUEUES_MAX, Shares
from turbopump.net.wire.bodies import BadBody, as_int, as_object, as_text, number, table
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.names import check_lengths, name_member
from turbopump.net.wire.queues import MessageQueue

FILE_NAME: Final = "assignments.json"
TABLE: Final = "assignments"
VERSION: Final = "assignmentsVersion"
"""Field of a request 402: if it differs from this broker's version, the answer contains the
table."""
MAX_SIZE: Final = 32 << 20
"""Maximum bytes of all rows: as text on disk, less than the limit at a start. The oldest rows are
dropped."""
MAX_ROW: Final = 4 << 20
"""Maximum bytes of a row: 65,536 queues of 20,000 members. A larger row is not kept."""
MEMBERS_MAX: Final = 100_000
GENERATION_MAX: Final = 2**62


@dataclass(slots=True)
class StoredAssignment:
    """The assignment of a topic's queues to the members of a group. It is replaced, not changed.

    `generation` counts the assignments of this topic and group, over all brokers that have
    coordinated it; `decided_ms` is the wall clock's time.
    """

    group: str
    topic: str
    strategy: str
    generation: int
    decided_ms: int
    shares: Shares
    _row: bytes = field(default=b"", init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The key of its row."""
        return key_of(self.group, self.topic)

    @classmethod
    def from_json(cls, name: str, value: Any) -> "StoredAssignment":
        """Read a row; raises BadBody."""
        members = as_object(value)
        topic, _, group = name.partition("@")
        wrong = check_lengths(topic=topic, group=group)
        if wrong or not topic or not group:
            raise BadBody(wrong or f"{name[:100]} is not topic@group")
        generation = number(members, "generation")
        if not 0 <= generation <= GENERATION_MAX:
            raise BadBody(f"generation {generation} of {name}")
        owners = table(members, "owners", as_object)
        if len(owners) > MEMBERS_MAX:
            raise BadBody(f"{name} has over {MEMBERS_MAX} members")
        shares: Shares = {}
        left = QUEUES_MAX
        for client_id, brokers in owners.items():
            wrong = check_lengths(member=client_id)
            if wrong:
                raise BadBody(wrong)
            shares[client_id] = queues = _queues(topic, brokers, left)
            left -= len(queues)
        strategy = name_member(members, "strategy")
        return cls(group, topic, strategy, generation, number(members, "decidedTime"), shares)

    def to_json(self) -> dict[str, Any]:
        """The row's value: the queue ids by member and broker, as text."""
        owners: dict[str, dict[str, str]] = {}
        for client_id, queues in self.shares.items():
            ids: dict[str, list[str]] = {}
            for queue in queues:
                ids.setdefault(queue.broker_name, []).append(str(queue.queue_id))
            owners[client_id] = {broker: ",".join(texts) for broker, texts in ids.items()}
        return {
            "decidedTime": self.decided_ms,
            "generation": self.generation,
            "owners": owners,
            "strategy": self.strategy,
        }

    def row(self) -> bytes:
        """Text of the row in the file."""
        if not self._row:
            # A single line without spaces: a large group has thousands of members, and this runs on
            # the loop.
            value = json.dumps(self.to_json(), ensure_ascii=False, separators=(",", ":"))
            self._row = f"{json.dumps(self.name)}:{value}".encode("utf-8", "replace")
        return self._row


class AssignmentStore:
    """Table from topic@group to StoredAssignment. Loop thread only."""

    def __init__(self, saver: TableSaver, boot: int) -> None:
        """`boot` distinguishes this start's versions from versions of other starts."""
        self._saver = saver
        self._boot = boot
        self._rows: JsonTable[StoredAssignment] = JsonTable()
        self._sizes: dict[str, int] = {}
        """Bytes by row name, in the order of the puts."""
        self.size = 0

    def load(self) -> None:
        """Read assignments.json; raises ConfigError."""
        saved = self._saver.load(FILE_NAME, self._take)
        if saved is not None:
            try:
                rows = read_shares(as_object(saved)).values()
            except BadBody as error:
                raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None
            for row in sorted(rows, key=lambda row: row.decided_ms):
                self._put(row)

    @property
    def version(self) -> str:
        """Text that changes whenever the table changes."""
        return f"{self._boot}.{self._rows.changes}"

    def get(self, group: str, topic: str) -> StoredAssignment | None:
        """The last assignment, None if unknown."""
        return self._rows.get(key_of(group, topic))

    def put(self, row: StoredAssignment) -> None:
        """Keep a newer assignment; it is written to disk soon."""
        self._save(self._put(row), row)

    def adopt(self, rows: Mapping[str, StoredAssignment]) -> None:
        """Take over another broker's assignments where they are newer."""
        for name, row in rows.items():
            known = self._rows.get(name)
            if known is None or row.generation > known.generation:
                self.put(row)

    def to_json(self) -> dict[str, Any]:
        """The members of the answer to 402 that replicas take over."""
        return {TABLE: self._rows.body(self._rows.names()), VERSION: self.version}

    def _put(self, row: StoredAssignment) -> list[str]:
        """Put a row; returns the names of dropped rows, including its own if it is too large."""
        size = len(row.row())
        gone = [row.name] if size > MAX_ROW else []
        if not gone:
            self.size += size - self._sizes.pop(row.name, 0)
            self._sizes[row.name] = size
            self._rows.put(row.name, row)
            while self.size > MAX_SIZE:
                gone.append(next(iter(self._sizes)))
                self.size -= self._sizes.pop(gone[-1])
        for name in gone:
            if name in self._rows:
                self._rows.remove(name)
        return gone

    def _save(self, gone: list[str], row: StoredAssignment) -> None:
        put = [] if row.name in gone else [row.row()]
        change = config_changes.change({}, {TABLE: put}, {TABLE: gone})
        self._saver.changed(FILE_NAME, self._take, change)

    def _take(self) -> Content:
        return self._rows.snapshot(TABLE, {})


def key_of(group: str, topic: str) -> str:
    """The key of a row, in the form of consumer offsets' keys."""
    return f"{topic}@{group}"


def read_shares(members: dict[str, Any]) -> dict[str, StoredAssignment]:
    """The rows of the file, which are also in an answer to 402. Raises BadBody."""
    rows = table(members, TABLE, as_object)
    return {name: StoredAssignment.from_json(name, value) for name, value in rows.items()}


def _queues(topic: str, brokers: dict[str, Any], left: int) -> list[MessageQueue]:
    queues: list[MessageQueue] = []
    for broker, ids in brokers.items():
        wrong = check_lengths(broker=broker)
        texts = [text for text in as_text(ids).split(",") if text]
        if wrong or len(queues) + len(texts) > left:
            raise BadBody(wrong or f"over {QUEUES_MAX} queues of {topic}")
        for text in texts:
            queue_id = as_int(text, "queue id")
            if not 0 <= queue_id < 2**31:
                raise BadBody(f"queue id {queue_id}")
            queues.append(MessageQueue(topic, broker, queue_id))
    return queues
