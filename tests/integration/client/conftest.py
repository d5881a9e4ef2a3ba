"""Fixtures of the client tests: a running broker, unique names, waiting with a bound.

With TURBOPUMP_TEST_NAMESRV=host:port the tests run against that cluster (a real RocketMQ with
`messageDelayLevel=1s 1s 1s 1s 1s 1s`), not against a cluster of Turbopump.
"""

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from turbopump.net.client.admin.client import Admin
from turbopump.testing import running_cluster

DELAY_LEVELS = "1s 1s 1s 1s 1s 1s"
_serial = itertools.count()

Until = Callable[..., Awaitable[None]]


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """The name server of a cluster that the tests of a file share."""
    given = os.environ.get("TURBOPUMP_TEST_NAMESRV")
    if given:
        yield given
        return
    with running_cluster(broker_properties={"messageDelayLevel": DELAY_LEVELS}) as cluster:
        yield cluster.namesrv


@pytest.fixture
def name() -> str:
    """A name no other test uses, for a group or a topic that does not exist."""
    return f"n{time.time_ns()}-{next(_serial)}"


@pytest.fixture
def until() -> Until:
    """`await until(condition)`: wait until it holds; fails after `timeout_s`, 60 by default."""

    async def wait(condition: Callable[[], bool], timeout_s: float = 60) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.02)

    return wait


@pytest.fixture
def topic(namesrv: str) -> str:
    """A topic of four queues that exists."""
    made = f"t{time.time_ns()}-{next(_serial)}"

    async def create() -> None:
        async with Admin([namesrv]) as admin:
            [cluster] = {line.cluster for line in (await admin.cluster_list()).brokers}
            await admin.update_topic(made, cluster=cluster, read_queues=4, write_queues=4)
            async with asyncio.timeout(60):
                while made not in {line.topic for line in (await admin.topic_list()).topics}:
                    await asyncio.sleep(0.02)

    asyncio.run(create())
    return made
