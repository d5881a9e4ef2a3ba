"""Marks of half messages, and the half messages that wait for an op message, against
plain Python.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.pyx.halves import HalfMarks

offsets = st.integers(0, 60) | st.integers(4_000, 4_200) | st.just(9_000)
steps = st.lists(
    st.tuples(st.just("set"), offsets, st.integers(0, 255))
    | st.tuples(st.just("end"), offsets, st.integers(1, 4))
    | st.tuples(st.just("drop"), offsets, st.just(0))
    | st.tuples(st.just("write"), st.integers(0, 40), st.just(0)),
    max_size=60,
)


def written(waiting: list[int], size: int) -> tuple[bytes, int, int]:
    """The body of the next op message, as RocketMQ writes it."""
    count, body = 0, b""
    for at in waiting:
        if count and len(body) + len(b"%d," % at) > size:
            break
        count, body = count + 1, body + b"%d," % at
    return body, count, max(waiting[:count], default=-1)


@given(st.integers(0, 50), steps)
def test_marks_are_those_of_a_dictionary(base: int, todo: list[tuple[str, int, int]]) -> None:
    calls = 0

    def due() -> None:
        nonlocal calls
        calls += 1

    marks, known, waiting, first = HalfMarks(base, 0, 3, due), dict[int, int](), list[int](), base
    for what, at, mark in todo:
        if what == "drop":
            marks.drop(at)
            first = max(first, at)
        elif what == "write":
            assert marks.op_body(at) == written(waiting, at)
            count = written(waiting, at)[1]
            marks.written(count)
            del waiting[:count]
        else:
            getattr(marks, "set_mark" if what == "set" else "end")(at, mark)
            known |= {at: mark} if at >= first else {}
            waiting += [at] if what == "end" else []
        assert (marks.base, marks.waiting, marks.is_full) == (
            first,
            len(waiting),
            len(waiting) >= 3,
        )
    assert calls == any(what == "end" for what, _, _ in todo)
    looked_at = range(9_100)
    assert [marks.mark_of(at) for at in looked_at] == [
        known.get(at, 0) if at >= first else -1 for at in looked_at
    ]
    free = [at for at in range(first, 9_100) if not known.get(at)]
    assert marks.open_count(9_050) == sum(at < 9_050 for at in free)
    for at in (0, first, 30, 4_100, 9_000):
        assert marks.next_open(at) == next(one for one in free if one >= at)


def test_values_no_half_message_has_are_refused() -> None:
    marks = HalfMarks(0, 0, 1, lambda: None)
    for at, mark in ((-1, 1), ((1 << 63) - 1, 1), (0, 256), (0, -1)):
        with pytest.raises(ValueError, match="no "):
            marks.end(at, mark)
    for count in (-1, 1):
        with pytest.raises(ValueError, match="of 0"):
            marks.written(count)
    for base, limit in ((-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="from"):
            HalfMarks(base, 0, limit, lambda: None)
    assert marks.op_body(-5) == (b"", 0, -1)


def test_due_is_asked_for_again_once_it_was_answered() -> None:
    notified = list[int]()
    marks = HalfMarks(0, 0, 10, lambda: notified.append(marks.waiting))
    for at in range(4):
        marks.end(at, 1)
        marks.notified = at != 2
    assert notified == [1, 4]
