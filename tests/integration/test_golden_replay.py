"""Every request that RocketMQ's own clients, brokers and tools sent, against our broker and name
server; then the same with fields and bodies damaged. Each is answered, and no server fails."""

import asyncio
import random
import re
from collections.abc import Iterator

import pytest
import uvloop
from tests.wire.frames import CAPTURES, Golden, golden_frames

from turbopump.cluster import SMALL_FILES, Cluster
from turbopump.net.wire.command import Command, decode, encode, new_request

ANSWER_SECONDS = 60
ONEWAY_SECONDS = 0.02
GET_ALL_TOPIC_LIST = 206
GET_BROKER_RUNTIME_INFO = 28
# A long poll of these is answered when its suspend time ends: short here.
PULLS = {11, 361}
# Form of a programmer's mistake in a remark; refusals have texts of their own.
MISTAKES = re.compile(r"(Key|Type|Attribute|Index|Assertion|Unicode\w*|Recursion|Memory|Name)Error")

VALUES = [
    "",
    "-1",
    "0",
    "x",
    "true",
    "null",
    "中",
    "%RETRY%",
    "a" * 300,
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
]


def requests() -> Iterator[Command]:
    for capture in CAPTURES:
        for golden in golden_frames(capture):
            if golden.is_request and not is_ledger(golden):
                command = decode(golden.frame)
                if command.code in PULLS:
                    command.fields["suspendTimeoutMillis"] = "50"
                yield command


def is_ledger(golden: Golden) -> bool:
    """DLedger's protocol has the same frames, on ports that we do not have."""
    return (golden.truth["name"] or "").startswith("DLEDGER")


def damaged(command: Command, chance: random.Random) -> Command:
    if command.fields and chance.random() < 0.6:
        name = chance.choice(sorted(command.fields))
        if chance.random() < 0.3:
            del command.fields[name]
        else:
            command.fields[name] = chance.choice(VALUES)
    elif command.body:
        body = bytearray(command.body)
        for _ in range(chance.randrange(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        cut = chance.randrange(len(body)) if chance.random() < 0.2 else len(body)
        command.body = bytes(body[:cut])
    return command


async def ask(address: str, request: Command) -> Command | None:
    """The response; None for a one-way request, whose connection stays open a moment."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"".join(encode(request)))
        seconds = ONEWAY_SECONDS if request.is_oneway else ANSWER_SECONDS
        async with asyncio.timeout(seconds):
            while True:
                head = await reader.readexactly(4)
                response = decode(head + await reader.readexactly(int.from_bytes(head, "big")))
                # A heartbeat is followed by notices: they are requests.
                if response.is_response:
                    assert response.opaque == request.opaque
                    return response
    except TimeoutError:
        assert request.is_oneway, f"no answer to {request}"
        return None
    finally:
        writer.transport.abort()


async def replay(commands: list[Command]) -> dict[int, int]:
    """Send all to broker and name server; how often each code was answered."""
    codes: dict[int, int] = {}
    async with Cluster(broker_properties=SMALL_FILES) as cluster:
        broker, namesrv = cluster.brokers[0].address, cluster.namesrv
        for command in commands:
            for address in (broker, namesrv):
                response = await ask(address, command)
                assert (response is None) == command.is_oneway, command
                if response is not None:
                    codes[response.code] = codes.get(response.code, 0) + 1
                    mistake = response.code == 1 and MISTAKES.search(response.remark or "")
                    assert not mistake, (command, response.remark)
        for address, code in ((broker, GET_BROKER_RUNTIME_INFO), (namesrv, GET_ALL_TOPIC_LIST)):
            response = await ask(address, new_request(code))
            assert response is not None and response.code == 0
    return codes


def no_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.mark.integration
def test_every_golden_request_is_answered(caplog) -> None:
    codes = uvloop.run(replay(list(requests())))
    assert set(codes) >= {0, 1, 3, 17, 22, 24, 29}
    assert codes[0] > 400
    no_tracebacks(caplog)


@pytest.mark.integration
@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_requests_are_answered_too(caplog, seed) -> None:
    chance = random.Random(seed)
    commands = [damaged(command, chance) for command in requests()]
    codes = uvloop.run(replay(commands))
    assert codes[1] > 50
    no_tracebacks(caplog)
