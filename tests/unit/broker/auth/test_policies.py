"""Policies: their texts, and RocketMQ 5.5.0's decisions."""

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.broker.auth.policies import (
    Acl,
    Action,
    BadPolicy,
    Need,
    Pattern,
    PolicyDecision,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
    read_address,
    read_policies,
    read_subject,
)
from turbopump.net.wire.bodies import BadBody

HERE = read_address("127.0.0.1")
ALLOW, DENY = PolicyDecision.ALLOW, PolicyDecision.DENY


def topic(name: str, *actions: Action) -> Need:
    return Need(ResourceType.TOPIC, name, frozenset(actions or [Action.PUB]))


def entry(resource: str, decision: str = "Allow", actions: Any = ("Pub",), **more: Any) -> Any:
    return {"resource": resource, "actions": list(actions), "decision": decision, **more}


def acl(*custom: Any, default: Any = ()) -> Acl:
    policies = [{"policyType": "Custom", "entries": list(custom)}] if custom else []
    if default:
        policies.append({"policyType": "Default", "entries": list(default)})
    return Acl(read_policies(policies))


@pytest.mark.parametrize(
    ("entries", "name", "expected"),
    [
        ([entry("Topic:P*"), entry("Topic:PX", "Deny")], "PX", DENY),
        ([entry("Topic:P*"), entry("Topic:PX", "Deny")], "P1", ALLOW),
        ([entry("Topic:PP*", "Deny"), entry("Topic:PPX"), entry("Topic:P*")], "PP1", DENY),
        ([entry("Topic:PP*", "Deny"), entry("Topic:PPX"), entry("Topic:P*")], "PPX", ALLOW),
        ([entry("*", "Deny"), entry("Topic:P*")], "P1", ALLOW),
        ([entry("*", "Deny"), entry("Topic:P*")], "ZZ", DENY),
        ([entry("Topic:T"), entry("Topic:T", "Deny")], "T", DENY),
        ([entry("Topic:T", "Deny"), entry("Topic:T")], "T", DENY),
        ([entry("Topic:*"), entry("Topic:T*", "Deny")], "T", DENY),
        ([entry("Group:T")], "T", None),
        ([entry("Topic:T", sourceIps=["10.0.0.0/8"])], "T", None),
        ([entry("Topic:T", sourceIps=["127.0.0.0/8"])], "T", ALLOW),
        ([entry("Topic:T", sourceIps=["127.0.0.1"])], "T", ALLOW),
        ([entry("Topic:T", "Deny", sourceIps=["10.0.0.1"]), entry("Topic:T*")], "T", ALLOW),
        ([entry("Topic:T", "Deny", ["Sub"]), entry("Topic:T*")], "T", ALLOW),
        ([entry("Topic:T", actions=["all"])], "T", ALLOW),
        ([entry("Topic:A*B")], "A*B", ALLOW),
        ([entry("Topic:A*B")], "AxB", None),
    ],
)
def test_the_decision_of_rocketmq(entries: Any, name: str, expected: PolicyDecision | None) -> None:
    assert acl(*entries).decide(topic(name), HERE) is expected


def test_the_default_policy_counts_if_no_custom_entry_matches() -> None:
    found = acl(entry("Topic:T1", "Deny", ["Sub"]), default=[entry("Topic:*", actions=["Pub"])])
    assert found.decide(topic("T1"), HERE) is ALLOW
    assert found.decide(topic("T1", Action.SUB), HERE) is DENY
    assert found.decide(topic("T1", Action.GET), HERE) is None


def test_one_of_the_actions_suffices() -> None:
    found = acl(entry("Topic:T", actions=["Get"]))
    assert found.decide(topic("T", Action.SUB, Action.GET), HERE) is ALLOW


def test_addresses_are_compared_as_numbers() -> None:
    found = acl(entry("Topic:T", sourceIps=["0:0:0:0:0:0:0:1", "10.1.0.0/16"]))
    assert found.decide(topic("T"), read_address("::1")) is ALLOW
    assert found.decide(topic("T"), read_address("::ffff:10.1.2.3")) is ALLOW
    assert found.decide(topic("T"), read_address("10.2.0.1")) is None
    assert found.decide(topic("T"), read_address("unknown")) is None


@pytest.mark.parametrize(
    "resource",
    ["", "x", "Unknown:a", "Any:x", "Topic:a*b*", "Topic:**", f"Topic:{'x' * 256}", "Topic:a\nb"],
)
def test_resources_that_are_refused(resource: str) -> None:
    with pytest.raises(BadPolicy):
        Resource.parse(resource)


@pytest.mark.parametrize(
    ("given", "shown"),
    [("topic:T", "Topic:T"), ("*", "*"), ("ANY:*", "*"), ("gRoup:a*", "Group:a*"),
     ("Topic", "Topic:"), ("Cluster:*", "Cluster:*"), ("Topic:a:b", "Topic:a:b")],
)  # fmt: skip
def test_the_text_of_a_resource(given: str, shown: str) -> None:
    assert str(Resource.parse(given)) == shown
    assert Resource.parse(shown) == Resource.parse(given)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (entry("Topic:T", actions=["Any"]), "Any"),
        (entry("Topic:T", actions=["nonsense"]), "actions is empty"),
        (entry("Topic:T", "Perhaps"), "decision"),
        (entry("Topic:T", sourceIps=["127.0.*.*"]), "source ip"),
        (entry("Topic:T", sourceIps=["1.2.3.4/33"]), "source ip"),
        (entry("Topic:T", sourceIps=["*"]), "source ip"),
    ],
)
def test_entries_that_are_refused(bad: Any, text: str) -> None:
    with pytest.raises(BadPolicy, match=text):
        read_policies([{"entries": [bad]}])


def test_policies_that_are_refused() -> None:
    for value in ([], None, [{"entries": []}], [{"policyType": "x", "entries": [entry("*")]}]):
        with pytest.raises(BadPolicy):
            read_policies(value)
    with pytest.raises(BadBody):
        read_policies({"entries": []})


def test_subjects() -> None:
    assert read_subject("User:a:b c") == "a:b c"
    assert read_subject("user:x") == "x"
    for bad in ("", "x", "Role:x", "User:", "User: "):
        with pytest.raises(BadPolicy):
            read_subject(bad)


def test_merging_replaces_the_entry_of_the_same_resource() -> None:
    before = acl(entry("Topic:A"), entry("Topic:B"))
    after = before.merged(read_policies([{"entries": [entry("Topic:A", "Deny"), entry("*")]}]))
    listed = after.to_json()
    assert [one["resource"] for one in listed[0]["entries"]] == ["Topic:A", "Topic:B", "*"]
    assert [one["decision"] for one in listed[0]["entries"]] == ["Deny", "Allow", "Allow"]
    assert after.to_json("B") == [
        {"entries": [after.policies[PolicyType.CUSTOM][1].to_json()], "policyType": "Custom"}
    ]
    assert acl(*(listed[0]["entries"])) == after


def test_removing_entries() -> None:
    found = acl(entry("Topic:A"), default=[entry("*")])
    left = found.without(PolicyType.CUSTOM, Resource.parse("Topic:A"))
    assert left is not None and list(left.policies) == [PolicyType.DEFAULT]
    assert left.without(PolicyType.DEFAULT, Resource.parse("*")) is None
    with pytest.raises(KeyError):
        left.without(PolicyType.CUSTOM, Resource.parse("*"))


NAMES = st.text("ab", max_size=4)
RESOURCES = st.one_of(
    st.just("*"),
    st.builds(
        lambda kind, name, star: f"{kind}:{name}{star}",
        st.sampled_from(["Topic", "Group"]),
        NAMES,
        st.sampled_from(["", "*"]),
    ),
)
ENTRIES = st.builds(
    entry,
    RESOURCES,
    st.sampled_from(["Allow", "Deny"]),
    st.lists(st.sampled_from(["Pub", "Sub", "All"]), min_size=1, max_size=2),
    sourceIps=st.sampled_from([None, ["127.0.0.1"], ["10.0.0.0/8"]]),
)


def model(entries: list[PolicyEntry], need: Need) -> PolicyDecision | None:
    """The rule in words: sort the matching entries from general to special, the last decides."""
    ranked = []
    for one in entries:
        resource = one.resource
        name, is_any = resource.name, resource.type is ResourceType.ANY
        fits = resource.pattern is Pattern.ANY or (
            name == need.name
            if resource.pattern is Pattern.LITERAL
            else need.name[: len(name)] == name
        )
        acts = Action.ALL in one.actions or any(action in need.actions for action in one.actions)
        near = not one.networks or any(ipaddress.ip_address("127.0.0.1") in n for n in one.networks)
        if (is_any or resource.type is need.type) and fits and acts and near:
            special = {Pattern.ANY: -1, Pattern.PREFIXED: len(name), Pattern.LITERAL: 1_000}
            ranked.append((not is_any, special[resource.pattern], one.decision is DENY))
    if not ranked:
        return None
    return DENY if max(ranked)[2] else ALLOW


@given(st.lists(ENTRIES, min_size=1, max_size=6), st.lists(ENTRIES, max_size=3), NAMES)
def test_decisions_follow_the_rule(custom: Any, default: Any, name: str) -> None:
    found, need = acl(*custom, default=default), topic(name)
    expected = model(list(found.policies[PolicyType.CUSTOM]), need)
    if expected is None:
        expected = model(list(found.policies.get(PolicyType.DEFAULT, ())), need)
    assert found.decide(need, HERE) is expected


@given(st.lists(ENTRIES, min_size=1, max_size=6), NAMES)
def test_the_order_of_entries_does_not_matter(custom: Any, name: str) -> None:
    need = topic(name)
    assert acl(*custom).decide(need, HERE) is acl(*reversed(custom)).decide(need, HERE)


@given(st.lists(ENTRIES, min_size=1, max_size=6))
def test_texts_survive_a_round_trip(custom: Any) -> None:
    found = acl(*custom)
    assert Acl(read_policies(found.to_json())) == found
