"""The window of messages that are sent to other masters, and sent again after failures (I14)."""

from turbopump.broker.config.config import BrokerConfig
from turbopump.broker.escape.bridge import MESSAGES_MAX, Escape
from turbopump.broker.escape.retry_window import (
    FIRST_PAUSE_MS,
    LAST_PAUSE_MS,
    QueueWindow,
    RetryWindow,
)
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.command import Command


class Sends:
    """Sends of a window, which the test answers; `arrived` has the items that arrived."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.sent: list[tuple[int, int]] = []
        """Each sent item, with the number of its failures."""
        self.pending: dict[int, Deferred[str | None]] = {}
        self.empty: set[int] = set()
        """Items that have nothing to send."""
        self.refused: set[int] = set()
        """Items that fail at once, as all do while no master is known."""
        self.arrived: list[tuple[int, str]] = []
        self.calls: list[Deferred[Command | str]] = []
        self.escape = Escape(BrokerConfig(), self._call, lambda: self.now_ms, lambda: 0)

    def _call(self, _address: str, _request: Command, _ms: int) -> Deferred[Command | str]:
        self.calls.append(Deferred())
        return self.calls[-1]

    def send(self, item: int, failures: int) -> Deferred[str | None] | None:
        """Send an item of the window."""
        self.sent.append((item, failures))
        if item in self.empty:
            return None
        if item in self.refused:
            return Deferred.resolved(None)
        self.pending[item] = Deferred()
        return self.pending[item]

    def note(self, item: int, arrival: str) -> None:
        """Note an arrival."""
        self.arrived.append((item, arrival))

    def answer(self, item: int, arrival: str | None = "m") -> None:
        """Answer the last send of an item."""
        self.pending.pop(item).resolve(arrival)

    def window(self) -> RetryWindow[int, str]:
        """A window of any items."""
        return RetryWindow(self.escape, self.send, self.note)

    def queue(self, size: int) -> QueueWindow[str]:
        """A window of a queue from offset 7 on."""
        return QueueWindow(self.escape, self.send, self.note, QueueOffset(7), size)


def test_items_are_sent_again_until_they_arrive() -> None:
    sends = Sends()
    window = sends.window()
    pauses_ms = []
    window.start(1)
    for _ in range(8):
        sends.answer(1, None)
        begin_ms, count = sends.now_ms, len(sends.sent)
        while len(sends.sent) == count:
            sends.now_ms += FIRST_PAUSE_MS
            window.resend_failed(10)
        pauses_ms.append(sends.now_ms - begin_ms)
    assert pauses_ms == [200, 400, 800, 1_600, 3_200, LAST_PAUSE_MS, LAST_PAUSE_MS, LAST_PAUSE_MS]
    assert [failures for _, failures in sends.sent] == list(range(9))
    assert not sends.arrived
    sends.answer(1, "m")
    assert sends.arrived == [(1, "m")]
    assert len(window) == 0
    sends.now_ms += 10 * LAST_PAUSE_MS
    assert not window.resend_failed(10)
    assert len(sends.sent) == 9


def test_items_without_anything_to_send_are_done() -> None:
    sends = Sends()
    window = sends.window()
    window.start(1)
    sends.answer(1, None)
    sends.empty.update((1, 2))
    window.start(2)
    assert len(window) == 1
    sends.now_ms += FIRST_PAUSE_MS
    window.resend_failed(10)
    assert len(window) == 0
    assert not sends.arrived


def test_retries_are_bounded_and_in_the_order_of_their_pauses() -> None:
    sends = Sends()
    window = sends.window()
    for item in (1, 2, 3):
        window.start(item)
    for item in (3, 1, 2):
        sends.answer(item, None)
        sends.now_ms += 1
    assert not window.resend_failed(10), "no pause has ended"
    sends.now_ms += FIRST_PAUSE_MS
    assert window.resend_failed(2)
    assert [item for item, _ in sends.sent[3:]] == [3, 1]
    assert not window.resend_failed(2)
    assert [item for item, _ in sends.sent[3:]] == [3, 1, 2]


def test_retries_wait_for_room_at_the_bridge() -> None:
    sends = Sends()
    window = sends.window()
    window.start(1)
    sends.answer(1, None)
    sends.now_ms += LAST_PAUSE_MS
    sends.escape._messages = MESSAGES_MAX
    assert not window.resend_failed(10)
    sends.escape._messages = 0
    assert not window.resend_failed(10)
    assert sends.sent == [(1, 0), (1, 1)]


def test_an_item_sent_before_its_pause_ended_is_not_sent_twice() -> None:
    sends = Sends()
    window = sends.window()
    window.start(1)
    assert window.is_unanswered(1)
    sends.answer(1, None)
    assert not window.is_unanswered(1)
    window.send(1)
    assert window.is_unanswered(1)
    sends.now_ms += LAST_PAUSE_MS
    window.resend_failed(10)
    assert len(sends.sent) == 2


def test_answers_do_not_count_after_a_stop() -> None:
    sends = Sends()
    window = sends.window()
    for item in (1, 2, 3):
        window.start(item)
    sends.answer(3, None)
    window.remove_item(1)
    sends.answer(1)
    window.clear()
    sends.answer(2)
    sends.now_ms += LAST_PAUSE_MS
    assert not window.resend_failed(10)
    assert not sends.arrived
    assert len(sends.sent) == 3


def test_progress_of_a_queue_passes_only_arrived_messages() -> None:
    sends = Sends()
    window = sends.queue(4)
    for _ in range(3):
        window.start_next()
    assert [item for item, _ in sends.sent] == [7, 8, 9]
    sends.answer(8)
    assert (window.completed_to, window.next) == (7, 10)
    sends.answer(7, None)
    assert window.completed_to == 7, "a failed message holds back the progress"
    sends.now_ms += FIRST_PAUSE_MS
    window.resend_failed(1)
    sends.answer(7)
    assert window.completed_to == 9
    sends.answer(9)
    assert window.completed_to == 10


def test_messages_after_a_gap_are_bounded() -> None:
    sends = Sends()
    window = sends.queue(2)
    window.start_next()
    window.start_next()
    assert not window.has_room
    sends.answer(8)
    assert not window.has_room, "the first is not done"
    sends.answer(7)
    assert window.has_room
    window.skip_to(20)
    window.skip_to(5)
    assert (window.completed_to, window.next) == (20, 20)


def test_a_queue_has_no_room_while_the_bridge_has_none() -> None:
    sends = Sends()
    window = sends.queue(2)
    sends.escape._messages = MESSAGES_MAX
    assert not window.has_room


def test_an_item_that_is_sent_during_its_pause_has_a_single_retry() -> None:
    """A producer that ends a transaction sends its half message without waiting for the pause."""
    sends = Sends()
    sends.refused.add(1)
    window = sends.window()
    window.start(1)
    for _ in range(20):
        window.send(1)
    sends.sent.clear()
    sends.now_ms += LAST_PAUSE_MS
    window.resend_failed(100)
    assert len(sends.sent) == 1
    assert len(window._waiting) == 1
