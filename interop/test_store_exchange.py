"""A broker's store opened by the other kind: old messages are read and found, and new ones are
appended."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interop.support import groups
from interop.support.groups import Group, Kind, Ports, RocketMQ
from interop.support.suites import java_client, parse

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
COUNT = 10_000
MORE = 500
STEP_TIMEOUT_S = 180
TABLE_TIMEOUT_S = 30.0
TOPIC = "move-exchange"
# Small files, so that log, queues and index all roll; both brokers need the same sizes. RocketMQ
# deletes the index files that were not full when its predecessor was killed, and without
# messageIndexSafe fills them again only from the checkpoint's logicsPhysicalOffset: it cannot find
# the messages between the last full file and that offset by key, in its own stores either.
SETTINGS = {
    "messageIndexSafe": "true",
    "recallMessageEnable": "true",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
    "maxHashSlotNum": "5000",
    "maxIndexNum": "10000",
}


class Move:
    """A store that goes from broker to broker, always at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.ports = Ports.free()
        self._steps = 0

    @contextmanager
    def opened(self, kind: Kind, end: Callable[[Group], None]) -> Iterator[None]:
        """Run a name server and a broker of the kind on the store, and end it in the requested
        way."""
        self._steps += 1
        group = groups.start(
            kind, self.ports, self.folder / f"{self._steps}-{kind.name}", self.store, SETTINGS
        )
        try:
            yield
        finally:
            end(group)

    def wait_for_topic(self) -> None:
        """Wait until RocketMQ's own file has the topic: ours appends a new topic to a file beside
        it, and writes RocketMQ's file within WHOLE_AFTER seconds (broker/tables/table_saver.py). A
        killed broker may not have written it."""
        table = self.store / "config" / "topics.json"
        until_s = time.monotonic() + TABLE_TIMEOUT_S
        while f'"{TOPIC}"' not in table.read_text():
            assert time.monotonic() < until_s, "topics.json does not name the topic"
            time.sleep(0.1)

    def step(self, scenario: str, *arguments: object) -> None:
        """Run one scenario of the Java client against the open broker."""
        self._steps += 1
        spec = ":".join([scenario, ",".join(map(str, arguments))])
        folder = self.folder / f"{self._steps}-{scenario}"
        client = java_client("client-5.5", [self.ports.namesrv_address, "move", spec], folder)
        client.wait(STEP_TIMEOUT_S)
        checks = parse(client.out.read_text(), [scenario])[scenario]
        assert checks.ended and not checks.failed, "\n".join([*checks.failed, client.tail()])


@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.parametrize("direction", ["to-java", "from-java"])
def test_store_is_read_and_continued(
    kind: Kind, built: None, work: Path, direction: str, ending: str
) -> None:
    """10,000 messages over rolled files, a stop or a kill, and then another broker opens the
    store."""
    java = RocketMQ()
    writer, reader = (kind, java) if direction == "to-java" else (java, kind)
    # Both brokers write committed offsets every five seconds: a killed broker may lack some.
    offset, end = ("committed", Group.stop) if ending == "stopped" else ("any", Group.kill)
    move = Move(work / f"{direction}-{ending}")
    with move.opened(writer, end):
        move.step("exchange-write", 0, COUNT)
        move.wait_for_topic()
    for part in ("commitlog", "index", f"consumequeue/{TOPIC}/0"):
        assert len(list((move.store / part).iterdir())) > 1, f"{part} did not roll"
    with move.opened(reader, end):
        move.step("exchange-continue", COUNT, COUNT + MORE, offset)
    with move.opened(writer, Group.kill):
        move.step("exchange-read", COUNT + MORE, offset)
