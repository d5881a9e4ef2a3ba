"""A group's offset in each queue: kept by the broker (cluster mode) or by the client (broadcast).

Owns reading and committing offsets and the client's own file. It must never decide which offset to
commit; the process queues do.
"""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Final, Protocol

from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.fastjson import RawKeys
from turbopump.engine.types import QueueOffset
from turbopump.net.client.client_instance import ClientInstance
from turbopump.net.client.errors import BrokerError, ClientError, RouteNotFound
from turbopump.net.client.options import ConsumeFrom
from turbopump.net.transport.errors import RemotingError
from turbopump.net.wire.bodies import as_int, as_object
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import new_request
from turbopump.net.wire.header import read_header
from turbopump.net.wire.headers.offsets import (
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
from turbopump.net.wire.names import RETRY_PREFIX
from turbopump.net.wire.queues import MessageQueue

logger = logging.getLogger(__name__)

OFFSETS_FILE: Final = "offsets.json"
"""Name of the file in a group's folder; RocketMQ's LocalFileOffsetStore has the same name and
content."""


class OffsetStore(Protocol):
    """The committed offsets of a group."""

    async def read(self, queue: MessageQueue) -> QueueOffset | None:
        """The committed offset, which is the next to consume; None if nothing was committed. Raises
        BrokerError, RemotingError, RouteNotFound."""

    async def commit(self, offsets: Mapping[MessageQueue, QueueOffset], *, confirmed: bool) -> None:
        """Commit the offset of the next message to consume of each queue; `confirmed` waits until
        the store has acknowledged it, and earlier commits whose callers were cancelled. Failures
        are logged, not raised: the next commit follows."""


class QueueOffsets:
    """Asks a queue's broker for the queue's first offset, its end, or its offset at a time. Methods
    raise BrokerError, RemotingError, and RouteNotFound if no address of the broker is known."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    async def query_earliest(self, queue: MessageQueue) -> QueueOffset:
        """The offset of the first message that is still stored."""
        response = await self._instance.ask(
            self._address(queue),
            RequestCode.GET_MIN_OFFSET,
            GetMinOffsetRequest(queue.topic, queue.queue_id, queue.broker_name),
        )
        return QueueOffset(read_header(GetMinOffsetResponse, response.fields).offset)

    async def query_latest(self, queue: MessageQueue) -> QueueOffset:
        """The end of the queue: the offset that the next stored message will get."""
        response = await self._instance.ask(
            self._address(queue),
            RequestCode.GET_MAX_OFFSET,
            GetMaxOffsetRequest(queue.topic, queue.queue_id, True, queue.broker_name),
        )
        return QueueOffset(read_header(GetMaxOffsetResponse, response.fields).offset)

    async def at_time(self, queue: MessageQueue, timestamp_ms: int) -> QueueOffset:
        """The offset of the first message stored at `timestamp_ms` (epoch milliseconds) or later;
        without such a message the end of the queue."""
        response = await self._instance.ask(
            self._address(queue),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            SearchOffsetRequest(
                queue.topic, queue.queue_id, timestamp_ms, "LOWER", queue.broker_name
            ),
        )
        return QueueOffset(read_header(SearchOffsetResponse, response.fields).offset)

    async def start(
        self, queue: MessageQueue, where: ConsumeFrom, timestamp_ms: int
    ) -> QueueOffset:
        """The start offset of a group without an offset (RebalancePushImpl.computePullFromWhere);
        `timestamp_ms` (epoch milliseconds) is used for ConsumeFrom.TIMESTAMP alone.

        A retry queue begins at its first stored message: all were sent back by this group.
        """
        if queue.topic.startswith(RETRY_PREFIX) or where is ConsumeFrom.FIRST:
            return await self.query_earliest(queue)
        if where is ConsumeFrom.TIMESTAMP:
            return await self.at_time(queue, timestamp_ms)
        return await self.query_latest(queue)

    def _address(self, queue: MessageQueue) -> str:
        """Return an address of the queue's broker; raises RouteNotFound."""
        return broker_address(self._instance, queue)


class BrokerOffsets:
    """Offsets kept by the broker of each queue (client/consumer/store/RemoteBrokerOffsetStore).

    With `young_from_start` a broker answers 0 for a group without an offset if no message of the
    queue was deleted and its first message is still in memory.
    """

    def __init__(
        self, instance: ClientInstance, group: str, *, young_from_start: bool = True
    ) -> None:
        self._instance = instance
        self._group = group
        self._zero_if_not_found = None if young_from_start else False

    async def read(self, queue: MessageQueue) -> QueueOffset | None:
        """Query the broker; None if the group has no offset. See `OffsetStore.read`."""
        try:
            response = await self._instance.ask(
                broker_address(self._instance, queue),
                RequestCode.QUERY_CONSUMER_OFFSET,
                QueryConsumerOffsetRequest(
                    self._group,
                    queue.topic,
                    queue.queue_id,
                    self._zero_if_not_found,
                    queue.broker_name,
                ),
            )
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        offset = read_header(QueryConsumerOffsetResponse, response.fields).offset
        return None if offset is None or offset < 0 else QueueOffset(offset)

    async def commit(self, offsets: Mapping[MessageQueue, QueueOffset], *, confirmed: bool) -> None:
        """Send a request for each queue, all at once; `confirmed` waits for the answers, otherwise
        the requests are one-way. Failures are logged."""
        await asyncio.gather(
            *(self._commit_offset(queue, offset, confirmed) for queue, offset in offsets.items())
        )

    async def commit_offset(
        self, queue: MessageQueue, offset: QueueOffset, *, confirmed: bool = True
    ) -> None:
        """Commit an offset, that of the next message to consume; `confirmed` waits for the broker's
        answer. Raises BrokerError, RemotingError, RouteNotFound."""
        address = broker_address(self._instance, queue)
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        header = UpdateConsumerOffsetRequest(
            self._group, queue.topic, queue.queue_id, offset, queue.broker_name
        )
        if confirmed:
            await self._instance.ask(address, code, header)
        else:
            await self._instance.notify(address, new_request(code, header, oneway=True))

    async def _commit_offset(
        self, queue: MessageQueue, offset: QueueOffset, confirmed: bool
    ) -> None:
        """Commit an offset; a failure is logged."""
        try:
            await self.commit_offset(queue, offset, confirmed=confirmed)
        except (ClientError, RemotingError) as error:
            logger.warning("offset %d of %s was not committed: %s", offset, queue, error)


class LocalOffsets:
    """Offsets kept by this client, in memory or, with a folder, in `FOLDER/GROUP/offsets.json`.

    The file is RocketMQ's (client/consumer/store/LocalFileOffsetStore), is read when the object is
    made (which raises BadBody for another content) and replaced atomically. Two processes need two
    folders. Loop thread only. A thread of this object writes the file: handlers that fill the
    loop's executor must not delay a commit, and the end of all tasks must not end a write.
    """

    def __init__(self, group: str, folder: Path | None) -> None:
        self._offsets: dict[MessageQueue, QueueOffset] = {}
        self._files: ConfigFiles | None = None
        self._writer = ThreadPoolExecutor(1, f"offsets-{group}")
        self._lock = Lock()
        self._unwritten: RawKeys | None = None
        """The newest table that no write has begun with; under `_lock`."""
        self._write: Future[None] | None = None
        """The last write that was begun or waits for its thread."""
        if folder is not None:
            self._files = ConfigFiles(RealFiles(), str(folder / group))
            self._load(self._files.load(OFFSETS_FILE))

    async def read(self, queue: MessageQueue) -> QueueOffset | None:
        """The committed offset from memory; None if nothing was committed. Raises nothing."""
        return self._offsets.get(queue)

    async def commit(self, offsets: Mapping[MessageQueue, QueueOffset], *, confirmed: bool) -> None:
        """Change the offsets in memory and, with a folder, return once the file has them and all
        offsets of earlier commits; unchanged offsets write nothing. A failed write is logged. A
        write goes on if this method is cancelled."""
        del confirmed  # The file is always written before this method returns.
        if any(self._offsets.get(queue) != offset for queue, offset in offsets.items()):
            self._offsets.update(offsets)
            if self._files is not None:
                self._write_later(self._files)
        if self._write is not None:
            await asyncio.shield(asyncio.wrap_future(self._write))

    def _write_later(self, files: ConfigFiles) -> None:
        """Write the newest offsets, by the write that waits already if there is one."""
        table = RawKeys({queue.bean_key(): at for queue, at in self._offsets.items()})
        with self._lock:
            if self._unwritten is None:
                self._write = self._writer.submit(self._save, files)
            self._unwritten = table

    def _save(self, files: ConfigFiles) -> None:
        """Write the newest offsets to the file; a failure is logged. Runs on the writing thread."""
        with self._lock:
            table, self._unwritten = self._unwritten, None
        try:
            files.save(OFFSETS_FILE, {"offsetTable": table})
        except OSError as error:
            logger.error("offsets were not saved: %s", error)

    def _load(self, value: object) -> None:
        """Read the offsets of a file's JSON value; raises BadBody."""
        if value is None:
            return
        table = as_object(as_object(value).get("offsetTable", {}))
        for key, offset in table.items():
            self._offsets[MessageQueue.from_key(key)] = QueueOffset(as_int(offset, "offset"))


def broker_address(instance: ClientInstance, queue: MessageQueue) -> str:
    """The "host:port" of a queue's master, else of the lowest broker id of its group, from known
    routes; raises RouteNotFound if no address is known."""
    reader = instance.brokers.address_to_read(queue.broker_name)
    if reader is None:
        raise RouteNotFound(f"no address of broker {queue.broker_name} is known")
    return reader[1]
