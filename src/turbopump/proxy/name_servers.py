"""Queries to name servers, one after another until one responds.

Owns the order of name servers. It must never keep an answer.

Tests: tests/unit/proxy/test_cluster_map.py
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from turbopump.engine.deferred import Deferred
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command, new_request

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3_000
NEXT_MS: Final = 1_000
"""Timeout of a name server's response if there is another to query."""

Call = Callable[[str, Command, int], Deferred[Command | str]]
"""(address, request, timeout in ms) -> the response later, or a text with the reason of a
failure."""
_ANSWERS: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST})


class AskedNameServers:
    """The name servers of a proxy. Loop thread only."""

    def __init__(self, addresses: Sequence[str], call: Call) -> None:
        self._addresses = list(addresses)
        self._call = call
        self._complained = False

    def replace(self, addresses: Sequence[str]) -> None:
        """Use these addresses for later queries; a pending query continues with the earlier
        ones."""
        self._addresses = list(addresses)

    def ask(self, code: int, header: Any, done: Callable[[Command | str], None]) -> None:
        """Send a query; `done` receives the first response with success or "no such topic", or a
        text with the reason of the failure."""
        self._ask(list(self._addresses), code, header, done)

    def _ask(
        self, left: list[str], code: int, header: Any, done: Callable[[Command | str], None]
    ) -> None:
        address = left.pop(0)
        request = new_request(code, header)

        def answered(response: Command | str) -> None:
            if isinstance(response, Command):
                if response.code in _ANSWERS:
                    self._complained = False
                    done(response)
                    return
                text = f"{address} answered {response.code}: {response.remark}"
            else:
                text = response
            self._put_last(address)
            if left:
                self._ask(left, code, header, done)
                return
            if not self._complained:
                self._complained = True
                logger.warning("no name server answers: %s", text)
            done(f"no name server answers: {text}")

        self._call(address, request, NEXT_MS if left else TIMEOUT_MS).then(answered)

    def _put_last(self, address: str) -> None:
        if self._addresses[0] == address:
            self._addresses.append(self._addresses.pop(0))
