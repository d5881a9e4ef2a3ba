"""Handles of popped messages, in the form in which clients make them (ExtraInfoUtil)."""

from turbopump.net.wire.command import Command
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.pop import PopMessageResponse
from turbopump.net.wire.message import MessageView, decode_messages
from turbopump.net.wire.pop_handles import PopHandle, RetryKind, read_start_offsets


def handles_of(response: Command, broker_name: str) -> list[tuple[MessageView, str]]:
    """Each message of a response with its handle."""
    found = []
    reply = read_header(PopMessageResponse, response.fields)
    starts = read_start_offsets(reply.start_offset_info or "")
    # Of an answer that came as a frame the body is one piece.
    parts = response.body if isinstance(response.body, list) else [response.body]
    for each in decode_messages(b"".join(parts)):
        handle = each.properties.get("POP_CK")
        if handle is None:
            handle = PopHandle(
                starts[RetryKind.NORMAL, each.queue_id],
                reply.pop_time,
                reply.invisible_time,
                reply.revive_qid,
                RetryKind.NORMAL,
                broker_name,
                each.queue_id,
                each.queue_offset,
            ).text()
        found.append((each, handle))
    return found
