"""A producer of transactions that lives while its broker dies between half and end.

Owns the client's process and the files through which the test and the client communicate. It kills
nothing.
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
"""Settings of its brokers, for early checks. RocketMQ asks about ends that it has not written yet
if it writes them later than it asks."""


def wait_known(group: Controlled, port: int, topics: tuple[str, ...]) -> None:
    """Return when a replica knows the topics. RocketMQ's replica copies tables every 10 s in a
    group with controllers, and every 60 s without controllers: as a master before that it has no
    topics, and the messages in its log cannot be reached."""

    def known() -> bool:
        return all(ask(port, GET_TOPIC_CONFIG, {"topic": topic}).code == 0 for topic in topics)

    group.until(f"the replica knows {topics}", known, TABLES_TIMEOUT_S)


def times(master: Kind) -> str:
    """Expected number of copies of a message whose master dies, and comes back or is replaced:
    "once", or "more". RocketMQ leaves the old half message when it writes a new one for a check. A
    master that does not know its progress checks each message again: offsets are saved every 5 s,
    and 5.5.0's brokers copy none from each other. Our broker writes an op message for the old
    one."""
    return "once" if master.name == "turbopump" else "more"


class LivingProducer:
    """Start the client, which sends immediately. `times` is "once" or "more". Without an address
    the client is Java's; with the address of a broker, where it creates its topic, it is Go's: a
    broker learns its producer group up to 30 s after the client's start."""

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
        """Return when the broker has all half messages, and every local transaction continues."""
        until_s = time.monotonic() + STORED_TIMEOUT_S
        while not self._stored.exists():
            assert self.process.running, self.process.tail()
            assert time.monotonic() < until_s, self.process.tail()
            time.sleep(0.05)

    def broker_is_dead(self) -> None:
        """End most of the local transactions now."""
        self._dead.touch()

    def broker_is_back(self) -> None:
        """End the other transactions; a different broker may serve now."""
        self._back.touch()

    def judge(self) -> None:
        """Return when all checks of the client have passed."""
        self.process.wait(END_TIMEOUT_S)
        checks = parse(self.process.out.read_text(), [SCENARIO])[SCENARIO]
        assert checks.ended and not checks.failed, "\n".join([*checks.failed, self.process.tail()])
