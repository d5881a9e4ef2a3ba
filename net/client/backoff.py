"""Waits between the tries of pulls and sends after a failure.

Owns the lengths of the waits. It must never wait itself.

Tests: tests/unit/net/client/test_small_parts.py
"""

from turbopump.net.client.errors import BrokerError
from turbopump.net.wire.codes import ResponseCode

FIRST_MS = 100
"""First wait in milliseconds after a lost connection: a failover takes a few tenths of a second."""

LONGEST_MS = 1000
"""Longest wait in milliseconds for a broker that cannot be reached: it may be back at any moment,
and a refused connection costs little."""

REFUSED_MS = 1000
"""Wait in milliseconds, for each consecutive failure, after an error answer that will hardly change
within a second."""
REFUSED_LONGEST_MS = 3000
"""Longest wait in milliseconds after such error answers: RocketMQ's
pullTimeDelayMillsWhenException."""

FLOW_CONTROL_MS = 20
"""RocketMQ's wait in milliseconds after FLOW_CONTROL (DefaultMQPushConsumerImpl)."""

_SUBSCRIPTION_CODES = (
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
)


def needs_heartbeat(error: Exception) -> bool:
    """Whether the error means that the broker does not know this client's newest subscription,
    which a heartbeat repairs."""
    return isinstance(error, BrokerError) and error.code in _SUBSCRIPTION_CODES


def wait_ms(error: Exception, failures: int) -> int:
    """Milliseconds to wait before the next try after `failures` (1 or more) consecutive failures,
    the last of them `error`.

    The wait doubles from FIRST_MS to LONGEST_MS, with two exceptions: FLOW_CONTROL_MS after flow
    control, and REFUSED_MS times `failures`, at most REFUSED_LONGEST_MS, after other BrokerErrors
    (permission, unknown topic). A missing subscription doubles, too: the heartbeat sent in between
    cures it.
    """
    assert failures > 0, "a wait without a failure"
    if isinstance(error, BrokerError):
        if error.code == ResponseCode.FLOW_CONTROL:
            return FLOW_CONTROL_MS
        if error.code not in _SUBSCRIPTION_CODES:
            return min(REFUSED_LONGEST_MS, REFUSED_MS * failures)
    return _doubling_ms(failures)


def send_wait_ms(failures: int) -> int:
    """Milliseconds to wait before the next send to the same broker after `failures` (1 or more)
    failures: doubling from FIRST_MS to LONGEST_MS.

    The kind of failure does not matter: a caller waits, and the send's own timeout bounds all
    tries.
    """
    return _doubling_ms(failures)


def _doubling_ms(failures: int) -> int:
    """Return FIRST_MS, doubled for each further failure, at most LONGEST_MS."""
    return int(min(LONGEST_MS, FIRST_MS << min(failures - 1, 10)))
