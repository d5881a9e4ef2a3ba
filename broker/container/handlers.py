"""Handlers of a container's own port (RocketMQ: BrokerContainerProcessor).

Owns ADD_BROKER (902), REMOVE_BROKER (903), and UPDATE_BROKER_CONFIG (25) and GET_BROKER_CONFIG (26)
of the container's own configuration; all other codes are answered as unknown. It must never know
how a broker starts.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from turbopump.broker.container.config import PATH_MAX, ContainerConfig
from turbopump.engine.deferred import Deferred
from turbopump.net.config.audit import audit_handlers, keys_of_update, no_state
from turbopump.net.config.updates import update_config
from turbopump.net.transport.dispatcher import REMARK_MAX, Dispatcher, Response
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header, read_header_if_any
from turbopump.net.wire.headers.admin import (
    AddBrokerRequest,
    GetBrokerConfigResponse,
    RemoveBrokerRequest,
)
from turbopump.net.wire.java_properties import Property, escape_unprintable, format_properties
from turbopump.net.wire.names import check_lengths
from turbopump.net.wire.topics import DataVersion

logger = logging.getLogger(__name__)

UNDER_WAY_MAX: Final = 16
"""Maximum requests in progress that add or remove a broker; one more is answered SYSTEM_BUSY."""


class BrokerOutcome(NamedTuple):
    """Result of adding or removing a broker: the code and remark of the answer to the request."""

    code: ResponseCode = ResponseCode.SUCCESS
    """Code of the response."""
    remark: str | None = None
    """The reason of a failure, one line; None after a success."""


@dataclass(slots=True)
class ContainerRequests:
    """Handlers of the container's requests. Loop thread only."""

    config: ContainerConfig
    """The container's configuration, which request 25 changes."""
    add: Callable[[str], Deferred[BrokerOutcome]]
    """Starts the broker whose configuration file has this path."""
    remove: Callable[[str, str, int], Deferred[BrokerOutcome]]
    """Stops the broker with this cluster, name and id."""
    save: Callable[[list[Property]], Deferred[OSError | None]]
    """Writes changed properties into the container's file; resolves to None or the error."""
    version: DataVersion
    """Version of the configuration; replaced after each saved change."""
    under_way: int = 0
    """Number of brokers that requests are adding or removing now."""

    def register(self, table: Dispatcher) -> None:
        """Add the handlers of 902, 903, 25 and 26, and the audit of changes, to `table`."""
        table.add(RequestCode.ADD_BROKER, self._add)
        table.add(RequestCode.REMOVE_BROKER, self._remove)
        table.add(RequestCode.UPDATE_BROKER_CONFIG, self._update_config)
        table.add(RequestCode.GET_BROKER_CONFIG, self._get)
        audit_handlers(
            table,
            {
                RequestCode.ADD_BROKER: no_state,
                RequestCode.REMOVE_BROKER: no_state,
                RequestCode.UPDATE_BROKER_CONFIG: partial(
                    keys_of_update, values=self.config.values_as_text
                ),
            },
        )

    def _add(self, request: Command, peer: Peer, _now_ms: int) -> Response:
        """Handle 902; answered once the broker serves, or with the reason why it does not."""
        header = read_header_if_any(AddBrokerRequest, request.fields)
        path = header.config_path if header is not None else None
        if not path:
            remark = "addBroker config path is empty"
            return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
        if len(path) > PATH_MAX or not path.isprintable():
            remark = f"addBroker properties empty: a path has at most {PATH_MAX} characters of text"
            return new_response(request, ResponseCode.SYSTEM_ERROR, remark)
        return self._begin_and_answer(request, lambda: self.add(path))

    def _remove(self, request: Command, peer: Peer, _now_ms: int) -> Response:
        """Handle 903; answered once the broker has stopped."""
        header = read_header(RemoveBrokerRequest, request.fields)
        cluster, name = header.broker_cluster_name, header.broker_name
        wrong = check_lengths(brokerClusterName=cluster, brokerName=name)
        if wrong is not None:
            return new_response(request, ResponseCode.SYSTEM_ERROR, wrong)
        return self._begin_and_answer(request, lambda: self.remove(cluster, name, header.broker_id))

    def _begin_and_answer(
        self, request: Command, begin: Callable[[], Deferred[BrokerOutcome]]
    ) -> Response:
        """Begin to add or remove a broker, and answer once that has ended; SYSTEM_BUSY at once if
        UNDER_WAY_MAX such requests are in progress."""
        if self.under_way >= UNDER_WAY_MAX:
            remark = f"{UNDER_WAY_MAX} brokers are being added and removed already"
            return new_response(request, ResponseCode.SYSTEM_BUSY, remark)
        self.under_way += 1

        def answered(outcome: BrokerOutcome) -> Command:
            self.under_way -= 1
            remark = (
                None if outcome.remark is None else escape_unprintable(outcome.remark)[:REMARK_MAX]
            )
            return new_response(request, outcome.code, remark)

        return begin().map(answered)

    def _update_config(self, request: Command, peer: Peer, now_ms: int) -> Response:
        """Handle 25: either all live keys take effect at once and are saved, or none."""

        def saved(error: OSError | None) -> OSError | None:
            if error is None:
                self.version = self.version.next_version(now_ms)
            return error

        def save(changed: list[Property]) -> Deferred[OSError | None]:
            return self.save(changed).map(saved)

        return update_config(self.config, request, peer.address, save)

    def _get(self, request: Command, _peer: Peer, _now_ms: int) -> Command:
        """Answer 26 with `key=value` lines; the version of the configuration is in the header."""
        header = GetBrokerConfigResponse(bodies.encode_json(self.version.to_json()).decode())
        body = format_properties(self.config.values_as_text()).encode()
        return new_response(request, ResponseCode.SUCCESS, header=header, body=body)
