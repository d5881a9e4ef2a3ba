"""The simple consumer by gRPC: messages that it cannot settle are refused before a request."""

from functools import partial
from typing import Any

import pytest
from tests.unit.net.client.cluster import options, play
from tests.unit.net.client.consuming.test_process_queue import received
from tests.unit.net.client.grpc.scripted import ScriptedServer

from turbopump.net.client.consuming.simple_consumer import SimpleConsumer
from turbopump.net.client.errors import InvalidArgument
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.wire import properties as names

BY_REMOTING = "0 1700000000000 60000 3 0 a 0 5"
RECEIPTS = (f"{BY_REMOTING} 7000", "the receipt of another server")


def message(handle: str | None) -> ReceivedMessage:
    made = received(5)
    if handle is not None:
        made.properties[names.POP_CK] = handle
    return made


def errors_of(given: Any) -> list[Exception]:
    """The errors of an acknowledgement and of a change of the invisible time."""

    async def story() -> list[Exception]:
        made = SimpleConsumer("G", endpoints="127.0.0.1:8081", client_options=options())
        errors: list[Exception] = []
        async with made:
            for settle in (made.ack, partial(made.change_invisible, invisible_ms=20_000)):
                try:
                    await settle(given)
                except InvalidArgument as error:
                    errors.append(error)
        return errors

    return play(story())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (message(None), "the message was not received by a simple consumer"),
        (message(""), "the message was not received by a simple consumer"),
        (message(BY_REMOTING), "the message was received by remoting"),
        ("text", "the message is a received message, not str"),
        (None, "the message is a received message, not NoneType"),
    ],
)
def test_a_message_without_a_receipt_causes_no_request(
    server: ScriptedServer, given: Any, words: str
) -> None:
    errors = errors_of(given)
    assert len(errors) == 2 and all(str(error).startswith(words) for error in errors)
    assert [name for name, _ in server.calls] == ["NotifyClientTermination"]


@pytest.mark.parametrize("receipt", RECEIPTS)
def test_a_receipt_is_sent_as_it_came(server: ScriptedServer, receipt: str) -> None:
    given = message(receipt)
    assert errors_of(given) == []
    (_, acked), (_, changed), _ = server.calls
    assert acked.entries[0].receipt_handle == changed.receipt_handle == receipt
    assert given.properties[names.POP_CK] == "a new receipt"
