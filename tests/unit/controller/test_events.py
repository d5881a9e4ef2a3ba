"""The log's entries: RocketMQ's bytes, Turbopump's own entries, and entries without an effect."""

import pytest

from turbopump.controller import events
from turbopump.controller.events import BadEvent, decode, encode

EVERY = [
    events.AlterSyncStateSet("b", frozenset({1, 2})),
    events.AlterSyncStateSet("b", frozenset()),
    events.ApplyBrokerId("c", "b", "a:1", "a:1;7", 3),
    events.ElectMaster("b", 2),
    events.ElectMaster("b", 0),
    events.ElectMaster("b", None),
    events.ElectMaster("b", 2, 9),
    events.ElectMaster("b", 2, 0, True),
    events.BeginMasterTerm("b", 7),
    events.Read(),
    events.CleanBrokerData("b"),
    events.CleanBrokerData("b", frozenset({1})),
    events.UpdateBrokerAddress("c", "b", "a:2", 1),
    events.MarkUnfit("b", 1, "damaged"),
]


@pytest.mark.parametrize("event", EVERY, ids=lambda event: type(event).__name__)
def test_each_comes_back(event: events.Event) -> None:
    assert decode(encode([event])) == (event,)


def test_several_are_one_entry() -> None:
    assert decode(encode(EVERY)) == tuple(EVERY)
    assert decode(encode([])) == () == decode(b"")


def test_bytes_of_rocketmq() -> None:
    alter = b'\x00\x01{"brokerName":"b","newSyncStateSet":[1,2]}'
    assert encode(EVERY[:1]) == alter
    java = (
        b'\x00\x03{"brokerName":"b","eventType":"ELECT_MASTER_EVENT",'
        b'"newMasterBrokerId":2,"newMasterElected":true}'
    )
    assert decode(java) == (events.ElectMaster("b", 2),)
    assert decode(b'\x00\x05{"brokerName":"b","brokerIdSetToClean":[]}') == (
        events.CleanBrokerData("b"),
    )


@pytest.mark.parametrize(
    "body",
    [
        b"\x00",
        b"\x00\x01",
        b"\x00\x01{}",
        b"\x00\x63{}",
        b"hello",
        b'\x00\x01{"brokerName":1,',
        b'\x00\x01{"brokerName":"b","newSyncStateSet":{}}',
        b'\x00\x03{"brokerName":"b","newMasterElected":true}',
        b'\x00\x02{"brokerName":"b","newBrokerId":-1}',
        b'\x00\x64{"events":[{}]}',
        b'\x00\x64{"events":[{"type":100,"event":{"events":[]}}]}',
        b'\x00\x64{"events":[1]}',
        b"\x00\x01" + b"[" * 5_000,
    ],
)
def test_events_without_an_effect(body: bytes) -> None:
    found = decode(body)
    assert isinstance(found, BadEvent)
    assert "\n" not in found.reason and found.reason
