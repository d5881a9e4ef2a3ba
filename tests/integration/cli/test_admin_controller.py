"""The controller commands and `top` at a group of three brokers and three controllers."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turbopump.testing import RunningCluster, running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

Cli = Callable[..., Any]
Ask = Callable[..., Any]
NAME, CLUSTER = "broker-a", "DefaultCluster"
WHOLE_TIMEOUT_S = 120
"""Seven nodes in one process elect again and again where others leave it no processor."""


@pytest.fixture(scope="module")
def elected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Three brokers, with a master that three controllers elect."""
    folder = tmp_path_factory.mktemp("elected")
    with running_cluster(folder, brokers=3, controllers=3) as running:
        yield running


@pytest.fixture
def admin(cli: Cli, elected: RunningCluster) -> Ask:
    """A command that must succeed, at all controllers."""

    def call(name: str, *words: object) -> Any:
        done = cli("admin", name, "-a", ";".join(elected.controllers), *map(str, words))
        assert (done.code, done.err) == (0, ""), done
        return done

    return call


@pytest.fixture
def refused(cli: Cli, elected: RunningCluster) -> Callable[..., str]:
    """A command that must not succeed: its exit code is checked, its sentence returned."""

    def call(code: int, name: str, *words: object) -> str:
        done = cli("admin", name, "-a", ";".join(elected.controllers), *map(str, words))
        assert (done.code, done.out) == (code, ""), done
        assert done.err.startswith("turbopump: ") and done.err.count("\n") == 1
        return str(done.err)

    return call


def whole(admin: Ask) -> dict[str, Any]:
    """The group, as soon as all three brokers are in sync."""
    led(admin)

    def complete(found: dict[str, Any]) -> bool:
        return len(found["in_sync"]) == 3 and found["master_id"] is not None

    return until(complete, lambda: admin("getSyncStateSet", "-b", NAME, "--json").json[0])


def led(admin: Ask) -> dict[str, Any]:
    """The controllers' metadata, as soon as they have a leader."""
    return until(
        lambda found: bool(found["leader_address"]),
        lambda: admin("getControllerMetaData", "--json").json[0],
    )


def until(
    holds: Callable[[dict[str, Any]], bool], look: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    deadline = time.monotonic() + WHOLE_TIMEOUT_S
    while not holds(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def another(group: dict[str, Any]) -> dict[str, Any]:
    """A member that is not the master."""
    found = next(each for each in group["in_sync"] if each["broker_id"] != group["master_id"])
    assert isinstance(found, dict)
    return found


def test_the_leader_is_shown(admin: Ask, cli: Cli, elected: RunningCluster) -> None:
    printed = led(admin)
    assert sorted(printed["peers"].values()) == sorted(elected.controllers)
    assert printed["peers"][printed["leader_id"]] == printed["leader_address"]
    assert printed["term"] >= 0
    for address in elected.controllers:
        done = cli("admin", "getControllerMetaData", "-a", address)
        assert f"#ControllerLeaderAddress\t{printed['leader_address']}\n" in done.out
    dead_first = f"127.0.0.1:1;{elected.controllers[0]}"
    assert cli("admin", "getControllerMetaData", "-a", dead_first).code == 0
    done = cli("admin", "getControllerMetaData", "-a", "127.0.0.1:1")
    assert done.code == 1 and "127.0.0.1:1" in done.err
    assert cli("admin", "getControllerMetaData", "-a", "nowhere").code == 2
    assert cli("admin", "getControllerMetaData").code == 2


def test_the_set(admin: Ask, refused: Callable[..., str], elected: RunningCluster) -> None:
    group = whole(admin)
    assert group["master_address"] in {broker.address for broker in elected.brokers}
    lines = admin("getSyncStateSet", "-b", NAME).out.splitlines()
    assert f"#MasterBrokerId\t{group['master_id']}" in lines
    assert "#SyncStateSetNums\t3" in lines
    by_cluster = ("-c", CLUSTER, "-n", elected.namesrv)
    assert admin("getSyncStateSet", *by_cluster, "--json").json == [group]
    assert "do not know unknown" in refused(1, "getSyncStateSet", "-b", "unknown")
    assert "either" in refused(2, "getSyncStateSet")
    assert "either" in refused(2, "getSyncStateSet", "-b", NAME, "-c", CLUSTER)


def test_an_election(admin: Ask, refused: Callable[..., str]) -> None:
    group = whole(admin)
    chosen = another(group)
    words = ("-bn", NAME, "-c", CLUSTER, "-b")
    (printed,) = admin("electMaster", *words, chosen["broker_id"], "--json").json
    assert printed["master_id"] == chosen["broker_id"]
    assert printed["master_address"] == chosen["address"]
    assert printed["master_epoch"] == group["master_epoch"] + 1
    assert sorted(printed["members"]) == ["1", "2", "3"]
    after = whole(admin)
    assert (after["master_id"], after["master_epoch"]) == (
        printed["master_id"],
        printed["master_epoch"],
    )
    assert "2011" in refused(1, "electMaster", *words, chosen["broker_id"])
    assert "2012" in refused(1, "electMaster", *words, 99)
    assert "2010" in refused(1, "electMaster", "-bn", "unknown", "-c", CLUSTER, "-b", 1)


def test_configurations(admin: Ask, refused: Callable[..., str], elected: RunningCluster) -> None:
    key = "scanInactiveMasterInterval"
    found = admin("getControllerConfig", "--json").json
    before = {each["address"]: each["table"] for each in found}
    assert sorted(before) == sorted(elected.controllers)
    assert len({table["controllerDLegerSelfId"] for table in before.values()}) == 3
    value = before[elected.controllers[0]][key]
    changed = admin("updateControllerConfig", "-k", key, "-v", 4321).out
    assert changed == (
        f"update controller config success![{', '.join(elected.controllers)}]\n{key} : 4321\n"
    )
    after = admin("getControllerConfig", "--json").json
    assert [each["table"][key] for each in after] == ["4321"] * 3
    assert f"{key:<50}=  4321" in admin("getControllerConfig").out
    assert "black list" in refused(1, "updateControllerConfig", "-k", "configStorePath", "-v", "x")
    assert refused(1, "updateControllerConfig", "-k", key, "-v", "x")
    (printed,) = admin("updateControllerConfig", "-k", key, "-v", value, "--json").json
    assert printed == {"addresses": elected.controllers, "key": key, "value": value}


def test_the_living_are_not_cleaned(admin: Ask, refused: Callable[..., str]) -> None:
    whole(admin)
    words = ("cleanBrokerMetadata", "-bn", NAME)
    assert "still alive" in refused(1, *words, "-c", CLUSTER, "-b", "1;2")
    assert "still alive" in refused(1, *words, "-c", CLUSTER)
    assert "the broker's cluster" in refused(2, *words)
    assert "1;2;3" in refused(2, *words, "-c", CLUSTER, "-b", "1,2")
    assert len(whole(admin)["in_sync"]) == 3


def test_top_sees_an_election_as_it_happens(
    admin: Ask, program: list[str], elected: RunningCluster, tmp_path: Path
) -> None:
    """The controllers are found in the brokers' configuration; the chosen one takes the role."""
    group = whole(admin)
    chosen = another(group)["broker_id"]
    texts: list[str] = []
    watching = subprocess.Popen(
        [*program, "top", "-n", elected.namesrv, "--interval", "0.05", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def look() -> dict[str, Any]:
        assert watching.stdout is not None
        line = watching.stdout.readline()
        assert line, "it ended"
        found = json.loads(line)
        texts.extend(change["text"] for change in found["changes"])
        assert isinstance(found, dict)
        return found

    try:
        first = look()
        assert first["errors"] == []
        assert sorted(each["address"] for each in first["controllers"]) == sorted(
            elected.controllers
        )
        (leader,) = (each for each in first["controllers"] if each["is_leader"])
        assert {each["term"] for each in first["controllers"]} == {leader["term"]}
        (shown,) = first["groups"]
        assert (shown["master_id"], shown["epoch"]) == (group["master_id"], group["master_epoch"])
        assert shown["sync_state_set"] == [1, 2, 3]
        roles = {each["broker_id"]: each["role"] for each in shown["brokers"]}
        assert roles == {
            number: "master" if number == group["master_id"] else "slave" for number in (1, 2, 3)
        }
        assert all(each["alive"] and each["in_sync"] for each in shown["brokers"])

        admin("electMaster", "-bn", NAME, "-c", CLUSTER, "-b", chosen)
        epoch = group["master_epoch"] + 1
        wanted = {
            f"{NAME}: {chosen} is master in epoch {epoch} (was {group['master_id']})",
            f"{NAME} {chosen}: now master (was slave)",
        }
        deadline = time.monotonic() + WHOLE_TIMEOUT_S
        last = first
        while not (wanted <= set(texts) and last["groups"][0]["sync_state_set"] == [1, 2, 3]):
            assert time.monotonic() < deadline, texts
            last = look()
        lags = [each["lag"] for each in last["groups"][0]["brokers"]]
        assert sorted(lags, key=str) == [0, 0, None]
    finally:
        watching.kill()
        watching.communicate()
