"""Properties by which a sender asks for delivery at a time, and the slot that follows from them.

Owns RocketMQ's rules (HookUtils) about the properties of a timer that is sent. Nothing is stored or
read here; scheduled/timer_messages.py has the rules of stored timers.

Tests: tests/unit/broker/scheduled/test_timers.py
"""

import re
from enum import Enum
from typing import Final

from turbopump.net.wire import properties as names

TIMER_PROPERTIES: Final = (
    names.TIMER_DELAY_SEC,
    names.TIMER_DELAY_MS,
    names.TIMER_DELIVER_MS,
)
"""Names of the timer properties in their order of precedence."""
INT64_TEXT: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
"""Text of a time or a delay, for `fullmatch`; the number may still be out of range."""


class TimerRefusal(Enum):
    """Reason why a timer is not stored (RocketMQ: PutMessageStatus); the value is the name in the
    answer."""

    ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    """The time is malformed or too far, or a recall is due."""
    FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    """The slot has too many timers (timerCongestNumEachSlot)."""
    NOT_ENABLED = "WHEEL_TIMER_NOT_ENABLE"
    """This broker has no timers (timerWheelEnable)."""


def is_timer(properties: dict[str, str]) -> bool:
    """Whether the message asks for delivery at a time (HookUtils.checkIfTimerMessage) and has no
    slot yet (TIMER_OUT_MS)."""
    return names.TIMER_OUT_MS not in properties and any(
        name in properties for name in TIMER_PROPERTIES
    )


def slot_of(
    properties: dict[str, str], now_ms: int, max_delay_ms: int, precision_ms: int
) -> int | TimerRefusal | None:
    """Return the epoch ms of a timer's slot, for TIMER_OUT_MS; None: it is due at `now_ms` (epoch
    ms), and an ordinary message; ILLEGAL for malformed text, a delay over `max_delay_ms` or a
    recall that is due.

    The slot is the last multiple of `precision_ms` before the time, so a broker that reads a slot
    when the next one begins never delivers early. A number that overflows in Java is ILLEGAL here:
    RocketMQ delivers it at once.
    """
    deliver_ms = _deliver_ms(properties, now_ms)
    if deliver_ms is None:
        return TimerRefusal.ILLEGAL
    if deliver_ms <= now_ms:
        return TimerRefusal.ILLEGAL if names.TIMER_DEL_UNIQKEY in properties else None
    if deliver_ms - now_ms > max_delay_ms:
        return TimerRefusal.ILLEGAL
    return (deliver_ms - 1) // precision_ms * precision_ms


def keep_exact_time(properties: dict[str, str], now_ms: int) -> None:
    """Replace a timer's delay in `properties` by its time, counted from `now_ms` (epoch ms). The
    delay would count from the store time of the record, which is ahead of the clock if the clock
    was set back. A timer with an absolute time keeps its properties as they are, in their order.
    The delay must be legal (`slot_of`)."""
    delays = names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS
    if not any(name in properties for name in delays):
        return
    deliver_ms = _deliver_ms(properties, now_ms)
    for name in TIMER_PROPERTIES:
        properties.pop(name, None)
    properties[names.TIMER_DELIVER_MS] = str(deliver_ms)


def _deliver_ms(properties: dict[str, str], now_ms: int) -> int | None:
    """Return the delivery time in epoch ms from the first property of a timer; None if there is
    none, or it is malformed."""
    for name in TIMER_PROPERTIES:
        text = properties.get(name)
        if text is None:
            continue
        if not INT64_TEXT.fullmatch(text) or not -(1 << 63) <= int(text) < 1 << 63:
            return None
        number = int(text)
        if name == names.TIMER_DELAY_SEC:
            number *= 1_000
        return number if name == names.TIMER_DELIVER_MS else now_ms + number
    return None
