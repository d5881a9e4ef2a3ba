"""The table of request codes and handlers, and the responses to a handler's failures.

Owns the dispatch-level answers of RocketMQ's NettyRemotingAbstract. It must never know a handler's
business. Loop thread only.
"""

import logging
from collections.abc import Callable, Generator, Iterable
from typing import Final

from turbopump.engine.deferred import Deferred
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import BadHeader

logger = logging.getLogger(__name__)

REMARK_MAX: Final = 512
"""Maximum characters of `one_line`, which becomes a remark: one line for an operator, not a
dump."""

QUIET_MS: Final = 10_000
"""Interval between two log lines about requests that failed because of a disk, by the `now_ms` of
the requests."""

Response = Command | Deferred[Command] | Deferred[Command | None] | None
"""A response, a Deferred of a response that is ready later, or None: no response is sent, as for a
Deferred that resolves to None."""
Handler = Callable[[Command, Peer, int], Response | Steps[Response]]
"""Arguments: request, peer, and `now_ms`, the time of the handlers' clock (see Server). Result: the
answer. While a later answer is pending, the request has no body and no fields.

A handler that may take long is a generator: it yields after each step of a few milliseconds and
returns the answer. After a step the state it read before may have changed, and the peer may be
gone.
"""
Review = Callable[[Command, Response, bool], Response]
"""Arguments: request, the handler's answer, and whether other requests were served since the
request began. Result: the answer to send."""


Guard = Callable[[Command, Peer, int], Command | Steps[Command | None] | None]
"""Arguments as a Handler's. Result: the refusal of a request, None if its handler may run, or steps
that return one of them."""


class Dispatcher:
    """Handlers by request code.

    `review`, if given, receives every handler's answer and returns the answer to send; it does not
    receive refusals and the answers to failures and unknown codes. `guard`, if given, checks each
    request first, also one with an unknown code.
    """

    def __init__(self, review: Review | None = None, guard: Guard | None = None) -> None:
        self._review, self._guard = review, guard
        self._handlers: dict[int, Handler] = {}
        self._quiet_until_ms = 0

    def add(self, code: int, handler: Handler) -> None:
        """Let `handler` answer `code`, which must not have a handler yet."""
        assert code not in self._handlers, f"code {code} has a handler already"
        self._handlers[int(code)] = handler

    def wrap_handler(self, code: int, around: Callable[[Handler], Handler]) -> None:
        """Replace the handler of `code` by `around(handler)`. Raises KeyError if the code has no
        handler."""
        self._handlers[int(code)] = around(self._handlers[int(code)])

    @property
    def codes(self) -> frozenset[int]:
        """A copy of the codes that have a handler now."""
        return frozenset(self._handlers)

    def without_codes(self, codes: Iterable[int]) -> "Dispatcher":
        """A new Dispatcher with the current handlers except for `codes`, for another port. Later
        changes of either table do not affect the other. Unknown codes are ignored."""
        fewer = Dispatcher(self._review, self._guard)
        fewer._handlers = dict(self._handlers)
        for code in codes:
            fewer._handlers.pop(code, None)
        return fewer

    def dispatch(self, request: Command, peer: Peer, now_ms: int) -> Response | Steps[Response]:
        """Call the handler with `now_ms`, and return its answer, or the steps that remain after the
        first one and return the answer; never raises, nor do the steps.

        Answers with code 3 (REQUEST_CODE_NOT_SUPPORTED) if the code has no handler, with code 1
        (SYSTEM_ERROR) and one line of text if the handler raises any Exception, BadHeader and
        BadBody included.
        """
        if self._guard is not None:
            refusal = self._guard(request, peer, now_ms)
            if isinstance(refusal, Generator):
                return self._guarded(refusal, request, peer, now_ms)
            if refusal is not None:
                return refusal
        return self.dispatch_trusted(request, peer, now_ms)

    def dispatch_trusted(
        self, request: Command, peer: Peer, now_ms: int
    ) -> Response | Steps[Response]:
        """Do the same without the guard, for a request that this process makes itself."""
        handler = self._handlers.get(request.code)
        if handler is None:
            return _unsupported_response(request)
        try:
            response = handler(request, peer, now_ms)
            if isinstance(response, Generator):
                next(response)
                return self._continue_steps(response, request, peer, now_ms)
            return self._review_answer(request, response, False)
        except StopIteration as done:
            return self._review_answer(request, done.value, False)
        except Exception as error:
            return self._response_to_failure(request, peer, now_ms, error)

    def _guarded(
        self, steps: Steps[Command | None], request: Command, peer: Peer, now_ms: int
    ) -> Steps[Response]:
        """Run the steps of the guard, then those of the handler, if it may run."""
        refusal = yield from steps
        if refusal is not None:
            return refusal
        response = self.dispatch_trusted(request, peer, now_ms)
        if isinstance(response, Generator):
            response = yield from response
        return response

    def _continue_steps(
        self, steps: Steps[Response], request: Command, peer: Peer, now_ms: int
    ) -> Steps[Response]:
        """Yield once, then run the handler's remaining steps; an exception becomes its answer."""
        yield
        try:
            response = yield from steps
            return self._review_answer(request, response, True)
        except Exception as error:
            return self._response_to_failure(request, peer, now_ms, error)

    def _review_answer(self, request: Command, response: Response, stepped: bool) -> Response:
        """Return the answer that `review` makes of a handler's answer; `stepped`: the handler
        ran in steps."""
        return response if self._review is None else self._review(request, response, stepped)

    def _response_to_failure(
        self, request: Command, peer: Peer, now_ms: int, error: Exception
    ) -> Command:
        """Log a handler's exception unless the request was malformed, and return the response
        SYSTEM_ERROR."""
        if isinstance(error, BadHeader | BadBody):
            pass
        elif isinstance(error, OSError):
            # A disk failed, not the program: log one line for all requests of QUIET_MS, without a
            # traceback.
            if not 0 < self._quiet_until_ms - now_ms <= QUIET_MS:
                self._quiet_until_ms = now_ms + QUIET_MS
                logger.error("request %d of %s failed: %s", request.code, peer.address, error)
        else:
            logger.error("request %d of %s failed", request.code, peer.address, exc_info=error)
        return new_response(request, ResponseCode.SYSTEM_ERROR, one_line(error))


def one_line(error: BaseException) -> str:
    """`Class: text` of an exception on one line, cut to REMARK_MAX characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:REMARK_MAX]


def _unsupported_response(request: Command) -> Command:
    # The leading space is RocketMQ's.
    text = f" request type {request.code} not supported"
    return new_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)
