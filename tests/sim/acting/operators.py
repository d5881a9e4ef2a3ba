"""An operator in a group whose replicas act: deletes a topic, or its group with the offsets, at all
masters, creates both again, and lowers and raises the queues of the topic.

Owns the times and the order of its acts. Clients wait meanwhile, so that each request belongs to
one life. It must never decide the expected results: the model and the clients do.
"""

from typing import TYPE_CHECKING, Final

from tests.sim.broker.remakes import LastDeletion, Remake, Remakes, queues_request
from tests.sim.group.machines import CALL_TIMEOUT_MS, Process
from turbopump.net.wire.bodies import encode_json
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.groups import SubscriptionGroupConfig

if TYPE_CHECKING:
    from tests.sim.acting.suite import Run

SALT: Final = 0x0AC7
BEGINS_MS: Final = 10_000
PAUSE_MS: Final = 6_000
"""Maximum pause between two acts."""
QUEUES: Final = 2


def operator_of(run: "Run") -> "Operator":
    """Play a seed; return its operator."""
    run.play()
    assert run.operator is not None, "an early seed has none"
    return run.operator


class Operator(Process):
    """See the module. One act at a time."""

    def __init__(self, group: "Run", name: str, topic: str, consumers: str) -> None:
        super().__init__(group, name)
        self.remakes = Remakes(group.seed, SALT, topic, consumers, QUEUES, 1.0)
        self.deletion = LastDeletion(topic, consumers)
        self.asked = 0
        """Number of requested deletions."""
        self.acts: Final[dict[Remake, int]] = dict.fromkeys(Remake, 0)
        """Number of times that each act was done."""
        self.unaware_acts = 0
        """Steps in which a replica acted that had not copied the last deletion."""
        self.is_patient: Final = self.remakes.rng.random() < 0.4
        """Whether no trouble comes before all brokers have copied a deletion."""
        self.wants = False
        """Whether clients wait: it acts, or is about to."""
        self.rests = False
        """Whether it deletes nothing for the rest of the run."""
        self._may_have_less = False
        """Whether the topic may have fewer queues than messages lie in."""
        self._next_ms = BEGINS_MS
        self._busy = False
        self._left: list[tuple[str, Command]] = []
        """Pending requests with their addresses."""
        self._act: Remake | None = None

    @property
    def is_sure(self) -> bool:
        """Whether no deletion may be on its way. A master that is back knows its own deletions."""
        return self.deletion.is_sure

    @property
    def holds_trouble(self) -> bool:
        """Whether trouble has to wait: a deletion without an answer ends the judging."""
        return self._busy or (self.is_patient and bool(self.deletion.unaware))

    def look(self) -> None:
        """Count acting replicas without the last deletion, after each step of the group."""
        brokers = [one for one in self.group.brokers if one.up]
        acting = [one for one in brokers if one.context.role.is_acting]
        self.unaware_acts += self.deletion.look(acting)

    def on_tick(self, now_ms: int) -> None:
        if self._busy:
            return
        is_due = now_ms >= self._next_ms and (self._may_have_less or not self.rests)
        self.wants = is_due and self.group.is_served()
        if self.wants and not self.group.are_busy():
            self._begin()

    def _begin(self) -> None:
        remakes, group = self.remakes, self.group
        self._busy, masters = True, [one.endpoint.address for one in group.masters()]
        self._act = act = Remake.QUEUES if self.rests else remakes.draw()
        request = remakes.whole() if self.rests else remakes.request(act)
        self._left = [(address, request) for address in masters]
        if act is Remake.QUEUES:
            self._may_have_less = True
        else:
            self.asked += 1
            group.leaves(is_gone=act is Remake.TOPIC)
        if act is Remake.GROUP:
            body = encode_json(SubscriptionGroupConfig(remakes.group).to_json())
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            self._left += [(address, new_request(code, None, body)) for address in masters]
        if act is Remake.TOPIC:
            # A master that does not have the topic takes nothing of it from elsewhere. That of the
            # group mostly makes it with the next send.
            first = 0 if remakes.rng.random() < 0.3 else 1
            queues = 1 if remakes.has_less else QUEUES
            made = queues_request(remakes.topic, queues)
            self._left += [(address, made) for address in masters[first:]]
        self._go_on()

    def _go_on(self) -> None:
        if not self._left:
            self._ended(is_done=True)
            return
        address, request = self._left.pop(0)
        later = self.endpoint.call(address, request, CALL_TIMEOUT_MS)
        later.then(self._told)

    def _told(self, response: Command | str) -> None:
        if isinstance(response, Command) and response.code == ResponseCode.SUCCESS:
            self._go_on()
        else:
            self._ended(is_done=False)

    def _ended(self, *, is_done: bool) -> None:
        act = self._act
        assert act is not None, "it has begun"
        self.acts[act] += is_done
        if act is Remake.QUEUES:
            self._may_have_less = not is_done or self.remakes.has_less
        else:
            self.deletion.answered(self.group.brokers, is_done=is_done)
            if not self.is_sure:
                self.group.is_unsure()
        self._busy = self.wants = False
        pause_ms = 100 if self.rests else int(self.remakes.rng.random() * PAUSE_MS)
        self._next_ms = self.clock.now_ms + pause_ms
