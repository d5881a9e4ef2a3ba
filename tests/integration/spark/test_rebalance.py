"""The rebalance report by real Spark, over histories of the two allocation models."""

import json
from pathlib import Path

import pytest
from tests.unit.spark.allocation import averaged, history, lines, sticky

from turbopump.spark.rebalance.job import RebalanceOptions, main, run
from turbopump.spark.rebalance.measures import measure_rebalance, parse
from turbopump.spark.session import JobError


@pytest.fixture
def histories(tmp_path: Path) -> Path:
    folder = tmp_path / "histories"
    folder.mkdir()
    billing = lines(history(sticky, 1, 90))
    shipping = lines(history(averaged, 2, 30, group="shipping"))
    (folder / "one.jsonl").write_text("\n".join([*billing[:50], *shipping]) + "\n")
    (folder / "two.jsonl").write_text("\n".join(billing[50:]) + "\n\n")
    return folder


def test_groups_are_measured_over_all_files(spark, histories, tmp_path) -> None:
    output = tmp_path / "report"
    result = run(spark, RebalanceOptions((str(histories),), str(output)))
    assert (result.is_ok, result.rebalances, result.unreadable) == (True, 120, 0)
    billing, shipping = result.groups
    assert (billing.group, billing.allocator, billing.rebalances) == ("billing", "sticky", 90)
    assert (billing.evenness_min, billing.retention, billing.breaks) == (1.0, 1.0, 0)
    assert (shipping.group, shipping.evenness_min, shipping.breaks) == ("shipping", 1.0, 0)
    found = [measure_rebalance(parse(text)) for text in lines(history(averaged, 2, 30))]
    stayed = sum(one.stayed for one in found)
    could = stayed + sum(one.moved - one.moved_min for one in found)
    assert shipping.retention == pytest.approx(stayed / could) and shipping.retention < 0.9
    assert shipping.stickiness == pytest.approx(stayed / sum(one.owned for one in found))
    assert shipping.balance_degree_max == pytest.approx(max(one.balance_degree for one in found))
    assert 0 < shipping.balance_degree_mean < shipping.balance_degree_max <= 0.5
    assert shipping.moved == sum(one.moved for one in found) > shipping.moved_min
    assert shipping.revoked == sum(one.revoked for one in found)
    assert billing.time_consumed_ms is not None and billing.compute_ms is not None
    assert billing.time_consumed_ms == pytest.approx((550.0, 910.0, 1000.0, 1000.0))
    assert billing.compute_ms[3] == 9.5

    rows = spark.read.parquet(f"{output}/rebalances")
    assert rows.count() == 120 and rows.where("stickiness < 1").count() > 0
    assert spark.read.parquet(f"{output}/summary").count() == 2
    windows = spark.read.parquet(f"{output}/windows")
    assert windows.selectExpr("sum(rebalances)").collect()[0][0] == 120
    assert windows.where("`group` = 'billing'").count() >= 2
    assert json.loads((output / "verdict.json").read_text()) == json.loads(
        json.dumps(result.to_json())
    )
    with pytest.raises(JobError, match="exists"):
        run(spark, RebalanceOptions((str(histories),), str(output)))


def test_strategies_stand_side_by_side(spark, histories, tmp_path, capsys) -> None:
    timed = [json.loads(text) for text in lines(history(sticky, 3, 12, group="timed"))]
    for number, one in enumerate(timed):
        one |= {"allocator": "<b>STICKY", "overlap_ms": number, "unowned_ms": 7}
    del timed[5]["start_ms"], timed[5]["end_ms"]
    (histories / "timed.jsonl").write_text("\n".join(map(json.dumps, timed)) + "\n")
    output = tmp_path / "report"
    assert main([str(histories), "-o", str(output)]) == 0
    out = capsys.readouterr().out
    assert "strategy" in out and "beyond" in out
    strategies = json.loads((output / "verdict.json").read_text())["strategies"]
    marked, average, best = strategies
    assert (average["allocator"], best["allocator"]) == ("averaged", "sticky")
    assert average["moved"] - average["moved_min"] > 0 == best["moved"] - best["moved_min"]
    assert (average["overlap_ms"], best["unsettled"]) == (None, 0)
    assert marked["overlap_ms"][3] == 11 and marked["unowned_ms"][0] == 7
    assert marked["unsettled"] == 1
    page = (output / "report.html").read_text()
    assert "&lt;b&gt;STICKY" in page and "<b>STICKY" not in page
    assert page.count("<svg") == 6 and "moved beyond the minimum" in page


def test_faults_fail_the_audit(spark, histories, capsys) -> None:
    wrong = json.loads(lines(history(sticky, 1, 3))[2])
    wrong["after"]["c0"] = wrong["after"]["c0"][1:]
    wrong["group"] = "wrong"
    (histories / "three.jsonl").write_text(json.dumps(wrong) + "\nno line\n")
    assert main([str(histories), "--json"]) == 1
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["verdict"], verdict["unreadable"], len(verdict["violations"])) == (
        "violated",
        1,
        2,
    )
    broken, faulty = verdict["violations"]
    assert "three.jsonl: a line is no rebalance: no JSON" in broken and "no line" in broken
    assert faulty.startswith("wrong Orders at 2026-11-") and "has no owner" in faulty


def test_limits_and_missing_lines(spark, histories, capsys) -> None:
    kept = (histories / "two.jsonl").read_text().splitlines()
    (histories / "two.jsonl").write_text("\n".join([*kept[:5], *kept[6:]]))
    limits = ["--min-evenness", "0.9", "--min-retention", "0.99", "--max-time-ms", "999"]
    limits += ["--max-balance-degree", "0.5", "--min-stickiness", "0.7"]
    assert main([str(histories), *limits]) == 1
    out = capsys.readouterr().out
    assert "1 did not begin with the assignment before" in out
    assert "shipping Orders (averaged): the retention 0." in out
    assert "shipping Orders (averaged): the stickiness 0." in out
    assert "billing Orders (sticky): the" not in out.replace("p99 of the time", "")
    assert out.count("p99 of the time in ms 1000.000 breaks the limit, 999.0") == 2
    assert "the evenness" not in out and "the balance degree 0" not in out
    assert out.endswith("verdict: violated\n")


def test_no_history_is_a_sentence(spark, tmp_path, capsys) -> None:
    assert main([str(tmp_path / "none")]) == 2
    err = capsys.readouterr().err
    assert "none" in err and err.count("\n") == 1
