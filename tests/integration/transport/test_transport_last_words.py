"""A peer that says its last and leaves without waiting for answers is heard to the end."""

import socket
import struct

from turbopump.net.wire.command import encode, new_request

ECHO = 10
COUNT = 40
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def _frame(number: int) -> bytes:
    request = new_request(ECHO, body=number.to_bytes(4, "big"))
    request.opaque = number
    return b"".join(encode(request))


def test_what_lies_unread_when_an_answer_cannot_be_written_is_handled(run, serve) -> None:
    async def main() -> None:
        async with serve() as served:
            peer = socket.create_connection(("127.0.0.1", served.port))
            frames = b"".join(map(_frame, range(COUNT)))
            # The rest of the first frame is then read alone, and its answer meets a closed socket.
            peer.sendall(frames[:20])
            await served.until(lambda: served.hub.area.in_use > 0)
            peer.sendall(frames[20:])
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            peer.close()
            await served.until(lambda: len(served.seen) > 0 and not served.server.peers)
            assert [int.from_bytes(one.body, "big") for one in served.seen] == list(range(COUNT))
            assert served.hub.area.in_use == 0
            await served.alive()

    run(main())
