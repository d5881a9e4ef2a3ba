"""Offsets of groups (14, 15) and of queues (29, 30, 31, 32).

Owns the answers of RocketMQ's ConsumerManageProcessor and of the offset part of its
AdminBrokerProcessor. It must never read records.
"""

from functools import partial
from typing import Final

from turbopump.broker.context import BrokerContext
from turbopump.engine.deferred import Deferred
from turbopump.engine.types import Boundary, QueueOffset
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.offsets import (
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    SearchOffsetRequest,
    SearchOffsetResponse,
    UpdateConsumerOffsetRequest,
)

GO_LANGUAGE: Final = "GO"
"""Language of a Go client, as in its requests."""

GO_RESPONSE_DELAY_MS: Final = 100
"""Delay of the answers to commits of Go clients, in ms.

The Go client (2.1) sends its commits not marked one-way, does not wait for answers and closes
the connection right after the last commit. Unread answers would make its kernel reset the
connection and drop commits that are still under way; so the answers are sent after it has closed.
"""

NOT_HERE: Final = "another broker of this group keeps offsets and locks now"
"""Remark of the refusal of a commit or a lock while another broker of the group serves them."""


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them
    yet."""
    handlers = _OffsetHandlers(broker)
    table.add(RequestCode.QUERY_CONSUMER_OFFSET, handlers.query_offset)
    table.add(RequestCode.UPDATE_CONSUMER_OFFSET, handlers.update_offset)
    table.add(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, handlers.search_offset)
    table.add(RequestCode.GET_MAX_OFFSET, handlers.max_offset)
    table.add(RequestCode.GET_MIN_OFFSET, handlers.min_offset)
    table.add(RequestCode.GET_EARLIEST_MSG_STORETIME, handlers.earliest_time)


class _OffsetHandlers:
    """Handlers of the requests for offsets of groups and of queues."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    def query_offset(self, request: Command, _peer: Peer, _now_ms: int) -> Command:
        """Answer 14 with the committed offset, or 0 for a young queue; else QUERY_NOT_FOUND (22),
        with which the client applies its consumeFromWhere."""
        header = read_header(QueryConsumerOffsetRequest, request.fields)
        known = self._broker.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if known >= 0:
            return _answer_offset(request, known)
        if header.set_zero_if_not_found is False:
            return new_response(
                request,
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, do not set to zero, maybe this group boot first",
            )
        if self._is_young(header.topic, header.queue_id):
            # A new group on a young topic starts at the first message, whatever its
            # consumeFromWhere is.
            return _answer_offset(request, QueueOffset(0))
        return new_response(
            request,
            ResponseCode.QUERY_NOT_FOUND,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )

    def update_offset(self, request: Command, peer: Peer, now_ms: int) -> Response:
        """Handle 15: commit an offset. A lower offset than the last is accepted where the group
        does not pop; a pending reset discards the commit."""
        response = self._commit(request, now_ms)
        if peer.language != GO_LANGUAGE or request.is_oneway:
            return response
        later: Deferred[Command | None] = Deferred()
        peer.call_later(GO_RESPONSE_DELAY_MS, partial(later.resolve, response))
        return later

    def _commit(self, request: Command, now_ms: int) -> Command:
        """Commit the offset in the request, or refuse it; return the answer."""
        header = read_header(UpdateConsumerOffsetRequest, request.fields)
        broker, group, topic = self._broker, header.consumer_group, header.topic
        if broker.groups.get(group) is None:
            code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            return new_response(request, code, f"Group {group} not exist!")
        if broker.topics.get(topic) is None:
            return new_response(request, ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if header.queue_id is None:
            code = ResponseCode.INVALID_PARAMETER
            return new_response(request, code, f"QueueId is null, topic is {topic}")
        if header.commit_offset is None:
            code = ResponseCode.INVALID_PARAMETER
            return new_response(request, code, f"Offset is null, topic is {topic}")
        if not broker.role.may_change_offsets:
            return new_response(request, ResponseCode.SERVICE_NOT_AVAILABLE, NOT_HERE)
        resets = broker.config.use_server_side_reset_offset
        if resets and broker.offsets.has_reset(group, topic, header.queue_id):
            return new_response(request, ResponseCode.SUCCESS, "Offset has been previously reset")
        queue_offset = QueueOffset(header.commit_offset)
        broker.offsets.commit_consumed(group, topic, header.queue_id, queue_offset, now_ms)
        return new_response(request, ResponseCode.SUCCESS)

    def search_offset(self, request: Command, _peer: Peer, now_ms: int) -> Command:
        """Answer 29 with the queue offset for a store time; LOWER unless the header has UPPER."""
        header = read_header(SearchOffsetRequest, request.fields)
        upper = (header.boundary_type or "").upper() == Boundary.UPPER.name
        found = self._broker.store.search_time_until_now(
            header.topic,
            header.queue_id,
            header.timestamp,
            Boundary.UPPER if upper else Boundary.LOWER,
            now_ms,
        )
        return new_response(request, ResponseCode.SUCCESS, header=SearchOffsetResponse(found))

    def max_offset(self, request: Command, _peer: Peer, _now_ms: int) -> Command:
        """Answer 30 with the queue offset that the next message will get."""
        header = read_header(GetMaxOffsetRequest, request.fields)
        found = self._broker.store.max_queue_offset(header.topic, header.queue_id)
        return new_response(request, ResponseCode.SUCCESS, header=GetMaxOffsetResponse(found))

    def min_offset(self, request: Command, _peer: Peer, _now_ms: int) -> Command:
        """Answer 31 with the queue offset of the oldest message. An empty queue has 0, or -1 if it
        holds batches (RocketMQ: BatchConsumeQueue.getMinOffsetInQueue)."""
        header = read_header(GetMinOffsetRequest, request.fields)
        store, topics = self._broker.store, self._broker.topics
        found = store.min_queue_offset(header.topic, header.queue_id)
        if topics.is_batch(header.topic):
            end = store.max_queue_offset(header.topic, header.queue_id)
            found = QueueOffset(-1) if end == 0 else found
        return new_response(request, ResponseCode.SUCCESS, header=GetMinOffsetResponse(found))

    def earliest_time(self, request: Command, _peer: Peer, _now_ms: int) -> Command:
        """Answer 32 with the store time of the oldest message, -1 for an empty queue."""
        header = read_header(GetEarliestMsgStoretimeRequest, request.fields)
        store = self._broker.store
        first = store.min_queue_offset(header.topic, header.queue_id)
        time_ms = store.store_timestamp_ms(header.topic, header.queue_id, first)
        body = GetEarliestMsgStoretimeResponse(time_ms)
        return new_response(request, ResponseCode.SUCCESS, header=body)

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Whether the queue's message 0 still exists and is in memory."""
        store = self._broker.store
        if store.min_queue_offset(topic, queue_id) > 0:
            return False
        units = store.units(topic, queue_id, QueueOffset(0), 1)
        return bool(units) and store.in_memory(units[0].log_offset)


def _answer_offset(request: Command, queue_offset: QueueOffset) -> Command:
    """Build the successful answer to 14 with this offset."""
    header = QueryConsumerOffsetResponse(queue_offset)
    return new_response(request, ResponseCode.SUCCESS, header=header)
