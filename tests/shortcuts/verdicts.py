"""Verdicts of an audit by name."""

from turbopump.spark.audit.job import Audit
from turbopump.spark.audit.verdicts import Verdict


def find_verdict(audit: Audit, name: str) -> Verdict:
    """Return the verdict on the promise with that name; raises StopIteration for an unknown
    name."""
    return next(one for one in audit.verdicts if one.name == name)
