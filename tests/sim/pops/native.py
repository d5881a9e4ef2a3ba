"""A connection with a lane, to a broker on the simulated disk.

Owns the path of a request: natively where the lane takes it, else to the broker's handlers. It must
never know the meaning of requests.
"""

from collections.abc import Callable
from types import SimpleNamespace

from tests.lane.world import Driven, finish
from turbopump.broker.context import BrokerContext
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.command import Codec, Command, decode

_FRAME = {"codec": Codec.JSON, "version": 513}


class NativeAsker(Driven):
    """Connection for one life of a broker. `by_handlers` serves the requests that the
    lane refuses.
    """

    def __init__(
        self, broker: BrokerContext, by_handlers: Callable[[Command], Deferred[Command | None]]
    ) -> None:
        super().__init__(SimpleNamespace(broker=broker))  # type: ignore[arg-type]
        self._by_handlers = by_handlers
        self._numbered = 0
        self._laters: dict[int, Deferred[Command | None]] = {}

    def ask(self, request: Command) -> Deferred[Command | None]:
        """Send a request; the result may be there at once."""
        self._numbered += 1
        later = self._laters[self._numbered] = Deferred()
        self.feed(finish(request, _FRAME, self._numbered), 1 << 20)
        for opaque in list(self.responses):
            (frame,) = self.responses.pop(opaque)
            self._laters.pop(opaque).resolve(decode(frame))
        return later

    def frame(self, view: memoryview) -> bool:
        """Pass a frame that the lane does not serve to the handlers."""
        self.met_version = -1
        request = decode(bytes(view))
        later = self._laters.pop(request.opaque)
        self._by_handlers(request).then(later.resolve)
        return True

    def met(self, version: int, language: int) -> None:
        """No-op: the client's version is not used."""

    def end(self) -> None:
        """Close both ends of the connection."""
        self.near.close()
        self.far.close()
