"""Native receives of gRPC."""

from collections.abc import Callable

from turbopump.pyx.lane import Lane

_Row = tuple[bytes, int, int, int, int]

class GrpcPops:
    """Plain receives of gRPC: native pops whose messages are written as gRPC responses.

    `md5` returns the digest of a body, 16 bytes."""

    def __init__(self, md5: Callable[[bytes], bytes]) -> None: ...
    @property
    def message_count(self) -> int:
        """Number of messages delivered since the start."""

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
        """Pop at most `count` messages of any queue, and hide them for `invisible_ms`.

        Returns (the framed ReceiveMessageResponses of gRPC, epoch ms of the pop, its revive queue,
        rows), or None: nothing was done, and the pop is left to the Python handler. The store
        selects by the hashes of tags; a message whose tag is not in `tags` leaves the pop to
        Python, too (empty: every tag is accepted), as does a message that was delivered
        `attempts_max` times. `with_rows` asks for the rows: (message id, queue offset of the check
        point, queue id, queue offset, log offset) of each message, in the order of the responses;
        without it rows are None."""
