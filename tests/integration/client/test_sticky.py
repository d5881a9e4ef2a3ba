"""STICKY as a strategy of members: balanced, with as few moved queues as possible, over
any broker.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from turbopump.net.client.consuming.consumer import Consumer
from turbopump.net.client.errors import InvalidArgument
from turbopump.net.client.options import ClientOptions, ConsumerOptions
from turbopump.net.wire.queues import MessageQueue

pytestmark = pytest.mark.integration

Until = Callable[..., Awaitable[None]]


def member(namesrv: str, group: str, topic: str, number: int, **more: object) -> Consumer:
    made = Consumer(
        group,
        [namesrv],
        options=ConsumerOptions(strategy="STICKY", **more),  # type: ignore[arg-type]
        client_options=ClientOptions(instance_name=f"m{number}"),
    )
    made.subscribe(topic)
    return made


def test_members_come_and_go_and_the_others_keep_most_queues(
    namesrv: str, topic: str, name: str, until: Until
) -> None:
    async def scenario() -> None:
        members: dict[int, Consumer] = {}
        before: dict[int, set[MessageQueue]] = {}

        def shares() -> dict[int, set[MessageQueue]]:
            return {
                number: {queue for queue in one.queues if queue.topic == topic}
                for number, one in members.items()
            }

        def settled() -> bool:
            found = shares()
            sizes = [len(share) for share in found.values()]
            every = set().union(*found.values())
            return len(every) == sum(sizes) == 4 and max(sizes) - min(sizes) <= 1

        async def after(step: str) -> None:
            await until(settled)
            await asyncio.sleep(0.3)
            assert settled(), step
            for number, share in shares().items():
                had = before.get(number, set())
                few = min(len(had), len(share))
                assert len(had & share) == few, f"{step}: {before} became {shares()}"
            before.clear()
            before.update(shares())

        # The last two have smaller ids than those before them: they lead at once.
        for number in (5, 6, 3, 1):
            members[number] = member(namesrv, name, topic, number)
            await members[number].start()
            await after(f"{number} came")
        for number in (5, 1, 6):
            await members.pop(number).close()
            await after(f"{number} left")
        await members.pop(3).close()

    asyncio.run(scenario())


def test_other_strategies_need_no_leader(namesrv: str, topic: str, name: str, until: Until) -> None:
    async def scenario() -> None:
        options = ConsumerOptions(strategy="AVG_BY_CIRCLE")
        members = []
        for number in range(2):
            one = Consumer(
                name,
                [namesrv],
                options=options,
                client_options=ClientOptions(instance_name=f"c{number}"),
            )
            one.subscribe(topic)
            await one.start()
            members.append(one)

        def ids() -> list[list[int]]:
            return [
                [queue.queue_id for queue in one.queues if queue.topic == topic] for one in members
            ]

        await until(lambda: ids() == [[0, 2], [1, 3]])
        for one in members:
            await one.close()

    asyncio.run(scenario())


def test_a_strategy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no strategy NONE"):
        Consumer("g", "127.0.0.1:1", options=ConsumerOptions(strategy="NONE"))
