"""Runs a plan: connects, passes the sockets to the native loop, waits, reads the figures.

Owns the sockets and the thread of a run. It must never touch a message: pyx/load.pyx does. Programs
that compare brokers use `carry_out(plan)` as its whole interface.
"""

import os
import random
import secrets
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from turbopump.cli.bench import frames as frames
from turbopump.cli.bench.plan import DURATION_S, SECONDS_MAX, TEMPLATES_MAX, Plan
from turbopump.cli.bench.report import LoadReport, Outage, Section
from turbopump.cli.bench.setup import Place, TopicPlaces, query_places
from turbopump.cli.errors import CommandFailed, UserError
from turbopump.cli.load.failover import LOOK_S, Links
from turbopump.cli.run_command import client_options, failing_clearly, run
from turbopump.net.client.credentials import Credentials, signer_of
from turbopump.net.client.options import wall_clock_ms
from turbopump.net.wire.message_id import UniqueIds
from turbopump.pyx import load as native
from turbopump.pyx.load import Load

# wait for the last responses: the longest time for which a broker may flush
DRAIN_NS = 5_000_000_000
# wait without any response: the time for which RocketMQ's clients wait for a pull
SILENCE_NS = 30_000_000_000
WATCH_S = 0.5  # between two calls of `watch`
SERIAL_BITS = 40  # UNIQ_KEYs begin at a random number below 2 ** 40, in a counter of 48 bits

Watch = Callable[[Load], None]
"""Shows the progress of a running load; it must not block."""


def unique_prefix() -> str:
    """Return new first 20 hex digits for this process's UNIQ_KEYs, in RocketMQ's form."""
    address = socket.inet_aton("127.0.0.1")
    made = UniqueIds(address, os.getpid(), secrets.randbits(32), lambda: 0).next_id()
    return made[: -len(frames.SERIAL)]


def run_load(plan: Plan, watch: Watch = lambda load: None) -> LoadReport:
    """Run a load to its end, block meanwhile, and return its report, also of a failed load (see
    LoadReport.check_measured). `watch` is called every WATCH_S in this thread.

    A plan without credentials takes those of the running command or of the environment. Raises
    UserError for an impossible plan or with TLS, CommandFailed if no node responds. Ctrl-C ends a
    load early, with the figures measured until then.
    """
    options = client_options()
    if options.tls:
        raise UserError("the load generator does not speak TLS: unset TURBOPUMP_TLS")
    plan = _signed(plan, options.credentials).check_possible()
    options = replace(options, credentials=plan.credentials)
    found = run(failing_clearly(query_places(plan, options)))
    links = Links(plan.namesrv, options)
    with closing(links), select.epoll() as epoll:
        load = _build_load(plan, found, links)
        thread = _Runner(load, epoll.fileno())
        with _stop_on_interrupt(load):
            thread.start()
            _wait_for_end(thread, load, watch, links)
        return _make_report(plan, load, thread, len(links))


def _signed(plan: Plan, credentials: Credentials | None) -> Plan:
    """Return the plan with its credentials, else with `credentials`. The messages of a plan with
    credentials have no UNIQ_KEY."""
    credentials = plan.credentials or credentials
    if credentials is None:
        return plan
    return replace(plan, credentials=credentials, shape=replace(plan.shape, unique_prefix=""))


class _Runner(threading.Thread):
    """The thread in which the native loop runs, and the CPU time it used."""

    def __init__(self, load: Load, epoll_fd: int) -> None:
        super().__init__(name="load", daemon=True)
        self._load = load
        self._epoll_fd = epoll_fd
        self.cpu_s = 0.0
        self.how = native.SYSTEM
        self.finished = threading.Event()

    def run(self) -> None:
        """Run the native loop to its end; sets `how` it ended and `cpu_s`."""
        try:
            self.how = self._load.run(self._epoll_fd)
            self.cpu_s = time.thread_time()
        finally:
            self.finished.set()


@contextmanager
def _stop_on_interrupt(load: Load) -> Iterator[None]:
    """Let Ctrl-C only stop the load.

    As an exception it could occur after the loop has started and before anything waits for it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals arrive on the main thread only
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: load.stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _wait_for_end(thread: _Runner, load: Load, watch: Watch, links: Links) -> None:
    """Wait until the load has ended.

    Not by `join`: an interrupted join marks the thread as dead (CPython 3.11).
    """
    shown_s = time.monotonic()
    try:
        while not thread.finished.wait(LOOK_S):
            links.maintain_connections(load)
            if time.monotonic() - shown_s >= WATCH_S:
                shown_s = time.monotonic()
                watch(load)
    finally:
        load.stop()
        thread.finished.wait()


def _build_load(plan: Plan, found: TopicPlaces, links: Links) -> Load:
    """Connect to the brokers and build the native load of a plan."""
    shape = plan.shape
    body, unique_at, stride = _request_body(plan)
    made = frames.Templates()
    sign = signer_of(plan.credentials)
    signing = None if sign is None else frames.Signing(sign, body, wall_clock_ms())
    senders = _list_senders(plan, found.sends, made, len(body), signing)
    pulls, pullers = _list_pullers(plan, found.pulls, made)
    load = Load(
        bytes(made.texts),
        made.rows,
        body,
        connections=len(senders) + len(pullers),
        queues=pulls,
        rows=int(min(plan.duration_s or SECONDS_MAX, SECONDS_MAX)) + 1,
    )
    if plan.corpus is not None:
        element, serial_at = frames.empty_element(shape) if shape.batch > 1 else (b"", 0)
        load.set_corpus(
            plan.corpus.data,
            plan.corpus.starts,
            plan.corpus.ends,
            element=element,
            unique_at=serial_at,
            per_send=shape.batch,
        )
    elif shape.batch > 1:
        load.set_batch(shape.batch, unique_at, stride)
    for place, first, count, begin in senders:
        connected = _connect_to(links, place, True)
        load.add_sender(connected, plan.in_flight, first, count, begin)
    for place, queues in pullers:
        load.add_puller(_connect_to(links, place, False), queues)
    ends = plan.messages or plan.duration_s or (not senders and not plan.follow)
    load.set_limits(
        interval_ns=max(round(1e9 * shape.batch / plan.rate), 1) if plan.rate else 0,
        warmup_ns=round(plan.warmup_s * 1e9),
        duration_ns=round((plan.duration_s or (0 if ends else DURATION_S)) * 1e9),
        drain_ns=DRAIN_NS,
        silence_ns=SILENCE_NS,
        messages=plan.messages,
        serial=random.getrandbits(SERIAL_BITS),
        follow=plan.follow,
        check_crc=plan.check_crc,
        reconnect=True,
    )
    return load


def _request_body(plan: Plan) -> tuple[bytes, int, int]:
    """(bytes that follow each send request, position of the first UNIQ_KEY's serial in them or 0,
    bytes from one message to the next or 0); empty with a corpus."""
    if plan.corpus is not None:
        return b"", 0, 0
    content = plan.body if plan.body is not None else frames.random_body(plan.shape.size)
    return frames.batch_body(plan.shape, content) if plan.shape.batch > 1 else (content, 0, 0)


def _list_senders(
    plan: Plan,
    places: list[Place],
    made: frames.Templates,
    body: int,
    signing: frames.Signing | None = None,
) -> list[tuple[Place, int, int, int]]:
    """List the senders: (a queue of the broker, first template, templates, template to begin
    with)."""
    if not plan.send_connections:
        return []
    shape = plan.shape
    tags = shape.tag_count if shape.batch == 1 and shape.tag_count else 1
    if len(places) * tags > TEMPLATES_MAX:
        raise UserError(f"{len(places) * tags} queues and tags are over {TEMPLATES_MAX}")
    ranges = []
    some = {place.address: place for place in reversed(places)}
    for address in sorted(some):
        first = len(made.rows)
        for tag in range(tags):
            for place in places:
                if place.address == address:
                    frames.add_send(made, shape, place.queue, tag, body, signing)
        ranges.append((some[address], first, len(made.rows) - first))
    senders = []
    for number in range(max(plan.send_connections, len(ranges))):
        place, first, count = ranges[number % len(ranges)]
        senders.append((place, first, count, number // len(ranges) % count))
    return senders


Queues = list[tuple[int, int, int]]
"""A puller's queues: (row of the template, next queue offset, end as a queue offset)."""


def _list_pullers(
    plan: Plan, places: list[Place], made: frames.Templates
) -> tuple[int, list[tuple[Place, Queues]]]:
    """The number of queues, and the pullers: (a queue of the broker, [(template, next, end)])."""
    if not plan.pull_connections:
        return 0, []
    by_address: dict[str, list[Place]] = {}
    for place in places:
        if plan.follow or place.begin < place.end:
            by_address.setdefault(place.address, []).append(place)
    if not by_address:
        raise CommandFailed(f"there is nothing to read in topic {plan.topic}")
    share = max(plan.pull_connections // len(by_address), 1)
    pullers: list[tuple[Place, Queues]] = []
    for _, here in sorted(by_address.items()):
        mine: list[Queues] = [[] for _ in range(min(share, len(here)))]
        for number, place in enumerate(here):
            template = frames.add_pull(
                made, plan.shape.codec, plan.group, place.queue, plan.pull_size, plan.follow
            )
            mine[number % len(mine)].append((template, place.begin, place.end))
        pullers += [(here[0], queues) for queues in mine]
    return sum(map(len, by_address.values())), pullers


def _connect_to(links: Links, place: Place, is_sender: bool) -> int:
    """Connect to the broker of a queue; returns the file descriptor."""
    queue = place.queue
    return links.open_connection(queue.broker_name, queue.topic, is_sender, place.address)


def _make_report(plan: Plan, load: Load, thread: _Runner, connections: int) -> LoadReport:
    """The report of a finished load. Raises CommandFailed if the native loop failed."""
    if thread.how == native.SYSTEM:
        raise CommandFailed(f"epoll: {os.strerror(load.failure)}")
    kinds = [(native.SEND, plan.send_connections), (native.PULL, plan.pull_connections)]
    return LoadReport(
        plan,
        {kind: Section.from_load(load, kind, plan.follow) for kind, there in kinds if there},
        connections=connections,
        connections_lost=load.lost_connections,
        queues_unread=load.unread_queues,
        unsent=load.unsent,
        outages=[Outage.from_figures(*each) for each in load.outages()],
        generator_cpu_s=thread.cpu_s,
        is_late=thread.how == native.LATE,
        is_lost=thread.how == native.LOST,
    )
