"""A broker process: the only place with a clock, a loop, files, sockets and a seed.

Owns start and stop and the timers between them. It must never know the meaning of a request: the
handlers do.

Tests: tests/integration/broker/test_broker_node.py
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from turbopump.broker.assembly import BrokerRuntime, make_broker, request_table
from turbopump.broker.config.config import NO_GRPC, BrokerConfig
from turbopump.broker.context import BrokerContext
from turbopump.broker.escape.topic_masters import Neighbour
from turbopump.broker.ha.control import previous_shutdown
from turbopump.broker.ha.control.identity import IdentityError
from turbopump.broker.ha.control.previous_shutdown import PreviousShutdown
from turbopump.broker.handlers import clients
from turbopump.broker.introspection.exporter import MetricsExporter
from turbopump.broker.lifecycle.asyncio_util import resolve_future, run_logging_errors, value_of
from turbopump.broker.lifecycle.disk_mailbox import DiskMailbox
from turbopump.broker.lifecycle.periodic import PeriodicTasks
from turbopump.broker.lifecycle.replication_setup import ReplicationSetup, options_of
from turbopump.broker.lifecycle.shutdown import patience_ms, run_last_writes, wait_until_ended
from turbopump.broker.lifecycle.startup_progress import StartupProgress
from turbopump.broker.lifecycle.store_reopen import StoreReopen
from turbopump.broker.pop.waiters import PopWaiters
from turbopump.broker.registration.addresses import VIP_DISTANCE, ip_of, listen_error_text, local_ip
from turbopump.broker.registration.addresses import StartError as StartError
from turbopump.broker.registration.name_servers import NameServers
from turbopump.broker.registration.registration import Registration
from turbopump.broker.tables.long_polling import HeldPulls
from turbopump.broker.tables.table_saver import TableSaver
from turbopump.broker.tables.topics import TopicTable
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.config_files import ConfigFiles
from turbopump.engine.disk.files import Files
from turbopump.engine.disk.flush import DiskThreads
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.disk.rotating_jsonl import RotatingJsonl
from turbopump.engine.store import Store
from turbopump.engine.types import Progress
from turbopump.net.config.config_file import save_changes
from turbopump.net.config.name_lookup import NameServerLookup
from turbopump.net.ports.listening import start_io_threads, stop_io_threads
from turbopump.net.transport.calls import Calls
from turbopump.net.transport.client import Client
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.hub import Gate, Upgrade
from turbopump.net.transport.options import RemotingOptions, ServerOptions
from turbopump.net.transport.server import Server
from turbopump.net.transport.tls import TlsError, client_context
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.hosts import join, pack_ip
from turbopump.net.wire.java_properties import Property
from turbopump.net.wire.message_id import UniqueIds
from turbopump.pyx.fast import Turn

if TYPE_CHECKING:
    from turbopump.broker.grpc.front import GrpcFront

T = TypeVar("T")

logger = logging.getLogger(__name__)

TICK_MS = 100
"""Interval in ms of the node's tick: the store's policy, the deadlines of long polls and the delay
levels."""
HISTORY_FOLDER = "rebalance"
"""Name of the folder in the store for the histories of assignments."""
SAVER_TICK_MS = 1_000
"""Interval in ms of saving a table again after a failure (a full disk); the request for the change
has received the error already."""
_NOT_VIP = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
"""Codes that the VIP port does not serve (RocketMQ: BrokerController.registerProcessor): it exists
so that sends and heartbeats do not wait for pulls."""


class BrokerNode:
    """A broker on the running loop.

    `seed` makes its random choices repeatable, `now_ms` returns epoch ms (None: the system's
    clock). `on_progress` is called on the loop several times a second with the progress of `start`
    if the store's recovery takes long. `neighbours` returns the masters that run in the same
    process.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        files: Files | None = None,
        seed: int | None = None,
        now_ms: Callable[[], int] | None = None,
        on_progress: Callable[[Progress], None] = lambda _progress: None,
        neighbours: Callable[[], Sequence[Neighbour]] = tuple,
    ) -> None:
        self._config = config
        self._on_progress, self._neighbours = on_progress, neighbours
        self._files: Files = files or RealFiles()
        self._random = random.Random(seed)
        self._clock = now_ms
        self._now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)
        self._config_files = ConfigFiles(self._files, f"{config.store.root}/config")
        self._store_reopen = StoreReopen(self._start_parts, self._stop_parts)
        self._runs = False
        self._client: Client
        self._calls: Calls
        self._disk_mailbox: DiskMailbox
        self._periodic: PeriodicTasks
        self._timer: asyncio.TimerHandle | None = None
        self._address = ""
        self._port = 0
        self._ip = ""
        self._loop: asyncio.AbstractEventLoop
        self._disk: DiskThreads
        self._config_disk: DiskThreads
        self._saver: TableSaver
        self._topics: TopicTable
        self._store: Store
        self._name_servers: NameServers
        self._lookup: NameServerLookup
        self._replicating: ReplicationSetup | None = None
        self._life = PreviousShutdown()
        self._confirmed = previous_shutdown.NOTHING
        self._server: Server
        self._grpc: GrpcFront | None = None
        self._metrics: MetricsExporter
        self.context: BrokerContext
        """The broker's parts; exists, like `table`, once the broker serves."""
        self.table: Dispatcher
        """Handlers of requests by code; exists, like `context`, once the broker serves."""

    @property
    def address(self) -> str:
        """The address `ip:port` for clients, which name servers hand out; "" before `start` has
        opened the port."""
        return self._address

    @property
    def grpc_address(self) -> str:
        """The address `ip:port` where gRPC is served; "" where it is off."""
        return self._grpc.address if self._grpc is not None else ""

    async def start(self) -> None:
        """Open the store, serve, and register at the reachable name servers.

        The port opens when clients are served, not before. Raises StartError, TlsError, ConfigError
        or StoreError; then nothing runs and nothing was lost. May be cancelled: a long recovery
        ends within a second or so, and the next start continues from there.
        """
        await self._start_parts()

    async def _start_parts(self) -> None:
        """Do the work of `start`; if it fails, the parts made so far are released."""
        self._loop = asyncio.get_running_loop()
        inner = self._config.auth.inner_credentials
        options = RemotingOptions(
            tls=self._config.client_tls, sign=None if inner is None else inner.sign
        )
        self._client = Client(self._now_ms, options=options)
        self._calls = Calls(self._client, renews=True)
        if not self._config.broker_ip1:
            self._config.broker_ip1 = local_ip()
        self._ip = await ip_of(self._config.broker_ip1)
        if self._config.client_tls is not None:
            client_context(self._config.client_tls)  # reports unusable files now
        self._lookup = NameServerLookup(self._config, self._on_name_servers_changed)
        await self._lookup.look_up()
        self._disk_mailbox = DiskMailbox(self._loop)
        self._disk = DiskThreads(self._disk_mailbox.post, loop=self._loop)
        # Separate threads: writing a large table must not delay the syncs that sends wait for.
        self._config_disk = DiskThreads(self._disk_mailbox.post, threads=1)
        async with AsyncExitStack() as parts:  # if the start fails, the last one is released first
            parts.callback(self._config_disk.close)
            parts.callback(self._disk.close)
            self._saver = TableSaver(self._config_files, self._config_disk)
            self._topics = TopicTable(self._config, self._saver)
            if self._config.replication.is_elected:
                self._life = previous_shutdown.read_previous_shutdown(
                    self._files, self._config.store, self._confirmed
                )
            await self._open_store()
            parts.push_async_callback(self._stop_store, lambda: self._store.close(self._now_ms()))
            parts.push_async_callback(self._client.close)
            parts.push_async_callback(self._calls.stop)
            parts.push_async_callback(self._stop_replication)
            self._make_parts()
            await self._wait_until_saved()
            await self._start_replication()
            await self._open_ports(parts)
            parts.pop_all()  # from here on `_stop_parts` releases them
        logger.info("broker %s serves at %s", self._config.broker_name, self._address)
        self._runs = True
        try:
            self._tick()
            await self._name_servers.await_first_registrations()
        except BaseException:
            await self._stop_parts()
            raise

    async def stop(self) -> None:
        """Let another broker of the group lead, unregister, answer pending requests, and write
        everything to disk; returns when the store is closed. The last is done even if this is
        cancelled, or an earlier part fails. No effect on a broker that does not run."""
        try:
            await self._store_reopen.stop()
            if self._runs and self._replicating is not None:
                await value_of(self._replicating.hand_over())
        finally:
            if self._runs:
                await self._stop_parts()

    async def _stop_parts(self) -> None:
        """Do the work of `stop`: stop serving, replication and connections, then close the
        store."""
        self._runs, self.context.shutting_down = False, True
        self._lookup.stop()
        self._confirmed = self._store.confirm_log_offset
        self.context.fast.stop()
        async with AsyncExitStack() as parts:  # the last one is released first
            parts.push_async_callback(self._end_store)
            # lets controllers see at once that another master is to be elected
            parts.push_async_callback(self._client.close)
            parts.push_async_callback(self._calls.stop)
            parts.push_async_callback(self._name_servers.stop)
            parts.push_async_callback(self._stop_replication)
            parts.callback(lambda: self.context.transactions.write_ops(self._now_ms()))
            parts.callback(self._stop_threads)
            parts.push_async_callback(self._stop_serving)
            parts.push_async_callback(self._answer_waiting, self.context.pop.waiters)
            parts.push_async_callback(self._answer_waiting, self.context.held_pulls)
            parts.push_async_callback(self._name_servers.unregister_everywhere)
            parts.push_async_callback(self._metrics.stop)
        logger.info("broker %s stopped", self._config.broker_name)

    async def _answer_waiting(self, table: HeldPulls | PopWaiters) -> None:
        """Answer all held requests of a table, in portions, between which replication goes on."""
        table.release_all()
        while table.release_some():
            await asyncio.sleep(0)

    async def _end_store(self) -> None:
        """Stop the timers, then write everything to disk."""
        if self._timer is not None:
            self._timer.cancel()
        self._periodic.stop()
        await self._stop_store(self._write_down)

    async def _stop_store(self, work: Callable[[], None]) -> None:
        """Run the last writes (`work`) on a thread of their own, as long as the disk responds."""
        store, disks = self._store, (self._disk, self._config_disk)
        unflushed = store.max_log_offset - store.flushed_log_offset
        limit_ms = patience_ms(self._config.store.sync_timeout_ms, unflushed)
        self._disk_mailbox.hold_reports()
        await run_last_writes(work, self._files, disks, limit_ms)

    def _write_down(self) -> None:
        """Close the store and write all tables; blocks, for the thread of the last writes."""
        try:
            self._store.close(self._now_ms())
            # After the store: progress must not be ahead of the deliveries in the log.
            self.context.delay.save()
            self.context.half_counts.save(self._now_ms())
            self.context.timers.close()
            self.context.pop.orders.save()
        finally:
            self._disk.wait_until_idle()
            self.context.filters.save()
            self._saver.begin_last_writes()  # retries failed writes
            self._config_disk.wait_until_idle()  # waits for writes in progress
            self.context.offsets.save()

    async def _open_store(self) -> None:
        """Open the store on another thread; a cancelled opening is given up."""
        logger.info("opening the store at %s", self._config.store.root)
        # In a thread: recovery of a big store takes minutes, and signals must be handled meanwhile.
        watch = StartupProgress(self._loop.call_soon_threadsafe, self._on_progress, self._steady_ms)

        def open_store() -> Store:
            self._topics.load()  # recovery asks which topics hold batches
            return Store.open(
                self._files,
                self._config.store,
                self._disk,
                self._now_ms(),
                steady_ms=self._steady_ms(),
                delay_levels_ms=self._config.delay_levels_ms,
                is_batch_topic=self._topics.is_batch,
                watch=watch.report,
            )

        self._disk_mailbox.hold_reports()
        opening = asyncio.ensure_future(asyncio.to_thread(open_store))
        try:
            self._store = await asyncio.shield(opening)
            self._config.store = self._store.config
        except asyncio.CancelledError:
            watch.cancel_opening()
            limit_ms = patience_ms(self._config.store.sync_timeout_ms, 0)
            if not await wait_until_ended(
                opening, self._files, (self._disk, self._config_disk), limit_ms
            ):
                raise
            self._disk_mailbox.release_reports()
            if opening.exception() is None:
                opening.result().close(self._now_ms())
            raise
        finally:
            self._disk_mailbox.release_reports()

    async def _wait_until_saved(self) -> None:
        """Wait until the changes that the start made to the tables are on disk; raises
        StartError."""
        error = await value_of(self._saver.when_saved())
        if error is not None:
            raise StartError(f"the tables of {self._config.store.root} cannot be saved: {error}")

    async def _run_on_thread(self, work: Callable[[], T]) -> T:
        """Return the result of `work` on a disk thread; raises OSError."""
        done: asyncio.Future[T | OSError] = self._loop.create_future()
        self._config_disk.submit(work, partial(resolve_future, done))
        result = await done
        if isinstance(result, OSError):
            raise result
        return result

    def _make_parts(self) -> None:
        """Make the broker's parts and load their tables; raises ConfigError."""
        ip = pack_ip(self._ip, 0)[:-4]
        runtime = BrokerRuntime(
            files=self._config_files,
            store_files=self._files,
            disk=self._disk,
            saver=self._saver,
            random=self._random,
            unique_ids=UniqueIds(ip, os.getpid(), self._random.getrandbits(32), self._now_ms),
            wall_ms=self._now_ms,
            steady_ms=self._steady_ms,
            native_clock=self._clock,
            call_soon=self._call_soon,
            register_topics=self._register_topics,
            save_config=self._save_config,
            call=self._calls,
            neighbours=self._neighbours,
            run_soon=self._loop.call_soon,
        )
        self.context = make_broker(self._config, self._store, self._topics, runtime)
        folder = f"{self._config.store.root}/{HISTORY_FOLDER}"
        self._periodic = PeriodicTasks(
            self.context,
            self._loop,
            self._config_disk,
            files=self._config_files,
            histories=RotatingJsonl(self._files, folder, "rebalance"),
            now_ms=self._now_ms,
            steady_ms=self._steady_ms,
        )

    async def _start_replication(self) -> None:
        """Make and start replication, if the broker replicates; raises StartError, StoreError."""
        if not self._config.replication.needs_replication:
            self._store.stand_alone(self._now_ms())
            return
        calls, options = Calls(self._client, renews=True), options_of(self._config)
        self._replicating = ReplicationSetup(
            self.context,
            files=self._files,
            disk=self._config_disk,
            now_ms=self._now_ms,
            calls=calls,
            life=self._life,
            options=options,
        )
        try:
            await self._replicating.start()
        except OSError as error:
            port = options.ha_listen_port
            raise StartError(f"replicas cannot be served at port {port}: {error}") from None

    def _on_registration_lost(self) -> None:
        """Handle a lost connection to a name server, which may have forgotten this broker."""
        if self._replicating is not None:
            self._replicating.on_registration_lost()

    def _is_rocketmq_4(self, name_server: str) -> bool:
        """Whether the name server at that address is RocketMQ 4's."""
        acting = None if self._replicating is None else self._replicating.acting
        return acting is not None and acting.members.is_old(name_server)

    async def _stop_replication(self) -> None:
        """Stop replication, if it runs."""
        replicating, self._replicating = self._replicating, None
        if replicating is not None:
            await replicating.stop()

    def _on_role_changed(self) -> None:
        """Have held pulls and waiting pops answered, and register the changed role."""
        self.context.held_pulls.release_all()
        self.context.pop.waiters.release_all()
        self._register_topics([])

    async def _open_ports(self, parts: AsyncExitStack) -> None:
        """Open the ports and make the parts that need the address; `parts` releases them at the
        end. Raises StartError."""
        config = self._config
        fast, table = self.context.fast, request_table(self.context)
        self.table = table
        idle_ms = config.server_channel_max_idle_seconds * 1000
        options = ServerOptions(idle_timeout_ms=idle_ms, tls=config.tls)
        try:
            threads = self.context.io_threads = start_io_threads(config.io_threads)
        except OSError as error:
            raise StartError(f"the I/O threads do not start: {error}") from None
        parts.callback(self._stop_threads)
        upgrade = self._begin_grpc(table)
        self._server = server = Server(table, options, self._now_ms, upgrade, threads)
        parts.push_async_callback(self._stop_serving)
        host = config.bind_address
        try:
            turn = Turn(fast.lane, self._loop.call_soon)
            # The native lane knows no users: with authentication, handlers serve every request.
            is_open = not config.auth.authentication_enabled
            gate = Gate(fast.lane, fast.pulls, turn) if is_open else None
            port = await server.start(host, config.listen_port or self._port, gate=gate)
            self._port = port  # kept for reopening, which uses the same port
            # Nothing is read before control returns to the loop: no handler sees the empty host.
            self._address = self.context.address = join(config.broker_ip1, port)
            self.context.store_host = pack_ip(self._ip, port)
            fast.start(self.context.store_host)
            if config.vip_port_enable and config.listen_port > VIP_DISTANCE:
                vip = table.without_codes(_NOT_VIP)
                gate = Gate(fast.lane, turn=turn) if is_open else None
                await server.start(host, config.listen_port - VIP_DISTANCE, vip, gate)
        except (OSError, TlsError) as error:
            raise StartError(listen_error_text(host, config.listen_port, error)) from None
        role = self.context.role
        registration = Registration(config, self._topics, self._address, lambda: role.broker_id)
        self._name_servers = NameServers(
            registration,
            self._client,
            self._run_on_thread,
            self._now_ms,
            config.register_broker_timeout_ms,
            may=lambda: role.is_known,
            on_lost=self._on_registration_lost,
            is_old=self._is_rocketmq_4,
        )
        parts.push_async_callback(self._name_servers.stop)
        self._topics.on_change = self._register_without_wait
        role.on_change.append(self._on_role_changed)
        pause = partial(asyncio.sleep, 0)
        self._metrics = MetricsExporter(self.context, self._run_on_thread, pause, self._now_ms)
        parts.push_async_callback(self._metrics.stop)
        try:
            if self._replicating is not None:
                self._replicating.register(registration)
            await self._listen_for_grpc()
            await self._metrics.start()
        except (OSError, IdentityError) as error:
            raise StartError(str(error)) from None

    def _begin_grpc(self, table: Dispatcher) -> Upgrade | None:
        """Load and make the gRPC side if it is enabled; returns the upgrade for the broker's port,
        None without gRPC at that port."""
        config, self._grpc = self._config, None
        if config.auth.authentication_enabled:
            logger.warning("gRPC is off: its requests are not authenticated here yet")
            return None
        if not config.grpc_at_listen_port and config.grpc_server_port == NO_GRPC:
            return None
        try:
            from turbopump.broker.grpc.backend import BrokerRequestBackend
            from turbopump.broker.grpc.front import GrpcFront
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("google"):
                raise
            # An older environment lacks the package: the broker serves without gRPC, as before.
            logger.warning("gRPC is off: %s; install protobuf", error)
            return None
        backend = BrokerRequestBackend(
            self.context,
            table,
            call_soon=self._loop.call_soon,
            call_later=lambda delay_ms, work: self._loop.call_later(delay_ms / 1_000, work),
            now_ms=self._now_ms,
        )
        front = GrpcFront(self.context, backend, self.context.io_threads)
        if not front.begin_accepting():
            return None
        self._grpc = front
        return front.server if config.grpc_at_listen_port else None

    async def _listen_for_grpc(self) -> None:
        """Open the port of gRPC, if it has its own. Raises StartError."""
        front, port, host = self._grpc, self._config.grpc_server_port, self._config.bind_address
        if front is None:
            return
        front.address = self._address
        if port != NO_GRPC:
            try:
                await front.start(host, port)
            except OSError as error:
                raise StartError(f"gRPC cannot be served at {host}:{port}: {error}") from None

    async def _stop_serving(self) -> None:
        """Stop the servers for gRPC and remoting."""
        try:
            if self._grpc is not None:
                await self._grpc.stop()
        finally:
            await self._server.stop()

    def _stop_threads(self) -> None:
        """End the I/O threads, if there are any."""
        threads, self.context.io_threads = self.context.io_threads, None
        if threads is not None:
            stop_io_threads(threads)

    def _steady_ms(self) -> int:
        """Ms of the loop's monotonic clock."""
        return round(self._loop.time() * 1_000)

    def _call_soon(self, work: Callable[[], None]) -> None:
        """Run `work` after the loop's turn, unless another thread uses the store now or then."""
        if not self._disk_mailbox.is_holding:
            self._loop.call_soon(self._unless_lent, work)

    def _unless_lent(self, work: Callable[[], None]) -> None:
        """Run `work` unless another thread uses the store by now."""
        if not self._disk_mailbox.is_holding:
            work()

    def _tick(self) -> None:
        """Do the periodic work of all parts, and schedule the next tick."""
        self._timer = self._loop.call_later(TICK_MS / 1000, self._tick)
        run_logging_errors(
            lambda: self._store.tick(self._now_ms(), self._steady_ms()), "the store's tick"
        )
        self._store_reopen.tick(self._store, (self._disk, self._config_disk), self._steady_ms())
        if self._replicating is not None:
            run_logging_errors(self._replicating.tick, "replication's tick")
            look_ms = self._replicating.master_search_ms
            if look_ms is not None:
                self._periodic.run_every("master", look_ms, lambda: self._register_topics([]))
        run_logging_errors(self._periodic.tick, "the broker's duties")
        look_up_ms = self._config.fetch_namesrv_addr_interval_ms
        self._periodic.run_every(
            "the look-up of name servers", look_up_ms, self._lookup.begin_lookup
        )
        run_logging_errors(self._name_servers.tick, "the registration")
        replication = self._config.replication
        if replication.enable_slave_acting_master:
            beat = partial(
                self._name_servers.send_heartbeats, replication.send_heartbeat_timeout_ms
            )
            self._periodic.run_every("heartbeats", replication.broker_heartbeat_interval_ms, beat)
        self._periodic.run_every("saves", SAVER_TICK_MS, self._saver.tick)

    def _save_config(self, changed: Sequence[Property]) -> Deferred[OSError | None]:
        """Apply a changed configuration at once, and write it to its file; resolves to None when it
        is durable, or to the OSError."""
        config, context, saved = self._config, self.context, Deferred[OSError | None]()
        self._store.config.adopt_live_values(config.store)
        context.role.reconfigure(config.replication)
        if self._replicating is not None:
            self._replicating.service.reconfigure(options_of(config))
        self._name_servers.reconfigure(config.register_broker_timeout_ms)
        context.fast.reconfigure()
        context.assignments.reconfigure()
        clients.send_notices(context)
        if config.path:
            work = partial(save_changes, self._files, config.path, changed)
            self._config_disk.submit(work, saved.resolve)
        else:
            saved.resolve(None)
        return saved

    def _on_name_servers_changed(self) -> None:
        """Register at the new name servers."""
        if self._runs:
            self._name_servers.reconfigure(self._config.register_broker_timeout_ms)

    def _register_topics(self, names: Sequence[str]) -> Deferred[None]:
        """Register topics at all name servers ([]: all topics); resolves when they have them or are
        not waited for."""
        return self._name_servers.register_changed(names)

    def _register_without_wait(self, names: list[str]) -> None:
        """Register topics at all name servers, without waiting."""
        # without a wait: a send that creates a topic is answered at once
        self._register_topics(names)
