"""A producer of transactions that lives while its broker dies between half and end.

Owns the client's process and the files by which it is followed and led. It kills nothing.
Called by test_transactions.py and test_timers.py.
"""

import time
from pathlib import Path

from interop.support import toolchain
from interop.support.controlled import Controlled
from interop.support.groups import Kind, ask
from interop.support.processes import Process
from interop.support.suites import java_client, parse

COUNT = 16
SCENARIO = "transactions-living"
TOPIC = "tx-living"
STORED_TIMEOUT_S, END_TIMEOUT_S = 60.0, 180.0
TABLES_TIMEOUT_S = 60.0
GET_TOPIC_CONFIG = 351
SETTINGS = {
    "transactionTimeOut": "1500",
    "transactionCheckInterval": "2000",
    "transactionOpBatchInterval": "200",
    "transactionCheckMax": "100",
}
"""Of its brokers: they ask soon. RocketMQ asks about what it has not written down yet where it
writes later than it asks."""


def wait_known(group: Controlled, port: int, topics: tuple[str, ...]) -> None:
    """Returns when a replica knows topics. RocketMQ's copies tables each 10 s in a group with
    controllers, and each 60 s without them: one that leads before has none of the topics, and what
    it has of their messages cannot be reached."""

    def known() -> bool:
        return all(ask(port, GET_TOPIC_CONFIG, {"topic": topic}).code == 0 for topic in topics)

    group.until(f"the replica knows {topics}", known, TABLES_TIMEOUT_S)


def times(master: Kind) -> str:
    """How often a message is there whose master dies, and comes back or is replaced: "once", or
    "more". RocketMQ leaves the half message behind that it writes anew when it asks. A master that
    does not know how far it was asks about each: offsets are saved each 5 s, and 5.5.0 copies none
    between two of its own. Ours writes an op message for it."""
    return "once" if master.name == "turbopump" else "more"


class LivingProducer:
    """See the module; it begins to send at once. `times` is "once" or "more". Of Java; with the
    address of a broker, where it makes its topic, of Go: a broker hears of that one's group up to
    30 s after its start."""

    def __init__(
        self, namesrv: str, folder: Path, times: str, *, broker: str | None = None
    ) -> None:
        self._stored, self._dead, self._back = (
            folder / name for name in ("stored", "dead", "back")
        )
        spec = f"{SCENARIO}:{COUNT},{self._stored},{self._dead},{self._back},{times}"
        if broker is None:
            self.process = java_client("client-5.5", [namesrv, "tx", spec], folder)
        else:
            command = [str(toolchain.CACHE / "go-client"), namesrv, broker, "tx-go", spec]
            self.process = Process("client", command, folder, environment={"HOME": str(folder)})

    def wait_stored(self) -> None:
        """Returns when the broker has all half messages, and each local transaction goes on."""
        until_s = time.monotonic() + STORED_TIMEOUT_S
        while not self._stored.exists():
            assert self.process.running, self.process.tail()
            assert time.monotonic() < until_s, self.process.tail()
            time.sleep(0.05)

    def broker_is_dead(self) -> None:
        """Most of the local transactions end now."""
        self._dead.touch()

    def broker_is_back(self) -> None:
        """The others end; their broker may be another one."""
        self._back.touch()

    def judge(self) -> None:
        """Returns when all of its checks have held."""
        self.process.wait(END_TIMEOUT_S)
        checks = parse(self.process.out.read_text(), [SCENARIO])[SCENARIO]
        assert checks.ended and not checks.failed, "\n".join([*checks.failed, self.process.tail()])
