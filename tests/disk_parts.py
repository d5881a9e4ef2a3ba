"""Stand-ins for the disk in parts of a node, for tests of other parts."""

from turbopump.engine.deferred import Deferred


def saved_at_once(_what: object) -> Deferred[OSError | None]:
    """A save that is durable at once."""
    return saved(None)


def saved(error: OSError | None) -> Deferred[OSError | None]:
    """A save with the given result."""
    later: Deferred[OSError | None] = Deferred()
    later.resolve(error)
    return later
