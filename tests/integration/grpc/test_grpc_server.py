"""The gRPC transport with grpcio's client, which shares no code with it, on a real loop."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import grpc
import pytest
import uvloop

from turbopump.net.grpc.call import GrpcCall, unary
from turbopump.net.grpc.health import NOT_SERVING, SERVING, Health
from turbopump.net.grpc.options import GrpcOptions
from turbopump.net.grpc.server import GrpcServer, why_no_grpc
from turbopump.net.grpc.status import GrpcCode, GrpcError

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(why_no_grpc() is not None, reason="libnghttp2 is not installed"),
]
OPTIONS = GrpcOptions(message_max=4 << 20, stop_grace_ms=300)
PLAIN: list[tuple[str, Any]] = [("grpc.use_local_subchannel_pool", 1)]


class Served:
    """A server on a loop of its own thread, with methods of each kind."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.serves = True
        self.over: list[str] = []
        self.health = Health(["S"], lambda: self.serves)
        methods = {
            "/S/Echo": unary(lambda call, message: call.answer(message)),
            "/S/Refuse": unary(self._refuse),
            "/S/Break": unary(lambda call, message: call.answer(bytes([1 // len(message) - 1]))),
            "/S/Never": unary(self._never),
            "/S/Many": unary(self._many),
            "/S/Both": self._both,
        }
        self.server = GrpcServer(methods | self.health.methods, OPTIONS)
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        port = self.run(self.server.start("127.0.0.1", 0))
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", PLAIN)

    def run(self, work: Any) -> Any:
        done: Future[Any] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return done.result(10)

    def _refuse(self, call: GrpcCall, message: bytes) -> None:
        raise GrpcError(GrpcCode.NOT_FOUND, f"100% of {message.decode()}: ä")

    def _never(self, call: GrpcCall, message: bytes) -> None:
        call.on_over = lambda: self.over.append(message.decode())

    def _many(self, call: GrpcCall, message: bytes) -> None:
        for number in range(int(message)):
            call.send(b"%d" % number)
        call.answer(b"last")

    def _both(self, call: GrpcCall) -> None:
        call.on_message = call.send
        call.on_end = call.answer

    def stop(self) -> None:
        self.channel.close()
        self.run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def served() -> Iterator[Served]:
    one = Served()
    yield one
    one.stop()


def until(condition: Callable[[], bool]) -> None:
    """Wait up to five seconds."""
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come true")


@pytest.mark.parametrize("size", [0, 1, 1_000, 70_000, 4 << 20])
@pytest.mark.parametrize("packed", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_unary_call_of_any_size_comes_back(
    served: Served, size: int, packed: grpc.Compression
) -> None:
    message = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    call = served.channel.unary_unary("/S/Echo")
    assert call(message, timeout=10, compression=packed) == message


def test_many_calls_at_once_share_a_connection(served: Served) -> None:
    echo = served.channel.unary_unary("/S/Echo")
    calls = [echo.future(b"%d" % number, timeout=10) for number in range(2_000)]
    assert [one.result() for one in calls] == [b"%d" % number for number in range(2_000)]


def test_a_call_that_fails_has_its_code_and_text(served: Served) -> None:
    found = {}
    for path, message in (("Refuse", b"it"), ("Break", b""), ("Nothing", b"")):
        with pytest.raises(grpc.RpcError) as caught:
            served.channel.unary_unary(f"/S/{path}")(message, timeout=10)
        found[path] = (caught.value.code(), caught.value.details())
    assert found["Refuse"] == (grpc.StatusCode.NOT_FOUND, "100% of it: ä")
    assert found["Break"][0] is grpc.StatusCode.INTERNAL
    assert found["Nothing"][0] is grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(grpc.RpcError) as caught:
        served.channel.unary_unary("/S/Echo")(b"x" * ((4 << 20) + 1), timeout=10)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert served.channel.unary_unary("/S/Echo")(b"x", timeout=10) == b"x"


def test_streams_of_both_directions(served: Served) -> None:
    many = served.channel.unary_stream("/S/Many")(b"5000", timeout=10)
    assert [*many] == [*(b"%d" % number for number in range(5_000)), b"last"]
    both = served.channel.stream_stream("/S/Both")
    assert [*both(iter([b"a", b"b" * 300_000, b"c"]), timeout=10)] == [b"a", b"b" * 300_000, b"c"]


def test_a_call_that_is_given_up_is_over_for_its_service(served: Served) -> None:
    never = served.channel.unary_unary("/S/Never")
    with pytest.raises(grpc.RpcError) as caught:
        never(b"deadline", timeout=0.05)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: served.over == ["deadline"])
    call = never.future(b"cancel")
    served.channel.unary_unary("/S/Echo")(b"", timeout=10)
    call.cancel()
    until(lambda: served.over == ["deadline", "cancel"])


def test_a_clean_stop_ends_what_is_under_way(served: Served) -> None:
    call = served.channel.unary_unary("/S/Never").future(b"stop")
    served.channel.unary_unary("/S/Echo")(b"", timeout=10)
    served.run(served.server.stop())
    assert call.code() is grpc.StatusCode.UNAVAILABLE
    assert served.over == ["stop"]


def test_health_is_checked_and_watched(served: Served) -> None:
    check = served.channel.unary_unary("/grpc.health.v1.Health/Check")
    assert check(b"\x0a\x01S", timeout=10) == SERVING
    watch = served.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=10)
    assert next(watch) == SERVING
    served.serves = False
    served.loop.call_soon_threadsafe(served.health.changed)
    assert next(watch) == NOT_SERVING
    with pytest.raises(grpc.RpcError) as caught:
        check(b"\x0a\x02no", timeout=10)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    watch.cancel()
