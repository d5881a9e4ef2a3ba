"""The gRPC transport with grpcio's client, which shares no code with it, on a real loop."""

import grpc
import pytest
from tests.integration.grpc.conftest import Served, until

from turbopump.net.grpc.health import NOT_SERVING, SERVING

pytestmark = pytest.mark.integration


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


def test_a_clean_stop_ends_pending_calls(served: Served) -> None:
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
    served.loop.call_soon_threadsafe(served.health.send_changes)
    assert next(watch) == NOT_SERVING
    with pytest.raises(grpc.RpcError) as caught:
        check(b"\x0a\x02no", timeout=10)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    watch.cancel()
