"""A connection that has ended is freed without the garbage collector, which does not look at
long-lived objects (cli/collecting.py).
"""

import asyncio
import gc

from turbopump.net.transport.connection import Connection
from turbopump.net.wire.command import Command

ECHO, HOLD = 10, 11
COUNT = 20


def connections() -> int:
    return sum(isinstance(one, Connection) for one in gc.get_objects())


def test_closed_connections_are_freed_at_once(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served:
            before, peers = connections(), []
            for opaque in range(COUNT):
                async with talk(served.port) as raw:
                    raw.send(Command(ECHO, opaque=opaque), Command(HOLD, opaque=opaque))
                    assert (await raw.answer()).opaque == opaque
                    await served.until(lambda: bool(served.held))
                    served.held.clear()
                    raw.send(b"\0\0")  # a frame that does not end
                    peers += served.server.peers
                await served.until(lambda: not served.server.peers)
            await asyncio.sleep(0)
            assert connections() == before
            await served.alive()
            # This test still has them.
            assert all(peer.closed for peer in peers)
            assert len(peers) == COUNT

    gc.collect()
    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()


def test_a_peer_whose_connection_has_ended_can_wait(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served:
            async with talk(served.port) as raw:
                raw.send(Command(ECHO, opaque=1))
                await raw.answer()
                (peer,) = served.server.peers
            await served.until(lambda: peer.closed)
            called: list[str] = []
            peer.call_later(1, lambda: called.append("later"))
            peer.after_answers(lambda: called.append("soon"))
            peer.notify(Command(1))
            peer.close()
            await served.until(lambda: len(called) == 2)
            assert sorted(called) == ["later", "soon"]

    run(main())
