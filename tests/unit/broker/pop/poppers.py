"""A consumer that pops from a whole broker."""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from tests.unit.broker.pop.answers import read_offsets

from turbopump.engine.deferred import Deferred
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request
from turbopump.net.wire.headers.pop import AckMessageRequest, PopMessageRequest
from turbopump.net.wire.message import decode_messages
from turbopump.net.wire.pop_handles import PopHandle, RetryKind
from turbopump.net.wire.topics import TopicConfig

if TYPE_CHECKING:
    from tests.unit.broker.conftest import World

INVISIBLE_MS = 900
RETRY = "%RETRY%g_T"


class Popper:
    """A consumer of group g that pops topic T."""

    def __init__(self, world: "World") -> None:
        self.world = world
        config = TopicConfig("T", read_queue_nums=2, write_queue_nums=2)
        world.broker.topics.put(config, world.now_ms)

    def send(self, *bodies: str, queue_id: int = 0, tag: str = "A") -> None:
        for body in bodies:
            fields = {
                "a": "p", "b": "T", "c": "TBW102", "d": "8", "e": str(queue_id), "f": "0",
                "g": str(self.world.now_ms), "h": "0", "i": f"TAGS\x01{tag}\x02",
                "j": "0", "k": "false", "m": "false",
            }  # fmt: skip
            request = new_request(RequestCode.SEND_MESSAGE_V2, fields=fields, body=body.encode())
            response = self.world.dispatch(request)
            assert not isinstance(response, Deferred) and response.code == ResponseCode.SUCCESS

    def request(self, **changes: Any) -> Command | Deferred:
        """The response to a pop, after all its steps."""
        asked: dict[str, Any] = {
            "consumer_group": "g", "topic": "T", "queue_id": -1, "max_msg_nums": 32,
            "invisible_time": INVISIBLE_MS, "poll_time": 0, "born_time": self.world.now_ms,
            "init_mode": 0, **changes,
        }  # fmt: skip
        request = new_request(RequestCode.POP_MESSAGE, PopMessageRequest(**asked))
        response: Any = self.world.dispatch(request)
        # The first pop after a restart runs the steps of recovery.
        return run_to_result(response) if isinstance(response, Generator) else response

    def pop(self, **changes: Any) -> list[tuple[str, str]]:
        """Body and handle of each message."""
        response = self.request(**changes)
        if isinstance(response, Deferred):
            assert response.done, "the pop waits"
            response = response.value
        return self.messages(response)

    def messages(self, response: Command) -> list[tuple[str, str]]:
        if response.code != ResponseCode.SUCCESS:
            return []
        starts = read_offsets(response.fields["startOffsetInfo"])
        found = []
        for message in decode_messages(b"".join(response.body)):
            handle = message.properties.get("POP_CK")
            if handle is None:
                handle = PopHandle(
                    starts["0", message.queue_id][0],
                    int(response.fields["popTime"]),
                    int(response.fields["invisibleTime"]),
                    int(response.fields["reviveQid"]),
                    RetryKind.NORMAL,
                    "broker-a",
                    message.queue_id,
                    message.queue_offset,
                ).text()
            assert message.topic == "T"
            found.append((bytes(message.body).decode(), handle))
        return found

    def ack(self, handle: str, **changes: Any) -> Command:
        return self.world.ask(RequestCode.ACK_MESSAGE, self.header(handle, **changes))

    def acknowledgement(self, handle: str) -> Command:
        return new_request(RequestCode.ACK_MESSAGE, self.header(handle))

    def header(self, text: str, **changes: Any) -> AckMessageRequest:
        handle = PopHandle.parse(text)
        assert handle.queue_offset is not None
        asked: dict[str, Any] = {
            "consumer_group": "g", "topic": handle.kind.topic_of("T", "g"),
            "queue_id": handle.queue_id, "extra_info": text, "offset": handle.queue_offset,
            **changes,
        }  # fmt: skip
        return AckMessageRequest(**asked)
