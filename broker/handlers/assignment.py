"""Handlers of queue assignment: consumers ask for their queues, operators choose how a group shares
them.

Owns QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401) and GET_ALL_MESSAGE_REQUEST_MODE (402)
(RocketMQ: QueryAssignmentProcessor). It must never decide an assignment: broker/assignment does.

Tests: tests/unit/broker/assignment/test_assignments.py, tests/unit/broker/assignment/test_modes.py
"""

from functools import partial
from typing import Final

from turbopump.broker.assignment.assignments import (
    FORWARDED,
    GENERATION,
    KEPT,
    KEPT_MAX,
    AssignmentQuery,
    AssignmentResponse,
    encode_assignment,
)
from turbopump.broker.context import BrokerContext
from turbopump.broker.handlers.clients import send_notices
from turbopump.broker.handlers.json_responses import response_in_steps
from turbopump.broker.tables.assignment_store import VERSION, StoredAssignment
from turbopump.broker.tables.request_modes import ALL_TOPICS, POP, FullTable
from turbopump.engine.json_steps import JsonBounds
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.heartbeat import BROADCASTING, CLUSTERING
from turbopump.net.wire.names import RETRY_PREFIX, name_member

FORWARDED_BODY: Final = JsonBounds(2 * KEPT_MAX, 40_000, 200_000)
"""JSON limits of a request 400 that another broker forwards together with its last assignments."""


def register(table: Dispatcher, broker: BrokerContext) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them yet.
    POP mode is accepted only while the table also has a handler of POP_MESSAGE."""
    table.add(RequestCode.QUERY_ASSIGNMENT, partial(_query, broker))
    table.add(RequestCode.SET_MESSAGE_REQUEST_MODE, partial(_set_request_mode, broker, table))
    table.add(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, partial(_all_request_modes, broker))


def _query(broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int) -> Response:
    """Answer 400 with a member's queues. For a topic that does not exist here the answer is
    a success without queues; a malformed question is an error."""
    forwarded_by = request.fields.get(FORWARDED, "")
    if forwarded_by:
        members = bodies.as_object(bodies.load(request.body, FORWARDED_BODY))
    else:
        members = bodies.load_small_object(request.body)
    topic, group = name_member(members, "topic"), name_member(members, "consumerGroup")
    client_id = name_member(members, "clientId")
    model = bodies.read_text(members, "messageModel", CLUSTERING)
    if not topic or not group or not client_id or model not in (CLUSTERING, BROADCASTING):
        raise bodies.BadBody("topic, consumerGroup, clientId or messageModel is missing or wrong")
    broker.saver.promise_nothing()
    if broker.topics.get(topic) is None:
        return new_response(request, ResponseCode.SUCCESS, body=encode_assignment(None, ""))
    generation, kept = -1, None
    if forwarded_by:
        generation = bodies.as_int(request.fields.get(GENERATION, "-1"), GENERATION)
        if KEPT in members:
            kept = StoredAssignment.from_json(f"{topic}@{group}", members[KEPT])
            generation = kept.generation
    query = AssignmentQuery(
        group,
        topic,
        client_id,
        name_member(members, "strategyName"),
        model == BROADCASTING,
        bytes(request.body) if not isinstance(request.body, list) else b"".join(request.body),
        forwarded_by,
        generation,
        kept,
    )
    later = broker.assignments.answer_query(query)
    # The answer does not promise that the tables it changed are already saved.
    broker.saver.promise_nothing()
    if later.done:
        return _to_command(request, later.value)
    return later.map(partial(_to_command, request))


def _to_command(request: Command, response: AssignmentResponse) -> Command:
    """Make the answer to the request from that of the assignments."""
    return new_response(
        request, response.code, response.remark, body=response.body, fields=response.fields or None
    )


def _set_request_mode(
    broker: BrokerContext, table: Dispatcher, request: Command, _peer: Peer, now_ms: int
) -> Command:
    """Handle 401: set how a group receives a topic's messages (pull or pop) and which side shares
    out its queues. Its members are notified and follow at once."""
    members = bodies.load_small_object(request.body)
    topic, group = name_member(members, "topic"), name_member(members, "consumerGroup")
    if topic.startswith(RETRY_PREFIX):
        remark = "retry topic is not allowed to set mode"
        return new_response(request, ResponseCode.NO_PERMISSION, remark)
    if topic != ALL_TOPICS and broker.topics.get(topic) is None:
        remark = f"topic[{topic}] not exist"
        return new_response(request, ResponseCode.TOPIC_NOT_EXIST, remark)
    if broker.groups.find_or_create(group, now_ms) is None:
        remark = f"subscription group[{group}] not exist"
        return new_response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    if members.get("mode") == POP and RequestCode.POP_MESSAGE not in table.codes:
        remark = "message request mode POP is not supported, groups of this broker pull"
        return new_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
    try:
        broker.request_modes.put(members)
    except FullTable as error:
        return new_response(request, ResponseCode.SYSTEM_ERROR, str(error))
    broker.consumers.mark_changed(group)
    send_notices(broker)
    return new_response(request, ResponseCode.SUCCESS)


def _all_request_modes(
    broker: BrokerContext, request: Command, _peer: Peer, _now_ms: int
) -> Steps[Command]:
    """Answer 402 with the modes, for a replica; add the last assignments if the request carries
    another version of them than the current one."""
    body = broker.request_modes.to_json()
    kept = broker.assignments.kept
    if VERSION in request.fields and request.fields[VERSION] != kept.version:
        body |= kept.to_json()
    return (yield from response_in_steps(request, body))
