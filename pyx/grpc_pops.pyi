from collections.abc import Callable

from turbopump.pyx.lane import Lane

_Row = tuple[bytes, int, int, int, int]

class GrpcPops:
    """Plain receives of gRPC: the pops of remoting that a lane serves, written as gRPC has them.

    `md5` makes the digest of a body, 16 bytes."""

    def __init__(self, md5: Callable[[bytes], bytes]) -> None: ...
    @property
    def message_count(self) -> int:
        """Messages given so far."""

    def take(
        self,
        lane: Lane,
        group: bytes,
        topic: bytes,
        count: int,
        invisible_ms: int,
        *,
        expression: bytes | None,
        expression_type: bytes | None,
        tags: tuple[bytes, ...],
        attempts_max: int,
        with_rows: bool,
    ) -> tuple[bytes, int, int, list[_Row] | None] | None:
        """Pop `count` messages at most of any queue, hidden for `invisible_ms`. (the framed
        ReceiveMessageResponses of gRPC, epoch ms of the pop, its revive queue, rows), or None: the
        pop is for the Python handler, and nothing was done.

        `tags`: of those that are popped by a tag's hash one must have one of them; empty: all are
        wanted. A message that was delivered `attempts_max` times is Python's. `rows` are asked for
        by `with_rows`: (message id, queue offset of the check point, queue id, queue offset, log
        offset) of each message."""
