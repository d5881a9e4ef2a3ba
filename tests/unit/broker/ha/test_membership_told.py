"""brokerStatus of a broker in a group with elections, as `top` shows it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.broker.ha.elected import TIMEOUT_MS, Member, word
from tests.unit.broker.ha.network import Group
from tests.unit.broker.ha.test_service import options

from turbopump.broker.introspection.runtime_info import membership_table


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    group = Group(tmp_path)
    yield Member(group, group.add(1, replace(options(1), own_id=0)))
    group.close()


def test_from_joining_to_a_lease_and_its_end(member: Member) -> None:
    table = membership_table(member.membership)
    assert table == {"haLease": "false", "haMembership": "JOINING: not registered yet"}
    member.start()
    member.give_id(4)
    member.registered()
    member.elected(word(1, 4))
    table = membership_table(member.membership)
    assert table == {"haLease": "true", "haBrokerId": "4", "haMembership": "MEMBER"}
    member.script.grants = False
    member.pass_time(TIMEOUT_MS)
    assert membership_table(member.membership)["haLease"] == "false"
