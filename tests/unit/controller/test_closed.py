"""The effect of a broker's closed connection on its controller."""

from tests.unit.controller.groups import running

from turbopump.controller.death_probe import Probed


def test_a_reset_connection_causes_no_election() -> None:
    """The master's port accepts connections: the broker will reconnect."""
    node = running()
    node.ports.found = Probed.ACCEPTED
    for number in range(12):
        node.close(1 if not number else 100 + number)
        for _ in range(40):
            node.tick(20)
        node.beat(1, connection=101 + number)
        node.beat(2)
        node.beat(3)
    for _ in range(20):  # the suspicion is dropped
        node.tick(100)
    assert (node.group.master_id, node.group.master_epoch) == (1, 1)


def test_a_master_whose_port_closes_last_is_dead_then() -> None:
    node = running()
    node.ports.found = Probed.ACCEPTED
    node.close(1)
    node.tick(20)
    node.ports.found = Probed.REFUSED
    assert node.group.master_id == 1
    node.tick(20)
    assert node.group.master_id == 2


def test_reports_of_a_reset_connection_do_not_count_for_an_election() -> None:
    """The broker's process may be dead: it is elected only after its next heartbeat."""
    node = running()
    node.ports.found = Probed.ACCEPTED
    node.close(2)
    node.close(3)
    node.ports.found = Probed.REFUSED
    node.close(1)
    assert node.group.master_id == 1
    node.beat(3, connection=33)
    assert node.group.master_id == 3


def test_a_new_leader_asks_too() -> None:
    """The former leader and the master died together, and the master's port closed last."""
    node = running()
    node.lead(False)
    node.ports.found = Probed.ACCEPTED
    node.close(1)
    node.ports.found = Probed.REFUSED
    node.lead()
    node.tick(40)
    assert node.group.master_id == 2
