"""Admin requests on consumer groups (remoting.md 16.3)."""

from typing import Any

import pytest

DEFAULTS = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupName": "g",
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}


def test_create_change_and_describe(admin: Any) -> None:
    assert admin.ask(200, {"groupName": "g"}).code == 0
    assert admin.json(352, group="g") == DEFAULTS
    changed = {**DEFAULTS, "retryMaxTimes": 3, "somethingNew": [1]}
    assert admin.ask(200, changed).code == 0
    assert admin.json(352, group="g") == changed
    saved = admin.world.files.load("subscriptionGroup.json")
    assert saved["subscriptionGroupTable"]["g"] == changed


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"groupName": ""}, 29),
        ({"groupName": "no blanks"}, 29),
        ({"groupName": "x" * 121}, 29),
        ({}, 29),
        ({"groupName": "g", "attributes": {"+color": "red"}}, 1),
        ({"groupName": "g", "attributes": {"lite.bind.topic": "T"}}, 1),
        ({"groupName": "g", "attributes": {"-lite.bind.topic": ""}}, 1),
        ({"groupName": "g", "attributes": {"+lite.sub.model": "shared"}}, 1),
        ({"groupName": "g", "attributes": {"+priority.factor": "101"}}, 1),
        ({"groupName": "g", "attributes": {"+lite.sub.client.quota": "many"}}, 1),
        ({"groupName": "g", "attributes": {"+lite.sub.wildcard": "a\nb"}}, 1),
        ({"groupName": "g", "attributes": {"+lite.bind.topic": "x" * 5000}}, 29),
        ({"groupName": "g", "retryMaxTimes": "many"}, 1),
        (b"[]", 1),
    ],
)
def test_groups_that_cannot_be(admin: Any, body: Any, code: int) -> None:
    assert admin.ask(200, body).code == code
    assert admin.broker.groups.get("g") is None


def test_a_list_of_groups_is_made_whole_or_not(admin: Any) -> None:
    one, two = {"groupName": "g"}, {"groupName": "h"}
    assert admin.ask(225, {"groupConfigList": [one, two]}).code == 0
    assert admin.broker.groups.get("h") is not None
    bad = {"groupConfigList": [{"groupName": "i"}, {"groupName": "no blanks"}]}
    assert admin.ask(225, bad).code == 29
    assert admin.broker.groups.get("i") is None


def test_attributes_are_kept_without_their_sign(admin: Any) -> None:
    def put(attributes: dict[str, str]) -> dict[str, str]:
        assert admin.ask(200, {"groupName": "g", "attributes": attributes}).code == 0
        return dict(admin.json(352, group="g")["attributes"])

    kept = put({"+lite.bind.topic": "T", "+priority.factor": "7", "+lite.sub.model": "Exclusive"})
    assert kept == {"lite.bind.topic": "T", "priority.factor": "7", "lite.sub.model": "Exclusive"}
    assert put({}) == kept, "who changes something else changes none"
    assert put({"-lite.sub.model": "", "+priority.factor": "8"}) == {
        "lite.bind.topic": "T",
        "priority.factor": "8",
    }


def test_attributes_that_are_there_may_be_sent_back(admin: Any) -> None:
    from turbopump.net.wire.groups import SubscriptionGroupConfig

    admin.broker.groups.put(SubscriptionGroupConfig("g", attributes={"a": "b"}), admin.now_ms)
    assert admin.ask(200, admin.json(352, group="g")).code == 0


def test_a_full_table_takes_no_more(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.ask(200, {"groupName": "g"})
    known = len(admin.broker.groups.all_groups())
    monkeypatch.setattr("turbopump.broker.handlers.admin.groups.MAX_GROUPS", known)
    assert admin.ask(200, {"groupName": "h"}).code == 1
    assert admin.ask(200, {"groupName": "g", "retryMaxTimes": 3}).code == 0


def test_groups_of_too_many_bytes_are_refused(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the file could not be read again, so no later change would be saved."""
    long = {"groupName": "g", "unknown": "x" * 3_000}
    assert admin.ask(200, long).code == 0
    most = admin.broker.groups.size
    monkeypatch.setattr("turbopump.broker.handlers.admin.groups.MAX_SIZE", most)
    refused = admin.ask(200, {**long, "groupName": "h"})
    assert (refused.code, f"at most {most} bytes" in refused.remark) == (1, True)
    assert admin.broker.groups.get("h") is None
    assert admin.ask(200, {**long, "unknown": "y" * 3_001}).code == 1
    assert admin.ask(200, {**long, "unknown": "y" * 2_000}).code == 0
    assert admin.ask(200, {"groupName": "h"}).code == 0


@pytest.mark.parametrize("clean", [True, False])
def test_delete(admin: Any, clean: bool) -> None:
    admin.ask(200, {"groupName": "g"})
    admin.broker.offsets.commit("g", "T", 0, 1, admin.now_ms)
    admin.broker.statistics.count_delivered("g", "T", 1, 1)
    assert admin.ask(207, groupName="g", cleanOffset=clean).code == 0
    assert admin.broker.groups.get("g") is None
    assert admin.broker.offsets.query("g", "T", 0) == (-1 if clean else 1)
    assert admin.broker.statistics.find_windows("GROUP_GET_NUMS", "T@g") is None
    assert admin.ask(207, groupName="g").code == 0
    assert admin.ask(207).code == 1


def test_asking_for_a_new_group_creates_it(admin: Any) -> None:
    assert admin.json(352, group="g") == DEFAULTS
    assert admin.broker.groups.get("g") is not None


def test_asking_for_a_new_group_where_none_is_created(make_admin: Any) -> None:
    admin = make_admin("autoCreateSubscriptionGroup=false\n")
    assert admin.ask(352, group="g").code == 26
    assert admin.broker.groups.get("g") is None


def test_the_whole_table(admin: Any) -> None:
    admin.ask(200, {"groupName": "g"})
    admin.ask(353, group="g", topic="T", readable=False)
    names = admin.broker.groups.all_groups()
    response = admin.ask(201)
    assert response.fields == {"totalGroupNum": str(len(names))}
    body = admin.json(201)
    assert body["subscriptionGroupTable"]["g"] == DEFAULTS
    assert body["subscriptionGroupTable"].keys() == names.keys()
    assert body["dataVersion"] == admin.broker.groups.data_version.to_json()
    assert list(body["forbiddenTable"]) == ["g"]


def test_the_table_in_pages(admin: Any) -> None:
    everything = sorted(admin.broker.groups.all_groups())
    found: list[str] = []
    while len(found) < len(everything):
        body = admin.json(201, groupSeq=len(found), dataVersion="", maxGroupNum=3)
        found += body["subscriptionGroupTable"]
    assert found == everything
    body = admin.json(201, groupSeq=5, dataVersion='{"counter":99}', maxGroupNum=3)
    assert list(body["subscriptionGroupTable"]) == everything[:3]


def test_forbidding_a_group_to_read(admin: Any) -> None:
    def ask_group(**more: object) -> dict[str, object]:
        return dict(admin.json(353, group="g", topic="T", **more))

    assert ask_group() == {"group": "g", "readable": True, "topic": "T"}
    assert ask_group(readable=False)["readable"] is False
    assert ask_group()["readable"] is False
    assert ask_group(readable=True)["readable"] is True
    assert admin.broker.groups.forbidden_mask("g", "T") == 0


def test_topics_of_a_group(admin: Any) -> None:
    for topic in ("U", "T"):
        admin.broker.offsets.commit("g", topic, 0, 1, admin.now_ms)
    assert admin.json(343, group="g") == {
        "brokerAddr": admin.broker.address,
        "topicList": ["T", "U"],
    }
    assert admin.json(343, group="h")["topicList"] == []


def test_subscription_of_a_group(admin: Any) -> None:
    admin.heartbeat(admin.connect(), "c", admin.consumer("g", "T:A"))
    body = admin.json(345, group="g", topic="T")
    assert body["subscriptionData"]["subString"] == "A"
    assert admin.json(345, group="g", topic="U") == {"group": "g", "topic": "U"}
