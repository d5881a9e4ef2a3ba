"""Typed headers: read from every golden frame of their code and written back to the same fields."""

import pytest

from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.header import read_header, write_header
from turbopump.net.wire.headers import offsets, pull, send

REQUESTS = {
    RequestCode.PULL_MESSAGE: pull.PullMessageRequest,
    RequestCode.LITE_PULL_MESSAGE: pull.PullMessageRequest,
    RequestCode.CONSUMER_SEND_MSG_BACK: send.ConsumerSendMsgBackRequest,
    RequestCode.QUERY_CONSUMER_OFFSET: offsets.QueryConsumerOffsetRequest,
    RequestCode.UPDATE_CONSUMER_OFFSET: offsets.UpdateConsumerOffsetRequest,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.SearchOffsetRequest,
    RequestCode.GET_MAX_OFFSET: offsets.GetMaxOffsetRequest,
    RequestCode.GET_MIN_OFFSET: offsets.GetMinOffsetRequest,
    RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.GetEarliestMsgStoretimeRequest,
}
RESPONSES = {
    RequestCode.PULL_MESSAGE: pull.PullMessageResponse,
    RequestCode.LITE_PULL_MESSAGE: pull.PullMessageResponse,
    RequestCode.QUERY_CONSUMER_OFFSET: offsets.QueryConsumerOffsetResponse,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.SearchOffsetResponse,
    RequestCode.GET_MAX_OFFSET: offsets.GetMaxOffsetResponse,
    RequestCode.GET_MIN_OFFSET: offsets.GetMinOffsetResponse,
    RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.GetEarliestMsgStoretimeResponse,
    RequestCode.SEND_MESSAGE: send.SendMessageResponse,
    RequestCode.SEND_MESSAGE_V2: send.SendMessageResponse,
    RequestCode.SEND_BATCH_MESSAGE: send.SendMessageResponse,
    RequestCode.SEND_REPLY_MESSAGE_V2: send.SendMessageResponse,
}
SEND_CODES = {10, 310, 320, 324, 325}
# Fields beside the header classes: the kind of request, and fields that brokers add to send
# responses.
BESIDE = {"ReqT", "MSG_REGION", "TRACE_ON"}


def same_fields(golden, written: dict[str, str]) -> None:
    expected = dict(golden.truth["extFields"] or {})
    assert {key for key in expected if key not in written} <= BESIDE, golden
    for key, value in written.items():
        assert expected[key] == value, (golden, key)


@pytest.mark.parametrize("code", sorted(REQUESTS), ids=lambda code: code.name)
def test_requests(all_frames, code) -> None:
    found = [one for one in all_frames if one.is_request and one.truth["code"] == code]
    for golden in found:
        header = read_header(REQUESTS[code], golden.truth["extFields"])
        same_fields(golden, write_header(header))
    assert found or code == RequestCode.GET_EARLIEST_MSG_STORETIME


@pytest.mark.parametrize("code", sorted(RESPONSES), ids=lambda code: code.name)
def test_responses(all_frames, code) -> None:
    responses = [
        one
        for one in all_frames
        if not one.is_request and one.truth["requestName"] == code.name and one.truth["code"] == 0
    ]
    for golden in responses:
        header = read_header(RESPONSES[code], golden.truth["extFields"])
        same_fields(golden, write_header(header))
    assert responses or code == RequestCode.GET_EARLIEST_MSG_STORETIME


def test_every_pull_answer_carries_the_four_offsets(all_frames) -> None:
    codes = {0, 19, 20, 21}
    responses = [
        one
        for one in all_frames
        if not one.is_request
        and one.truth["requestName"] == "PULL_MESSAGE"
        and one.truth["code"] in codes
    ]
    assert {one.truth["code"] for one in responses} == codes
    for golden in responses:
        header = read_header(pull.PullMessageResponse, golden.truth["extFields"])
        assert 0 <= header.min_offset <= header.max_offset, golden


def test_sends_in_both_spellings(all_frames) -> None:
    found = [one for one in all_frames if one.is_request and one.truth["code"] in SEND_CODES]
    assert {one.truth["code"] for one in found} >= {10, 310, 320, 325}
    for golden in found:
        code = golden.truth["code"]
        header = send.read_send(code, golden.truth["extFields"])
        same_fields(golden, send.write_send(code, header))
        other = 10 if code == 310 else 310
        again = send.read_send(other, send.write_send(other, header))
        assert send.write_send(code, again) == send.write_send(code, header), golden
