"""The admin client's requests about groups and their members.

Owns the call sequences of consumerConnection, producerConnection, consumerStatus, deleteSubGroup
and cloneGroupOffset (tools/admin/DefaultMQAdminExtImpl). It must never print or format. A base of
Admin, whose errors these methods raise.

Tests: tests/integration/cli/test_container.py, tests/integration/cli/test_admin.py
"""

from turbopump.net.client.admin import parse as admin_parse
from turbopump.net.client.admin.calls import RESPONSES, AdminCalls, await_all, group_addresses
from turbopump.net.client.admin.results import (
    ConsumerClients,
    MemberStatus,
    ProducerClients,
)
from turbopump.net.client.errors import BrokerError, ClientError
from turbopump.net.client.sending import check_group
from turbopump.net.wire.bodies import as_object, load_object, read_table
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.headers.admin import CloneGroupOffsetRequest, DeleteSubscriptionGroupRequest
from turbopump.net.wire.headers.clients import (
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
    GetProducerConnectionListRequest,
)
from turbopump.net.wire.names import RETRY_PREFIX
from turbopump.net.wire.queues import MessageQueue
from turbopump.net.wire.route import TopicRouteData


class GroupCommands:
    """Requests of mqadmin about the clients of a group. `broker` is an address "host:port"."""

    _calls: AdminCalls

    async def consumer_connection(
        self, group: str, *, broker: str | None = None
    ) -> ConsumerClients:
        """consumerConnection: the members of a consumer group, sorted by client id, from `broker`
        or from the first broker of the group that knows them; BrokerError 206 if the group has no
        member, ClientError for an unknown group."""
        check_group(group)
        addresses = [broker] if broker is not None else group_addresses(await self._route_of(group))
        failure: BrokerError | None = None
        for address in addresses:
            header = GetConsumerConnectionListRequest(group)
            code = RequestCode.GET_CONSUMER_CONNECTION_LIST
            try:
                return admin_parse.consumer_clients(
                    group, await self._calls.ask(address, code, header)
                )
            except BrokerError as error:
                failure = error
        raise failure or ClientError(f"no broker of group {group} is known")

    async def producer_connection(self, group: str, topic: str) -> ProducerClients:
        """producerConnection: the members of a producer group, over the brokers of a topic, sorted
        by client id; BrokerError 1 if it has no member, 17 for an unknown topic."""
        check_group(group)
        failure: BrokerError | None = None
        clients = {}
        for address in group_addresses(await self._calls.query_route(topic)):
            header = GetProducerConnectionListRequest(group)
            code = RequestCode.GET_PRODUCER_CONNECTION_LIST
            try:
                body = await self._calls.ask(address, code, header)
            except BrokerError as error:
                failure = error
                continue
            clients.update({one.client_id: one for one in admin_parse.read_clients(body)})
        if not clients and failure is not None:
            raise failure
        return ProducerClients(group, topic, [clients[key] for key in sorted(clients)])

    async def consumer_status(
        self, group: str, *, client_id: str | None = None
    ) -> list[MemberStatus]:
        """consumerStatus: the queues and progress of each member of a group, or of member
        `client_id`, sorted by client id; a member that does not answer has an `error`. ClientError
        for an unknown group or member, BrokerError 206 if the group has no member."""
        route = await self._route_of(group)
        members = await self._calls.query_members(group, route)
        ids = [one for one in members.client_ids if client_id in (None, one)]
        if not ids:
            raise ClientError(f"group {group} has no member {client_id}")
        addresses = group_addresses(route)

        async def status(member: str) -> MemberStatus:
            header = GetConsumerRunningInfoRequest(group, member, False)
            failure: Exception | None = None
            for address in addresses:
                try:
                    code = RequestCode.GET_CONSUMER_RUNNING_INFO
                    info = load_object(await self._calls.ask(address, code, header))
                    queues = sorted(
                        map(MessageQueue.from_key, read_table(info, "mqTable", as_object))
                    )
                except RESPONSES as error:
                    failure = error
                    continue
                names = [f"{one.topic} {one.broker_name} {one.queue_id}" for one in queues]
                return MemberStatus(member, names, info)
            return MemberStatus(member, [], {}, str(failure))

        return await await_all(status(member) for member in sorted(ids))

    async def delete_subscription_group(
        self,
        group: str,
        *,
        broker: str | None = None,
        cluster: str | None = None,
        clean_offset: bool = False,
    ) -> list[str]:
        """deleteSubGroup at an address, or at every master of a cluster, one after the other;
        `clean_offset` removes the group's offsets, too. Returns the addresses that deleted it; at
        an error the earlier brokers have."""
        check_group(group)
        addresses = await self._calls.broker_addresses(broker, cluster, masters_only=True)
        header = DeleteSubscriptionGroupRequest(group, clean_offset)
        for address in addresses:
            await self._calls.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        return addresses

    async def clone_group_offset(
        self, source: str, target: str, topic: str, *, offline: bool = True
    ) -> list[str]:
        """cloneGroupOffset: group `target` continues at the offsets of group `source` in a topic,
        at one broker of each broker group, one after the other. With `offline` the source need not
        be online. Returns the addresses that accepted the request."""
        check_group(source)
        check_group(target)
        addresses = group_addresses(await self._calls.query_route(topic))
        header = CloneGroupOffsetRequest(source, target, topic, offline)
        for address in addresses:
            await self._calls.ask(address, RequestCode.CLONE_GROUP_OFFSET, header)
        return addresses

    async def _route_of(self, group: str) -> TopicRouteData:
        """Return the route of the group's retry topic. Raises ClientError for an unknown group."""
        check_group(group)
        try:
            return await self._calls.query_route(RETRY_PREFIX + group)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise ClientError(f"group {group} is not known") from None
            raise
