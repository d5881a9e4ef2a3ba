"""DLedger's own frames, as three controllers of a RocketMQ 5.5.0 sent them: read and written again
byte for byte, and answered as its controllers answered."""

import random

import pytest
from tests.sim.raft.group import response_kind
from tests.wire.frames import Golden, golden_frames

from turbopump.controller.raft.core import Raft
from turbopump.controller.raft.member_state import Restored
from turbopump.controller.raft.messages import (
    REQUESTS,
    MessageError,
    PushEntryRequest,
    PushType,
    VoteRequest,
    VoteResponse,
    decode,
    encode,
)
from turbopump.controller.raft.options import RaftOptions
from turbopump.net.wire.codes import RequestCode

CAPTURES = ("controller-json", "controller-mixed")


def ledger_frames() -> list[tuple[Golden, Golden]]:
    """Requests with the request each frame belongs to."""
    found = []
    for capture in CAPTURES:
        frames = golden_frames(capture)
        requests = {one.truth["frame"]: one for one in frames if one.is_request}
        for one in frames:
            asked = requests.get(one.truth["pair"])
            if asked is not None and asked.truth["code"] in REQUESTS:
                found.append((asked, one))
    return found


FRAMES = ledger_frames()


def test_there_are_all_kinds() -> None:
    assert len(FRAMES) >= 36
    assert {asked.truth["code"] for asked, _ in FRAMES} == {51001, 51002, 51004}
    assert not {int(code) for code in RequestCode} & set(REQUESTS)


@pytest.mark.parametrize(("asked", "frame"), FRAMES, ids=lambda one: str(one))
def test_bodies_are_read_and_written_alike(asked: Golden, frame: Golden) -> None:
    kind = REQUESTS[asked.truth["code"]]
    if not frame.is_request:
        kind = next(response_kind(message) for message in [decode(kind, asked.body)])
    message = decode(kind, frame.body)
    assert encode(message) == frame.body


def test_the_first_round_of_votes_is_answered_as_java_answered_it() -> None:
    """V1, V2: three start at once, each votes for itself in term 0."""
    votes = [
        (decode(VoteRequest, asked.body), decode(VoteResponse, answer.body))
        for asked, answer in FRAMES
        if asked.truth["code"] == 51001 and not answer.is_request
    ]
    assert votes
    for request, response in votes:
        assert request.remote_id is not None
        raft = Raft(
            RaftOptions(
                self_id=request.remote_id,
                group="group1",
                peers={f"n{number}": f"127.0.0.1:{number}" for number in range(3)},
            ),
            Restored(),
            random.Random(1),
            0,
        )
        raft.campaign.run(0, 10)
        raft.take_actions()
        raft.on_request(request, "token", 20)
        responses = [action for action in raft.take_actions() if hasattr(action, "token")]
        assert [encode(answer.message) for answer in responses] == [encode(response)]


def test_truncate_carries_the_entry() -> None:
    pushes = [
        decode(PushEntryRequest, asked.body)
        for asked, one in FRAMES
        if asked is one and asked.truth["code"] == 51004
    ]
    truncates = [push for push in pushes if push.type is PushType.TRUNCATE]
    assert truncates
    assert all(push.entry is not None and push.entry.index == 0 for push in truncates)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"term":"x"}',
        b'{"term":1.5}',
        b'{"group":7}',
        b'{"type":"SHRINK"}',
        b'{"entry":{"index":0,"term":0,"pos":0,"size":48,"body":"???"}}',
        b'{"entry":{"index":-1,"term":0,"pos":0,"size":48}}',
        b'{"entry":{"index":0,"term":0,"pos":0,"size":49}}',
        b'{"entry":[]}',
        b'{"batchEntry":{}}',
        b'{"term":92233720368547758070}',
        b'{"type":["APPEND"]}',
    ],
)
def test_an_invalid_message_is_refused(body: bytes) -> None:
    with pytest.raises(MessageError):
        decode(PushEntryRequest, body)


def test_the_later_form_of_a_push_is_read() -> None:
    """A push of DLedger 0.3.3, with a list of entries and the index and term before them,
    decodes.
    """
    body = (
        b'{"code":200,"commitIndex":3,"entries":[{"body":"YQ==","index":4,"magic":1,"pos":0,'
        b'"size":49,"term":2}],"group":"g","leaderId":"n0","preLogIndex":3,"preLogTerm":1,'
        b'"remoteId":"n1","term":2,"totalSize":49,"type":"APPEND"}'
    )
    push = decode(PushEntryRequest, body)
    assert [entry.body for entry in push.entries] == [b"a"]
    assert (push.pre_log_index, push.pre_log_term) == (3, 1)
