"""`turbopump send` and `consume`: the content of messages, the output, and failures."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Command
from tests.unit.net.client.cluster import NAME_SERVER, TOPIC, ScriptedCluster

from turbopump.cli import send
from turbopump.net.transport.errors import ConnectError
from turbopump.net.wire.codes import RequestCode, ResponseCode

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
GROUP = "TURBOPUMP_CONSUME"


def fields(cluster: ScriptedCluster) -> dict[str, str]:
    (call,) = cluster.made(SEND)
    return call.request.fields


def bodies(cluster: ScriptedCluster) -> list[Any]:
    return [call.request.body for call in cluster.made(SEND)]


def test_a_message_has_all_that_was_given(cluster: ScriptedCluster, command: Command) -> None:
    words = "-c", "red", "-k", "k1 k2", "--delay-level", 3, "--property", "a=b=c"
    (line,) = command("send", "-t", TOPIC, "-p", "hallo", *words).lines
    assert line.startswith("SEND_OK ") and line.endswith(" offset 0") and " a queue " in line
    assert bodies(cluster) == [b"hallo"]
    sent = fields(cluster)
    assert (sent["a"], sent["b"]) == ("TURBOPUMP_SEND", TOPIC)
    for pair in ("a\x01b=c", "TAGS\x01red", "KEYS\x01k1 k2", "DELAY\x013"):
        assert pair in sent["i"].split("\x02"), sent["i"]


def test_one_sharding_key_is_one_queue(cluster: ScriptedCluster, command: Command) -> None:
    rows = command(
        "send", "-t", TOPIC, "-p", "x", "--sharding-key", "k", "--count", 3, "--json"
    ).json
    assert [row["queue_offset"] for row in rows] == [0, 1, 2]
    assert len({row["queue_id"] for row in rows}) == 1


def test_each_line_of_stdin_is_a_message(cluster: ScriptedCluster, command: Command) -> None:
    assert len(command("send", "-t", TOPIC, stdin=b"one\r\n\ntwo\n\xff\xfe").lines) == 3
    assert bodies(cluster) == [b"one", b"two", b"\xff\xfe"]


def test_a_file_is_a_body_as_it_is(
    cluster: ScriptedCluster, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "body").write_bytes(b"a\nb\n")
    assert len(command("send", "-t", TOPIC, "-f", tmp_path / "body", "--count", 2).lines) == 2
    assert bodies(cluster) == [b"a\nb\n"] * 2


def test_a_line_that_no_broker_takes_ends_it(
    cluster: ScriptedCluster, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "LINE_MAX", 10)
    ran = command("send", "-t", TOPIC, stdin=b"short\n" + b"x" * 11)
    assert ran.code == 2 and "a line of standard input is longer than 10 bytes" in ran.err
    assert bodies(cluster) == [b"short"] and ran.out.startswith("SEND_OK")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-p", "x", "-f", "y"), "the body is given twice: either -p or -f"),
        (("-f", "/no/such/file"), "/no/such/file: No such file or directory"),
        (("-p", "x", "--property", "a"), "a is no property: NAME=VALUE is expected"),
        (("-p", "x", "--property", "=b"), "=b is no property: NAME=VALUE is expected"),
        (("-p", "x", "--delay", "soon"), "soon is no time: 500ms, 90s, 5m, 2h or 1d is expected"),
        (
            ("-p", "x", "--at", "soon"),
            "soon is no time: 2030-01-31T08:00:00 or milliseconds since 1970 is expected",
        ),
        (
            ("-p", "x", "--at", "5", "--delay", "1s"),
            "only one of delay_level, delay_ms and deliver_at_ms may be set",
        ),
        (("-p", ""), "a message needs a body"),
        (("-p", "x", "-n", "nowhere"), "nowhere is no address: host:port is expected"),
        (("-p", "x", "-n", ";"), "no name server address is given: -n host:port"),
        (("-p", "x", "--property", "KEYS=b"), "the property name KEYS belongs to RocketMQ"),
    ],
)
def test_an_unsendable_message_is_one_sentence(
    cluster: ScriptedCluster, command: Command, words: tuple[str, ...], sentence: str
) -> None:
    assert command("send", "-t", TOPIC, *words).failure == (2, sentence)
    assert not cluster.made(SEND)


def test_a_refusal_is_one_line_whatever_the_remark(
    cluster: ScriptedCluster, command: Command
) -> None:
    cluster.fail("a", SEND, ResponseCode.MESSAGE_ILLEGAL)
    code, sentence = command("send", "-t", TOPIC, "-p", "x").failure
    assert code == 1 and sentence.endswith("answered 13: scripted")
    gone = ConnectError("it\nis\ngone")
    cluster.fail(NAME_SERVER, RequestCode.GET_ROUTEINFO_BY_TOPIC, *[gone] * 99)
    assert command("send", "-t", TOPIC, "-p", "x").failure == (1, "it is gone")


def put(cluster: ScriptedCluster, *texts: str, **more: Any) -> None:
    for text in texts:
        cluster.named("a").put(text.encode(), **more)


def test_messages_are_printed_and_committed(cluster: ScriptedCluster, command: Command) -> None:
    put(cluster, "1", "2", properties=b"TAGS\x01red\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01ID\x02")
    ran = command("consume", "-t", TOPIC, "--count", 2)
    head, body, second, _ = ran.lines
    assert head.endswith(" a/0@0 [red] keys=k1 k2 ID") and body == "1"
    assert " a/0@1 " in second
    assert cluster.named("a").committed[GROUP, TOPIC, 0] == 2


def test_a_count_is_not_exceeded(cluster: ScriptedCluster, command: Command) -> None:
    put(cluster, "1", "2", "3")
    rows = command("consume", "-t", TOPIC, "--count", 1, "--json").json
    assert [row["body"] for row in rows] == ["1"]
    assert cluster.named("a").committed[GROUP, TOPIC, 0] == 1
    rows = command("consume", "-t", TOPIC, "--count", 2, "--json").json
    assert [row["body"] for row in rows] == ["2", "3"], "the group goes on where it was"


def test_it_ends_when_none_came_for_so_long(cluster: ScriptedCluster, command: Command) -> None:
    put(cluster, "1")
    assert len(command("consume", "-t", TOPIC, "--timeout", 2.5, "--json").json) == 1
    leaving = cluster.made(RequestCode.UNREGISTER_CLIENT)
    assert {call.at_ms for call in leaving} == {2_500}


def test_from_last_is_now(cluster: ScriptedCluster, command: Command) -> None:
    put(cluster, "1")
    words = "--from", "last", "--timeout", 1, "-g", "G"
    assert command("consume", "-t", TOPIC, *words).lines == []
    asked = cluster.made(RequestCode.QUERY_CONSUMER_OFFSET)
    of_topic = [call for call in asked if call.request.fields["topic"] == TOPIC]
    assert {call.request.fields["setZeroIfNotFound"] for call in of_topic} == {"false"}


def test_only_the_tags_asked_for_are_printed(cluster: ScriptedCluster, command: Command) -> None:
    put(cluster, "Aa", properties=b"TAGS\x01Aa\x02")
    put(cluster, "BB", properties=b"TAGS\x01BB\x02")
    rows = command("consume", "-t", TOPIC, "-e", "BB || c", "--timeout", 1, "--json").json
    assert [row["body"] for row in rows] == ["BB"]


def test_how_consuming_fails(cluster: ScriptedCluster, command: Command) -> None:
    assert command("consume", "-t", "gone").failure == (1, "the topic gone does not exist")
    assert command("consume", "-t", "no topic").failure[0] == 2
    refused = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    cluster.fail("a", PULL, *[refused] * 4)
    code, sentence = command("consume", "-t", TOPIC).failure
    assert code == 1 and "answered 26" in sentence
    cluster.down.add(NAME_SERVER)
    assert command("consume", "-t", TOPIC).failure == (1, f"{NAME_SERVER} cannot be reached")
    assert cluster.open == 0


BYTES = os.fsdecode(b"a\xff")
"""An argument of bytes that are no UTF-8, as Python gives it."""


def test_a_body_that_is_no_text_is_sent_as_it_is(
    cluster: ScriptedCluster, command: Command
) -> None:
    assert command("send", "-t", TOPIC, "-p", BYTES).code == 0
    assert bodies(cluster) == [b"a\xff"]


@pytest.mark.parametrize("option", ["-c", "-k", "--property", "--sharding-key"])
def test_properties_that_are_no_text_are_refused(
    cluster: ScriptedCluster, command: Command, option: str
) -> None:
    """A tag must not lose its bytes silently, nor a sharding key end in a traceback."""
    code, error = command("send", "-t", TOPIC, "-p", "x", option, f"b={BYTES}").failure
    assert (code, error) == (2, f"{f'b={BYTES}'!r} is not UTF-8 text")
    assert not cluster.made(SEND)


@pytest.mark.parametrize("option", ["--count", "--delay-level"])
@pytest.mark.parametrize("value", ["-1", "x", "1e3", ""])
def test_numbers_that_are_none_say_which_option(
    cluster: ScriptedCluster, command: Command, option: str, value: str
) -> None:
    ran = command("send", "-t", TOPIC, "-p", "x", option, value)
    assert ran.code == 2 and option in ran.err and not cluster.made(SEND)


def test_a_condition_instead_of_tags(cluster: ScriptedCluster, command: Command) -> None:
    put(cluster, "1")
    rows = command("consume", "-t", TOPIC, "--sql", "a > 5", "--timeout", 1, "--json").json
    assert [row["body"] for row in rows] == ["1"], "a broker is asked, and this one has no filters"
    kinds = {call.request.fields.get("expressionType") for call in cluster.made(PULL)}
    assert "SQL92" in kinds


def test_fewer_messages_than_asked_for_are_a_failure(
    cluster: ScriptedCluster, command: Command
) -> None:
    ran = command("consume", "-t", TOPIC, "--count", 1, "--timeout", 3)
    assert (ran.code, ran.err) == (1, "turbopump: 0 of 1 messages came in time\n")
