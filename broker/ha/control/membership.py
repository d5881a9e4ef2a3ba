"""A broker's part in a group whose masters are elected (RocketMQ: ReplicasManager).

Owns what its controllers say to the broker and when it acts on that: it has no role before they
name one, takes another only of a greater epoch, and serves as the master only while its lease
holds. It must never elect, nor touch a socket, a file of the store or a clock. Made, ticked
and stopped by replicating.py; given 1008 by its handler; times are of the monotonic clock.

    find who leads (controllers.py) -> id, registration (enrolment.py) -> a heartbeat, so that we
    count as alive -> the role that is named, or an election -> then, until the end:
    heartbeats, looks (1004), notices (1008), proposals of sets (alterations.py)

Whatever fails begins anew after a while, from what was reached: the id is in a file. Differences to
RocketMQ, which all keep the wire:

* The role is dropped when there is no master any more, not kept until there is another.
* A broker whose store takes no messages says so with its heartbeats (`unfit`), at once: another is
  elected, and none such while there is another (controller/elections.py).
* A reign needs an epoch that is greater than the log's last one. Who is named master of one that it
  had before (it was restarted before the controllers noticed, or they forgot the group), or whose
  log cannot be led, declines (`_decline`): its heartbeats say that it cannot lead until the
  controllers have a later epoch. RocketMQ writes two reigns into one epoch.
* RocketMQ's controllers pass over those words. Behind them who declines, or is master with a store
  that failed, sends no heartbeats for a while (`_resign`), so that it counts as dead.
* Without a lease nothing is acknowledged (heartbeats.py).
* An id the controllers do not know is given up (enrolment.py).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from turbopump.broker.ha.control import words
from turbopump.broker.ha.control.alterations import ControllerAlterations
from turbopump.broker.ha.control.controllers import ControllerCall, Controllers
from turbopump.broker.ha.control.enrolment import UNKNOWN_BROKER, Enrolment, Steps
from turbopump.broker.ha.control.finder import Finder
from turbopump.broker.ha.control.heartbeats import ControllerHeartbeats
from turbopump.broker.ha.control.identity import IdentityError, IdentityFiles
from turbopump.broker.ha.control.last_life import LastLife
from turbopump.broker.ha.control.words import BadAnswer, Name, Word
from turbopump.broker.ha.leader import Leader
from turbopump.broker.ha.service import HaService
from turbopump.broker.replication import Stage
from turbopump.engine.disk.files import Files
from turbopump.engine.log.epochs import Epochs
from turbopump.engine.types import LONG_AGO_MS, Fitness, LogOffset, StoreError
from turbopump.net.ha.replica import State
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.controller import BrokerHeartbeatResponse
from turbopump.net.wire.headers.routes import BrokerHeartbeatRequest

logger = logging.getLogger(__name__)

AGAIN_MS = 500
"""From a registration or an election that failed to the next (RocketMQ: 5 s). A few requests a
second of a few brokers; clients wait meanwhile."""
RESIGNED_PART, RESIGNED_MORE_MS = 1.2, 1_000
"""Of controllerHeartBeatTimeoutMills, and the interval at which a controller looks for the silent:
so long without heartbeats another is surely elected."""
DECLINED_MS, DECLINED_MAX_MS = 2_000, 30_000
"""Who declined tries no reign for so long, twice as long each time that it did not help."""
NO_PRIORITY = 2**31 - 1
"""brokerElectionPriority: the least."""
OUTSIDE, IN_SET, REIGNS = 0, 1, 2
"""BrokerHeartbeatRequest.standing."""
NO_ROLE = -1
CHANGE_MAX_MS = 30_000
"""A reign whose epoch a disk has not written down by then is given up: another broker has one that
does. Five syncs of a disk that takes 5 s for each, which is slow and no more."""


class _Log(Protocol):
    """What heartbeats and registrations tell of the log."""

    @property
    def end(self) -> LogOffset: ...
    @property
    def confirm(self) -> LogOffset: ...
    @property
    def epochs(self) -> Epochs: ...
    @property
    def may_lead(self) -> bool: ...
    @property
    def fitness(self) -> Fitness: ...
    @property
    def why_unfit(self) -> str: ...


@dataclass(slots=True, frozen=True)
class MembershipOptions:
    """Names are RocketMQ's keys."""

    name: Name
    controllers: Sequence[str]
    identity_path: str
    controller_heart_beat_timeout_ms: int = 9_000
    broker_heartbeat_interval_ms: int = 1_000
    sync_broker_metadata_period_ms: int = 5_000
    sync_controller_metadata_period_ms: int = 10_000
    election_priority: int = NO_PRIORITY
    last_life: LastLife = field(default_factory=LastLife)


class Membership:
    """See the module. Loop thread only."""

    def __init__(
        self,
        options: MembershipOptions,
        service: HaService,
        log: _Log,
        files: Files,
        call: ControllerCall,
        wall_ms: Callable[[], int],
        steady_ms: Callable[[], int],
    ) -> None:
        """`service` gets its roles here; its alterations are to be `alterations`."""
        self.options = options
        self.stage = Stage.JOINING
        self.own_id: int | None = None
        """What the controllers know this broker by; None until they gave it."""
        self.epoch = NO_ROLE
        """Of the role in force, or of the last one."""
        self.on_lapse: Callable[[], None] = lambda: None
        """Called when a master's lease is over."""
        self.on_renewed: Callable[[], None] = lambda: None
        """Called when it has one again."""
        self.on_doubt_told: Callable[[], None] = lambda: None
        """Called by a disk's thread when the controllers know that this broker may lack something;
        raises OSError, and is called again then."""
        self._service, self._log = service, log
        self._wall_ms, self._steady_ms = wall_ms, steady_ms
        self._address = self._ha_address = ""
        self._stopped = True
        self._script: Steps[None] | None = None
        self._due_ms = LONG_AGO_MS
        self._again = self._retires = False
        self._resigned_until_ms = LONG_AGO_MS
        self._declined_epoch: int | None = None
        self._declined_ms = LONG_AGO_MS
        self._decline_ms = DECLINED_MS
        self._told_fitness = Fitness.FIT
        self._beat_again_ms = LONG_AGO_MS
        self._lapsed = True
        self._unclean = ""
        self._registered = self._doubt_told = False
        self._told_damaged = False
        self._asked_reason = "not registered yet"
        self._role_reason = ""
        self._standing: int | None = None
        """What this broker was last named to be; also while that is unconfirmed."""
        self._set_epoch = 0
        self._unknown = False
        """Whether a controller said that it does not know this broker."""
        self._coming: Word | None = None
        """The newest word on the reign that is being written down."""
        self._coming_since_ms = LONG_AGO_MS
        self.controllers = Controllers(
            options.controllers, call, steady_ms, options.sync_controller_metadata_period_ms
        )
        self.controllers.on_leader = self._other_leader
        self.heartbeats = ControllerHeartbeats(
            self.controllers, call, self._heartbeat, steady_ms,
            interval_ms=options.broker_heartbeat_interval_ms,
            timeout_ms=options.controller_heart_beat_timeout_ms,
        )  # fmt: skip
        self.heartbeats.on_answer = self._answered
        self.alterations = ControllerAlterations(
            self.controllers, options.name, lambda: (self.own_id or 0, self.epoch), wall_ms
        )
        self.alterations.on_stale = self.look_soon
        self.finder = Finder(call, self._found, steady_ms)
        name, path = options.name, options.identity_path
        self._identity = identity = IdentityFiles(files, path, name.cluster, name.broker)
        self._enrolment = Enrolment(self.controllers, identity, name, wall_ms, service)

    # Life

    def start(self, address: str, ha_address: str) -> None:
        """Join, under the address at which clients find this broker, and replicas. Raises
        IdentityError, OSError: the files are another broker's, or not to be read."""
        self._identity.load()
        self._identity.load_applied()
        self._address, self._ha_address = address, ha_address
        self._unclean = self.options.last_life.lost(self._log.end)
        if self._unclean:
            logger.error("no candidate until it has caught up once: %s", self._unclean)
        self._stopped = False
        self.tick()

    def stop(self) -> None:
        """No controller is asked any more, and no answer counts."""
        self._stopped, self._coming = True, None
        script, self._script = self._script, None
        if script is not None:
            script.close()

    def tick(self) -> None:
        """Every 100 ms."""
        if self._stopped:
            return
        self.controllers.tick()
        now_ms = self._steady_ms()
        self._watch_fitness(now_ms)
        if self._service.is_master and not self.holds() and now_ms >= self._beat_again_ms:
            self._beat()
        elif self._may_be_elected:
            self.heartbeats.tick()
        self._watch_lease()
        if self._coming is not None and now_ms - self._coming_since_ms > CHANGE_MAX_MS:
            self._decline("the disk does not write down its epoch")
        self.finder.tick(self._follows)
        if self._script is None and now_ms >= self._due_ms and self.controllers.leader:
            if self.stage is Stage.JOINING:
                self._run(self._join())
            else:
                self._run(self._look())

    # What is said

    @property
    def reason(self) -> str:
        """Why there is no role, or the last one could not be taken; "" if all is well."""
        return self._role_reason or self._asked_reason

    def holds(self) -> bool:
        """Whether a master may acknowledge."""
        return self.heartbeats.holds

    @property
    def ha_address(self) -> str:
        """Where replicas find this broker while it is the master."""
        return self._ha_address

    @property
    def fitness(self) -> Fitness:
        """What the controllers learn of this broker."""
        if self._declined_epoch is not None:
            return Fitness.FAILED
        fitness = self._log.fitness
        return Fitness.STOPPING if self._retires and fitness is Fitness.FIT else fitness

    @property
    def has_heir(self) -> bool:
        """Whether this broker serves as the master while another member may take its place."""
        reign = self._service.reign
        serves = isinstance(reign, Leader) and self.holds() and self.fitness is not Fitness.FAILED
        others = isinstance(reign, Leader) and len(reign.sync.members) > 1
        return serves and others and not self.heartbeats.leader_is_java

    def retire(self) -> None:
        """Have another member lead: this broker serves until there is one, and follows none then.
        """
        self._retires = True
        self.tick()

    def on_notice(self, word: Word) -> None:
        """1008. Before this life was registered it may be meant for the one before."""
        if not self._stopped and self.stage is Stage.MEMBER and word.master is not None:
            self._take(word)

    def look_soon(self) -> None:
        """Things may not be as they were thought to be."""
        self._due_ms = min(self._due_ms, self._steady_ms())
        self._again = self._script is not None

    def _other_leader(self) -> None:
        self.look_soon()
        self.heartbeats.hasten()
        self.tick()

    def _answered(self, seen: BrokerHeartbeatResponse) -> None:
        self._watch_lease()
        if self._service.is_master and not self.holds() and self._may_be_elected:
            self.heartbeats.tick()  # the one before was of before its reign
        if seen.unknown and self.stage is Stage.MEMBER and not self._unknown:
            self._unknown = True
            self.look_soon()
        self._glimpse(seen)

    def _glimpse(self, seen: BrokerHeartbeatResponse) -> None:
        """What a heartbeat's answer says of the group: a notice may have been lost."""
        if self.stage is not Stage.MEMBER or seen.master_epoch is None:
            return
        is_other_set = (seen.sync_state_set_epoch or 0) > self._known_set_epoch
        if seen.master_epoch > self.epoch or (seen.master_epoch == self.epoch and is_other_set):
            self.look_soon()

    @property
    def _known_set_epoch(self) -> int:
        reign = self._service.reign
        return reign.sync.set_epoch if isinstance(reign, Leader) else self._set_epoch

    # The lease

    def _watch_lease(self) -> None:
        lapsed = not self.holds()
        if lapsed == self._lapsed:
            return
        self._lapsed = lapsed
        if lapsed:
            if self._service.is_master:
                logger.error("no controller renews the lease: nothing is acknowledged")
            self._service.lapse()
            self.on_lapse()
        else:
            if self._service.is_master:
                logger.info("epoch %d: the lease holds", self.epoch)
            self._service.renew()
            self.on_renewed()

    def _beat(self) -> None:
        """A master without a lease: heartbeats now, and again before they are due."""
        self._beat_again_ms = self._steady_ms() + AGAIN_MS
        self.heartbeats.hasten()
        if self._may_be_elected:
            self.heartbeats.tick()

    def _heartbeat(self) -> Command:
        options, log = self.options, self._log
        header = BrokerHeartbeatRequest(
            options.name.cluster,
            self._address,
            options.name.broker,
            self.own_id,
            log.epochs.last_epoch,
            log.end,
            log.confirm,
            options.controller_heart_beat_timeout_ms,
            options.election_priority,
            leased=True,
            unfit=self.fitness.value or None,
            standing=self._standing,
            sync_state_set_epoch=self._known_set_epoch,
        )
        return new_request(RequestCode.BROKER_HEARTBEAT, header)

    # What is asked

    def _run(self, script: Steps[None]) -> None:
        self._script, self._again = script, False
        self._go_on(script, None)

    def _go_on(self, script: Steps[None], value: object) -> None:
        while self._script is script:
            reason = ""
            try:
                later = script.send(value)
            except StopIteration:
                wait_ms = self.options.sync_broker_metadata_period_ms
            except (BadAnswer, IdentityError, OSError, StoreError) as error:
                reason, wait_ms = str(error), AGAIN_MS
            else:
                if not later.done:
                    later.then(lambda told: self._go_on(script, told))
                    return
                value = later.value
                continue
            self._script = None
            self._due_ms = self._steady_ms() + (0 if self._again and not reason else wait_ms)
            if reason and reason != self._asked_reason:
                logger.warning("%s: %s", self.stage.value.lower(), reason)
            self._asked_reason = reason

    def _join(self) -> Steps[None]:
        """From nothing to a role."""
        broker_id = yield from self._enrolment.identify(self._address)
        if broker_id != self.own_id:
            self._service.identify(broker_id)
            self.own_id = broker_id
        word = yield from self._register(broker_id)
        alive = yield self.heartbeats.beat()
        if not alive:
            raise BadAnswer("the leading controller takes no heartbeat")
        if word is None:
            word = yield from self._elect(broker_id)
        self.stage = Stage.MEMBER
        self._take(word)

    def _register(self, broker_id: int) -> Steps[Word | None]:
        damaged = not self._log.may_lead
        try:
            word = yield from self._enrolment.register(
                broker_id, self._address, unclean=bool(self._unclean), damaged=damaged
            )
        except BadAnswer as error:
            if error.code in UNKNOWN_BROKER:
                self._forgotten()
                yield from self._enrolment.forget(broker_id)
            raise
        self._registered, self._told_damaged = True, damaged
        if self._unclean and not self._doubt_told:
            yield from self._enrolment.write(self.on_doubt_told)
            self._doubt_told = True
        return word

    def _elect(self, broker_id: int) -> Steps[Word]:
        request = words.elect(self.options.name, broker_id, self._wall_ms())
        answer: Command | str = yield self.controllers.ask(request)
        try:
            return words.read_elected(answer)
        except BadAnswer as error:
            self._unknown = error.code in UNKNOWN_BROKER
            raise

    def _look(self) -> Steps[None]:
        """1004: who is master now."""
        assert self.own_id is not None, "a member has an id"
        if self._unknown:
            self._unknown = False
            yield from self._register(self.own_id)
        if not self._log.may_lead and not self._told_damaged:
            yield from self._register(self.own_id)
            if self._service.is_master:
                self._decline("its log is damaged")
        answer = yield self.controllers.ask(words.replica_info(self.options.name))
        try:
            word = words.read_replica_info(answer)
        except BadAnswer as error:
            if error.code not in UNKNOWN_BROKER:
                raise
            found = yield from self._register(self.own_id)
            word = found or Word(self.epoch)
        if word.master is None:
            self._nobody_reigns(word)
            if self._is_silent or self.fitness is Fitness.FAILED:
                return
            alive: bool = yield self.heartbeats.beat()
            if not alive:
                raise BadAnswer("the leading controller takes no heartbeat")
            word = yield from self._elect(self.own_id)
        self._take(word)

    # Roles

    @property
    def _follows(self) -> bool:
        follower = self._service.follower
        return follower is not None and follower.machine.state is State.TRANSFER

    @property
    def _may_be_elected(self) -> bool:
        """Whether it sends heartbeats, whose log may then be taken for whole: not before the
        controllers have agreed on what became of it (unclean, damaged). Any of them may begin to
        lead between a heartbeat and the registration."""
        is_told = self._registered and (self._told_damaged or self._log.may_lead)
        return is_told and not self._is_silent

    @property
    def _is_away(self) -> bool:
        """Whether the controllers are to find another master than this broker."""
        return self._is_silent or self._declined_epoch is not None

    @property
    def _is_silent(self) -> bool:
        """Whether it sends no heartbeats, to count as dead."""
        return self._steady_ms() < self._resigned_until_ms

    def _forgotten(self) -> None:
        """The controllers do not know us: from the start, under another id."""
        self.stage, self.epoch, self.own_id = Stage.JOINING, NO_ROLE, None
        self._registered, self._coming, self._unknown = False, None, False
        self.finder.look_for("")
        self._service.leave()

    def _nobody_reigns(self, word: Word) -> None:
        if word.epoch > self.epoch:
            self.epoch = word.epoch
            self._follow("")

    def _take(self, word: Word) -> None:
        """A role only of a greater epoch: late and repeated words do nothing (K7)."""
        reign = self._service.reign
        if word.epoch >= self.epoch:
            self._note_standing(word)
        if word.epoch > self.epoch:
            self.epoch = word.epoch
            if word.master == self.own_id:
                self._lead(word)
            else:
                self._follow(word.address)
        elif word.epoch < self.epoch:
            return
        elif self._coming is not None:
            if word.master == self.own_id and word.set_epoch > self._coming.set_epoch:
                self._coming = word
        elif isinstance(reign, Leader) and word.master == self.own_id:
            reign.on_set(word.members, word.set_epoch, self._steady_ms())
        elif reign is None and word.master != self.own_id and word.address != self.finder.address:
            self._follow(word.address)  # the same master, at another address (R30)
        elif reign is None and word.master == self.own_id and not self._is_away:
            # No controller led while it was silent, or none missed it: no other was elected.
            self._decline(self._role_reason or "the reign is over")

    def _note_standing(self, word: Word) -> None:
        """What is said of the set: a master knows better, until there is another."""
        if word.epoch > self.epoch or word.set_epoch >= self._set_epoch:
            self._set_epoch = word.set_epoch
        elif word.epoch == self.epoch:
            return
        reigned = self._standing == REIGNS and word.master in (None, self.own_id)
        if word.members and not reigned:
            self._standing = IN_SET if self.own_id in word.members else OUTSIDE

    def _lead(self, word: Word) -> None:
        self.finder.look_for("")
        self.heartbeats.begin()
        self._lapsed = True
        self._service.lapse()
        self.on_lapse()
        self._coming, self._coming_since_ms = word, self._steady_ms()
        try:
            later = self._service.to_master(word.epoch, word.members, word.set_epoch)
        except (StoreError, OSError) as error:
            self._decline(str(error))
            return
        later.then(lambda error: self._led(word.epoch, error))

    def _led(self, epoch: int, error: StoreError | OSError | None) -> None:
        """The reign has begun, or cannot; heartbeats went on meanwhile."""
        coming = self._coming
        if coming is None or coming.epoch != epoch:
            return
        self._coming = None
        if error is not None:
            self._decline(str(error))
            return
        self._role_reason, self._standing = "", REIGNS
        self._decline_ms = DECLINED_MS
        reign = self._service.reign
        if isinstance(reign, Leader) and coming.set_epoch > reign.sync.set_epoch:
            self._take(coming)
        self._beat()

    def _watch_fitness(self, now_ms: int) -> None:
        """The controllers hear at once of what has changed."""
        declined = self._declined_epoch
        if declined is not None and self.epoch > declined and now_ms >= self._declined_ms:
            self._declined_epoch = None
        fitness, told = self.fitness, self._told_fitness
        self._told_fitness = fitness
        if fitness is not told:
            why = self._log.why_unfit or self._role_reason or "this broker is about to stop"
            logger.warning("reported to the controllers: %s", why if fitness.value else "fit again")
            self.heartbeats.hasten()
            if self.stage is Stage.MEMBER:
                self.look_soon()  # of damage they hear by a registration, before any heartbeat
        failed = fitness is Fitness.FAILED and self._service.is_master
        if failed and self.heartbeats.leader_is_java and not self._is_silent:
            self._decline(self._log.why_unfit)

    def _decline(self, reason: str) -> None:
        """Lead nothing in this epoch, and say so: another is elected, or this broker of a later
        one."""
        logger.error("epoch %d is not led: %s", self.epoch, reason)
        if self.heartbeats.leader_is_java:
            self._resign()
        else:
            self._declined_epoch = self.epoch
            self._declined_ms = self._steady_ms() + self._decline_ms
            self._decline_ms = min(2 * self._decline_ms, DECLINED_MAX_MS)
        self._follow("")
        self._role_reason = reason
        self.heartbeats.hasten()
        if self._may_be_elected:
            self.heartbeats.tick()

    def _resign(self) -> None:
        """Count as dead."""
        part_ms = self.options.controller_heart_beat_timeout_ms * RESIGNED_PART
        self._resigned_until_ms = self._steady_ms() + int(part_ms) + RESIGNED_MORE_MS
        self.heartbeats.lease_until_ms = LONG_AGO_MS

    def _follow(self, address: str) -> None:
        self._role_reason, self._coming = "", None
        address = "" if self._retires else address
        try:
            self._service.to_replica("", self.epoch)
        except (StoreError, OSError) as error:
            logger.error("no master can be followed: %s", error)
            self._role_reason = str(error)
            return
        self.finder.look_for(address)

    def _found(self, ha_address: str, fenced: bool) -> None:
        if self._service.reign is None and not self._stopped:
            try:
                self._service.to_replica(ha_address, self.epoch, fenced=fenced)
            except (StoreError, OSError) as error:
                logger.error("the master at %s cannot be followed: %s", ha_address, error)
