"""The last role of a broker in its group, reported in heartbeats.

A controller that has lost its log reads it, because it must know which brokers may lack
acknowledged messages. Roles are decided elsewhere.

    None --named--> OUTSIDE or IN_SET --note_master--> MASTER
                        ^                           |
                        '---- another master -------'
"""

from turbopump.broker.ha.control.controller_protocol import GroupState

OUTSIDE, IN_SET, MASTER = 0, 1, 2
"""Values of BrokerHeartbeatRequest.standing: a replica outside of the SyncStateSet, a replica in
it, the master."""


class LastRole:
    """The last role of a broker in its group (MASTER, IN_SET or OUTSIDE of the SyncStateSet), as
    heartbeats report it; in memory only."""

    def __init__(self) -> None:
        self.value: int | None = None
        """OUTSIDE, IN_SET or MASTER, even if unconfirmed; None: no role was named since the process
        started."""
        self.set_epoch = 0
        """Epoch of the newest SyncStateSet that controllers named; 0 before the first."""

    def note_master(self) -> None:
        """Set the role to MASTER, because this broker is now the master."""
        self.value = MASTER

    def note_group_state(self, group_state: GroupState, epoch: int, own_id: int | None) -> None:
        """Set the role to IN_SET or OUTSIDE, by whether the SyncStateSet in a controller's report
        contains `own_id`. `epoch` is of this broker's present role. An older set of that epoch is
        ignored; MASTER stays until the controller names another master, and an empty set changes
        only `set_epoch`."""
        if group_state.epoch > epoch or group_state.set_epoch >= self.set_epoch:
            self.set_epoch = group_state.set_epoch
        elif group_state.epoch == epoch:
            return
        stays_master = self.value == MASTER and group_state.master in (None, own_id)
        if group_state.members and not stays_master:
            self.value = IN_SET if own_id in group_state.members else OUTSIDE
