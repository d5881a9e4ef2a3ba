"""Fixtures with a network of brokers whose controllers are scripts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.ha.elected import Make, Member
from tests.unit.broker.ha.network import Group
from tests.unit.broker.ha.test_service import options


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    found = Group(tmp_path)
    yield found
    found.close()


@pytest.fixture
def make(group: Group) -> Make:
    def made(number: int = 1, **changes: Any) -> Member:
        return Member(group, group.add(number, replace(options(number), own_id=0)), **changes)

    return made
