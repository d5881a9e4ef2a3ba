"""Subscriptions and heartbeats, as Java and Go send them."""

import pytest

from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.heartbeat import ConsumerData, HeartbeatData, ProducerData
from turbopump.net.wire.subscription import (
    EXPRESSION_MAX,
    TAGS_MAX,
    SubscriptionData,
    parse_subscription,
)


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_everything(expression) -> None:
    data = parse_subscription("T", expression)
    assert data.sub_string == "*"
    assert data.filter_codes is None
    assert data.wants_tag("A") and data.wants_tag(None)


def test_tags() -> None:
    data = parse_subscription("T", " A || B||", "TAG", 5)
    assert (data.sub_string, data.sub_version) == (" A || B||", 5)
    assert data.tags_set == {"A", "B"}
    assert data.filter_codes == {65, 66}
    assert data.wants_tag("A") and not data.wants_tag("C") and not data.wants_tag(None)


def test_tags_beyond_ascii_hash_as_java_does() -> None:
    # String.hashCode over UTF-16 units: U+1F600 is D83D DE00.
    assert parse_subscription("T", "\U0001f600").code_set == {0xD83D * 31 + 0xDE00}
    assert parse_subscription("T", "标签").code_set == {0x6807 * 31 + 0x7B7E}


def test_expressions_are_bounded() -> None:
    for expression in ("x" * (EXPRESSION_MAX + 1), "||".join(map(str, range(TAGS_MAX + 1)))):
        with pytest.raises(ValueError, match="an expression of"):
            parse_subscription("T", expression)
    bean = {"topic": "T", "subString": "*"}
    codes = {"codeSet": list(range(TAGS_MAX + 1))}
    for over in ({"subString": "x" * (EXPRESSION_MAX + 1)}, codes):
        with pytest.raises(BadBody):
            SubscriptionData.from_json({**bean, **over})


def test_expressions() -> None:
    data = parse_subscription("T", "a > 5", "SQL92")
    assert not data.is_tag_type
    assert data.filter_codes is None
    with pytest.raises(ValueError, match="null"):
        parse_subscription("T", "", "SQL92")
    with pytest.raises(ValueError, match="split"):
        parse_subscription("T", "||")


def test_gos_codes_are_texts() -> None:
    data = SubscriptionData.from_json({"topic": "T", "subString": "A", "codeSet": ["65", 66]})
    assert data.code_set == {65, 66}
    assert SubscriptionData.from_json(data.to_json()) == data


def test_heartbeats() -> None:
    heartbeat = HeartbeatData(
        "cid",
        [ProducerData("pg")],
        [ConsumerData("g", subscription_data_set=[parse_subscription("T", "A")], unit_mode=True)],
        heartbeat_fingerprint=7,
        without_sub=True,
    )
    assert HeartbeatData.decode(heartbeat.encode()) == heartbeat


def test_heartbeats_with_little_in_them() -> None:
    heartbeat = HeartbeatData.decode(b'{"clientID":"c","isWithoutSub":true,"consumerDataSet":null}')
    assert heartbeat == HeartbeatData("c", without_sub=True)
    consumer = ConsumerData.from_json({"groupName": "g"})
    assert (consumer.message_model, consumer.subscription_data_set) == ("CLUSTERING", [])
