"""The cache of answers by name: ages, failures, concurrent queries and bounds."""

from typing import Any

import pytest

from turbopump.engine.deferred import Deferred
from turbopump.net.routing.name_servers import Absent
from turbopump.net.routing.route_cache import NEVER_MS, CacheRules, RouteCache

GONE = Absent("no such name", is_certain=True)
SILENT = Absent("no answer", is_certain=False)


class Cache:
    """A cache whose queries the test answers."""

    def __init__(self, **rules: Any) -> None:
        self.now_ms = 0
        self.queries: list[tuple[str, str | None, Deferred[str | Absent]]] = []
        usual = {"fresh_ms": 10_000, "again_ms": 500, "absent_ms": 1_000, "size_max": 1_000}
        self.cache = RouteCache[str](
            self.query,
            lambda _name, answer: len(answer or ""),
            lambda: self.now_ms,
            CacheRules(**(usual | rules)),
        )

    def query(self, name: str, former: str | None) -> Deferred[str | Absent]:
        later: Deferred[str | Absent] = Deferred()
        self.queries.append((name, former, later))
        return later

    def answer(self, value: str | Absent) -> None:
        """Answer the oldest query."""
        self.queries.pop(0)[2].resolve(value)

    def asked(self) -> list[str]:
        return [name for name, _, _ in self.queries]

    def known(self, name: str, value: str | Absent) -> None:
        """Query a name and answer it."""
        self.cache.current_answer(name)
        self.answer(value)


def test_one_query_answers_all_that_wait() -> None:
    one = Cache()
    wanted = [one.cache.get_or_query("T") for _ in range(3)]
    assert one.asked() == ["T"] and not any(later.done for later in wanted)
    assert one.cache.current_answer("T") is None
    one.answer("route")
    assert [later.value for later in wanted] == ["route"] * 3
    assert (
        one.cache.get_or_query("T").value
        == one.cache.current_answer("T")
        == one.cache.get("T")
        == "route"
    )
    assert one.asked() == []


def test_an_old_answer_is_used_while_it_is_queried_again() -> None:
    one = Cache()
    one.known("T", "old")
    one.now_ms += 9_999
    one.cache.refresh_due()
    assert one.cache.get_or_query("T").value == "old" and one.asked() == []
    one.now_ms += 1
    assert one.cache.get_or_query("T").value == "old"
    assert one.queries[0][:2] == ("T", "old")
    one.answer("new")
    assert one.cache.get("T") == "new"
    one.now_ms += 10_000
    one.cache.refresh_due()
    one.cache.refresh_due()
    assert one.asked() == ["T"]


def test_uses_of_a_doubtful_answer_wait_for_a_query() -> None:
    one = Cache()
    one.cache.mark_doubtful("T")
    one.known("T", "old")
    one.cache.mark_doubtful("T")
    assert one.cache.get_or_query("T").value == "old", "the last query is too young"
    one.now_ms += 500
    wanted = one.cache.get_or_query("T")
    assert not wanted.done and one.asked() == ["T"]
    one.answer("new")
    assert wanted.value == "new"


def test_a_doubt_during_a_query_waits_for_it() -> None:
    one = Cache()
    one.known("T", "old")
    one.now_ms += 10_000
    assert one.cache.get_or_query("T").value == "old"
    one.cache.mark_doubtful("T")
    one.now_ms += 500
    wanted = one.cache.get_or_query("T")
    assert not wanted.done and one.asked() == ["T"]
    one.answer("new")
    assert wanted.value == "new"


def test_an_answer_that_failed_its_user_is_queried_without_waiting() -> None:
    one = Cache()
    one.cache.refresh_soon("T")
    one.known("T", "old")
    one.now_ms += 499
    one.cache.refresh_soon("T")
    assert one.asked() == []
    one.now_ms += 1
    one.cache.refresh_soon("T")
    one.cache.refresh_soon("T")
    assert one.asked() == ["T"] and one.cache.get_or_query("T").value == "old"


def test_a_change_that_name_servers_receive_now_is_queried_after_a_moment() -> None:
    one = Cache()
    one.cache.refresh_later("T")
    one.known("T", "old")
    one.cache.refresh_later("T")
    one.now_ms += 499
    one.cache.refresh_later("T")
    one.cache.refresh_due()
    assert one.asked() == []
    one.now_ms += 1
    one.cache.refresh_due()
    assert one.asked() == ["T"] and one.cache.get_or_query("T").value == "old"
    one.answer("new")
    one.now_ms += 1_000
    one.cache.refresh_due()
    assert one.asked() == []


def test_a_missing_answer_is_used_for_a_moment() -> None:
    one = Cache()
    one.known("T", SILENT)
    assert one.cache.get_or_query("T").value == one.cache.current_answer("T") == SILENT
    one.now_ms += 1_000
    wanted = one.cache.get_or_query("T")
    assert not wanted.done and one.queries[0][:2] == ("T", None)
    one.answer(GONE)
    assert wanted.value == GONE


def test_silence_keeps_the_former_answer() -> None:
    one = Cache()
    one.known("T", "old")
    one.now_ms += 10_000
    one.known("T", SILENT)
    one.now_ms += 9_999
    assert one.cache.get_or_query("T").value == "old" and one.asked() == []
    one.now_ms += 1
    one.known("T", GONE)
    assert one.cache.get("T") == GONE


def test_a_missing_name_is_believed_after_its_time() -> None:
    one = Cache(gone_ms=30_000, doubts_failed=True)
    one.known("T", "old")
    one.now_ms += 10_000
    one.known("T", GONE)
    assert one.cache.get_or_query("T").value == "old"
    one.now_ms += 500
    wanted = one.cache.get_or_query("T")
    assert not wanted.done, "the former answer is in doubt"
    one.answer(SILENT)
    assert wanted.value == SILENT and one.cache.get("T") == "old"
    one.now_ms += 19_500
    one.known("T", GONE)
    assert one.cache.get("T") == GONE


def test_a_fresh_answer_is_renewed_unless_it_is_too_young() -> None:
    one = Cache(fresh_ms=NEVER_MS)
    first = one.cache.query_again("T", at_once=False)
    assert not first.done and not one.cache.query_again("T", at_once=True).done
    one.answer("old")
    one.now_ms += 499
    assert one.cache.query_again("T", at_once=False).value == "old"
    one.now_ms += 1
    renewed = [one.cache.query_again("T", at_once=False), one.cache.query_again("T", at_once=False)]
    assert one.asked() == ["T"]
    one.answer(SILENT)
    assert [later.value for later in renewed] == [SILENT, SILENT]
    assert one.cache.query_again("T", at_once=False).value == "old"
    renewed = [one.cache.query_again("T", at_once=True)]
    one.answer("new")
    assert renewed[0].value == "new"
    assert one.cache.list_answers() == [("T", "new")]


def test_queries_at_the_same_time_are_bounded() -> None:
    one = Cache(queries_max=2)
    wanted = [one.cache.get_or_query(name) for name in "ABC"]
    assert one.asked() == ["A", "B"]
    one.answer("a")
    assert one.asked() == ["B", "C"]
    one.answer("b")
    one.answer("c")
    assert [later.value for later in wanted] == ["a", "b", "c"]


def of_known_names(count: int, **rules: Any) -> Cache:
    """A cache that knows `T0`, `T1` ..., all of which are due."""
    one = Cache(**rules)
    for number in range(count):
        one.known(f"T{number}", "1")
    one.now_ms += 10_000
    return one


def test_refreshes_do_not_delay_the_query_for_a_new_name() -> None:
    one = of_known_names(100, queries_max=8)
    one.cache.refresh_due()
    assert one.asked() == [f"T{number}" for number in range(4)], "refreshes have half of the places"
    wanted = one.cache.get_or_query("new")
    assert one.asked()[4:] == ["new"], "the query begins although 96 refreshes are queued"
    one.queries.pop()[2].resolve("answer")
    assert wanted.value == "answer"
    while one.queries:
        one.answer("2")
    assert all(answer == "2" for name, answer in one.cache.list_answers() if name != "new")


def test_a_use_that_waits_for_a_queued_refresh_speeds_it_up() -> None:
    one = of_known_names(100, queries_max=8)
    one.cache.refresh_due()
    one.cache.mark_doubtful("T98")
    wanted = [one.cache.query_again("T99", at_once=False), one.cache.get_or_query("T98")]
    assert not any(later.done for later in wanted)
    assert one.asked()[4:] == ["T99", "T98"]
    while one.queries:
        one.answer("2")
    assert [later.value for later in wanted] == ["2", "2"]
    one.cache.refresh_due()
    assert one.asked() == [], "no entry was queried twice"


def test_a_flood_of_new_names_does_not_stop_refreshes() -> None:
    one = of_known_names(10, queries_max=2)
    one.cache.refresh_due()
    for number in range(1_000):
        one.cache.get_or_query(f"flood-{number}")
    for _ in range(20):
        one.answer("2")
    assert all(one.cache.get(f"T{number}") == "2" for number in range(10))


def test_a_dropped_name_leaves_the_queue() -> None:
    one = Cache(entries_max=3, queries_max=1)
    for number in range(1_000):
        one.cache.current_answer(f"T{number}")
    assert len(one.cache) == 3 and len(one.cache._queued) <= 3


def test_the_answers_that_were_not_used_for_longest_are_dropped() -> None:
    one = Cache(size_max=25, entries_max=4)
    for name in "AB":
        one.known(name, "1234567890")
    one.cache.current_answer("A")
    one.known("C", "1234567890")
    assert one.cache.get("B") is None and one.cache.get("A") is not None
    assert one.cache.size == 20
    for name in "DEF":
        one.known(name, "")
    assert len(one.cache) == 4 and one.cache.get("A") is None
    assert one.cache.size == 10
    one.known("G", "12345678901234567890123456")
    assert len(one.cache) == 1, "one answer is kept, however large"


def test_names_without_an_answer_are_bounded_too() -> None:
    one = Cache(entries_max=3)
    wanted = one.cache.get_or_query("A")
    for name in "BCDEF":
        one.cache.current_answer(name)
    assert len(one.cache) == 3
    one.answer("a")
    assert wanted.value == one.cache.get("A") == "a", "an entry with a waiting use stays"
    one.answer("b")
    assert one.cache.get("B") is None and one.cache.size == 1


def test_unused_answers_are_forgotten() -> None:
    one = Cache(unused_ms=120_000)
    for name in "AB":
        one.known(name, "1234567890")
    one.now_ms += 119_999
    one.cache.current_answer("B")
    one.cache.forget_unused()
    assert len(one.cache) == 2
    one.now_ms += 1
    one.cache.forget_unused()
    assert one.cache.get("A") is None and one.cache.get("B") is not None
    assert one.cache.size == 10


def test_an_unused_answer_is_forgotten_while_its_refresh_is_queued() -> None:
    one = of_known_names(3, queries_max=2, unused_ms=10_000)
    one.cache.refresh_due()
    one.cache.forget_unused()
    assert [name for name, _ in one.cache.list_answers()] == ["T0"], "the query for T0 has begun"
    assert not one.cache._queued_refreshes
    one.answer("2")
    assert one.asked() == []


def test_an_answer_can_be_put_without_a_query() -> None:
    one = Cache()
    one.cache.set_answer("T", "own")
    assert one.cache.get("T") == "own" and one.cache.size == 3
    one.cache.set_answer("T", GONE)
    assert one.cache.get("T") == GONE and one.cache.size == 0
    assert one.asked() == []


def test_an_absent_name_is_queried_by_its_next_use_alone() -> None:
    one = Cache(absent_ms=500)
    one.known("T", GONE)
    one.known("U", SILENT)
    for _ in range(240):
        one.now_ms += 500
        one.cache.refresh_later("T")
        one.cache.refresh_due()
    assert one.asked() == []
    one.cache.current_answer("T")
    assert one.asked() == ["T"]


def test_names_without_an_answer_do_not_displace_answers() -> None:
    one = Cache(entries_max=20, blanks_max=4)
    for name in "ABCDEFGH":
        one.known(name, "1")
    for number in range(1_000):
        one.known(f"absent-{number}", GONE)
    assert [name for name, answer in one.cache.list_answers() if answer] == list("ABCDEFGH")
    assert [name for name, answer in one.cache.list_answers() if not answer] == [
        f"absent-{number}" for number in range(996, 1_000)
    ], "the least recently used are dropped first"
    one.now_ms += 1_000
    one.known("absent-996", "1")
    one.known("new", GONE)
    assert one.cache.get("absent-997") == GONE, "a name with an answer leaves its room"
    one.known("newer", GONE)
    assert one.cache.get("absent-997") is None


@pytest.mark.parametrize("queries_max", [2, 100])
def test_a_new_name_is_refused_while_all_unknown_names_are_queried(queries_max: int) -> None:
    one = Cache(blanks_max=40, queries_max=queries_max)
    one.known("known", "1")
    wanted = [one.cache.get_or_query(f"T{number}") for number in range(40)]
    for number in range(1_000):
        name = f"flood-{number}"
        refusal = one.cache.current_answer(name)
        assert isinstance(refusal, Absent) and not refusal.is_certain
        assert (
            one.cache.get_or_query(name).value
            == one.cache.query_again(name, at_once=True).value
            == refusal
        )
    assert len(one.cache) == 41 and len(one.asked()) == min(queries_max, 40)
    assert one.cache.get_or_query("known").value == "1", "names with an answer are not affected"
    while one.queries:
        one.answer(GONE)
    assert [later.value for later in wanted] == [GONE] * 40
    assert not one.cache.get_or_query("another").done


def test_an_answer_that_is_put_needs_no_room_among_unknown_names() -> None:
    one = Cache(blanks_max=20)
    wanted = [one.cache.get_or_query(f"T{number}") for number in range(20)]
    one.cache.set_answer("absent", GONE)
    one.cache.set_answer("known", "12")
    assert (one.cache.get("absent"), one.cache.get("known"), one.cache.size) == (None, "12", 2)
    one.answer("1")
    assert wanted[0].value == "1"
    one.cache.set_answer("absent", GONE)
    assert one.cache.get("absent") == GONE


@pytest.mark.logs_tracebacks
def test_a_query_that_raises_counts_as_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    one = Cache(queries_max=1)
    query = one.cache._query

    def broken(name: str, former: str | None) -> Deferred[str | Absent]:
        raise RuntimeError(f"no query of {name}")

    one.cache._query = broken
    for name in ("A", "B"):
        found = one.cache.get_or_query(name).value
        assert isinstance(found, Absent) and not found.is_certain
        assert found.text == f"the query failed: no query of {name}"
    assert len(caplog.records) == 2
    one.cache._query = query
    assert not one.cache.get_or_query("C").done
    one.answer("1")
    assert one.cache.get("C") == "1"


def test_queued_queries_that_are_answered_at_once_need_no_stack() -> None:
    one = Cache(queries_max=1)
    wanted = [one.cache.get_or_query(str(number)) for number in range(5_000)]
    one.cache._query = lambda _name, _former: Deferred.resolved(GONE)
    one.answer("first")
    assert wanted[0].value == "first" and wanted[-1].value == GONE
