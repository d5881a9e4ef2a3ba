"""The pytest fixture `turbopump_cluster`: a real broker on free ports.

Owns the thread and the loop in which the cluster runs, so that synchronous and asynchronous tests
can use it. It must never import the broker when pytest starts: pytest loads this module through its
entry point.
"""

from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from turbopump.cluster import BrokerAddress, Cluster

T = TypeVar("T")


class RunningCluster:
    """A started cluster in its own thread.

    `namesrv` is the `host:port` for clients, `brokers` and `controllers` are the nodes that ran at
    the start (never updated), `data` is the folder of their files.
    """

    def __init__(self, cluster: "Cluster", loop: "asyncio.AbstractEventLoop") -> None:
        self._loop = loop
        self._cluster = cluster
        self.namesrv: str = cluster.namesrv
        self.brokers: list[BrokerAddress] = cluster.brokers
        self.controllers: list[str] = cluster.controllers
        self.data: Path = cluster.data

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the cluster's loop, block until it ends, and return its result or
        raise its exception. Call it from any other thread, never from that loop."""
        import asyncio

        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop_broker(self, broker: "BrokerAddress") -> None:
        """Stop one of `brokers` for good, and block until it has stopped; in a group with
        controllers another master is elected later.

        Raises ClusterError if the broker does not run.
        """
        self.run(self._cluster.stop_broker(broker))


@contextmanager
def running_cluster(
    data: "str | Path | None" = None,
    broker_properties: Mapping[str, str] | None = None,
    *,
    brokers: int = 1,
    controllers: int = 0,
) -> Iterator[RunningCluster]:
    """Run a cluster with small files (SMALL_FILES) until the context ends, for fixtures of any
    scope; the arguments and errors are Cluster's. `data` None: a temporary folder."""
    import asyncio
    import threading

    import uvloop

    from turbopump.cluster import SMALL_FILES, Cluster

    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="turbopump-cluster", daemon=True)
    thread.start()

    def call(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    try:
        cluster = Cluster(
            data,
            brokers=brokers,
            controllers=controllers,
            broker_properties={**SMALL_FILES, **(broker_properties or {})},
        )
        call(cluster.start())
        try:
            yield RunningCluster(cluster, loop)
        finally:
            call(cluster.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def turbopump_cluster(tmp_path: "Path") -> Iterator[RunningCluster]:
    """A broker and a name server for one test, empty at its start."""
    with running_cluster(tmp_path / "turbopump") as cluster:
        yield cluster
