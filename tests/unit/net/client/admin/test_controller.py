"""The nodes that receive controller commands' requests, and the results of their responses."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.net.client.cluster import shared_with

from turbopump.net.client.admin import controller
from turbopump.net.client.admin.controller import ControllerAdmin
from turbopump.net.client.errors import BrokerError, ClientError, InvalidArgument
from turbopump.net.transport.errors import ConnectError
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.header import write_header

NOW_MS = 1_700_000_000_000
DOWN, FOLLOWER, LEADER = "down:1", "follower:1", "leader:1"
PEERS = {"n0": DOWN, "n1": FOLLOWER, "n2": LEADER}
METADATA = {
    "group": "group1",
    "controllerLeaderId": "n2",
    "controllerLeaderAddress": LEADER,
    "isLeader": "false",
    "peers": "n0:down:1;n1:follower:1;n2:leader:1;",
}
REPLICAS = (
    b'{"replicasInfoTable":{"b":{"inSyncReplicas":[{"alive":true,"brokerAddress":"a:1",'
    b'"brokerId":1,"brokerName":"b"}],"masterAddress":"a:1","masterBrokerId":1,"masterEpoch":3,'
    b'"notInSyncReplicas":[{"alive":false,"brokerAddress":"a:2","brokerId":2,"brokerName":"b"}],'
    b'"syncStateSetEpoch":7}}}'
)

Answers = dict[int, Command | Exception | list[Command | Exception]]


class Answering:
    """Stands for an instance with only the needed methods: answers from a table, and records
    requests."""

    def __init__(self, responses: Answers) -> None:
        self.responses = {RequestCode.CONTROLLER_GET_METADATA_INFO: Command(0, fields=METADATA)}
        self.responses |= responses
        self.asked: list[tuple[str, int, dict[str, str], bytes]] = []

    def now_ms(self) -> int:
        return NOW_MS

    async def ask(self, address: str, code: int, header: Any = None, body: bytes = b"") -> Command:
        fields = {} if header is None else write_header(header)
        self.asked.append((address, int(code), fields, body))
        if address == DOWN:
            raise ConnectError(f"{address} cannot be reached")
        response = self.responses[RequestCode(code)]
        if isinstance(response, list):
            response = response.pop(0)
        if isinstance(response, Exception):
            raise response
        return response


Call = Callable[[ControllerAdmin], Coroutine[Any, Any, Any]]


def asking(
    call: Call, responses: Answers, *addresses: str
) -> tuple[Any, list[tuple[str, int, dict[str, str], bytes]]]:
    instance = Answering(responses)
    made = ControllerAdmin(shared_with(instance), addresses or (DOWN, FOLLOWER))
    result = asyncio.run(call(made))
    return result, instance.asked


def test_the_leader_is_found_through_any_controller_that_answers() -> None:
    responses = {RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: Command(0, body=REPLICAS)}
    (group,), asked = asking(lambda admin: admin.sync_state_sets({"b", "a"}), responses)
    assert [(where, code) for where, code, *_ in asked] == [
        (DOWN, 1005),
        (FOLLOWER, 1005),
        (LEADER, 1006),
    ]
    assert asked[-1][3] == b'["a","b"]'
    assert (group.broker_name, group.master_id, group.master_address) == ("b", 1, "a:1")
    assert (group.master_epoch, group.set_epoch) == (3, 7)
    assert [(each.broker_id, each.alive) for each in group.in_sync] == [(1, True)]
    assert [(each.broker_id, each.alive) for each in group.not_in_sync] == [(2, False)]


def test_metadata_of_a_quorum() -> None:
    metadata, _ = asking(lambda admin: admin.metadata(), {})
    assert (metadata.address, metadata.group, metadata.leader_id) == (FOLLOWER, "group1", "n2")
    assert (metadata.leader_address, metadata.is_leader, metadata.peers) == (LEADER, False, PEERS)
    assert metadata.term is None
    of_ours = Command(0, fields={**METADATA, "term": "9"})
    metadata, _ = asking(lambda admin: admin.metadata(), {RequestCode(1005): of_ours})
    assert metadata.term == 9


def test_no_controller_leads() -> None:
    """Known fields are shown; commands that need a leader raise an error."""
    leaderless = {key: METADATA[key] for key in ("group", "isLeader", "peers")}
    responses: Answers = {RequestCode(1005): Command(0, fields=leaderless)}
    metadata, asked = asking(lambda admin: admin.metadata(), responses, FOLLOWER, LEADER)
    assert (metadata.leader_id, metadata.leader_address, metadata.peers) == ("", "", PEERS)
    assert [where for where, *_ in asked] == [FOLLOWER, LEADER]
    with pytest.raises(ClientError, match=f"{FOLLOWER}: they have no leader"):
        asking(lambda admin: admin.sync_state_sets(["b"]), responses, FOLLOWER)


def test_a_leader_that_leads_no_more_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "AGAIN_S", (0.0, 0.0))
    deposed = BrokerError(2007, "The controller is not in leader state", LEADER)
    later: list[Command | Exception] = [deposed, Command(0, body=REPLICAS)]
    responses = {RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: later}
    (group,), asked = asking(lambda admin: admin.sync_state_sets(["b"]), responses, FOLLOWER)
    assert group.master_id == 1
    assert [code for _, code, *_ in asked] == [1005, 1006, 1005, 1006]
    later += [deposed] * 5
    with pytest.raises(BrokerError, match="2007"):
        asking(lambda admin: admin.sync_state_sets(["b"]), responses, FOLLOWER)
    assert len(later) == 2, "three tries"


def test_no_server_answers() -> None:
    with pytest.raises(ConnectError):
        asking(lambda admin: admin.metadata(), {}, DOWN)


def test_an_election() -> None:
    fields = {
        "masterBrokerId": "2",
        "masterAddress": "a:2",
        "masterEpoch": "4",
        "syncStateSetEpoch": "8",
    }
    # As RocketMQ's controllers write it: the keys are no JSON.
    body = (
        b'{"brokerMemberGroup":{"brokerAddrs":{2:"a:2",1:"a:1"},"brokerName":"b",'
        b'"cluster":"c"},"syncStateSet":[2]}'
    )
    responses = {RequestCode.CONTROLLER_ELECT_MASTER: Command(0, fields=fields, body=body)}
    elected, asked = asking(lambda admin: admin.elect_master("c", "b", 2), responses)
    where, code, sent, _ = asked[-1]
    assert (where, code) == (LEADER, 1002)
    assert sent == {
        "clusterName": "c",
        "brokerName": "b",
        "brokerId": "2",
        "designateElect": "true",
        "invokeTime": str(NOW_MS),
    }
    assert (elected.master_id, elected.master_address) == (2, "a:2")
    assert (elected.master_epoch, elected.set_epoch) == (4, 8)
    assert list(elected.members.items()) == [(1, "a:1"), (2, "a:2")]


def test_an_election_that_is_refused() -> None:
    refusal = BrokerError(2012, "no", LEADER)
    with pytest.raises(BrokerError) as refused:
        asking(
            lambda admin: admin.elect_master("c", "b", 2),
            {RequestCode.CONTROLLER_ELECT_MASTER: refusal},
        )
    assert refused.value.code == 2012


def test_configurations_are_each_controllers_own() -> None:
    responses = {RequestCode.GET_CONTROLLER_CONFIG: Command(0, body=b"b=2\na=C\\:\\\\x\n")}
    found, asked = asking(lambda admin: admin.config(), responses, FOLLOWER, LEADER)
    assert [(each.address, each.table) for each in found] == [
        (FOLLOWER, {"a": "C:\\x", "b": "2"}),
        (LEADER, {"a": "C:\\x", "b": "2"}),
    ]
    assert {code for _, code, *_ in asked} == {1010}
    with pytest.raises(BadBody):
        bad = Command(0, body=b"a=\\u12")
        asking(lambda admin: admin.config(), {RequestCode.GET_CONTROLLER_CONFIG: bad}, LEADER)


def test_a_configuration_is_changed_everywhere() -> None:
    responses = {RequestCode.UPDATE_CONTROLLER_CONFIG: Command(0)}
    updated, asked = asking(
        lambda admin: admin.update_config("k", "a\\b"), responses, FOLLOWER, LEADER
    )
    assert asked == [(FOLLOWER, 1009, {}, b"k=a\\\\b\n"), (LEADER, 1009, {}, b"k=a\\\\b\n")]
    assert (updated.addresses, updated.key, updated.value) == ([FOLLOWER, LEADER], "k", "a\\b")


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (
            {"cluster": "c", "broker_ids": [1, 3]},
            {
                "clusterName": "c",
                "brokerControllerIdsToClean": "1;3",
                "isCleanLivingBroker": "false",
            },
        ),
        ({"living": True}, {"isCleanLivingBroker": "true"}),
    ],
)
def test_cleaning(given: dict[str, Any], sent: dict[str, str]) -> None:
    responses = {RequestCode.CLEAN_BROKER_DATA: Command(0)}
    cleaned, asked = asking(lambda admin: admin.clean_broker("b", **given), responses)
    assert asked[-1][:2] == (LEADER, 1011)
    assert asked[-1][2] == {"brokerName": "b", "invokeTime": str(NOW_MS), **sent}
    assert cleaned.broker_ids == given.get("broker_ids", [])


@pytest.mark.parametrize("addresses", [[], ["x"], ["a:1", "b:"]])
def test_invalid_addresses(addresses: list[str]) -> None:
    client = shared_with(Answering({}))
    with pytest.raises(InvalidArgument, match="controller address"):
        ControllerAdmin(client, addresses)
