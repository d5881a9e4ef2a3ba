"""Registration of a broker at its controllers: an id of its own, and a place in its group.

    no id --1012--> next id written, applied for (1013) --granted--> id written, registered (1003)
      ^                      |                                          |
      '-- id of another -----'------ controllers do not know it --------'

Owns the order of the three requests, the files written between them, and the report of this
broker's log in them. No role is taken: the registration's answer is returned. membership.py starts
again after any failure; the identity files keep the progress.

A broker whose persisted id is unknown to the controllers (cleanBrokerMetadata) registers again from
the start: RocketMQ's broker repeats the same registration for ever (observed in 5.5.0).

Tests: tests/unit/broker/ha/control/test_membership.py
"""

import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Protocol, TypeVar

from turbopump.broker.ha.control import controller_protocol
from turbopump.broker.ha.control.controller_protocol import BadResponse, BrokerGroupName, GroupState
from turbopump.broker.ha.control.controllers import Controllers
from turbopump.broker.ha.control.identity import Applied, IdentityFiles
from turbopump.engine.deferred import Deferred
from turbopump.net.wire.codes import ResponseCode

logger = logging.getLogger(__name__)

T = TypeVar("T")
Steps = Generator[Deferred[Any], Any, T]
"""A script to be driven by a RetryLoop: it yields each Deferred that it waits for, is sent its
value, and returns T."""

UNKNOWN_BROKER = frozenset(
    {
        ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
    }
)
"""Response codes of controllers that do not know the broker's id."""


class _DiskRunner(Protocol):
    """Runs writes on a disk thread (service.py)."""

    def run_on_disk_thread(self, work: Callable[[], None]) -> Deferred[OSError | None]:
        """Run `work`; resolves to None, or to the OSError that it raised."""


class ControllerRegistration:
    """The registration of a broker: scripts that a RetryLoop runs on the loop thread; files are
    written in disk threads, small files are read at once."""

    def __init__(
        self,
        controllers: Controllers,
        files: IdentityFiles,
        name: BrokerGroupName,
        wall_ms: Callable[[], int],
        disk: _DiskRunner,
        on_doubt_reported: Callable[[], None],
    ) -> None:
        """`on_doubt_reported` is called in a disk thread when the controllers know that this broker
        may lack messages, and again after the next registration if it raised OSError. `wall_ms`
        returns ms since 1970."""
        self.registered = self.reported_damage = False
        """Whether the controllers know this process's registration, and that its log is damaged."""
        self._unclean = ""
        self._doubt_reported = False
        self._controllers = controllers
        self._disk = disk
        self._on_doubt_reported = on_doubt_reported
        self._files = files
        self._name = name
        self._wall_ms = wall_ms
        self._life = wall_ms()

    def set_unclean_reason(self, unclean: str) -> None:
        """Set and log the reason why this broker's log may lack acknowledged bytes, for the
        registrations; "" if it surely has them. To be called before the scripts."""
        self._unclean = unclean
        if unclean:
            logger.error("not eligible as master until it has caught up with a master: %s", unclean)

    def obtain_broker_id(self, address: str) -> Steps[int]:
        """Return the broker's id: the saved id, or else a new id, which a controller assigns (1012,
        1013) and which is then saved. `address` is the broker's for clients. Raises BadResponse,
        IdentityError, OSError; a later call continues from the saved files."""
        files, controllers = self._files, self._controllers
        known = files.load()
        if known is not None:
            return known
        applied = files.load_applied()
        if applied is None:
            response = yield controllers.ask(controller_protocol.next_id_request(self._name))
            broker_id = controller_protocol.read_next_id(response)
            applied = Applied(broker_id, f"{address};{self._wall_ms()}")
            yield from self.write(partial(files.save_applied, applied))
        request = controller_protocol.apply_id_request(
            self._name, applied.broker_id, applied.check_code
        )
        response = yield controllers.ask(request)
        try:
            controller_protocol.check_response(response)
        except BadResponse as error:
            if error.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
                yield from self.write(files.drop_applied)  # another broker was first
            raise
        yield from self.write(partial(files.save, applied.broker_id))
        logger.info("this broker has the id %d", applied.broker_id)
        return applied.broker_id

    def register(self, broker_id: int, address: str, *, damaged: bool) -> Steps[GroupState | None]:
        """Register this process (1003), with the address for clients; return the group's state,
        None while it has no master. `damaged`: the log may not lead. Raises BadResponse, OSError;
        after a BadResponse with a code of UNKNOWN_BROKER the caller must `forget_broker_id` the
        id."""
        applied = self._files.load_applied()
        request = controller_protocol.register_request(
            self._name,
            broker_id,
            address,
            self._wall_ms(),
            unclean=bool(self._unclean),
            damaged=damaged,
            check_code=applied.check_code if applied and applied.broker_id == broker_id else None,
            life=self._life,
        )
        response = yield self._controllers.ask(request)
        group_state = controller_protocol.read_registered(response)
        self.registered, self.reported_damage = True, damaged
        if self._unclean and not self._doubt_reported:
            yield from self.write(self._on_doubt_reported)
            self._doubt_reported = True
        return group_state

    def forget_broker_id(self, broker_id: int) -> Steps[None]:
        """Remove the id's files, because controllers no longer know it: the next `obtain_broker_id`
        gets another id. Raises OSError."""
        logger.error(
            "the controllers no longer know broker %d of %s: it registers again and gets"
            " another id",
            broker_id,
            self._name.broker,
        )
        yield from self.write(self._files.remove_files)

    def write(self, work: Callable[[], None]) -> Steps[None]:
        """Run `work` in a disk thread, while the loop goes on. Raises OSError."""
        failed: OSError | None = yield self._disk.run_on_disk_thread(work)
        if failed is not None:
            raise failed
