"""Requests of a peer do not delay the requests of other peers."""

import pytest

from turbopump.net.transport.options import ServerOptions, TlsSettings
from turbopump.net.wire.command import Command, new_response

COUNTED, STEPS, ECHO = 30, 31, 10
TOTAL = 1_000


def count(served, at_first) -> list[int]:
    handled: list[int] = []

    def counted(request: Command, *_) -> Command:
        if not handled:
            at_first()
        handled.append(request.opaque)
        return new_response(request, 0)

    served.table.add(COUNTED, counted)
    return handled


def ask(honest) -> None:
    honest.send(*(Command(STEPS, opaque=opaque) for opaque in range(3)))


@pytest.mark.parametrize("tls", [False, True])
def test_others_are_served_between_the_requests_of_one_read(run, serve, talk, connect, tls) -> None:
    import ssl

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def main() -> None:
        async with serve(ServerOptions(tls=TlsSettings())) as served:
            others: list[int] = []
            served.table.add(STEPS, lambda request, *_: others.append(len(handled)))
            settings = {"ssl": context} if tls else {}
            async with (
                talk(served.port) as earlier,
                talk(served.port, **settings) as raw,
                talk(served.port) as later,
            ):
                # They ask when the first request of many is handled: no order of reads helps them.
                handled = count(served, lambda: [ask(one) for one in (earlier, later)])
                await served.until(lambda: len(served.server.peers) == 3)
                raw.send(*(Command(COUNTED, opaque=opaque) for opaque in range(TOTAL)))
                responses = [(await raw.answer()).opaque for _ in range(TOTAL)]
                assert responses == handled == list(range(TOTAL))
                await served.until(lambda: len(others) == 6)
                assert max(others) < TOTAL // 4

    run(main())


def test_a_request_in_steps_lets_others_in_and_its_connection_waits(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served:
            log: list[str] = []

            def stepped(request: Command, *_):
                while "other" not in log and len(log) < 1_000_000:
                    log.append("step")
                    yield
                return new_response(request, 0, body=b"done")

            def note(request: Command, *_) -> Command:
                log.append(request.fields["name"])
                return new_response(request, 0)

            served.table.add(STEPS, stepped)
            served.table.add(COUNTED, note)
            async with talk(served.port) as raw, talk(served.port) as honest:
                await served.until(lambda: len(served.server.peers) == 2)
                same = Command(COUNTED, opaque=2, fields={"name": "same"})
                raw.send(Command(STEPS, opaque=1), same)
                await served.until(lambda: "step" in log)
                honest.send(Command(COUNTED, opaque=3, fields={"name": "other"}))
                await honest.answer()
                assert (await raw.answer()).body == b"done"
                assert (await raw.answer()).opaque == 2
                assert log[-2:] == ["other", "same"]
                assert log.count("step") == len(log) - 2 > 0

    run(main())


def test_a_request_in_steps_ends_with_its_connection(run, serve, talk) -> None:
    async def main() -> None:
        async with serve() as served:
            ended: list[bool] = []

            def endless(request: Command, *_):
                try:
                    while True:
                        yield
                finally:
                    ended.append(True)

            served.table.add(STEPS, endless)
            async with talk(served.port) as raw:
                raw.send(Command(STEPS, opaque=1, body=bytes(100_000)))
                await served.until(lambda: served.hub.in_flight == 1)
                assert served.hub.area.in_use >= 100_000
                (one,) = served.hub.connections
                one.abort()
                await served.until(lambda: bool(ended))
                await served.alive()
                assert served.hub.area.in_use == 0 and served.hub.in_flight == 0

    run(main())


def test_unread_answers_stop_the_handling_of_requests(run, serve, talk) -> None:
    """Whatever the answers' size: beyond the mark there is one more at most."""

    async def main() -> None:
        options = ServerOptions(write_high_water=1 << 20, write_low_water=1 << 18)
        async with serve(options) as served, talk(served.port, limit=1024) as raw:
            handled = []

            def large(request: Command, *_) -> Command:
                handled.append(request.opaque)
                return new_response(request, 0, body=bytes(8 << 20))

            served.table.add(COUNTED, large)
            raw.send(*(Command(COUNTED, opaque=opaque) for opaque in range(500)))
            await served.until(lambda: len(handled) > 0)
            for _ in range(5):
                await served.alive()
            (peer,) = [one for one in served.hub.connections if one.unsent]
            assert peer.unsent <= (1 << 20) + (9 << 20)
            assert len(handled) <= 3
            for opaque in range(20):
                assert (await raw.answer()).opaque == opaque

    run(main())
