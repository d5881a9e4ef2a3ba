# cython: auto_pickle=False
"""Transports whose sockets are read and written by native threads without the interpreter.

Owns the threads, and the loop's side of their rings: bytes that were read go to the connection's
protocol, bytes to write go to the thread. It must never handle a byte itself, nor wait for a thread
except in `close`.

    thread: recv -> ring of events -> turn -> protocol.buffer_updated
    thread: send <- ring of commands <- write

A turn takes a limited number of events, and continues after the loop has polled its own sockets.
Reading a paused transport stops at its thread; the bytes that were read before are kept here.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, strerror

from turbopump.pyx.c_io cimport *

EVENTS_PER_TURN = 256
"""Maximum number of events that a turn takes from all threads; a read counts once more for each
8 KiB."""
COPIED_MAX = 64 << 10
"""Maximum bytes of a buffer that is copied for the thread; a larger buffer is written from its own
memory."""
KEPT_MAX = 16 << 20
"""Bytes that paused transports keep; above it the threads read little of each connection."""
THREADS_MAX = 64
HIGH_WATER = 64 << 10
"""Default of `set_write_buffer_limits`, as in asyncio."""

cdef set _in_use = set()
"""All IoThreads with open transports: the garbage collector must not free buffers that a thread
sends."""


cdef class _Fifo:
    """A queue of objects: oldest first."""

    def __cinit__(self):
        self.items, self.begin = [], 0

    cdef Py_ssize_t size(self):
        return len(self.items) - self.begin

    cdef int add(self, object item) except -1:
        self.items.append(item)
        return 0

    cdef object first(self):
        """Return the oldest item; there must be an item."""
        return self.items[self.begin]

    cdef int replace_first(self, object item) except -1:
        self.items[self.begin] = item
        return 0

    cdef int drop_first(self) except -1:
        self.items[self.begin] = None
        self.begin += 1
        if self.begin >= 32 and 2 * self.begin >= len(self.items):
            del self.items[:self.begin]  # half of the items or more: a constant cost each
            self.begin = 0
        return 0

    cdef int clear(self) except -1:
        self.items, self.begin = [], 0
        return 0


cdef object error_of(int number):
    """Return the OSError of an errno."""
    return OSError(number, strerror(number).decode())


cdef class IoThreads:
    """See the stub."""

    def __init__(self, int count, post, report):
        cdef int number, failed
        if not 0 < count <= THREADS_MAX:
            raise ValueError(f"{count} I/O threads, 1 to {THREADS_MAX} are possible")
        self.post, self.report = post, report
        self.transports = set()
        self.waiting = [_Fifo() for number in range(count)]
        self.open_counts = [0] * count
        self.waker.descriptor = -1
        self.threads = <io_thread *>aligned_alloc(RING_LINE, <size_t>count * sizeof(io_thread))
        if self.threads == NULL:
            raise MemoryError
        failed = io_waker_init(&self.waker)
        for number in range(count):
            if not failed:
                failed = io_start(&self.threads[number], &self.waker)
                self.count += not failed
        if failed:
            self.end_threads()
            raise error_of(failed)

    def __dealloc__(self):
        self.end_threads()

    @property
    def descriptor(self) -> int:
        """Descriptor that becomes readable when `turn` has to run; -1 after `close`."""
        return self.waker.descriptor

    @property
    def cpu_ns(self) -> list[int]:
        """CPU time of each thread in ns; see the stub."""
        if self.threads == NULL:
            return []
        return [io_cpu_ns(&self.threads[number]) for number in range(self.count)]

    def open(self, socket, peername, protocol) -> ThreadedTransport:
        """Hand a connected socket to a thread; see the stub."""
        cdef ThreadedTransport transport = ThreadedTransport.__new__(ThreadedTransport)
        cdef int number
        if self.ending:
            raise RuntimeError("the I/O threads are closed")
        number = min(range(self.count), key=self.open_counts.__getitem__)
        transport.threads, transport.thread = self, &self.threads[number]
        transport.number, transport.socket = number, socket
        transport.connection = io_open(socket.fileno(), <void *>transport)
        if transport.connection == NULL:
            raise MemoryError
        transport.held, transport.kept = _Fifo(), _Fifo()
        transport.peername = peername
        transport.set_write_buffer_limits()
        transport.set_protocol(protocol)
        self.open_counts[number] += 1
        self.transports.add(transport)
        _in_use.add(self)
        self.command(transport, IO_ADD)
        try:
            protocol.connection_made(transport)
        except Exception as error:
            transport.fail(error)
        return transport

    def turn(self) -> None:
        """Take events of the threads; see the stub."""
        cdef uint64_t times
        if self.threads == NULL:
            return
        eventfd_read(self.waker.descriptor, &times)
        if not self.posted:  # a thread may wake the loop while a posted turn is due
            self.take_turn()

    def continue_turn(self) -> None:
        """Take the turn that was posted."""
        self.posted = False
        if self.threads != NULL:
            self.take_turn()

    cdef int take_turn(self) except -1:
        """Take events and send commands; posts the next turn if there are more."""
        cdef int share = max(1, EVENTS_PER_TURN // self.count)
        if self.turning:
            raise RuntimeError("a callback of a turn takes a turn")
        self.turning = True
        try:
            self.take_shares(share)
        finally:
            self.turning = False
            if io_loop_sleep(&self.waker, self.threads, self.count) and not self.posted:
                self.posted = True
                self.post(self.continue_turn)
        return 0

    cdef int take_shares(self, int share) except -1:
        """Take up to `share` events of each thread."""
        cdef int number
        self.first = (self.first + 1) % self.count
        for number in range(self.first, self.first + self.count):
            number %= self.count
            if self.threads[number].has_waiting:
                self.send_waiting(number)
            self.take_events(&self.threads[number], share)
        return 0

    cdef int take_events(self, io_thread *thread, int events) except -1:
        """Handle up to `events` events of a thread."""
        cdef const ring_record *record
        cdef ThreadedTransport transport
        while events > 0:
            record = ring_peek(&thread.events)
            if record == NULL:
                break
            events -= 1 + <int>(record.size // BYTES_OF_EVENT)
            transport = <ThreadedTransport>record.owner
            try:
                if record.kind == IO_DATA:
                    transport.on_data(ring_payload(record), record.size)
                elif record.kind == IO_EOF:
                    transport.on_end()
                elif record.kind == IO_PROGRESS:
                    transport.on_progress()
                else:
                    transport.on_closed(<int>record.number)
            except Exception as error:
                transport.fail(error)
            finally:
                ring_pop(&thread.events, record)  # in each case: no event is handled twice
        if ring_take_waiting(&thread.events):
            io_wake(&thread.waker)
        return 0

    cdef int command(self, ThreadedTransport transport, int kind) except -1:
        """Send a command without data, after all earlier commands of its thread."""
        cdef io_thread *thread = transport.thread
        if thread.has_waiting or not io_command(thread, kind, transport.connection):
            return self.wait(transport, kind, None)
        io_wake(&thread.waker)
        return 0

    cdef int wait(self, ThreadedTransport transport, int kind, object data) except -1:
        """Keep a command until its thread has room."""
        (<_Fifo>self.waiting[transport.number]).add((transport, kind, data))
        if not transport.thread.has_waiting:
            transport.thread.has_waiting = True
            while transport.thread.has_waiting and ring_wait_room(&transport.thread.commands):
                self.send_waiting(transport.number)
        return 0

    cdef int send_waiting(self, int number) except -1:
        """Send commands that wait for room, while there is room."""
        cdef io_thread *thread = &self.threads[number]
        cdef _Fifo waiting = self.waiting[number]
        cdef ThreadedTransport transport
        cdef int kind, sent = 1
        while waiting.size():
            transport, kind, data = waiting.first()
            if (transport.aborted and kind < IO_ABORT) or (transport.lost and kind != IO_FORGET):
                waiting.drop_first()
                continue
            if kind == IO_WRITE:
                sent = send_copy(thread, transport.connection, data)
            elif kind == IO_WRITE_FROM:
                sent = send_from(thread, transport.connection, data)
            else:
                sent = io_command(thread, kind, transport.connection)
            if not sent:
                break
            waiting.drop_first()
        thread.has_waiting = not sent
        io_wake(&thread.waker)
        return 0

    cdef int count_kept(self, Py_ssize_t size) except -1:
        """Count bytes that a transport keeps, and have little read while these are many."""
        cdef bint many = self.kept_size > KEPT_MAX
        cdef int number
        self.kept_size += size
        if many != (self.kept_size > KEPT_MAX):
            for number in range(self.count):
                io_keep_many(&self.threads[number], not many)
        return 0

    cdef int remove(self, ThreadedTransport transport) except -1:
        """Remove a closed transport."""
        self.transports.discard(transport)
        if not self.transports:
            _in_use.discard(self)
        self.open_counts[transport.number] -= 1
        return 0

    def close(self) -> None:
        """Abort all transports and end the threads; see the stub."""
        cdef pollfd waited
        if self.threads == NULL:
            return
        if self.turning:
            raise RuntimeError("a callback of a turn closes the I/O threads")
        self.ending = True
        for transport in list(self.transports):
            transport.abort()
        waited.fd, waited.events = self.waker.descriptor, POLLIN
        while self.is_busy():
            self.take_turn()
            if self.is_busy():
                with nogil:
                    poll(&waited, 1, 10)
        self.end_threads()

    cdef bint is_busy(self):
        """Whether there are transports, or commands that wait."""
        cdef int number
        for number in range(self.count):
            if self.threads[number].has_waiting:
                return True
        return len(self.transports) > 0

    cdef void end_threads(self) noexcept:
        cdef io_thread *threads = self.threads
        cdef int number
        self.threads = NULL  # calls during the join find no thread
        if threads == NULL:
            return
        for number in range(self.count):
            with nogil:
                io_stop(&threads[number])
        free(threads)
        if self.waker.descriptor >= 0:
            close(self.waker.descriptor)
            self.waker.descriptor = -1


cdef class ThreadedTransport:
    """See the stub."""

    # Reading.

    cdef int on_data(self, const uint8_t *at, size_t size) except -1:
        """Pass bytes to the protocol, or keep them while it does not read."""
        cdef size_t taken = 0
        if not self.paused and not self.kept.size():
            taken = self.feed(at, size)
        if taken < size and not self.closing:
            self.kept.add(PyBytes_FromStringAndSize(<char *>at + taken,
                                                    <Py_ssize_t>(size - taken)))
            self.threads.count_kept(<Py_ssize_t>(size - taken))
        return 0

    cdef size_t feed(self, const uint8_t *at, size_t size) except? 0:
        """Pass bytes to the protocol while it reads; returns their number."""
        cdef Py_buffer room
        cdef size_t taken = 0, part
        while taken < size and not self.paused and not self.closing:
            part = 0 if self.read == NULL else self.read(self.protocol, at + taken, size - taken)
            taken += part
            if part:
                continue
            PyObject_GetBuffer(self.get_room(-1), &room, PyBUF_SIMPLE | PyBUF_WRITABLE)
            part = min(size - taken, <size_t>room.len)
            memcpy(room.buf, at + taken, part)
            PyBuffer_Release(&room)
            if part == 0:
                raise RuntimeError("get_buffer returned an empty buffer")
            taken += part
            self.on_read(part)
        if not self.lost and io_take(self.connection, taken):
            self.threads.command(self, IO_RESUME)
        return taken

    def deliver(self) -> None:
        """Pass the kept bytes to the protocol while it reads."""
        cdef bytes data
        cdef size_t taken, size
        self.delivers = False
        try:
            while self.kept.size() and not self.paused and not self.closing:
                data = self.kept.first()
                if data is None:
                    self.kept.drop_first()
                    self.on_end()
                    continue
                size = <size_t>len(data)
                taken = self.feed(<const uint8_t *><const char *>data, size)
                if self.closing:
                    break  # no byte is kept any more
                if taken < size:
                    self.kept.replace_first(data[taken:])
                else:
                    self.kept.drop_first()
                self.threads.count_kept(-<Py_ssize_t>taken)
        except Exception as error:
            self.fail(error)

    cdef int on_end(self) except -1:
        """Pass the peer's end to the protocol, after the bytes before."""
        if self.closing:
            return 0
        if self.paused or self.kept.size():
            self.kept.add(None)
        elif not self.protocol.eof_received():
            self.close()
        return 0

    def is_reading(self) -> bool:
        """Whether the protocol gets bytes."""
        return not self.paused and not self.closing

    def pause_reading(self) -> None:
        """Stop passing bytes to the protocol; no-op if it is stopped."""
        if not self.lost and not self.paused:
            self.paused = True
            io_pause(self.connection, True)

    def resume_reading(self) -> None:
        """Pass bytes to the protocol again, kept bytes in a later turn; no-op unless stopped."""
        if self.lost or not self.paused or self.closing:
            return
        self.paused = False
        if self.kept.size() and not self.delivers:
            self.delivers = True
            self.threads.post(self.deliver)
        io_pause(self.connection, False)
        self.threads.command(self, IO_RESUME)

    def take_unread(self) -> bytes:
        """Return and forget the kept bytes."""
        cdef bytes unread = b"".join([data for data in self.kept.items if data is not None])
        self.drop_kept()
        return unread

    def drop_kept(self) -> None:
        """Forget the kept bytes."""
        self.threads.count_kept(-sum([len(data) for data in self.kept.items if data is not None]))
        self.kept.clear()

    # Writing.

    cdef Py_ssize_t unsent(self):
        if self.lost or self.aborted:
            return 0
        return <Py_ssize_t>(self.queued - io_sent(self.connection))

    cdef int put(self, const uint8_t *at, size_t size, int kind=IO_WRITE) except -1:
        """Write a copy of the bytes, by IO_WRITE or IO_WRITE_MORE."""
        cdef ring_record *record
        cdef size_t part
        if self.lost or self.closing or size == 0:
            return 0
        self.queued += size
        while size:
            part = min(size, <size_t>IO_WRITE_MAX)
            record = NULL
            if not self.thread.has_waiting:
                record = io_write(self.thread, kind, self.connection, part)
            if record == NULL:
                self.threads.wait(self, IO_WRITE,
                                  PyBytes_FromStringAndSize(<char *>at, <Py_ssize_t>part))
            else:
                memcpy(ring_payload(record), at, part)
                ring_push(&self.thread.commands, record, part)
            at += part
            size -= part
        return self.put_done()

    cdef int put_object(self, object data, int kind=IO_WRITE) except -1:
        """Write a buffer by IO_WRITE or IO_WRITE_MORE: a copy; a large one from where it is."""
        cdef Py_buffer view
        cdef bint copies
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            copies = view.len <= COPIED_MAX
            if copies:
                self.put(<const uint8_t *>view.buf, <size_t>view.len, kind)
        finally:
            PyBuffer_Release(&view)
        if copies or self.lost or self.closing:
            return 0
        data = memoryview(data)  # a bytearray cannot move while this exists
        self.queued += <uint64_t>data.nbytes
        self.held.add((self.queued, data))
        if self.thread.has_waiting or not send_from(self.thread, self.connection, data):
            self.threads.wait(self, IO_WRITE_FROM, data)
        return self.put_done()

    cdef int put_done(self) except -1:
        """Wake the thread; stop the protocol's writes if too many bytes are unsent."""
        io_wake(&self.thread.waker)
        if self.blocked:
            return 0
        self.blocked = self.unsent() > self.high
        if self.blocked or self.held.size():
            self.ask_progress()
        if self.blocked:
            self.protocol.pause_writing()
        return 0

    cdef int ask_progress(self) except -1:
        """Release buffers that were sent, clear `blocked` below the low-water mark, and ask for
        IO_PROGRESS for the rest."""
        cdef uint64_t sent, position
        while True:
            sent = io_sent(self.connection)
            while self.held.size() and self.held.first()[0] <= sent:
                self.held.drop_first()
            self.blocked = self.blocked and <Py_ssize_t>(self.queued - sent) > self.low
            position = IO_NO_NOTICE
            if self.held.size():
                position = self.held.first()[0]
            if self.blocked:
                position = min(position, self.queued - <uint64_t>self.low)
            if position == IO_NO_NOTICE or not io_notice(self.connection, position):
                return 0

    cdef int on_progress(self) except -1:
        cdef bint was_blocked = self.blocked
        if self.lost or self.aborted:
            return 0
        self.ask_progress()
        if was_blocked and not self.blocked:
            self.protocol.resume_writing()
        return 0

    def write(self, data) -> None:
        """Write a buffer; see the stub."""
        self.put_object(data)

    def writelines(self, list buffers not None) -> None:
        """Write buffers in order; see the stub."""
        cdef Py_ssize_t left = len(buffers)
        for data in buffers:
            left -= 1
            self.put_object(data, IO_WRITE_MORE if left else IO_WRITE)

    def write_eof(self) -> None:
        """Close the writing side after the bytes written before."""
        if not self.lost and not self.closing:
            self.threads.command(self, IO_END_WRITES)

    def can_write_eof(self) -> bool:
        """Always True."""
        return True

    def get_write_buffer_size(self) -> int:
        """Bytes written that the kernel has not accepted yet."""
        return self.unsent()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return (low, high) of `set_write_buffer_limits`."""
        return self.low, self.high

    def set_write_buffer_limits(self, high=None, low=None) -> None:
        """Set the marks in bytes at which the protocol's writes are paused and resumed."""
        if high is None:
            high = HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not 0 <= low <= high:
            raise ValueError(f"low-water mark {low}, high-water mark {high}")
        self.high, self.low = high, low

    # The connection.

    cdef int on_closed(self, int failed) except -1:
        """End: the thread does not touch the socket any more."""
        cdef object protocol = self.protocol
        error = error_of(failed) if failed else None
        self.closing = self.lost = True
        try:
            protocol.connection_lost(error)
        finally:
            self.socket.close()
            self.drop_kept()
            self.held.clear()
            self.threads.command(self, IO_FORGET)
            self.threads.remove(self)
            self.protocol = self.get_room = self.on_read = None
        return 0

    def fail(self, error) -> None:
        """Report an exception of the protocol, and abort."""
        self.threads.report(error)
        self.abort()

    def close(self) -> None:
        """Write the unsent bytes, then close; the protocol gets no further bytes."""
        if not self.lost and not self.closing:
            self.closing = True
            io_pause(self.connection, True)
            self.drop_kept()
            self.threads.command(self, IO_CLOSE)

    def abort(self) -> None:
        """Close now and drop all unsent bytes; `connection_lost` is called in a later turn."""
        if not self.lost and not self.aborted:
            self.closing = self.aborted = True
            io_pause(self.connection, True)
            self.drop_kept()
            self.threads.command(self, IO_ABORT)

    def is_closing(self) -> bool:
        """Whether `close` or `abort` was called, or the connection is lost."""
        return self.closing

    def get_protocol(self):
        """The protocol that gets the bytes."""
        return self.protocol

    def set_protocol(self, protocol) -> None:
        """Let `protocol`, a BufferedProtocol, get the bytes from now on."""
        self.protocol, self.read = protocol, NULL
        self.get_room, self.on_read = protocol.get_buffer, protocol.buffer_updated

    def get_extra_info(self, name, default=None):
        """Return the socket, or the address of either end."""
        if name == "socket":
            return self.socket
        if name == "peername":
            return self.peername
        if name == "sockname" and not self.lost:
            return self.socket.getsockname()
        return default
