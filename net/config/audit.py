"""The audit log: one line for each change that an administrator requests.

Owns the text: operation, address, user, fields, and the state before and after. It must never
change a request or a response, nor log a credential.

Tests: tests/unit/broker/handlers/admin/test_audited.py, tests/unit/namesrv/test_audited.py
"""

import logging
from collections.abc import Callable, Generator, Mapping
from typing import Final

from turbopump.engine.deferred import Deferred
from turbopump.net.config.idle import is_secret, printable_property
from turbopump.net.config.updates import parse_update
from turbopump.net.transport.dispatcher import Dispatcher, Handler, Response
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.java_properties import PropertiesError, Property, escape_unprintable

logger = logging.getLogger(__name__)

State = Callable[[Command], str]
"""Returns the state that a request will change, or has changed, as text; called before the handler
and when the response is ready."""
FIELD_MAX: Final = 120
"""Maximum characters of a field's key, and of its value, in a line."""
FIELDS_MAX: Final = 20
"""Maximum number of fields, and of properties, in a line."""
STATE_MAX: Final = 1_000
"""Maximum characters of a state in a line: a line is bounded for any request."""
USER: Final = "AccessKey"
"""The field of a request with the user's name."""
_HIDDEN: Final = frozenset({USER, "Signature", "SecurityToken"})
_PROPERTIES: Final = frozenset(
    {
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.UPDATE_CONTROLLER_CONFIG,
    }
)
"""Requests whose body is properties.

The line has the requested values, too, because a refused change leaves the current values as they
were.
"""


def no_state(_request: Command) -> str:
    """Always empty: the State of requests whose line needs only its fields."""
    return ""


def keys_of_update(request: Command, values: Callable[[], Mapping[str, str]]) -> str:
    """The State of a request that changes a configuration: `key=value, ...` of the keys that it
    names, in its order, with the values that `values()` returns now; unknown keys are left out.
    `values` must have no credentials."""
    now = values()
    return ", ".join(
        f"{item.key}={now[item.key]}" for item in _requested_changes(request) if item.key in now
    )


def _requested_changes(request: Command) -> list[Property]:
    """Return the properties in the body of a request that changes a configuration; empty if it
    is malformed."""
    assert not isinstance(request.body, list), "a decoded body is bytes"
    try:
        return parse_update(request.body or b"")
    except PropertiesError:
        return []


def audit_handlers(table: Dispatcher, states: Mapping[RequestCode, State]) -> None:
    """Replace, in `table`, the handlers of these codes by handlers that also log a line (level
    info) when the response is ready; codes without a handler are skipped. To be called once for a
    table."""
    for code, state in states.items():
        if code in table.codes:
            table.wrap_handler(code, _with_audit(code.name, state))


def _with_audit(name: str, state: State) -> Callable[[Handler], Handler]:
    """Return the wrapper that makes a handler log a line named `name`, with the states that
    `state` returns before and after."""

    def wrapped(handler: Handler) -> Handler:
        def handle(request: Command, peer: Peer, now_ms: int) -> Response | Steps[Response]:
            line = _Line(name, request, peer.address, state)
            response = handler(request, peer, now_ms)
            if isinstance(response, Generator):
                return _in_steps(line, response)
            return line.log_response(response)

        return handle

    return wrapped


def _in_steps(line: "_Line", steps: Steps[Response]) -> Steps[Response]:
    """Run the handler's steps, then log the line."""
    response = yield from steps
    return line.log_response(response)


class _Line:
    """The audit line of a request.

    It copies the fields, because the request may have lost fields and body when its response is
    ready.
    """

    def __init__(self, name: str, request: Command, address: str, state: State) -> None:
        self._state, self._name, self._address = state, name, address
        self._asked = Command(
            request.code,
            fields=dict(request.fields) if request.fields else {},
            body=request.body,
        )
        self._before = state(self._asked)

    def log_response(self, response: Response) -> Response:
        """Log the line when the response is ready, and return the response."""
        if isinstance(response, Deferred):
            response.then(self._write)
        else:
            self._write(response)
        return response

    def _write(self, response: Command | None) -> None:
        """Log the line, with the state after the request; `response` None: the request was not
        answered."""
        user = self._asked.fields.get(USER, "")
        before, after = self._before, self._state(self._asked)
        logger.info(
            "%s by %s%s answered %s: %s%s",
            self._name,
            self._address,
            f" ({_shorten(user, FIELD_MAX)})" if user else "",
            "nothing" if response is None else response.code,
            self._field_texts(),
            f"; before: {_shorten(before, STATE_MAX)}; after: {_shorten(after, STATE_MAX)}"
            if before or after
            else "",
        )

    def _field_texts(self) -> str:
        """Return the request's fields as `key=value` texts, credentials hidden."""
        texts = [
            f"{_shorten(key, FIELD_MAX)}={'***' if is_secret(key) else _shorten(value, FIELD_MAX)}"
            for key, value in list(self._asked.fields.items())[:FIELDS_MAX]
            if key not in _HIDDEN
        ]
        if self._asked.code in _PROPERTIES:
            items = _requested_changes(self._asked)[:FIELDS_MAX]
            texts += [_shorten(printable_property(item), FIELD_MAX) for item in items]
        return " ".join(texts) or "no fields"


def _shorten(text: str, most: int) -> str:
    """Return a text for the log: printable, at most `most` characters, `...` at the end if it
    was longer."""
    cut = escape_unprintable(text[:most])[: 2 * most]
    return cut if len(text) <= most else f"{cut}..."
