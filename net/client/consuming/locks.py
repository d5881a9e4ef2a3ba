"""Queue locks at the brokers: only the holder of a queue's lock consumes it in order.

Owns LOCK_BATCH_MQ and UNLOCK_BATCH_MQ. It must never decide which queues to consume.

Tests: tests/unit/net/client/consuming/test_balancer.py
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.errors import ClientError
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire.bodies import encode_json, load_object, read_list
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.queues import MessageQueue

logger = logging.getLogger(__name__)

LOCK_TIMEOUT_MS: Final = 1000
"""Timeout of a lock request in milliseconds, as in RocketMQ."""

RENEW_MS: Final = 20_000
"""Milliseconds between two renewals of held locks (ProcessQueue.REBALANCE_LOCK_INTERVAL)."""

RENEW_AGAIN_MS: Final = 1000
"""Interval of renewals in milliseconds after a broker did not answer: ten tries fit before LIVE_MS
ends."""

LIVE_MS: Final = 30_000
"""Milliseconds from its request for which a lock counts without renewal; the broker gives it to
another member after 60 s."""


class MemberLocks:
    """Requests of a group's member to lock and unlock queues at their brokers."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def lock_queues(
        self, queues: Iterable[MessageQueue]
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Request locks at the queues' masters, or renew them, and wait for all answers: (granted,
        refused because another member holds the lock).

        Queues of a broker that did not answer, or has no master, are in neither; such failures are
        logged, not raised.
        """
        granted: set[MessageQueue] = set()
        refused: set[MessageQueue] = set()

        async def lock_at_broker(broker_name: str, wanted: set[MessageQueue]) -> None:
            try:
                response = await self._send_request(broker_name, wanted, RequestCode.LOCK_BATCH_MQ)
                given = set(read_list(load_object(response), "lockOKMQSet", MessageQueue.from_json))
            except (ClientError, RemotingError, ValueError) as error:
                logger.warning("broker %s granted no locks: %s", broker_name, error)
                return
            granted.update(wanted & given)
            refused.update(wanted - given)

        by_broker = _by_broker(queues)
        await asyncio.gather(*(lock_at_broker(name, wanted) for name, wanted in by_broker.items()))
        return granted, refused

    async def unlock_queues(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back and wait for the brokers' answers; failures are logged, the locks then
        run out."""

        async def ask(broker_name: str, held: set[MessageQueue]) -> None:
            try:
                await self._send_request(broker_name, held, RequestCode.UNLOCK_BATCH_MQ)
            except (ClientError, RemotingError) as error:
                logger.warning("locks at broker %s were not given back: %s", broker_name, error)

        await asyncio.gather(*(ask(name, held) for name, held in _by_broker(queues).items()))

    async def _send_request(self, broker_name: str, queues: set[MessageQueue], code: int) -> bytes:
        """Send a lock or unlock request (`code`) to the broker's master and return the answer's
        body. Raises ClientError without a master."""
        address = self._instance.brokers.master_address(broker_name)
        if address is None:
            raise ClientError(f"broker {broker_name} has no master")
        body = encode_json(
            {
                "clientId": self._instance.client_id,
                "consumerGroup": self._group,
                "mqSet": [queue.to_json() for queue in sorted(queues)],
                "onlyThisBroker": False,
            }
        )
        response = await self._instance.ask(address, code, body=body, timeout_ms=LOCK_TIMEOUT_MS)
        assert isinstance(response.body, bytes)
        return response.body


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, set[MessageQueue]]:
    """Return the queues by broker name."""
    table: dict[str, set[MessageQueue]] = {}
    for queue in queues:
        table.setdefault(queue.broker_name, set()).add(queue)
    return table
