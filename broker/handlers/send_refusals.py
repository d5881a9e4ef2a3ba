"""Refusals of sends, with the codes and texts of RocketMQ's SendMessageProcessor.

Owns the exception that handlers of sends raise, and the refusals that several checks share. It must
never decide whether a send is refused.

Tests: tests/unit/broker/handlers/test_send.py
"""

from turbopump.broker.context import BrokerContext
from turbopump.broker.traffic.timer_requests import TimerRefusal
from turbopump.net.wire.codes import ResponseCode

_NO_LIGHT_QUEUES = "light message queues are not enabled, enableLmq is false"


class SendRefused(Exception):
    """A send is answered with an error, `code` and `remark`; nothing was stored."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


def illegal_message(broker: BrokerContext) -> SendRefused:
    """Return the refusal MESSAGE_ILLEGAL of a message whose body, properties or form is not
    allowed, with the limits of their lengths."""
    limit = broker.config.store.max_message_size
    return SendRefused(
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched."
        f" msg body length limit {limit}B, msg properties length limit 32KB.",
    )


def no_revive_record(topic: str, why: str) -> SendRefused:
    """Return the refusal of a message to the revive topic that is no record of a broker."""
    remark = f"the message is no record of a broker for topic[{topic}]: {why}"
    return SendRefused(ResponseCode.MESSAGE_ILLEGAL, remark)


def no_light_queues() -> SendRefused:
    """Return the refusal of a message that asks for light queues."""
    return SendRefused(ResponseCode.SYSTEM_ERROR, _NO_LIGHT_QUEUES)


def refused_timer(broker: BrokerContext, refusal: TimerRefusal) -> SendRefused:
    """Return the refusal of a timer for the reason `refusal`."""
    config = broker.config
    if refusal is TimerRefusal.ILLEGAL:
        return SendRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay"
            f" {config.timer_max_delay_sec * 1_000}ms; or if set del msg, the delay time should be"
            " bigger than the current time",
        )
    most = config.timer_congest_num_each_slot
    if refusal is TimerRefusal.FLOW_CONTROL:
        return SendRefused(
            ResponseCode.SYSTEM_ERROR,
            f"timer message is under flow control, max num limit is {2 * most} or the current value"
            f" is greater than {most} and less than {2 * most}, trigger random flow control",
        )
    remark = "accurate timer message is not enabled, timerWheelEnable is false"
    return SendRefused(ResponseCode.SYSTEM_ERROR, remark)
