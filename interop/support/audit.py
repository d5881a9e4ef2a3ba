"""The truncation audit over a group's stores, with the acknowledgements of senders as its ledger.

Owns the ledger's lines, made by hand like the frames, and the run of the audit as a process of its
own. It judges nothing.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from interop.support.controlled import Controlled
from interop.support.senders import Ledger

AUDIT = "turbopump.spark.audit.job"
AUDIT_S = 600.0
UNUSABLE = 2


class NotAuditedError(RuntimeError):
    """The audit refused its input; the text is the audit's."""


def audited(
    group: Controlled,
    ledgers: Sequence[Ledger],
    folder: Path,
    body: Callable[[int], bytes] | None = None,
) -> tuple[bool, list[str]]:
    """Run the audit: (whether a promise was broken, the report). The brokers may run, but no client
    may send. `body` returns the body of a message by its number; None: only the place of a message
    is known."""
    file = folder / "ledger.jsonl"
    with file.open("w") as opened:
        opened.writelines(line for ledger in ledgers for line in _lines(ledger, body))
    stores = [f"{one.name}={one.store}" for one in group.brokers]
    done = subprocess.run(
        [sys.executable, "-m", AUDIT, *stores, "--ledger", str(file), "--local"],
        capture_output=True,
        text=True,
        timeout=AUDIT_S,
        check=False,
    )
    if done.returncode >= UNUSABLE or done.returncode < 0:
        raise NotAuditedError(done.stderr)
    return done.returncode != 0, done.stdout.splitlines()


def _lines(ledger: Ledger, body: Callable[[int], bytes] | None) -> Iterator[str]:
    ledger.refresh()
    for number, (queue, offset) in ledger.numbers.items():
        claim = {"kind": "acked", "topic": ledger.topic, "queue": queue, "offset": offset}
        if body is not None:
            claim["digest"] = hashlib.sha256(body(number)).hexdigest()
        yield json.dumps(claim) + "\n"
