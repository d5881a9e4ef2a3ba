"""What a broker was last named to be in its group, for heartbeats to say.

Owns that memory. It must never decide on a role: a controller reads it that has lost its log, and
must know which brokers may lack acknowledged messages. Called by membership.py only.
"""

from turbopump.broker.ha.control.words import Word

OUTSIDE, IN_SET, REIGNS = 0, 1, 2
"""BrokerHeartbeatRequest.standing."""


class Standing:
    """One broker's."""

    def __init__(self) -> None:
        self.value: int | None = None
        """OUTSIDE, IN_SET or REIGNS; also while that is unconfirmed. None: nothing was said."""
        self.set_epoch = 0
        """Of the newest SyncStateSet that was named."""

    def reign(self) -> None:
        """This broker is the master from now on."""
        self.value = REIGNS

    def note(self, word: Word, epoch: int, own_id: int | None) -> None:
        """What is said of the set while this broker is in `epoch`: a master knows better, until
        there is another."""
        if word.epoch > epoch or word.set_epoch >= self.set_epoch:
            self.set_epoch = word.set_epoch
        elif word.epoch == epoch:
            return
        reigned = self.value == REIGNS and word.master in (None, own_id)
        if word.members and not reigned:
            self.value = IN_SET if own_id in word.members else OUTSIDE
