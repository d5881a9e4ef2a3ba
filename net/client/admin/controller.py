"""The admin client's requests to controllers, for mqadmin's controller commands.

Owns the choice of the controllers to ask: the leader, found through any controller, or each
controller given (tools/admin/DefaultMQAdminExtImpl). It must never print or format.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Final

from turbopump.net.client.admin.calls import await_all
from turbopump.net.client.admin.results import (
    CleanedBroker,
    ControllerMetadata,
    ElectedMaster,
    NodeProperties,
    ReplicaLine,
    SyncStateLine,
    UpdatedControllerConfig,
)
from turbopump.net.client.errors import BrokerError, ClientError, InvalidArgument
from turbopump.net.client.shared_client import SharedClient, instance_of
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire import hosts
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.controller import (
    BrokerReplicasInfo,
    ElectMasterBody,
    ReplicaIdentity,
    ReplicasInfo,
    decode_peers,
    encode_names,
)
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.controller import (
    CleanBrokerDataRequest,
    ElectMasterRequest,
    ElectMasterResponse,
    GetMetaDataResponse,
)
from turbopump.net.wire.java_properties import (
    PropertiesError,
    format_properties,
    parse_properties,
)

NO_LEADER: Final = "they have no leader"
"""End of the text of the ClientError of controllers without a leader."""
AGAIN_S: Final = (0.2, 0.5, 1.0)
"""Waits in seconds before the leader is looked up again: an election takes a few hundred
milliseconds."""


class ControllerAdmin:
    """Requests to the controllers of a quorum, through a started `client`. `addresses` are the
    "host:port" of some or all controllers; raises InvalidArgument if empty or malformed.

    Every method raises BrokerError (code and remark) for an error answer, ClientError if the
    controllers have no leader, RemotingError when no node answers, BadBody or BadHeader for an
    answer that cannot be read.
    """

    def __init__(self, client: SharedClient, addresses: Sequence[str]) -> None:
        self._instance = instance_of(client)
        self.addresses = _checked_addresses(addresses)

    async def metadata(self) -> ControllerMetadata:
        """getControllerMetaData: from the first controller in the order of `addresses` that knows a
        leader, else from the first that answers."""
        found: ControllerMetadata | None = None
        failure: RemotingError | None = None
        for address in self.addresses:
            try:
                metadata = await self.metadata_of(address)
            except RemotingError as error:
                failure = error
                continue
            if metadata.leader_address:
                return metadata
            found = found or metadata
        if found is None:
            assert failure is not None
            raise failure
        return found

    async def metadata_of(self, address: str) -> ControllerMetadata:
        """The view that the controller at `address` ("host:port", any controller) has of its
        quorum."""
        response = await self._instance.ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
        header = read_header(GetMetaDataResponse, response.fields)
        return ControllerMetadata(
            address,
            header.group,
            header.controller_leader_id or "",
            header.controller_leader_address or "",
            header.is_leader,
            decode_peers(header.peers),
            header.term,
        )

    async def sync_state_sets(self, broker_names: Collection[str]) -> list[SyncStateLine]:
        """getSyncStateSet from the leader: the state of each group in `broker_names` that the
        controllers know, sorted by name; unknown groups are left out."""
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        response = await self._ask_leader(code, body=encode_names(sorted(broker_names)))
        groups = BrokerReplicasInfo.decode(_body_bytes(response)).groups
        return [_sync_state(name, info) for name, info in sorted(groups.items())]

    async def elect_master(self, cluster: str, broker_name: str, broker_id: int) -> ElectedMaster:
        """electMaster: have the leader make the replica with that id the master of its group, and
        return the outcome; BrokerError if it refuses."""
        header = ElectMasterRequest(
            cluster_name=cluster,
            broker_name=broker_name,
            broker_id=broker_id,
            designate_elect=True,
            invoke_time=self._instance.now_ms(),
        )
        response = await self._ask_leader(RequestCode.CONTROLLER_ELECT_MASTER, header)
        elected = read_header(ElectMasterResponse, response.fields)
        group = ElectMasterBody.decode(_body_bytes(response)).group
        return ElectedMaster(
            cluster,
            broker_name,
            elected.master_broker_id,
            elected.master_address or "",
            elected.master_epoch or 0,
            elected.sync_state_set_epoch or 0,
            {} if group is None else dict(sorted(group.addresses.items())),
        )

    async def config(self) -> list[NodeProperties]:
        """getControllerConfig of each of `addresses`, in their order; the first failure is
        raised."""
        return await await_all(self._config_of(address) for address in self.addresses)

    async def update_config(self, key: str, value: str) -> UpdatedControllerConfig:
        """updateControllerConfig at each of `addresses`, one after the other; at an error the
        earlier controllers are changed."""
        body = format_properties({key: value}).encode()
        for address in self.addresses:
            await self._instance.ask(address, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)
        return UpdatedControllerConfig(list(self.addresses), key, value)

    async def clean_broker(
        self,
        broker_name: str,
        *,
        cluster: str | None = None,
        broker_ids: Sequence[int] = (),
        living: bool = False,
    ) -> CleanedBroker:
        """cleanBrokerMetadata: have the leader forget replicas, or with no ids the whole group.

        `living` also cleans living brokers; RocketMQ's own controllers then forget the whole group
        whatever the ids are (ReplicasInfoManager.cleanBrokerData).
        """
        header = CleanBrokerDataRequest(
            cluster_name=cluster,
            broker_name=broker_name,
            broker_controller_ids_to_clean=";".join(map(str, broker_ids)) or None,
            is_clean_living_broker=living,
            invoke_time=self._instance.now_ms(),
        )
        await self._ask_leader(RequestCode.CLEAN_BROKER_DATA, header)
        return CleanedBroker(broker_name, list(broker_ids))

    async def _config_of(self, address: str) -> NodeProperties:
        """Return the configuration of the controller at `address`."""
        response = await self._instance.ask(address, RequestCode.GET_CONTROLLER_CONFIG)
        return NodeProperties(address, properties_of(response))

    async def _ask_leader(self, code: int, header: Any = None, body: bytes = b"") -> Command:
        """Ask the leader; if it has lost leadership, look up the new leader and ask again. A
        controller that is not the leader changed nothing, so the repeat is safe."""
        for wait_s in (*AGAIN_S, None):
            found = await self.metadata()
            if not found.leader_address:
                raise ClientError(f"controllers {';'.join(self.addresses)}: {NO_LEADER}")
            try:
                return await self._instance.ask(found.leader_address, code, header, body)
            except BrokerError as error:
                if error.code != ResponseCode.CONTROLLER_NOT_LEADER or wait_s is None:
                    raise
            await asyncio.sleep(wait_s)
        raise AssertionError("the last try raises or returns")


def properties_of(response: Command) -> dict[str, str]:
    """The name-value pairs in the body of a node's answer (Java properties in UTF-8), sorted by
    key; raises BadBody."""
    try:
        found = parse_properties(_body_bytes(response).decode())
    except (UnicodeDecodeError, PropertiesError) as error:
        raise BadBody(f"the body is no properties text: {error}") from None
    return {item.key: item.value for item in sorted(found, key=lambda item: item.key)}


def _sync_state(name: str, info: ReplicasInfo) -> SyncStateLine:
    return SyncStateLine(
        name,
        info.master_broker_id,
        info.master_address or "",
        info.master_epoch,
        info.set_epoch,
        [_replica_line(each) for each in info.in_sync],
        [_replica_line(each) for each in info.not_in_sync],
    )


def _replica_line(identity: ReplicaIdentity) -> ReplicaLine:
    return ReplicaLine(
        identity.broker_name, identity.broker_id, identity.broker_address, identity.alive
    )


def _checked_addresses(addresses: Sequence[str]) -> list[str]:
    """Return the addresses as a list; raises InvalidArgument if it is empty or an address is
    malformed."""
    if not addresses:
        raise InvalidArgument("at least one controller address is needed")
    for address in addresses:
        try:
            hosts.split_host_port(address)
        except ValueError as error:
            raise InvalidArgument(f"controller address: {error}") from None
    return list(addresses)


def _body_bytes(response: Command) -> bytes:
    """Return the body of a response as bytes; raises BadBody for a missing body."""
    if not isinstance(response.body, bytes):
        raise BadBody("the answer has no body")
    return response.body
