"""Measurement of a request: the processor time of each part that runs on the loop's thread.

Owns the clock, the peers and the disk of the measured nodes. It must never measure the work of a
disk's thread, but it counts calls where the loop itself would wait for a disk.
"""

import itertools
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tests.shortcuts.addresses import pack_host
from turbopump.engine.deferred import Deferred
from turbopump.engine.disk.real_files import RealFiles
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.command import FRAME_MAX, Command, decode, encode

T = TypeVar("T")

WAITS: Final = ("sync", "sync_data", "sync_folder", "sync_all")
"""Calls of the files that return when a disk has done its work."""

_ports = itertools.count(20_000)


@dataclass(frozen=True)
class Case:
    """A request; `name` describes its large part."""

    name: str
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    closes: bool = False
    """Whether the peer's end is measured, too."""


@dataclass
class Hold:
    """The longest part of a request."""

    ms: float = 0.0
    part: str = ""
    steps: int = 0
    waits: int = 0
    code: int | None = None
    """Code of the response."""
    case: str = ""


class Meter:
    """Measures the parts of requests, one after the other."""

    def __init__(self) -> None:
        self.hold = Hold()
        self.active = False

    def run(self, part: str, work: Callable[[], T]) -> T:
        """Do a part of a request on the loop's thread."""
        outer, self.active = self.active, True
        begin_ns = time.thread_time_ns()
        try:
            return work()
        finally:
            ms = (time.thread_time_ns() - begin_ns) / 1e6
            self.active = outer
            if not outer and ms > self.hold.ms:
                self.hold.ms, self.hold.part = ms, part

    def wait(self) -> None:
        """Something waits for a disk."""
        self.hold.waits += self.active

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count the calls of files that wait, of all that have files."""
        before = {name: getattr(RealFiles, name) for name in WAITS}

        def counted(name: str) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                self.wait()
                return before[name](*args)

            return call

        for name in WAITS:
            setattr(RealFiles, name, counted(name))
        try:
            yield
        finally:
            for name in WAITS:
                setattr(RealFiles, name, before[name])


class OtherThread:
    """A disk on another thread: only its callbacks run on the loop."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._jobs: list[_Job] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> "_Job":
        """Queue a job, as engine.flush.Disk does."""
        job = _Job(self._meter, work, done)
        self._jobs.append(job)
        return job

    def run(self) -> None:
        """Do all submitted jobs, including follow-up jobs."""
        while self._jobs:
            self._jobs.pop(0).run()

    def release(self) -> None:
        """Do all jobs, for a world that closes."""
        self.run()

    def close(self) -> None:
        """Do all jobs, as engine.flush.Disk does at its end."""
        self.run()


class _Job:
    def __init__(self, meter: Meter, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._meter, self._done = meter, done
        self._work: Callable[[], Any] | None = work

    def run(self) -> None:
        work, self._work = self._work, None
        if work is None:
            return
        try:
            result = work()
        except OSError as error:
            result = error
        self._meter.run("called back by the disk", lambda: self._done(result))

    def wait_and_report(self) -> None:
        """The loop waits for the disk's thread."""
        if self._work is not None:
            self._meter.wait()
            self.run()


class _Link:
    """Link of a peer that reads everything and sends no responses."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def send(self, command: Command) -> None:
        encode(command)

    def close(self) -> None: ...

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> "_Link":
        return self

    def cancel(self) -> None: ...

    def after_answers(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)


def connect() -> Peer:
    """A client that has just connected."""
    number = next(_ports)
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:{50_000}"
    return Peer(address, pack_host(address), _Link())


def ask(
    meter: Meter,
    table: Dispatcher,
    disk: OtherThread,
    code: int,
    case: Case,
    now_ms: int,
    peer: Peer | None = None,
) -> Hold:
    """A request through the codec, the dispatch table, its steps and the answer; the longest part
    of it."""
    frame = b"".join(encode(Command(code, opaque=7, fields=case.fields, body=case.body)))
    assert len(frame) <= FRAME_MAX, f"{code} {case.name}: no frame has {len(frame)} bytes"
    peer = peer or connect()
    meter.hold = Hold(case=case.name)
    try:
        request = meter.run("frame", lambda: decode(frame))
    except ValueError:
        return meter.hold  # the connection ends
    answer: Any = meter.run("handler", lambda: table.dispatch(request, peer, now_ms))
    while True:
        answer = _finished(meter, answer)
        disk.run()
        link: Any = peer._link
        while link.waiting:
            meter.run("after the answer", link.waiting.pop(0))
        if not isinstance(answer, Deferred) or not answer.done:
            break
        answer = answer.value
    if isinstance(answer, Command):
        meter.hold.code = answer.code
        response = answer
        meter.run("answer", lambda: encode(response))
    if case.closes:
        meter.run("closed", peer.lost)
        disk.run()
    return meter.hold


def _finished(meter: Meter, response: Any) -> Any:
    """Final result of a handler that works in steps."""
    if not isinstance(response, Generator):
        return response
    steps = response
    while True:
        try:
            meter.run("step", lambda: next(steps))
        except StopIteration as done:
            return done.value
        meter.hold.steps += 1
