"""Calls to a peer and their answers."""

import pytest

from turbopump.net.wire.command import FRAME_MAX, WireError, new_request, new_response


def test_answers_are_matched_by_opaque(peer, line) -> None:
    first, second = peer.call(new_request(307), 1000), peer.call(new_request(309), 2000)
    assert peer.waiting_calls == 2
    assert [alarm.delay_ms for alarm in line.alarms] == [1000, 2000]
    peer.answered(new_response(line.sent[1], 0, "second"))
    peer.answered(new_response(line.sent[0], 0, "first"))
    assert (first.value.remark, second.value.remark) == ("first", "second")
    assert all(alarm.cancelled for alarm in line.alarms)
    assert peer.waiting_calls == 0


def test_an_unexpected_answer_is_dropped(peer, line) -> None:
    response = peer.call(new_request(307), 1000)
    peer.answered(new_response(new_request(1), 0))
    assert not response.done
    peer.answered(new_response(line.sent[0], 0))
    peer.answered(new_response(line.sent[0], 1))
    assert response.value.code == 0


def test_a_call_times_out(peer, line) -> None:
    response = peer.call(new_request(307), 1000)
    line.alarms[0].callback()
    assert response.value is None
    assert peer.waiting_calls == 0
    peer.answered(new_response(line.sent[0], 0))
    assert response.value is None


def test_notices_are_oneway(peer, line) -> None:
    peer.notify(new_request(40))
    assert line.sent[0].is_oneway
    assert peer.waiting_calls == 0


@pytest.mark.logs_tracebacks
def test_a_lost_peer_fails_waiting_calls_and_is_reported(peer, line) -> None:
    seen = []
    response = peer.call(new_request(307), 1000)
    response.then(lambda value: seen.append(("answer", value)))

    def fails() -> None:
        raise RuntimeError("a callback's own failure")

    peer.on_close(fails)
    peer.on_close(lambda: seen.append(("closed", peer.closed)))
    peer.lost()
    assert seen == [("answer", None), ("closed", True)]
    assert line.alarms[0].cancelled
    peer.on_close(lambda: seen.append("late"))
    assert seen[-1] == "late"
    sent = len(line.sent)
    assert peer.call(new_request(307), 1000).value is None
    peer.notify(new_request(40))
    peer.close()
    assert (len(line.sent), line.closed) == (sent, False)


@pytest.mark.logs_tracebacks
def test_a_failing_waiter_does_not_keep_the_others_from_learning(peer) -> None:
    seen = []
    peer.call(new_request(307), 1000).then(lambda value: 1 / 0)
    peer.call(new_request(307), 1000).then(seen.append)
    peer.lost()
    assert seen == [None]


def test_a_call_too_large_for_a_frame_waits_for_nothing(peer) -> None:
    with pytest.raises(WireError):
        peer.call(new_request(307, body=bytes(FRAME_MAX)), 1000)
    assert peer.waiting_calls == 0


def test_opaques_stay_positive(peer, line) -> None:
    peer._next_opaque = 0x7FFFFFFF - 1
    for _ in range(3):
        peer.notify(new_request(40))
    assert [command.opaque for command in line.sent] == [0x7FFFFFFF, 0, 1]


def test_context_and_closing(peer, line) -> None:
    peer.context["group"] = "g"
    assert peer.context == {"group": "g"}
    peer.close()
    assert line.closed
    assert repr(peer) == "Peer(10.0.0.5:1234)"
