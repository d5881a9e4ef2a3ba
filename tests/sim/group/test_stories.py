"""Groups with controllers: past failures one by one, by their ids in docs/INVARIANTS.md."""

import pytest

from tests.sim.group.machines import GROUP
from tests.sim.group.stories import Story
from turbopump.engine.types import PutStatus
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.controller import SyncStateSet


def test_r01_the_answer_to_a_new_set_is_lost() -> None:
    """The controllers agree to a larger set, but the response is lost: all messages that the master
    acknowledges afterwards are on all members of the larger set, because one of them may be the
    next master.
    """
    story = Story.whole()
    story.replicas[0].crash(power=False)
    story.alone(2)
    story.trouble.lose = frozenset({1001})
    story.start(story.replicas[0] if not story.replicas[0].up else story.replicas[1])
    story.go(3000)
    story.master.crash(power=True)
    story.go(3000)
    story.end()


def test_r02_after_any_answer_the_master_counts_on_the_agreed_set() -> None:
    """While responses are lost and replicas come and go, each set that the master considers in
    force was agreed on (`Journal.same_set`), and in the end it has the newest.
    """
    story = Story.whole(timeout_ms=1000)
    for number in range(6):
        story.trouble.lose = frozenset({1001, 1004}) if number % 2 else frozenset()
        replica = story.rng.choice(story.replicas)
        replica.crash(power=False)
        story.go(1500)
        story.start(replica)
        story.go(1000)
    story.trouble.lose = frozenset()
    story.until(story.is_whole, 30_000, "not whole")
    role = story.journal.role
    story.until(lambda: story.master.counted[1] == role.set_epoch, 5000, "an older set")
    assert story.master.counted == (role.members, role.set_epoch)
    story.end()


def test_r03_the_set_is_still_when_nothing_changes() -> None:
    """Connections that break again and again change the set, and then it stands still."""
    story = Story.whole()
    for _ in range(60):
        story.go(40)
        for link in list(story.net.links):
            if story.rng.random() < 0.3:
                story.net.reset(link)
    story.until(story.is_whole, 30_000, "not whole")
    story.go(2000)
    epoch = story.journal.role.set_epoch
    story.go(10_000)
    assert story.journal.role.set_epoch == epoch
    story.end()


def test_r04_two_replicas_stop_at_once() -> None:
    """Messages are written again within the deadline of the set and a second."""
    story = Story.whole()
    for replica in story.replicas:
        replica.paused = True
    story.go(100)
    assert story.writes(20_000) <= story.settings.ha.ha_max_time_slave_not_catchup_ms + 2500
    story.end()


def test_r05_a_stale_master_and_a_replica_apart_from_all() -> None:
    """confirmOffset stays on the minority's side, and no message is acknowledged there after the
    lease ended.
    """
    story = Story.whole()
    master, replica = story.master, story.replicas[0]
    epoch = story.journal.role.epoch
    story.apart([master, replica, *story.clients], story.rest(master, replica, *story.clients))
    story.elected(epoch)
    acked, confirmed = story.played.acked, master.replicated.confirm
    story.go(5000)
    assert story.played.acked == acked, "acknowledged on the side of the few"
    assert master.replicated.confirm == confirmed
    story.end()


def test_r06_connections_storm() -> None:
    """confirmOffset never decreases and never exceeds a member's acknowledged offset:

    `look` and the journal check it.
    """
    story = Story.whole()
    for _ in range(100):
        story.go(20)
        for link in list(story.net.links):
            if link.hosts[1].name.startswith("broker") and story.rng.random() < 0.2:
                story.net.reset(link)
    story.end()


@pytest.mark.parametrize("power", [False, True])
def test_r07_the_end_at_any_operation_of_a_send(power: bool) -> None:
    """All shown bytes are confirmed, and all confirmed bytes are durable and end with a record:

    `look` checks it, also from the beginning of the next life.
    """
    for operation in range(0, 16, 2):
        story = Story.whole(operation, timeout_ms=1000)
        for broker in story.brokers:
            broker.disk.kill = not power
            broker.disk.cut_after = operation
        story.burst(3)
        story.go(400)
        for broker in story.brokers:
            broker.disk.cut_after = None
            story.start(broker)
        story.end()


@pytest.mark.parametrize("power", [False, True])
def test_r08_the_leading_controller_and_the_master_go_at_once(power: bool) -> None:
    """No queue offset is given twice."""
    story = Story.whole(timeout_ms=1000)
    for _ in range(3):
        for victim in (story.leader, story.master):
            victim.crash(power=power)
            story.go(5)
            story.start(victim)
        story.writes(20_000)
    story.end()


def test_r09_the_same_broker_is_elected_again_and_again() -> None:
    """Queue offsets go on."""
    story = Story.whole()
    for replica in story.replicas:
        replica.crash(power=False)
    story.alone(1)
    master = story.master
    for _ in range(12):
        epoch = story.journal.role.epoch
        master.crash(power=False)
        story.start(master)
        story.elected(epoch)
        story.writes()
        assert story.master is master
    story.end()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_r15_r16_elections_without_a_write(count: int) -> None:
    """All brokers rejoin, and epochs without a message are in all epoch lists (S2)."""
    story = Story.whole()
    for client in story.clients:
        client.active = False
    story.go(1000)
    for _ in range(count):
        epoch, master = story.journal.role.epoch, story.master
        master.paused = True
        story.elected(epoch)
        master.paused = False
        story.until(story.is_whole, 30_000, "not whole")
    for client in story.clients:
        client.active = True
    story.end()


def test_r19_a_replica_that_was_away_while_the_log_lost_its_begin() -> None:
    story = Story.whole()
    away = story.replicas[0]
    away.crash(power=False)
    story.alone(2)
    story.retention = True
    for broker in story.brokers:
        broker.place.retention = True
    for _ in range(6):
        story.burst(8)
        story.go(500)
        for broker in story.brokers:
            if broker.up:
                broker.expire(7_200_000)
    assert story.master.replicated.min > 0, "nothing expired"
    story.start(away)
    story.until(story.is_whole, 30_000, "not whole")
    story.end()


def test_r26_queue_offsets_are_contiguous_over_switches() -> None:
    story = Story.whole(timeout_ms=1000)
    for _ in range(5):
        story.burst(3)
        epoch, master = story.journal.role.epoch, story.master
        master.crash(power=False)
        story.elected(epoch)
        story.start(master)
        story.until(story.is_whole, 30_000, "not whole")
    story.end()


def test_r27_a_master_apart_from_all_stops_before_another_is_elected() -> None:
    """A separated master's lease ends before the controllers count the master as dead."""
    story = Story.whole()
    master, epoch = story.master, story.journal.role.epoch
    story.apart([master, story.clients[0]], story.rest(master, story.clients[0]))
    while story.journal.role.epoch == epoch:
        story.step()
    assert isinstance(master.part.admit_append(), PutStatus), (
        "it takes messages while another is elected"
    )
    acked = story.clients[0].acked
    story.go(5000)
    assert story.clients[0].acked == acked
    story.end()


def test_r28_the_name_server_hears_of_the_old_master_last() -> None:
    """The name server shows the master of the later epoch, in whatever order brokers register."""
    story = Story.whole(timeout_ms=1000)
    old, epoch = story.master, story.journal.role.epoch
    others = story.rest(old, story.names)
    story.apart([old], others)
    story.elected(epoch)
    new = story.master
    story.until(lambda: story.names.master == new.endpoint.address, 5000, "not known")
    for _ in range(10):
        old.run(old.register)
        story.go(300)
        assert story.names.master == new.endpoint.address, "the old one took its place"
    story.end()


def test_r32_a_joining_broker_is_never_shown_as_master() -> None:
    """Restarts, of brokers that had a role and of such that have none yet."""
    story = Story.whole(timeout_ms=1000)
    for _ in range(6):
        master, epoch = story.master.endpoint.address, story.journal.role.epoch
        for replica in story.replicas:
            replica.crash(power=False)
            story.start(replica)
        for _ in range(20):
            story.go(50)
            if story.journal.role.epoch == epoch:
                assert story.names.master == master
    story.end()


def test_r29_no_broker_serves_before_its_role_is_known() -> None:
    """A broker without a known role takes no message, and is not registered at the name server
    (R32).
    """
    story = Story()
    for machine in (story.names, *story.brokers, *story.clients):
        story.start(machine)
    story.go(3000)
    assert all(isinstance(broker.part.admit_append(), PutStatus) for broker in story.brokers)
    assert all("17" in why or "route" in why for why in story.clients[0].refused)
    for controller in story.controllers:
        story.start(controller)
    story.writes(15_000)
    story.end()


def test_r30_everybody_comes_back_at_another_address() -> None:
    story = Story.whole(timeout_ms=1000)
    ids = {broker.controller_id for broker in story.brokers}
    for broker in story.brokers:
        broker.crash(power=False)
        broker.move()
    for broker in story.brokers:
        story.start(broker)
    story.writes(15_000)
    story.until(story.is_whole, 30_000, "not whole")
    assert {broker.controller_id for broker in story.brokers} == ids
    assert set(story.journal.role.codes) == ids
    story.end()


@pytest.mark.parametrize("power", [False, True])
def test_r31_the_end_at_any_operation_while_an_id_is_asked_for(power: bool) -> None:
    """Each broker gets an id, and at most as many ids are assigned as there were tries."""
    for operation in range(0, 40, 4):
        story = Story(operation, timeout_ms=1000)
        story.begin()
        for broker in story.brokers:
            if broker.up and broker.controller_id == 0:
                broker.disk.kill = not power
                broker.disk.cut_after = operation
        story.go(3000)
        for broker in story.brokers:
            broker.disk.cut_after = None
            story.start(broker)
        story.until(story.is_whole, 30_000, "not whole")
        assert len(story.journal.role.codes) <= 2 * len(story.brokers)
        story.end()


def test_k5_sets_that_are_not_the_masters_next_one_are_refused() -> None:
    """The controller refuses a set of an earlier master, of an earlier set, with a dead member, or
    without the master, each with its code, and without a change.
    """
    story = Story.whole(timeout_ms=1000)
    first, epoch = story.master.controller_id, story.journal.role.epoch
    story.master.crash(power=False)
    story.elected(epoch)
    story.alone(2)
    story.go(1000)
    role = story.journal.role
    living, master = role.members, role.master
    cases = [
        (
            master,
            role.epoch,
            living | {first},
            role.set_epoch,
            ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
        ),
        (first, epoch, {first}, role.set_epoch, ResponseCode.CONTROLLER_INVALID_MASTER),
        (master, epoch, {master}, role.set_epoch, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH),
        (
            master,
            role.epoch,
            {master},
            role.set_epoch - 1,
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ),
        (
            master,
            role.epoch,
            {99, master},
            role.set_epoch,
            ResponseCode.CONTROLLER_INVALID_REPLICAS,
        ),
        (
            master,
            role.epoch,
            living - {master},
            role.set_epoch,
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
        ),
    ]
    for asking, master_epoch, members, set_epoch, code in cases:
        fields = {
            "brokerName": GROUP,
            "masterBrokerId": str(asking),
            "masterEpoch": str(master_epoch),
        }
        body = SyncStateSet(frozenset(members), set_epoch).encode()
        story.admin.tell(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, fields, body)
        story.go(300)
        assert story.admin.codes[-1] == code, f"{sorted(members)}: {story.admin.codes[-1]}"
        assert story.journal.role == role
    story.end()


@pytest.mark.parametrize("timeout_ms", [1000, 10_000])
@pytest.mark.parametrize("silent", [False, True])
def test_r33_somebody_is_elected_for_a_dead_master(timeout_ms: int, silent: bool) -> None:
    """A new master is elected at once after the process of the old one ended, and within the
    timeout if the old one is silent.
    """
    story = Story.whole(timeout_ms=timeout_ms)
    epoch, master = story.journal.role.epoch, story.master
    master.crash(power=silent)
    story.elected(epoch, timeout_ms + 1500 if silent else 1000)
    story.writes(3000)
    story.start(master)
    story.end()


def test_r33_no_broker_is_elected_while_the_master_lives() -> None:
    """However replicas come and go."""
    story = Story.whole(timeout_ms=1000)
    epoch = story.journal.role.epoch
    for _ in range(4):
        for replica in story.replicas:
            replica.crash(power=False)
            story.go(1500)
            story.start(replica)
            story.go(500)
    assert story.journal.role.epoch == epoch
    story.end()


@pytest.mark.parametrize("which", range(3))
def test_r34_a_single_controller_answers_no_request(which: int) -> None:
    """Messages are written all the time, but for an election of a leader."""
    story = Story.whole()
    silent = story.controllers[which]
    led = silent.is_leader
    story.net.blocked |= {(silent.name, other.name) for other in story.rest(silent)}
    for _ in range(10):
        story.writes(5000 if led else 2500)
    story.end()


def test_r35_a_log_of_controllers_does_not_grow_for_ever() -> None:
    """Snapshots take its place; a member that comes back late gets one."""
    story = Story.whole(snapshot_entries=5)
    away = next(one for one in story.controllers if not one.is_leader)
    away.crash(power=True)
    for _ in range(10):
        replica = story.replicas[0]
        replica.crash(power=False)
        story.alone(2)
        story.start(replica)
        story.alone(3)
    assert len(story.journal.entries) > 20
    for controller in story.controllers:
        if controller is not away:
            assert controller.log_size <= 15, f"{controller.name}: {controller.log_size} entries"
    story.start(away)
    story.end()
