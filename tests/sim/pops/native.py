"""A connection with a lane, to a broker on the simulated disk.

Owns the way of a request: natively where the lane takes it, else to the broker's handlers. It must
never know what is asked. Called by the suite of pops, in a part of its seeds.
"""

from collections.abc import Callable
from types import SimpleNamespace

from tests.lane.world import Driven, finish
from turbopump.broker.context import BrokerContext
from turbopump.engine.later import Later
from turbopump.net.wire.command import Codec, Command, decode

_FRAME = {"codec": Codec.JSON, "version": 513}


class NativeAsker(Driven):
    """Of one life of a broker. `by_handlers` serves what the lane does not."""

    def __init__(
        self, broker: BrokerContext, by_handlers: Callable[[Command], Later[Command | None]]
    ) -> None:
        super().__init__(SimpleNamespace(broker=broker))  # type: ignore[arg-type]
        self._by_handlers = by_handlers
        self._numbered = 0
        self._laters: dict[int, Later[Command | None]] = {}

    def ask(self, request: Command) -> Later[Command | None]:
        """Its answer, which may be there."""
        self._numbered += 1
        later = self._laters[self._numbered] = Later()
        self.feed(finish(request, _FRAME, self._numbered), 1 << 20)
        for opaque in list(self.answers):
            (frame,) = self.answers.pop(opaque)
            self._laters.pop(opaque).resolve(decode(frame))
        return later

    def frame(self, view: memoryview) -> bool:
        """One that is not plain."""
        self.met_version = -1
        request = decode(bytes(view))
        later = self._laters.pop(request.opaque)
        self._by_handlers(request).then(later.resolve)
        return True

    def met(self, version: int, language: int) -> None:
        """Nothing is known of the client."""

    def end(self) -> None:
        """The life is over."""
        self.near.close()
        self.far.close()
