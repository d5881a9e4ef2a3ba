"""The clients whose starts and closes are tested, and the proof that they left nothing.

Owns a client of each kind, with a handler if it has handlers. It must never start a client.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.unit.net.client.cluster import (
    NAME_SERVER,
    TOPIC,
    ScriptedCluster,
    options,
)

from turbopump.net.client.admin.client import Admin
from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.consuming.pop_consumer import PopConsumer
from turbopump.net.client.consuming.pull_consumer import PullConsumer
from turbopump.net.client.consuming.simple_consumer import SimpleConsumer
from turbopump.net.client.messages import ReceivedMessage
from turbopump.net.client.producer import Producer
from turbopump.net.client.shared_client import SharedClient
from turbopump.net.client.transactions import TransactionEnd, TransactionProducer


async def unknown(_message: ReceivedMessage) -> TransactionEnd:
    return TransactionEnd.UNKNOWN


async def handle(_message: ReceivedMessage) -> None:
    pass


def subscribed(made: Any) -> Any:
    made.subscribe(TOPIC)
    if isinstance(made, PopConsumer | Consumer):
        made.on_message(handle)
    return made


MADE: dict[str, Callable[[SharedClient], Any]] = {
    "Producer": lambda shared: Producer("P", client=shared),
    "TransactionProducer": lambda shared: TransactionProducer("P", client=shared, check=unknown),
    "Consumer": lambda shared: subscribed(Consumer("G", client=shared)),
    "PopConsumer": lambda shared: subscribed(PopConsumer("G", client=shared)),
    "SimpleConsumer": lambda shared: subscribed(SimpleConsumer("G", client=shared)),
    "PullConsumer": lambda shared: PullConsumer("G", client=shared),
    "Admin": lambda _shared: Admin(NAME_SERVER, client_options=options()),
}


def client() -> SharedClient:
    return SharedClient(NAME_SERVER, options(instance_name="unit"))


def others() -> set[asyncio.Task[Any]]:
    """The tasks of the running loop but the caller's."""
    return asyncio.all_tasks() - {asyncio.current_task()}


async def nothing_is_left(one: ScriptedCluster) -> None:
    """Asserts that no task, connection or heartbeat is left of any client."""
    assert not others() and one.open == 0
    sent = len(one.calls)
    await asyncio.sleep(100)
    assert len(one.calls) == sent
