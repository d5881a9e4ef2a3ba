"""Proposals of a new SyncStateSet to the controller, which decides on it.

Owns the result of a proposal as in `ports.Alterations`: agreed, refused or lost. Proposals are made
in net/ha/sync_state.py.

An answer counts as a refusal only if the controller evaluated this proposal and refused it. A
controller that no longer leads may have recorded it before (R01): its answer counts as lost.

Tests: tests/unit/broker/ha/control/test_membership.py
"""

from collections.abc import Callable
from functools import partial

from turbopump.broker.ha.control import controller_protocol
from turbopump.broker.ha.control.controller_protocol import BadResponse, BrokerGroupName
from turbopump.broker.ha.control.controllers import Controllers
from turbopump.broker.ha.ports import Agreed, DecisionUnknown, ProposalOutcome, ProposalRefused
from turbopump.engine.deferred import Deferred
from turbopump.net.ha.sync_state import Proposal
from turbopump.net.wire.codes import ResponseCode
from turbopump.net.wire.command import Command

_REFUSALS = frozenset(
    {
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_INVALID_REPLICAS,
        ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    }
)
_OF_ANOTHER_SET = _REFUSALS - {
    ResponseCode.CONTROLLER_INVALID_REPLICAS,
    ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
}


class SyncSetProposals:
    """Proposes SyncStateSets to the leading controller (ALTER_SYNC_STATE_SET, 1001); the
    Alterations of broker/ha/ports.py."""

    def __init__(
        self,
        controllers: Controllers,
        name: BrokerGroupName,
        term: Callable[[], tuple[int, int]],
        wall_ms: Callable[[], int],
        on_stale: Callable[[], None],
    ) -> None:
        """`term` returns this broker's id and the epoch in which it is the master. `on_stale` is
        called after a lost proposal, or a refusal because the controller's master or set is another
        one: the group's state must be read again. `wall_ms` returns ms since 1970."""
        self._controllers = controllers
        self._name = name
        self._term = term
        self._wall_ms = wall_ms
        self._on_stale = on_stale

    def propose(self, proposal: Proposal) -> Deferred[ProposalOutcome]:
        """Send a set to the leading controller; resolves to its decision, or to DecisionUnknown,
        which is resolved at once if no leader is known."""
        own_id, epoch = self._term()
        request = controller_protocol.alter_set_request(
            self._name, own_id, epoch, proposal, self._wall_ms()
        )
        result: Deferred[ProposalOutcome] = Deferred()
        self._controllers.ask(request).then(partial(self._on_response, result))
        return result

    def _on_response(self, result: Deferred[ProposalOutcome], response: Command | str) -> None:
        """Resolve `result` with the controller's decision: agreed, refused, or lost if it is
        unknown."""
        try:
            agreed = controller_protocol.read_altered(response)
        except BadResponse as error:
            refused = error.code in _REFUSALS
            result.resolve(ProposalRefused(str(error)) if refused else DecisionUnknown(str(error)))
            if not refused or error.code in _OF_ANOTHER_SET:
                self._on_stale()
            return
        result.resolve(Agreed(agreed.members, agreed.set_epoch))
