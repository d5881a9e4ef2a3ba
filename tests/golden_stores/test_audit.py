"""Stores of a real RocketMQ pass the audit: batches, IPv6, extensions, killed brokers."""

from typing import Any

import pytest
from tests.shortcuts.verdicts import find_verdict

from turbopump.spark.audit.job import AuditOptions, run

NAMES = ("shapes-v4", "shapes-v6", "prop-crc-ext", "killed", "default-sizes-killed")


@pytest.mark.parametrize("name", NAMES)
def test_stores_of_rocketmq(unpack: Any, name: str) -> None:
    store = unpack(name)
    audit = run(None, AuditOptions((str(store.root),)))
    assert not audit.is_broken, "\n".join(audit.lines())
    records = len(store.truth("record"))
    assert find_verdict(audit, "records").counts["records"] == records
