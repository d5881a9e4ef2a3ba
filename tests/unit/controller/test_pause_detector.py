"""Pauses: the share of time in which a controller was paused, and its reaction."""

from tests.unit.controller.groups import CLUSTER, NAME, Node, running

from turbopump.controller import pause_detector
from turbopump.controller.config import ControllerConfig
from turbopump.controller.driver import Driver
from turbopump.controller.handlers import Controller
from turbopump.controller.pause_detector import PauseDetector
from turbopump.engine.deferred import Deferred


def run(table: PauseDetector, since_ms: int, until_ms: int, stopped_ms: int = 0) -> int:
    """Run ticks of 20 ms, with a pause after every 140 ms; returns the time of the last tick."""
    now_ms, ran_ms = since_ms, 0
    while now_ms < until_ms:
        now_ms += 20
        ran_ms += 20
        if ran_ms >= 140:
            now_ms, ran_ms = now_ms + stopped_ms, 0
        table.on_tick(now_ms)
    return now_ms


def test_a_ticking_controller_is_fit() -> None:
    table = PauseDetector()
    now_ms = run(table, 0, 20_000)
    assert table.stood_ms == 0 and not table.is_unfit(now_ms)
    now_ms = run(table, now_ms, now_ms + 20_000, stopped_ms=pause_detector.STALL_MS - 20)
    assert not table.is_unfit(now_ms)


def test_one_stop_says_nothing() -> None:
    table = PauseDetector()
    run(table, 0, 1_000)
    table.on_tick(60_000)
    assert table.stood_ms > pause_detector.WINDOW_MS and not table.is_unfit(60_000)


def test_a_stuttering_controller_is_unfit_until_it_runs_again() -> None:
    table = PauseDetector()
    now_ms = run(table, 0, 5_000, stopped_ms=1_100)
    assert table.is_unfit(now_ms)
    now_ms = run(table, now_ms, now_ms + pause_detector.WINDOW_MS + 1_000)
    assert not table.is_unfit(now_ms) and table.stood_ms == 0


def test_the_lead_does_not_go_round() -> None:
    table = PauseDetector()
    now_ms = run(table, 0, 5_000, stopped_ms=1_100)
    table.note_transfer(now_ms)
    assert not table.is_unfit(now_ms)
    now_ms = run(table, now_ms, now_ms + pause_detector.AGAIN_MS - 5_000, stopped_ms=1_100)
    assert not table.is_unfit(now_ms)
    now_ms = run(table, now_ms, now_ms + 5_000, stopped_ms=1_100)
    assert table.is_unfit(now_ms)


class Handed(Driver):
    """A driver of a leading member that can hand its leadership over."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.waited: list[bool] = []
        """Whether broker 1 counted as alive, at each call."""

    def transfer_leadership(self, now_ms: int) -> str | None:
        self.waited.append(self._node.core.heartbeats.is_active((CLUSTER, NAME, 1), now_ms))
        return "n1"

    def on_tick(self, now_ms: int) -> None:
        """Do nothing: no work is due."""


def stutter(controller: Controller, node: Node, brokers: tuple[int, ...]) -> None:
    """Run twelve seconds, 1.1 of every 1.25 s paused, with heartbeats of those brokers."""
    controller.tick()
    for _ in range(10):
        node.now_ms += 1_100
        controller.tick()
        for broker_id in brokers:
            node.beat(broker_id)
        for _ in range(7):
            node.now_ms += 20
            controller.tick()


def test_a_leader_that_stutters_hands_the_lead_over() -> None:
    node = running()
    driver = Handed(node)
    controller = Controller(ControllerConfig(), lambda: node.now_ms, lambda _: Deferred())
    controller.core, controller.driver = node.core, driver
    stutter(controller, node, (1, 2, 3))
    assert driver.waited == [True] and node.group.master_id == 1


def test_it_does_not_while_a_silence_is_waited_for() -> None:
    """The next leader would restart the wait."""
    node = running()
    driver = Handed(node)
    controller = Controller(ControllerConfig(), lambda: node.now_ms, lambda _: Deferred())
    controller.core, controller.driver = node.core, driver
    node.now_ms += 1_000
    stutter(controller, node, (2, 3))
    node.commit()
    assert node.group.master_id == 2
    assert driver.waited == [False]


def test_a_leader_that_wins_again_before_another_led_goes_on_waiting() -> None:
    node = running()
    node.tick()
    for term in range(2, 7):
        node.lead(False)
        for _ in range(20):
            node.tick(100)
            node.beat(2)
            node.beat(3)
        node.quorum.term = term
        node.lead()
        node.tick(500)
    assert node.group.master_id == 2  # 10 s after its last heartbeat

    other = running()
    other.tick()
    for term in (3, 5, 7):
        other.lead(False)
        for _ in range(40):
            other.tick(100)
            other.beat(2)
            other.beat(3)
        other.quorum.term = term
        other.lead()
        other.tick()
    other.tick(500)
    assert other.group.master_id == 1  # a different controller may have granted a lease
