"""A client's claim against the record at its place: found, excused, or a broken promise."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from turbopump.engine.log.epochs import EpochEntry, Epochs
from turbopump.engine.types import Epoch, LogOffset
from turbopump.spark.audit.claims import (
    SOUGHT_MAX,
    AuditedStores,
    Fact,
    JudgedStore,
    Judgement,
    judge_claim,
)
from turbopump.spark.audit.ledger import Claim, digest_of

DIGEST = digest_of(b"body")
OTHER = digest_of(b"another body")
AT = 500
CLAIM = Claim(False, "T", 3, 17, DIGEST, "KEY", AT, "broker-1", 5)
EPOCHS = Epochs((EpochEntry(Epoch(4), LogOffset(0)), EpochEntry(Epoch(5), LogOffset(400))))
LEADER = JudgedStore("a", 0, 1_000, {}, {("T", 3): 0}, EPOCHS)
REPLICA = JudgedStore("b", 0, 1_000, {}, {("T", 3): 0}, EPOCHS)
HERE, THERE = Fact(0, AT, "KEY", DIGEST), Fact(1, AT, "KEY", DIGEST)


def judged(
    facts: Sequence[Fact],
    claim: Claim = CLAIM,
    leader: JudgedStore = LEADER,
    replica: JudgedStore = REPLICA,
) -> Judgement:
    found = Judgement()
    judge_claim(claim, facts, AuditedStores((leader, replica), 0), found)
    return found


def broken_promises(found: Judgement) -> list[tuple[str, str]]:
    """(store, finding) of all broken promises."""
    tallies = (found.acked, found.consumed, found.writers)
    return [(one.store, one.what) for tally in tallies for one in tally.findings]


def test_a_message_at_its_place_in_both_stores() -> None:
    found = judged([HERE, THERE])
    assert not broken_promises(found) and not found.missing
    assert found.acked.counts == {"claims": 1, "found": 1}
    assert found.writers.counts == {"labels compared": 1}


def test_the_promises_of_read_and_acknowledged_messages_differ() -> None:
    claim = replace(CLAIM, read=True)
    found = judged([HERE, THERE], claim)
    assert found.consumed.counts == {"claims": 1, "found": 1} and not found.acked.counts
    assert not found.writers.counts, "who reads has not written"
    [(store, what)] = broken_promises(judged([THERE], claim))
    assert store == "a" and "that was read of broker-1 is not there" in what


def test_one_that_is_nowhere_is_missing_in_each_store_that_confirmed_so_much() -> None:
    found = judged([])
    assert [store for store, _ in broken_promises(found)] == ["a", "b"]
    assert found.missing == [(AT, CLAIM)]
    behind = replace(REPLICA, confirm=AT)
    assert [store for store, _ in broken_promises(judged([], replica=behind))] == ["a"]


@pytest.mark.parametrize(
    "fact, what",
    [
        (HERE._replace(digest=OTHER), "is another message there"),
        (HERE._replace(key="NO"), "has the key NO there, not KEY"),
        (HERE._replace(log_offset=AT + 1), f"lies at {AT + 1}, not at log offset {AT}"),
    ],
)
def test_another_one_at_its_place(fact: Fact, what: str) -> None:
    for number, facts in enumerate(([fact, THERE], [HERE, fact._replace(store=1)])):
        [(store, text)] = broken_promises(judged(facts))
        assert store == "ab"[number] and text.endswith(what)


@pytest.mark.parametrize(
    "claim, fact",
    [
        (replace(CLAIM, digest=DIGEST[:16]), HERE),
        (replace(CLAIM, digest=""), HERE),
        (replace(CLAIM, key=""), HERE),
        (replace(CLAIM, log_offset=None), HERE._replace(log_offset=AT + 1)),
        (CLAIM, HERE._replace(digest="", key="")),
    ],
)
def test_unknown_values_are_not_compared(claim: Claim, fact: Fact) -> None:
    assert not broken_promises(judged([fact, fact._replace(store=1)], claim))


def test_readers_are_shown_the_first_of_several_at_one_place() -> None:
    second = HERE._replace(log_offset=AT + 100, digest=OTHER)
    for facts in ([HERE, second, THERE], [second, THERE, HERE]):
        assert not broken_promises(judged(facts))
    first = HERE._replace(log_offset=AT - 100, digest=OTHER)
    assert broken_promises(judged([HERE, first, THERE]))


def test_too_old_messages_are_counted_and_never_missing() -> None:
    cut = replace(LEADER, min=AT + 1)
    found = judged([THERE], leader=cut)
    assert not broken_promises(found) and not found.missing
    assert found.acked.counts == {"claims": 1, "too old to be there": 1}
    assert broken_promises(judged([THERE], leader=replace(LEADER, min=AT))), (
        "its first byte is still there"
    )


@pytest.mark.parametrize("first, excused", [(17, False), (18, True), (None, True)])
def test_without_a_log_offset_the_queues_first_one_decides(
    first: int | None, excused: bool
) -> None:
    claim = replace(CLAIM, log_offset=None)
    known = replace(LEADER, min=100, first={} if first is None else {("T", 3): first})
    assert bool(broken_promises(judged([], claim, known))) is not excused
    whole = replace(known, min=0)
    assert broken_promises(judged([], claim, whole)), "nothing of this log is too old"


def test_a_topics_former_life_went_with_it() -> None:
    deleted = replace(LEADER, deleted={"T": AT + 1})
    found = judged([THERE], leader=deleted)
    assert not broken_promises(found) and found.acked.counts == {
        "claims": 1,
        "of a deleted topic": 1,
    }
    again = HERE._replace(log_offset=AT + 300, digest=OTHER)
    assert not broken_promises(judged([HERE, again, THERE], leader=deleted)), (
        "its next life is a different topic"
    )
    assert broken_promises(judged([THERE], leader=replace(LEADER, deleted={"T": AT}))), "sent since"
    assert broken_promises(judged([THERE], leader=replace(LEADER, deleted={"U": AT + 1}))), (
        "of another topic"
    )


def test_a_record_of_the_former_life_is_not_shown_to_readers() -> None:
    old = HERE._replace(log_offset=AT - 200, digest=OTHER)
    assert broken_promises(judged([old, HERE, THERE]))
    assert not broken_promises(
        judged([old, HERE, THERE], leader=replace(LEADER, deleted={"T": AT - 100}))
    )


def test_a_replica_may_lack_bytes_before_its_log_or_of_the_former_life() -> None:
    assert not broken_promises(judged([HERE], replica=replace(REPLICA, min=AT + 1)))
    assert not broken_promises(judged([HERE], replica=replace(REPLICA, deleted={"T": AT + 1})))
    [(store, what)] = broken_promises(judged([HERE]))
    assert store == "b" and what.endswith("is not there, and 1000 is confirmed")


def test_a_replica_need_not_have_unconfirmed_bytes() -> None:
    behind = replace(REPLICA, confirm=AT)
    assert not broken_promises(judged([HERE], replica=behind))
    assert not broken_promises(judged([HERE, THERE._replace(digest=OTHER)], replica=behind))


def test_a_broker_that_acknowledges_in_an_epoch_has_written_in_it() -> None:
    before = replace(CLAIM, epoch=4)
    [(store, what)] = broken_promises(judged([HERE, THERE], before))
    assert store == "a"
    assert what.endswith("is of epoch 5 there, broker-1 acknowledged it in epoch 4")
    for unknown in (replace(CLAIM, epoch=None), before):
        leader = LEADER if unknown.epoch is None else replace(LEADER, epochs=None)
        assert not judged([HERE, THERE], unknown, leader).writers.counts


def test_parts_add_up_to_the_same_in_any_order() -> None:
    claims = [replace(CLAIM, queue_offset=n, log_offset=n) for n in range(3 * SOUGHT_MAX)]
    totals = []
    for order in (claims, claims[::-1]):
        total = Judgement()
        for claim in order:
            total.merge(judged([], claim))
        totals.append((total.missing, total.acked.total, total.acked.counts))
    assert totals[0] == totals[1]
    assert [at for at, _ in totals[0][0]] == list(range(SOUGHT_MAX))
