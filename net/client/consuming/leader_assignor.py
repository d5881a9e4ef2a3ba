"""The shares of a push consumer, by the strategy of its options; for STICKY one member decides.

Owns the last known shares of each topic. It must never take or give up a queue.

Most strategies give each member the same shares for the same members and queues. STICKY begins with
the last shares, which members that came later do not know. So the member with the smallest client
id leads: it computes the shares, and the others ask it for them, through any broker
(GET_CONSUMER_RUNNING_INFO, which RocketMQ's brokers pass on, too). Each member keeps the answer,
and goes on with it when it leads itself; a leader without shares asks the others first. If the
leader used an older list of members, it is asked again a moment later.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from turbopump.net.allocation.shares import sharing_of, sorted_names
from turbopump.net.allocation.strategies import STICKY, allocate_by_name
from turbopump.net.client.consuming.leader_assignment import LeaderAssignment
from turbopump.net.client.consuming.membership import ConsumerMembership
from turbopump.net.client.errors import BrokerError, ClientError
from turbopump.net.client.routes import TopicRoute
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire.bodies import BadBody, as_text, load_object, read_table
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.headers.clients import GetConsumerRunningInfoRequest
from turbopump.net.wire.queues import MessageQueue

PROPERTY: Final = "turbopump.shares"
"""Name of the property of the answer to 307 with the shares: JSON of topic to LeaderAssignment."""
ASKED_MAX: Final = 3
"""Maximum number of members that a leader without shares asks."""


class LeaderAssignor:
    """Computes which queues of a topic this push consumer gets, by the strategy of its options."""

    def __init__(self, membership: ConsumerMembership) -> None:
        self._membership = membership

    async def share_of_member(
        self, topic: str, members: Sequence[str], route: TopicRoute
    ) -> Sequence[MessageQueue] | None:
        """The readable queues of `topic` for this member, by the strategy; empty if it is not in
        `members` (client ids). None: STICKY's leader has not decided for these members yet; ask
        again in a moment.

        With STICKY other members may be asked by requests, and the decision is stored in
        `membership.led`. Raises AllocationError for options that do not fit the strategy,
        ClientError if another member does not use STICKY.
        """
        me, options = self._membership.instance.client_id, self._membership.options
        if options.strategy != STICKY:
            fixed = {me: [queue for queue in options.fixed_queues if queue.topic == topic]}
            sharing = sharing_of(members, route.subscribe, fixed=fixed, rooms=options.machine_rooms)
            return allocate_by_name(options.strategy, sharing).get(me, [])
        ordered = tuple(sorted_names(set(members)))
        if me not in ordered:
            return []
        if ordered[0] == me:
            decided = await self._compute_shares(topic, ordered, route)
        else:
            asked = await self._query_leader(topic, ordered[0], route)
            if asked is None or asked.members != ordered:
                return None
            decided = self._membership.led[topic] = asked
        return decided.shares.get(me, [])

    async def _compute_shares(
        self, topic: str, members: tuple[str, ...], route: TopicRoute
    ) -> LeaderAssignment:
        """Compute and store the shares of a topic as the group's leader, from the newest known
        decision."""
        known = self._membership.led.get(topic)
        if known is None:
            found = [
                await self._query_leader(topic, one, route) for one in members[1 : ASKED_MAX + 1]
            ]
            newest = sorted(filter(None, found), key=lambda one: one.generation)
            known = newest[-1] if newest else None
        before = {} if known is None else known.shares
        generation = 0 if known is None else known.generation
        shares = allocate_by_name(STICKY, sharing_of(members, route.subscribe, before))
        if known is None or shares != before or known.members != members:
            generation += 1
        decided = self._membership.led[topic] = LeaderAssignment(generation, members, shares)
        return decided

    async def _query_leader(
        self, topic: str, member: str, route: TopicRoute
    ) -> LeaderAssignment | None:
        """Ask another member for its shares of a topic; None if no broker returns an answer, or the
        member has none."""
        header = GetConsumerRunningInfoRequest(self._membership.group, member, False)
        for address in _reading_addresses(self._membership, route):
            try:
                code = RequestCode.GET_CONSUMER_RUNNING_INFO
                response = await self._membership.instance.ask(address, code, header)
                assert isinstance(response.body, bytes)
                properties = read_table(load_object(response.body), "properties", as_text)
            except (BrokerError, RemotingError, BadBody):
                continue
            if PROPERTY not in properties:
                raise ClientError(f"member {member} does not share queues by {STICKY}")
            kept = load_object(properties[PROPERTY].encode()).get(topic)
            return None if kept is None else LeaderAssignment.from_json(topic, kept)
        return None


def kept_shares(membership: ConsumerMembership) -> dict[str, Any]:
    """The last known decisions of STICKY's leaders as JSON beans, by topic: the value of PROPERTY
    in the answer to 307."""
    return {topic: led.to_json() for topic, led in membership.led.items()}


def _reading_addresses(membership: ConsumerMembership, route: TopicRoute) -> Iterable[str]:
    """Yield an address of each broker group of the route, sorted by broker name."""
    for name in sorted(route.brokers):
        reader = membership.instance.brokers.address_to_read(name)
        if reader is not None:
            yield reader[1]
