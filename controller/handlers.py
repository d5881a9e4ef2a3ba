"""Request code -> handler of a controller: DLedger's codes and the controller's on one port.

Owns the numbers by which the cores know connections, and the answers about the configuration. It
must never decide anything: the cores do.

Tests: tests/unit/controller/test_hostile_names.py, tests/unit/controller/test_audited.py
"""

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from turbopump.controller.config import ControllerConfig
from turbopump.controller.core import ControllerCore
from turbopump.controller.driver import LEDGER_CODES, Driver, bytes_of
from turbopump.controller.pause_detector import PauseDetector
from turbopump.controller.requests import CODES
from turbopump.controller.state import NAME_MAX, REPLICAS_MAX
from turbopump.engine.deferred import Deferred
from turbopump.net.config.audit import audit_handlers, keys_of_update, no_state
from turbopump.net.config.updates import get_config, update_config
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.java_properties import Property

logger = logging.getLogger(__name__)

NUMBER = "controller"
"""Key of a connection's number in its peer's context."""

TEXTS_MAX: Final = {
    "brokerAddr": NAME_MAX,
    "brokerAddress": NAME_MAX,
    "brokerControllerIdsToClean": 20 * REPLICAS_MAX,
    "brokerName": NAME_MAX,
    "clusterName": NAME_MAX,
    "registerCheckCode": NAME_MAX,
}
"""Characters of each text of a header, at most: a queued request keeps all of them in memory."""

BODIES_MAX: Final[dict[int, int]] = {RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: bodies.LONG.size}
"""Bytes of a body, at most; other codes have bodies.SMALL_MAX, enough for a group's set."""

Save = Callable[[list[Property]], Deferred[OSError | None]]
"""Writes changed properties to the configuration file; resolved with None or the error."""


@dataclass(slots=True)
class Controller:
    """A controller and its cores, which are None during the start and after a disk failure."""

    config: ControllerConfig
    now_ms: Callable[[], int]
    """The cores' monotonic clock."""
    save: Save
    driver: Driver | None = None
    core: ControllerCore | None = None
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """Numbers for new connections."""
    pauses: PauseDetector = field(default_factory=PauseDetector)

    def number_of(self, peer: Peer) -> int:
        """Return the number by which the cores know this connection.

        The first call assigns the number, and has the connection's close reported to the cores.
        """
        found: int | None = peer.context.get(NUMBER)
        if found is not None:
            return found
        number = peer.context[NUMBER] = next(self.numbers)
        peer.on_close(lambda: self.on_closed(number))
        return number

    def on_closed(self, number: int) -> None:
        """Report the close of the connection with this number to the cores."""
        now_ms = self.now_ms()
        if self.core is not None:
            self.core.on_closed(number, now_ms)
        if self.driver is not None:
            self.driver.on_closed(number, now_ms)

    def tick(self) -> None:
        """Advance the time of the cores; hand the leadership over if this process was suspended too
        often (pause_detector.py)."""
        now_ms = self.now_ms()
        if self.driver is not None:
            self.driver.on_tick(now_ms)
        if self.core is not None:
            self.core.on_tick(now_ms)
        self.pauses.on_tick(now_ms)
        if self.pauses.is_unfit(now_ms):
            self._transfer_leadership(now_ms)

    def _transfer_leadership(self, now_ms: int) -> None:
        """Hand the leadership over, but not during a broker's silence.

        A new leader would measure the silence again.
        """
        if self.core is None or self.driver is None:
            return
        if not self.core.heartbeats.all_have_recent_heartbeat(now_ms):
            return
        taker = self.driver.transfer_leadership(now_ms)
        if taker is not None:
            self.pauses.note_transfer(now_ms)
            logger.warning(
                "this controller was suspended for %d ms of the last ten seconds: %s is"
                " asked to lead",
                self.pauses.stood_ms,
                taker,
            )


def register(dispatcher: Dispatcher, controller: Controller) -> None:
    """Add every handler of a controller to a dispatcher, and the audit of administrators' requests.

    Requests are refused while the cores are None.
    """

    def handle_dledger(request: Command, peer: Peer, now_ms: int) -> Response | Steps[Response]:
        if controller.driver is None:
            return _refuse_starting(request, ResponseCode.SYSTEM_ERROR)
        return controller.driver.on_request(controller.number_of(peer), request, now_ms)

    def handle_control(request: Command, peer: Peer, now_ms: int) -> Response | Steps[Response]:
        if controller.core is None:
            return _refuse_starting(request, ResponseCode.CONTROLLER_NOT_LEADER)
        wrong = _too_long(request)
        if wrong is not None:
            return new_response(request, ResponseCode.CONTROLLER_INVALID_REQUEST, wrong)
        return controller.core.on_request(controller.number_of(peer), request, now_ms)

    for code in LEDGER_CODES:
        dispatcher.add(code, handle_dledger)
    for code in CODES:
        dispatcher.add(code, handle_control)
    dispatcher.add(
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        lambda request, peer, now_ms: update_config(
            controller.config, request, peer.address, controller.save
        ),
    )
    dispatcher.add(
        RequestCode.GET_CONTROLLER_CONFIG,
        lambda request, peer, now_ms: get_config(controller.config, request),
    )
    audit_handlers(
        dispatcher,
        {
            RequestCode.UPDATE_CONTROLLER_CONFIG: partial(
                keys_of_update, values=controller.config.values_as_text
            ),
            RequestCode.CONTROLLER_ELECT_MASTER: no_state,
            RequestCode.CLEAN_BROKER_DATA: no_state,
        },
    )


def _too_long(request: Command) -> str | None:
    """Return the reason for refusing a request with a field or body longer than any broker sends;
    None if none is."""
    for name, most in TEXTS_MAX.items():
        length = len(request.fields.get(name, ""))
        if length > most:
            return f"{name} has {length} characters, the limit is {most}"
    size, most = len(bytes_of(request)), BODIES_MAX.get(request.code, bodies.SMALL_MAX)
    return f"a body of {size} bytes exceeds {most}" if size > most else None


def _refuse_starting(request: Command, code: ResponseCode) -> Command:
    return new_response(request, code, "the controller is starting")
