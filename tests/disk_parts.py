"""Stand-ins for the disk in parts of a node, for tests of other parts."""

from turbopump.engine.later import Later


def saved_at_once(_what: object) -> Later[OSError | None]:
    """A save that is durable at once."""
    return saved(None)


def saved(error: OSError | None) -> Later[OSError | None]:
    """A save with the given result."""
    later: Later[OSError | None] = Later()
    later.resolve(error)
    return later
