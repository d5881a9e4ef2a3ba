"""Acknowledgements that cannot keep their message from being delivered again get an error."""

from base64 import b64encode
from typing import Any

import pytest
from tests.unit.broker.pop.poppers import INVISIBLE_MS, Popper

from turbopump.broker.pop import changes
from turbopump.engine.types import QueueOffset
from turbopump.net.wire.bodies import encode_json
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.headers.pop import ChangeInvisibleTimeRequest
from turbopump.net.wire.pop_handles import PopHandle

REFUSED = ResponseCode.MESSAGE_ILLEGAL


def change(popper: Popper, text: str, invisible_ms: int = 5_000) -> Command:
    handle = PopHandle.parse(text)
    topic = handle.kind.topic_of("T", "g")
    header = ChangeInvisibleTimeRequest(
        "g", topic, handle.queue_id, text, handle.queue_offset or 0, invisible_ms
    )
    return popper.world.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)


def changed(text: str, response: Command) -> str:
    """The new handle, as clients make it."""
    assert response.code == ResponseCode.SUCCESS
    words, found = text.split(" "), response.fields
    return " ".join(
        [words[7], found["popTime"], found["invisibleTime"], found["reviveQid"], *words[4:]]
    )


def comes_again(popper: Popper) -> list[str]:
    popper.world.pass_time(20_000)
    return [body for body, _ in popper.pop()]


def ack_batch(popper: Popper, text: str, bits: bytes = b"\1") -> Command:
    words = text.split(" ")
    names = ("so", "pt", "it", "rq")
    entry: dict[str, Any] = {
        **{name: int(word) for name, word in zip(names, words[:4], strict=True)},
        "c": "g", "t": "T", "r": "0", "q": 0, "b": b64encode(bits).decode(),
    }  # fmt: skip
    body = encode_json({"brokerName": "broker-a", "acks": [entry]})
    return popper.world.ask(RequestCode.BATCH_ACK_MESSAGE, None, body)


def test_a_change_that_is_repeated_is_one_change(popper: Popper) -> None:
    popper.send("a")
    [(_, old)] = popper.pop()
    first = change(popper, old)
    popper.world.pass_time(200)
    again = change(popper, old)
    assert again.fields == first.fields and again.code == ResponseCode.SUCCESS
    assert popper.ack(changed(old, again)).code == ResponseCode.SUCCESS
    assert comes_again(popper) == []


def test_an_old_handle_settles_nothing_after_a_change(popper: Popper) -> None:
    popper.send("a")
    [(_, old)] = popper.pop()
    new = changed(old, change(popper, old))
    assert popper.ack(old).code == REFUSED
    assert ack_batch(popper, old).code != ResponseCode.SUCCESS
    assert change(popper, old, 7_000).code == REFUSED
    assert popper.ack(new).code == ResponseCode.SUCCESS
    assert comes_again(popper) == []


def test_a_late_acknowledgement_is_an_error(popper: Popper) -> None:
    popper.send("a")
    [(_, handle)] = popper.pop()
    popper.world.now_ms += INVISIBLE_MS
    assert popper.ack(handle).code == REFUSED
    assert change(popper, handle).code == REFUSED
    assert ack_batch(popper, handle).code != ResponseCode.SUCCESS
    assert comes_again(popper) == ["a"]


def test_a_forged_handle_of_an_ordered_pop_skips_no_message(popper: Popper) -> None:
    popper.send("a", "b")
    world = popper.world
    world.broker.offsets.commit("g", "T", 0, QueueOffset(0), world.now_ms)
    forged = f"0 {world.now_ms} 60000 999 0 broker-a 0 0"
    assert popper.ack(forged).code == REFUSED
    assert change(popper, forged).code == REFUSED
    assert [body for body, _ in popper.pop(order=True)] == ["a", "b"]


def test_an_ordered_acknowledgement_of_an_earlier_pop_is_an_error(popper: Popper) -> None:
    popper.send("a")
    [(_, early)] = popper.pop(order=True)
    popper.world.pass_time(INVISIBLE_MS)
    [(_, late)] = popper.pop(order=True)
    assert popper.ack(early).code == REFUSED
    assert popper.ack(late).code == ResponseCode.SUCCESS


def test_replaced_handles_are_forgotten_in_time_and_bounded(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_SIZE", 5_000)
    kept, marks = popper.world.broker.pop.changes, []
    monkeypatch.setattr(kept, "_mark", lambda _key, offset, by: marks.append((offset, by)))
    popper.send(*map(str, range(20)))
    for _, handle in popper.pop():
        change(popper, handle)
    assert 0 < kept.size <= 5_000
    popper.world.pass_time(10_000)
    popper.send("last")
    for _, handle in popper.pop(max_msg_nums=1):
        change(popper, handle)
    assert kept.size < 2_000
    assert sum(by for _, by in marks) == 1


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("gap", [900, 2_100])
def test_a_sparse_pop_gives_handles_that_a_batch_can_acknowledge(
    popper: Popper, gap: int, in_order: bool
) -> None:
    """A bit set has a bit for each queue offset from the handle's start on."""
    for number in range(3):
        popper.send(*["x"] * gap, tag="B")
        popper.send(str(number))
    found: list[str] = []
    sizes: list[int] = []
    wish = {"exp": "TAGS = 'A'", "exp_type": "SQL92", "invisible_time": 10_000, "order": in_order}
    for _ in range(20):
        popped = popper.pop(**wish)
        if not popped:
            continue
        handles = [PopHandle.parse(text) for _, text in popped]
        bits = 0
        for handle in handles:
            assert handle.queue_offset is not None
            bits |= 1 << handle.queue_offset - handle.start
        size = bits.bit_length() // 8 + 1
        response = ack_batch(popper, popped[0][1], bits.to_bytes(size, "little"))
        assert response.code == ResponseCode.SUCCESS, response.remark
        found += [body for body, _ in popped]
        sizes.append(size)
    assert found == ["0", "1", "2"] and max(sizes) <= 129
    assert comes_again(popper) == []
