"""Request code -> handler of a controller: DLedger's codes and the controller's on one port.

Owns the numbers by which the cores know connections, and the answers about the configuration. It
must never decide anything: the cores do. Called by node.py, and by the simulator, with a dispatcher
to fill.
"""

import copy
import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from turbopump.controller.config import ControllerConfig
from turbopump.controller.core import CODES, ControllerCore
from turbopump.controller.driver import LEDGER_CODES, Driver, bytes_of
from turbopump.engine.later import Later
from turbopump.net.transport.dispatcher import Answer, Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, response
from turbopump.net.wire.java_properties import (
    PropertiesError,
    Property,
    format_properties,
    parse_properties,
)

log = logging.getLogger(__name__)

NUMBER = "controller"
"""Under which a connection's number is kept with its peer."""

Save = Callable[[list[Property]], Later[OSError | None]]


@dataclass(slots=True)
class Controller:
    """One controller: its cores, none while it is starting.

    `now_ms` is their clock. `save` writes changed properties down, `configured` is told when they
    are in force.
    """

    config: ControllerConfig
    now_ms: Callable[[], int]
    save: Save
    configured: Callable[[], None] = lambda: None
    driver: Driver | None = None
    core: ControllerCore | None = None
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def number_of(self, peer: Peer) -> int:
        """The number of a connection; its end is told to the cores."""
        found: int | None = peer.context.get(NUMBER)
        if found is not None:
            return found
        number = peer.context[NUMBER] = next(self.numbers)
        peer.on_close(lambda: self.closed(number))
        return number

    def closed(self, number: int) -> None:
        """A connection is gone."""
        now_ms = self.now_ms()
        if self.core is not None:
            self.core.on_closed(number, now_ms)
        if self.driver is not None:
            self.driver.on_closed(number, now_ms)

    def tick(self) -> None:
        """Time has passed."""
        now_ms = self.now_ms()
        if self.driver is not None:
            self.driver.on_tick(now_ms)
        if self.core is not None:
            self.core.on_tick(now_ms)


def register(dispatcher: Dispatcher, controller: Controller) -> None:
    """Add every handler of a controller to a dispatcher."""

    def ledger(request: Command, peer: Peer, now_ms: int) -> Answer:
        if controller.driver is None:
            return _starting(request, ResponseCode.SYSTEM_ERROR)
        return controller.driver.on_request(controller.number_of(peer), request, now_ms)

    def control(request: Command, peer: Peer, now_ms: int) -> Answer:
        if controller.core is None:
            return _starting(request, ResponseCode.CONTROLLER_NOT_LEADER)
        return controller.core.on_request(controller.number_of(peer), request, now_ms)

    for code in LEDGER_CODES:
        dispatcher.add(code, ledger)
    for code in CODES:
        dispatcher.add(code, control)
    dispatcher.add(
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        lambda request, peer, now_ms: _update_config(controller, request, peer),
    )
    dispatcher.add(
        RequestCode.GET_CONTROLLER_CONFIG,
        lambda request, peer, now_ms: _get_config(controller, request),
    )


def _starting(request: Command, code: ResponseCode) -> Command:
    return response(request, code, "the controller is starting")


def _update_config(controller: Controller, request: Command, peer: Peer) -> Answer:
    """1009: checked on a copy and saved first, so that a refused change changes nothing."""
    config = controller.config
    try:
        properties = parse_properties(bytes_of(request).decode("utf-8", "replace"))
        if any(item.key in config.black_list for item in properties):
            remark = "Can not update config in black list."
            return response(request, ResponseCode.NO_PERMISSION, remark)
        changed = copy.deepcopy(config)
        for warning in changed.update(properties):
            log.warning("configuration from %s: %s", peer.address, warning)
        _ = changed.members  # who would be none of them could not start again
    except PropertiesError as error:
        return response(request, ResponseCode.SYSTEM_ERROR, str(error))
    known = [item for item in properties if config.knows(item.key)]

    def saved(error: OSError | None) -> Command:
        if error is not None:
            return response(request, ResponseCode.SYSTEM_ERROR, f"not saved: {error}")
        config.update(known)
        controller.configured()
        log.info("configuration changed by %s", peer.address)
        return response(request, ResponseCode.SUCCESS)

    return controller.save(known).map(saved)


def _get_config(controller: Controller, request: Command) -> Command:
    """1010."""
    body = format_properties(controller.config.values()).encode()
    return response(request, ResponseCode.SUCCESS, body=body)
