"""Long messages between controllers are decoded in steps, with the same result as at once."""

import base64
import json
from collections.abc import Generator
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from turbopump.controller.raft import messages
from turbopump.controller.raft.log import Entry
from turbopump.controller.raft.messages import (
    SMALL_MAX,
    InstallSnapshotRequest,
    MessageError,
    PushEntryRequest,
    PushType,
    RaftMessage,
    RaftRequestCode,
    RaftResponseCode,
    decode,
    encode,
    push_in_steps,
    snapshot_in_steps,
)
from turbopump.net.wire.bodies import run_to_result

REFERENCE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "controller.md"
MEMBERS = {"group": "g", "localId": "n1", "remoteId": "n0", "leaderId": "n1", "term": 3}


def steps_of(steps: Generator[None, None, RaftMessage]) -> int:
    count = 0
    try:
        while True:
            next(steps)
            count += 1
    except StopIteration:
        return count


@pytest.mark.parametrize("codes", [RaftRequestCode, RaftResponseCode])
def test_each_code_is_a_code_of_the_reference(codes: type[IntEnum]) -> None:
    text = REFERENCE.read_text().replace("\N{MINUS SIGN}", "-")
    members = codes.__members__.items()
    assert [name for name, code in members if f"{code.value} {name}" not in text] == []


@pytest.mark.parametrize("size", [0, 1, 2, 3, 99_999, 300_000])
@pytest.mark.parametrize("spaces", [False, True])
def test_a_snapshot(size: int, spaces: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "DATA_PER_STEP", 1 << 16)
    wanted = InstallSnapshotRequest(
        group="g",
        local_id="n1",
        remote_id="n0",
        leader_id="n1",
        term=3,
        last_included_index=7,
        last_included_term=2,
        last_included_pos=9,
        data=bytes(range(256)) * (size // 256 + 1),
    )
    body = encode(wanted)
    if spaces:
        body = json.dumps(json.loads(body)).encode()
    assert run_to_result(snapshot_in_steps(body)) == wanted
    assert decode(InstallSnapshotRequest, body) == wanted
    assert steps_of(snapshot_in_steps(body)) >= len(body) >> 16


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({**MEMBERS, "date": "x" * (2 * SMALL_MAX)}).encode(),
        json.dumps({**MEMBERS, "data": "", "more": "x" * (2 * SMALL_MAX)}).encode(),
        json.dumps({**MEMBERS, "data": "?" * (2 * SMALL_MAX)}).encode(),
        json.dumps({**MEMBERS, "data": "A" * (2 * SMALL_MAX)}).encode()[:-3],
        b'{"data":"' + b"A" * (2 * SMALL_MAX),
        b'{"data":"' + base64.b64encode(bytes(2 * SMALL_MAX)) + b'",}]',
    ],
    ids=["without data", "long beside it", "no base64", "cut", "no end", "no object"],
)
def test_an_invalid_message_of_a_member_is_refused(body: bytes) -> None:
    with pytest.raises(MessageError):
        run_to_result(snapshot_in_steps(body))


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 40])
def test_a_push(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 entries at once took 38 ms."""
    monkeypatch.setattr(messages, "ENTRIES_PER_STEP", 8)
    wanted = PushEntryRequest(
        group="g",
        local_id="n1",
        remote_id="n0",
        leader_id="n1",
        term=3,
        type=PushType.APPEND,
        commit_index=4,
        pre_log_index=1,
        pre_log_term=1,
        batch_entry=tuple(Entry(number, 2, 50 * number, b"x") for number in range(count)),
    )
    body = encode(wanted)
    assert run_to_result(push_in_steps(body)) == wanted == decode(PushEntryRequest, body)
    assert steps_of(push_in_steps(body)) > count // 8


@pytest.mark.parametrize(
    "batch", [{}, "x", 7, [1], [{}], [{"index": -1, "term": 1, "pos": 0, "size": 48}]]
)
def test_an_invalid_push_is_refused(batch: Any) -> None:
    body = json.dumps({**MEMBERS, "type": "APPEND", "batchEntry": batch}).encode()
    texts = []
    for read in (
        lambda: decode(PushEntryRequest, body),
        lambda: run_to_result(push_in_steps(body)),
    ):
        with pytest.raises(MessageError) as raised:
            read()
        texts.append(str(raised.value))
    assert texts[0] == texts[1]
