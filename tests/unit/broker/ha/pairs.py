"""A master and a replica, each a whole broker, without a network between them."""

from collections.abc import Callable
from typing import Any

from turbopump.broker.ha.metadata.pulling import MetadataFollower
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.command import Command, new_request

MASTER = "10.0.0.1:10911"
DELAY = {"i": "DELAY\x011\x02"}


def put(world: Any, changed: dict[str, str] | None = None) -> None:
    """Send a message, by default to queue 0 of T."""
    fields = {"a": "PG", "b": "T", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0"}
    request = new_request(310, None, b"x", fields={**fields, **(changed or {})})
    response = world.dispatch(request)
    assert (response.value if isinstance(response, Deferred) else response).code == 0


class Link:
    """Routes a replica's requests to a broker, a function, or nowhere; can hold responses back."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.asked: list[Command] = []
        self.addresses: list[str] = []
        self.held: list[Callable[[], None]] | None = None

    def __call__(self, address: str, request: Command, timeout_ms: int) -> Deferred[Command | str]:
        self.asked.append(request)
        self.addresses.append(address)
        later: Deferred[Command | str] = Deferred()
        response = self.answer(request)
        if self.held is None:
            later.resolve(response)
        else:
            self.held.append(lambda: later.resolve(response))
        return later

    def answer(self, request: Command) -> Command | str:
        if self.target is None:
            return "no such broker"
        if callable(self.target):
            return self.target(request)
        response = self.target.dispatch(new_request(request.code, None, b"", fields=request.fields))
        return response.value if isinstance(response, Deferred) else response

    @property
    def codes(self) -> list[int]:
        return [int(one.code) for one in self.asked]

    def release(self) -> None:
        held, self.held = self.held or [], None
        for one in held:
            one()


class Group:
    """A master and a replica, each a whole broker."""

    def __init__(
        self, make_world: Callable[..., Any], of_master: str = "", of_replica: str = ""
    ) -> None:
        """The texts are lines of each broker's configuration."""
        self.master = make_world(f"brokerName=b\n{of_master}", folder="master")
        self.replica = make_world(f"brokerName=b\n{of_replica}", folder="replica")
        self.link = Link(self.master)
        self.lead = MetadataFollower(self.master.broker, Link(None))
        self.follower = MetadataFollower(self.replica.broker, self.link)
        self.follower.begin_following(MASTER, 0, self.replica.steady_ms)

    def round(self, by_ms: int = 60_000) -> None:
        """Advance the clock and run a round of the replica."""
        self.replica.now_ms += by_ms
        self.follower.tick(self.replica.now_ms, self.replica.steady_ms)

    def commit(self, offset: int, world: Any = None, group: str = "G", topic: str = "T") -> None:
        broker = (world or self.master).broker
        broker.offsets.commit(group, topic, 0, QueueOffset(offset), 5)

    def offset(self, group: str = "G", topic: str = "T") -> int:
        return self.replica.broker.offsets.query(group, topic, 0)


def copy_log(master: Any, replica: Any) -> None:
    """Copy the master's log to the replica, byte for byte, and confirm it."""
    source, log = master.broker.store, replica.broker.store.as_replicated(replica.now_ms)
    log.to_replica(replica.now_ms)
    size = source.max_log_offset
    log.append(0, bytes(source._log.view_bytes(0, size)), replica.now_ms)
    log.confirm_to(size, replica.now_ms)
    assert replica.broker.store.dispatched_log_offset == size
