"""`grpc.health.v1.Health`: whether this server serves, for load balancers and probes.

Owns the two messages of that interface, which are too small for a library: a request's single text,
an answer's single number. It must never know a service but by its name.

Tests: tests/integration/grpc/test_grpc_server.py, tests/unit/net/grpc/test_framing.py
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from turbopump.net.grpc.call import GrpcCall, Method, unary_method
from turbopump.net.grpc.status import GrpcCode, GrpcError

SERVING: Final = b"\x08\x01"
"""Encoded HealthCheckResponse: the server serves."""
NOT_SERVING: Final = b"\x08\x02"
"""Encoded HealthCheckResponse: the server does not serve now."""
SERVICE_UNKNOWN: Final = b"\x08\x03"
"""Encoded HealthCheckResponse to Watch: the server has no service of this name."""
PATH: Final = "/grpc.health.v1.Health/"
"""The begin of the paths of the health service's methods."""
_NAME_MAX: Final = 127


class Health:
    """Answers Check at once, and Watch with the current state and each later one. Loop thread only.

    `services` are the full names that are known, besides the empty name; all of them have the state
    that `serves()` returns at the time of a request or of `send_changes`.
    """

    def __init__(self, services: Iterable[str], serves: Callable[[], bool]) -> None:
        self._services = {"", *services}
        self._serves = serves
        self._watching: dict[GrpcCall, bytes] = {}

    @property
    def methods(self) -> dict[str, Method]:
        """The methods Check and Watch, by path; to be added to the server's methods."""
        return {
            f"{PATH}Check": unary_method(self._answer_check),
            f"{PATH}Watch": unary_method(self._begin_watch),
        }

    def send_changes(self) -> None:
        """Send the state to each call of Watch to which another state was sent last; to be called
        whenever the result of `serves` may have changed."""
        state = self._encode_state()
        for call, sent in self._watching.items():
            if sent != state:
                self._watching[call] = state
                call.send(state)

    def _encode_state(self) -> bytes:
        """Return the encoded HealthCheckResponse of the state now."""
        return SERVING if self._serves() else NOT_SERVING

    def _answer_check(self, call: GrpcCall, message: bytes) -> None:
        """Answer Check with the state; fails with NOT_FOUND for an unknown service."""
        if service_of(message) in self._services:
            call.answer_with(self._encode_state())
        else:
            call.fail(GrpcError(GrpcCode.NOT_FOUND, "there is no such service"))

    def _begin_watch(self, call: GrpcCall, message: bytes) -> None:
        """Send the state to a call of Watch, now and after each change."""
        if service_of(message) not in self._services:
            call.send(SERVICE_UNKNOWN)
            return
        self._watching[call] = self._encode_state()
        call.on_closed = partial(self._watching.pop, call)
        call.send(self._watching[call])


def service_of(message: bytes) -> str:
    """The name in a HealthCheckRequest (field 1), empty if it has none. Raises GrpcError
    (INVALID_ARGUMENT) for other bytes, and for names over 127 bytes."""
    if not message:
        return ""
    size = message[1] if len(message) > 1 else 0
    if message[0] != 0x0A or size > _NAME_MAX or len(message) != 2 + size:
        raise GrpcError(GrpcCode.INVALID_ARGUMENT, "not a HealthCheckRequest")
    return message[2:].decode(errors="replace")
