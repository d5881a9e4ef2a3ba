"""Queries the cluster for a load's topics, queues, addresses and offsets.

Owns the queries; missing topics are created. It must never carry traffic.

Tests: tests/unit/cli/bench/test_run.py
"""

import asyncio
from dataclasses import dataclass

from turbopump.cli.bench.plan import Plan
from turbopump.cli.errors import CommandFailed
from turbopump.net.client.admin.client import Admin
from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.options import ClientOptions
from turbopump.net.client.routes import TopicRoute
from turbopump.net.wire.queues import MessageQueue

TOPICS_AT_ONCE = 16  # topics queried or created concurrently
ROUTE_WAIT_S = 10.0  # limit for a created topic to reach the name server
ROUTE_STEP_S = 0.05  # interval of queries for a created topic's route


@dataclass(frozen=True)
class Place:
    """A queue with its broker's address and its offsets."""

    queue: MessageQueue
    address: str
    """`host:port` of the master, or for pulls without a master of the broker with the lowest id."""
    begin: int = 0
    """Queue offset of the first pull; only for pulls."""
    end: int = 0
    """Queue offset after the last message; only for pulls."""


@dataclass(frozen=True)
class TopicPlaces:
    """The queues for senders and for pullers, in the order of the topics; empty without such
    connections."""

    sends: list[Place]
    pulls: list[Place]


async def query_places(plan: Plan, options: ClientOptions) -> TopicPlaces:
    """Query the cluster for the topics of a plan; a missing topic is created at all masters if the
    plan sends. Raises clients' errors, and CommandFailed if no queue can be used."""
    instance = ClientInstance(plan.namesrv, options)
    await instance.acquire()
    try:
        async with Admin(plan.namesrv, client_options=options) as admin:
            asking = _TopicQueries(plan, instance, admin)
            places = [await asking.query_topic(name) for name in plan.topic_names()[:1]]
            names = plan.topic_names()[1:]
            for at in range(0, len(names), TOPICS_AT_ONCE):
                some = names[at : at + TOPICS_AT_ONCE]
                places += await asyncio.gather(*map(asking.query_topic, some))
    finally:
        await instance.release()
    return TopicPlaces(
        [place for sends, _ in places for place in sends],
        [place for _, pulls in places for place in pulls],
    )


class _TopicQueries:
    """Queries routes and offsets of the topics of a plan, and creates missing topics."""

    def __init__(self, plan: Plan, instance: ClientInstance, admin: Admin) -> None:
        self._plan = plan
        self._instance = instance
        self._admin = admin
        self._clusters: list[str] = []

    async def query_topic(self, name: str) -> tuple[list[Place], list[Place]]:
        """The queues of a topic for senders, and the queues for pullers."""
        route = await self._instance.refresh(name)
        if route is None:
            if not self._plan.send_connections:
                raise CommandFailed(f"there is no topic {name} to read")
            route = await self._create_topic(name)
        sends = [Place(queue, route.brokers[queue.broker_name][0]) for queue in route.publish]
        if self._plan.send_connections and not sends:
            raise CommandFailed(f"no broker takes messages for topic {name}")
        return sends, await self._places_to_pull(route) if self._plan.pull_connections else []

    async def _create_topic(self, name: str) -> TopicRoute:
        """Create a topic at all masters, and return its route once a name server has it.
        Raises CommandFailed."""
        if not self._clusters:
            brokers = (await self._admin.cluster_list()).brokers
            self._clusters = sorted({line.cluster for line in brokers})
        count = self._plan.queues
        for cluster in self._clusters:
            await self._admin.update_topic(
                name, cluster=cluster, read_queues=count, write_queues=count
            )
        for _ in range(int(ROUTE_WAIT_S / ROUTE_STEP_S)):
            route = await self._instance.refresh(name)
            if route is not None:
                return route
            await asyncio.sleep(ROUTE_STEP_S)
        raise CommandFailed(f"topic {name} was created, but no name server knows it")

    async def _places_to_pull(self, route: TopicRoute) -> list[Place]:
        """The queues of a topic that consumers can read, each with its broker and the offsets at
        which pulls begin and end."""
        status = await self._admin.topic_status(route.topic)
        places = []
        for line in status.queues:
            queue = MessageQueue(route.topic, line.broker_name, line.queue_id)
            if queue in route.subscribe:
                addresses = route.brokers[line.broker_name]
                begin = line.max_queue_offset if self._plan.from_end else line.min_queue_offset
                address = addresses.get(0) or addresses[min(addresses)]
                places.append(Place(queue, address, begin, line.max_queue_offset))
        return places
