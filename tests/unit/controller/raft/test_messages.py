"""Long messages between controllers are read in steps, to what they are when read at once."""

import base64
import json

import pytest

from turbopump.controller.raft import messages
from turbopump.controller.raft.messages import (
    SMALL_MAX,
    InstallSnapshotRequest,
    MessageError,
    decode,
    decode_in_steps,
    encode,
)
from turbopump.net.wire.bodies import finish

MEMBERS = {"group": "g", "localId": "n1", "remoteId": "n0", "leaderId": "n1", "term": 3}


def steps_of(body: bytes) -> int:
    steps, count = decode_in_steps(InstallSnapshotRequest, body), 0
    try:
        while True:
            next(steps)
            count += 1
    except StopIteration:
        return count


@pytest.mark.parametrize("size", [0, 1, 2, 3, 99_999, 300_000])
@pytest.mark.parametrize("spaces", [False, True])
def test_a_snapshot(size: int, spaces: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "DATA_OF_STEP", 1 << 16)
    wanted = InstallSnapshotRequest(
        group="g", local_id="n1", remote_id="n0", leader_id="n1", term=3, last_included_index=7,
        last_included_term=2, last_included_pos=9, data=bytes(range(256)) * (size // 256 + 1),
    )  # fmt: skip
    body = encode(wanted)
    if spaces:
        body = json.dumps(json.loads(body)).encode()
    assert finish(decode_in_steps(InstallSnapshotRequest, body)) == wanted
    assert decode(InstallSnapshotRequest, body) == wanted
    assert steps_of(body) >= len(body) >> 16


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
def test_what_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(MessageError):
        finish(decode_in_steps(InstallSnapshotRequest, body))
