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
from turbopump.net.allocation.shares import Shares
from turbopump.net.wire.bodies import BadBody, as_int, as_object, as_text, read_int64, read_table
from turbopump.net.wire.java_properties import ConfigError
from turbopump.net.wire.names import check_lengths, name_member
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import QUEUES_MAX

FILE_NAME: Final = "assignments.json"
"""Name of the table's file in the config folder."""
TABLE: Final = "assignments"
"""Member of the file, and of the answer to 402, that holds the rows by `topic@group`."""
VERSION: Final = "assignmentsVersion"
"""Member of a request 402 and of its answer: the `AssignmentStore.version` that the requester has;
the answer contains the table only if this broker's version differs."""
MAX_SIZE: Final = 32 << 20
"""Maximum bytes of all rows: as text on disk, less than the limit at a start. The rows whose last
put is the longest ago are dropped."""
MAX_ROW: Final = 4 << 20
"""Maximum bytes of a row: 65,536 queues of 20,000 members. A larger row is not stored."""
MEMBERS_MAX: Final = 100_000
"""Maximum members (client ids) in a row that is read."""
GENERATION_MAX: Final = 2**62
"""Maximum `generation` of a row that is read."""


@dataclass(slots=True)
class StoredAssignment:
    """The assignment of a topic's queues to the members of a group. It is replaced, never changed.

    `strategy` names the algorithm that made it; `generation` counts the assignments of this topic
    and group, over all brokers that have coordinated it; `decided_ms` is epoch ms; `shares` has the
    queues by client id.
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
        """The row's key, `topic@group`."""
        return row_key(self.group, self.topic)

    @classmethod
    def from_json(cls, name: str, value: Any) -> "StoredAssignment":
        """Decode a row from its key `topic@group` and the object that `to_json` makes. Raises
        BadBody for a malformed or oversized row."""
        members = as_object(value)
        topic, _, group = name.partition("@")
        wrong = check_lengths(topic=topic, group=group)
        if wrong or not topic or not group:
            raise BadBody(wrong or f"{name[:100]} is not topic@group")
        generation = read_int64(members, "generation")
        if not 0 <= generation <= GENERATION_MAX:
            raise BadBody(f"generation {generation} of {name}")
        owners = read_table(members, "owners", as_object)
        if len(owners) > MEMBERS_MAX:
            raise BadBody(f"{name} has over {MEMBERS_MAX} members")
        shares: Shares = {}
        left = QUEUES_MAX
        for client_id, brokers in owners.items():
            wrong = check_lengths(member=client_id)
            if wrong:
                raise BadBody(wrong)
            shares[client_id] = queues = _decode_queues(topic, brokers, left)
            left -= len(queues)
        strategy = name_member(members, "strategy")
        return cls(group, topic, strategy, generation, read_int64(members, "decidedTime"), shares)

    def to_json(self) -> dict[str, Any]:
        """Convert to the row's object: decidedTime, generation, strategy, and `owners`: client id
        to broker name to comma-separated queue ids."""
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
        """The assignment's row in the file, `"topic@group":{...}` in UTF-8 without line breaks;
        encoded at the first call only."""
        if not self._row:
            # A single line without spaces: a large group has thousands of members, and this runs on
            # the loop.
            value = json.dumps(self.to_json(), ensure_ascii=False, separators=(",", ":"))
            self._row = f"{json.dumps(self.name)}:{value}".encode("utf-8", "replace")
        return self._row


class AssignmentStore:
    """Table of the last assignment of each (topic, group), within MAX_SIZE, saved in
    assignments.json. Loop thread only."""

    def __init__(self, saver: TableSaver, boot: int) -> None:
        """`boot` is a number that no other start of this broker has; it begins each `version`."""
        self._saver = saver
        self._boot = boot
        self._rows: JsonTable[StoredAssignment] = JsonTable()
        self._sizes: dict[str, int] = {}
        """Bytes by row name, in the order of the puts."""
        self.size = 0
        """Bytes of all rows as text."""

    def load(self) -> None:
        """Read assignments.json, if it exists, into this empty table; call once. Raises ConfigError
        if its content is malformed, StoreError if it cannot be read."""
        saved = self._saver.load(FILE_NAME, self._content)
        if saved is not None:
            try:
                rows = read_assignments(as_object(saved)).values()
            except BadBody as error:
                raise ConfigError(f"{FILE_NAME} is damaged: {error}") from None
            for row in sorted(rows, key=lambda row: row.decided_ms):
                self._put_row(row)

    @property
    def version(self) -> str:
        """Text `boot.changes`, which differs after each change of the table and after a restart;
        compare it only for equality."""
        return f"{self._boot}.{self._rows.changes}"

    def get(self, group: str, topic: str) -> StoredAssignment | None:
        """The stored assignment of a group's topic, or None."""
        return self._rows.get(row_key(group, topic))

    def put(self, row: StoredAssignment) -> None:
        """Replace the assignment of the row's topic and group, whatever its generation; drop the
        oldest rows beyond MAX_SIZE. The file is written soon. A row over MAX_ROW is not stored, and
        removes the previous row."""
        self._save(self._put_row(row), row)

    def adopt_rows(self, rows: Mapping[str, StoredAssignment]) -> None:
        """`put` each row of another broker, by `topic@group`, that is unknown here or has a higher
        generation than the row here."""
        for name, row in rows.items():
            known = self._rows.get(name)
            if known is None or row.generation > known.generation:
                self.put(row)

    def to_json(self) -> dict[str, Any]:
        """The members TABLE (all rows) and VERSION of the answer to 402, which replicas pass to
        `read_assignments`."""
        return {TABLE: self._rows.body(self._rows.names()), VERSION: self.version}

    def _put_row(self, row: StoredAssignment) -> list[str]:
        """Put a row; return the names of rows that were dropped for room, including the row's own
        name if it is too large."""
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
        """Have the changed row, and the names of dropped rows (`gone`), appended to the file."""
        put = [] if row.name in gone else [row.row()]
        change = config_changes.encode_change({}, {TABLE: put}, {TABLE: gone})
        self._saver.save_changed(FILE_NAME, self._content, change)

    def _content(self) -> Content:
        """The whole content of the file."""
        return self._rows.snapshot(TABLE, {})


def row_key(group: str, topic: str) -> str:
    """Return the key `topic@group` of a row, the same form as the keys of consumerOffset.json."""
    return f"{topic}@{group}"


def read_assignments(members: dict[str, Any]) -> dict[str, StoredAssignment]:
    """Decode the rows, by `topic@group`, from the object in assignments.json or in an answer to
    402; {} if it has no TABLE. Raises BadBody."""
    rows = read_table(members, TABLE, as_object)
    return {name: StoredAssignment.from_json(name, value) for name, value in rows.items()}


def _decode_queues(topic: str, brokers: dict[str, Any], left: int) -> list[MessageQueue]:
    """Decode a member's queues of the topic from broker name to comma-separated queue ids; at most
    `left` queues. Raises BadBody."""
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
