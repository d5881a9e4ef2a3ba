"""The table of handlers, and the responses of the table itself."""

import pytest

from turbopump.engine.deferred import Deferred
from turbopump.net.transport.dispatcher import QUIET_MS, REMARK_MAX, Dispatcher
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.command import new_request, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.offsets import GetMinOffsetRequest
from turbopump.net.wire.heartbeat import HeartbeatData


def test_handlers_get_request_peer_and_time(peer) -> None:
    table = Dispatcher()
    table.add(31, lambda request, who, now_ms: new_response(request, 0, f"{who.address} {now_ms}"))
    assert table.dispatch(new_request(31), peer, 5).remark == "10.0.0.5:1234 5"
    assert table.codes == {31}


def test_unknown_codes(peer) -> None:
    table = Dispatcher()
    response = table.dispatch(new_request(9999), peer, 0)
    assert (response.code, response.remark) == (3, " request type 9999 not supported")


def test_a_table_without_some_codes(peer) -> None:
    table = Dispatcher()
    for code in (10, 11):
        table.add(code, lambda request, *_: new_response(request, 0))
    fewer = table.without_codes([11, 361])
    assert [fewer.dispatch(new_request(code), peer, 0).code for code in (10, 11)] == [0, 3]
    assert table.codes == {10, 11}


def test_bad_headers_and_bodies_are_answered_1(peer) -> None:
    table = Dispatcher()
    table.add(31, lambda request, *_: read_header(GetMinOffsetRequest, request.fields))
    table.add(34, lambda request, *_: HeartbeatData.decode(request.body))
    response = table.dispatch(new_request(31, fields={"topic": "T"}), peer, 0)
    assert (response.code, response.remark) == (1, "BadHeader: the custom field <queueId> is null")
    response = table.dispatch(new_request(34, body=b"[]"), peer, 0)
    assert response.code == 1
    assert response.remark.startswith("BadBody: ")


@pytest.mark.logs_tracebacks
def test_failures_are_answered_with_one_line(peer, caplog) -> None:
    table = Dispatcher()

    def fails(*_) -> None:
        raise RuntimeError("two\nlines " + "x" * 1000)

    table.add(10, fails)
    response = table.dispatch(new_request(10), peer, 0)
    assert response.code == 1
    assert response.remark.startswith("RuntimeError: two lines xxx")
    assert len(response.remark) == REMARK_MAX
    assert "request 10 of 10.0.0.5:1234 failed" in caplog.text


def test_a_full_disk_is_one_line_for_many_requests(peer, caplog) -> None:
    table = Dispatcher()

    def full(*_) -> None:
        raise OSError(28, "No space left on device")

    table.add(10, full)
    for now_ms in (5_000, 5_001, 5_000 + QUIET_MS - 1):
        response = table.dispatch(new_request(10), peer, now_ms)
        assert response.remark == "OSError: [Errno 28] No space left on device"
    assert [record.exc_info for record in caplog.records] == [None]
    for now_ms in (5_000 + QUIET_MS, 3):
        table.dispatch(new_request(10), peer, now_ms)
    assert len(caplog.records) == 3, "a clock that was set back keeps nothing quiet"


def test_late_answers_pass_through(peer) -> None:
    table = Dispatcher()
    later: Deferred = Deferred()
    table.add(11, lambda *_: later)
    assert table.dispatch(new_request(11), peer, 0) is later


def test_a_code_has_one_handler() -> None:
    table = Dispatcher()
    table.add(1, lambda *_: None)
    with pytest.raises(AssertionError, match="already"):
        table.add(1, lambda *_: None)


def guarded(remark: str, steps: bool = False) -> Dispatcher:
    """A table whose guard refuses requests without the field `in`, in steps if asked for."""

    def guard(request, who, now_ms):
        refusal = None if "in" in request.fields else new_response(request, 16, remark)

        def in_steps():
            yield
            return refusal

        return in_steps() if steps else refusal

    table = Dispatcher(guard=guard)

    def slow(request, *_):
        yield
        return new_response(request, 0, "slow")

    table.add(10, lambda request, *_: new_response(request, 0))
    table.add(11, slow)
    return table


def test_a_guard_is_asked_before_each_handler(peer) -> None:
    for table in (guarded("no"), guarded("no").without_codes([12])):
        for code in (10, 11, 99):
            response = table.dispatch(new_request(code), peer, 0)
            assert (response.code, response.remark) == (16, "no")
        assert table.dispatch(new_request(10, fields={"in": ""}), peer, 0).code == 0
        assert table.dispatch(new_request(99, fields={"in": ""}), peer, 0).code == 3
        assert table.dispatch_trusted(new_request(10), peer, 0).code == 0


def test_a_guard_may_take_steps(peer) -> None:
    table = guarded("no", steps=True)
    for code in (10, 11, 99):
        assert run_to_result(table.dispatch(new_request(code), peer, 0)).code == 16
    answers = [
        run_to_result(table.dispatch(new_request(code, fields={"in": ""}), peer, 0))
        for code in (10, 11)
    ]
    assert [(one.code, one.remark) for one in answers] == [(0, None), (0, "slow")]
