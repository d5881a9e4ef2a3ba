"""What parts of a node are given in place of a disk, where a test is of something else."""

from turbopump.engine.later import Later


def saved_at_once(_what: object) -> Later[OSError | None]:
    """It is durable as soon as it is asked for."""
    return saved(None)


def saved(error: OSError | None) -> Later[OSError | None]:
    """How it ended."""
    later: Later[OSError | None] = Later()
    later.resolve(error)
    return later
