"""A gRPC server on a loop of its own thread, and the ways in which a client reaches it."""

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import grpc
import pytest
import uvloop

from turbopump.net.grpc.call import GrpcCall, unary_method
from turbopump.net.grpc.health import Health
from turbopump.net.grpc.options import GrpcOptions
from turbopump.net.grpc.server import GrpcServer, why_no_grpc
from turbopump.net.grpc.status import GrpcCode, GrpcError
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.options import ServerOptions, TlsSettings
from turbopump.net.transport.server import Server

OPTIONS = GrpcOptions(message_max=4 << 20, stop_grace_ms=300)
PLAIN: list[tuple[str, Any]] = [("grpc.use_local_subchannel_pool", 1)]


class Served:
    """A server on a loop of its own thread, with methods of each kind; `way` is how a client comes
    to it: `secure` by TLS, `handed` by the port of a remoting server."""

    def __init__(self, way: str = "", tls: TlsSettings | None = None) -> None:
        self.loop = uvloop.new_event_loop()
        self.serves = True
        self.over: list[str] = []
        self.health = Health(["S"], lambda: self.serves)
        methods = {
            "/S/Echo": unary_method(lambda call, message: call.answer_with(message)),
            "/S/Refuse": unary_method(self._refuse),
            "/S/Break": unary_method(
                lambda call, message: call.answer_with(bytes([1 // len(message) - 1]))
            ),
            "/S/Never": unary_method(self._never),
            "/S/Many": unary_method(self._many),
            "/S/Both": self._both,
        }
        self.server = GrpcServer(methods | self.health.methods, OPTIONS, tls or TlsSettings())
        remoting = ServerOptions(tls=tls or TlsSettings())
        self.remoting = Server(Dispatcher({}), remoting, lambda: 0, self.server)
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.port: int = self.run(self._start("handed" in way))
        self.channel = self.connect("secure" in way)

    async def _start(self, handed: bool) -> int:
        if not handed:
            return await self.server.start("127.0.0.1", 0)
        self.server.begin()
        return await self.remoting.start("127.0.0.1", 0)

    def connect(self, secure: bool) -> grpc.Channel:
        """A client of its own connection."""
        if not secure:
            return grpc.insecure_channel(f"127.0.0.1:{self.port}", PLAIN)
        shown = ssl.get_server_certificate(("127.0.0.1", self.port))
        trust = grpc.ssl_channel_credentials(shown.encode())
        name = [("grpc.ssl_target_name_override", "turbopump test")]
        name.append(("grpc.default_authority", "broker"))  # that name is invalid
        return grpc.secure_channel(f"127.0.0.1:{self.port}", trust, PLAIN + name)

    def run(self, work: Any) -> Any:
        done: Future[Any] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return done.result(10)

    def _refuse(self, call: GrpcCall, message: bytes) -> None:
        raise GrpcError(GrpcCode.NOT_FOUND, f"100% of {message.decode()}: ä")

    def _never(self, call: GrpcCall, message: bytes) -> None:
        call.on_closed = lambda: self.over.append(message.decode())

    def _many(self, call: GrpcCall, message: bytes) -> None:
        for number in range(int(message)):
            call.send(b"%d" % number)
        call.answer_with(b"last")

    def _both(self, call: GrpcCall) -> None:
        call.on_message = call.send
        call.on_end = call.answer_with

    def stop(self) -> None:
        self.channel.close()
        self.run(self.server.stop())
        self.run(self.remoting.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


WAYS = ["", "secure", "handed", "handed, secure"]


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Makes servers, and stops them."""
    if why_no_grpc() is not None:
        pytest.skip("libnghttp2 is not installed")
    made: list[Served] = []

    def make(*given: Any) -> Served:
        made.append(Served(*given))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture(params=WAYS)
def served(request: pytest.FixtureRequest, serve: Callable[..., Served]) -> Served:
    return serve(request.param)


def until(condition: Callable[[], bool]) -> None:
    """Wait up to five seconds."""
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come true")
