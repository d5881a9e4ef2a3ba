"""Filter expressions against the results of RocketMQ 5.5.0's own filter classes.

`tests/golden/filters` has a line for each expression: properties texts, and for each of them T, F,
N (null) or E (the evaluation throws); no results where the expression is refused.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from turbopump.net.wire.sql.compiler import compile_sql
from turbopump.net.wire.sql.words import SqlError

FILE = Path(__file__).parent.parent / "golden" / "filters" / "answers.jsonl.zst"
# RocketMQ reads a whole expression and ignores the text after it.
ENDS_EARLY = {
    "a = 5)", "a LIKE 'x'", "a = 5 b", "a + 5 > 7", "a = 0x10", "a = 007", "a = 5 - - 5", "a = 05",
    "a-b = 5", "a = 1.5e", "a = 1..2",
}  # fmt: skip


def lines() -> list[dict[str, Any]]:
    text = zstandard.decompress(FILE.read_bytes(), max_output_size=1 << 24)
    return [json.loads(line) for line in text.splitlines()]


def answer(sql: str, properties: str) -> str:
    try:
        found = compile_sql(sql).evaluate(properties.encode())
    except ValueError:
        return "E"
    return "N" if found is None else "FT"[found]


def test_every_answer_is_rocketmqs() -> None:
    known = lines()
    assert len(known) > 1_200
    for line in known:
        sql = line["sql"]
        if line["answers"] is None or sql in ENDS_EARLY:
            with pytest.raises(SqlError, match="Invalid MessageSelector"):
                compile_sql(sql)
        else:
            responses = "".join(answer(sql, one) for one in line["properties"])
            assert responses == line["answers"], sql
