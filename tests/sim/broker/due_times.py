"""Due times of a group's timers and delayed messages, and the check that none is delivered early.

They are read from the records themselves, apart from the code that delivers them.
"""

from tests.sim.ha.checkers import LogFiles, Parsed, records
from turbopump.broker.config.config import BrokerConfig
from turbopump.engine.store import Store
from turbopump.engine.timer.timer_files import TIMER_TOPIC
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.names import SCHEDULE_TOPIC
from turbopump.net.wire.properties import decode_properties

LEVELS_MS = BrokerConfig().delay_levels_ms


class DueTimes:
    """Due times of all messages that some broker has taken, by their bodies."""

    def __init__(self, topic: str) -> None:
        """`topic` is where they are delivered."""
        self.due_ms: dict[bytes, int] = {}
        self._topic = topic

    def note(self, log: LogFiles, start: int, stop: int, wall_ms: int) -> None:
        """Note records that a broker with clock `wall_ms` made just now.

        Their store times may be later: times of a log do not decrease.
        """
        for one in _records(log, start, stop):
            properties, topic = decode_properties(one.properties), one.key[0]
            if topic == TIMER_TOPIC and "TIMER_ROLL_TIMES" not in properties:
                delay = properties.get("TIMER_DELAY_MS")
                due_ms = int(properties.get("TIMER_DELIVER_MS", 0))
                if delay is not None:
                    due_ms = wall_ms + int(delay)
            elif topic == SCHEDULE_TOPIC:
                due_ms = one.stored_ms + LEVELS_MS[int(properties["DELAY"]) - 1]
            else:
                continue
            # A request that arrives twice is stored twice.
            self.due_ms[one.body] = min(due_ms, self.due_ms.get(one.body, due_ms))

    def check(self, name: str, log: LogFiles, start: int, stop: int, wall_ms: int) -> None:
        """Check records that a broker with clock `wall_ms` has delivered."""
        for one in _records(log, start, stop):
            due_ms = self.due_ms.get(one.body)
            if one.key[0] != self._topic or due_ms is None:
                continue  # the broker that took it died of that: its clock was not noted
            properties, early_ms = decode_properties(one.properties), due_ms - wall_ms
            if "DELAY" in properties and early_ms > LEVELS_MS[int(properties["DELAY"]) - 1]:
                early_ms = 0  # its clock was set back
            assert early_ms <= 0, f"{name} delivers {early_ms} ms early: {one.body!r}"


def bodies(store: Store, topic: str) -> list[bytes]:
    """Bodies of the messages that consumers of a topic can read."""
    found = []
    for queue_id in store.queue_ids(topic):
        for unit in store.units(topic, queue_id, QueueOffset(0), 100_000):
            record = store.record(unit.log_offset)
            assert record is not None, f"{topic} {queue_id}: no record at {unit.log_offset}"
            found.append(bytes(record.body))
    return found


def _records(log: LogFiles, start: int, stop: int) -> list[Parsed]:
    """Records on the disk: a store shows only confirmed ones."""
    data = log.read(start, stop)
    assert len(data) == stop - start, f"{stop} is beyond the log"
    return records(data, start, log.file_size)
