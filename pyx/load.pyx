# cython: auto_pickle=False
"""The load generator's binding: memory, plans in, figures out. csrc/load.c does the traffic.

Owns the memory of a run; the caller owns the sockets, which must outlive the run. It must never
know the meaning of a request: net/wire makes the templates.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free

from turbopump.pyx.c_load cimport *
from turbopump.pyx.load_parts cimport check_batch, claim, corpus_of, load_template_of

SEND, PULL = LOAD_SEND, LOAD_PULL
FOLLOW_END, FOLLOW_ACKS = LOAD_FOLLOW_END, LOAD_FOLLOW_ACKS
DONE, LATE, LOST, SYSTEM = LOAD_DONE, LOAD_LATE, LOAD_LOST, LOAD_SYSTEM
CODE_UNANSWERED, CODE_LOST, CODE_MALFORMED = (
    LOAD_CODE_UNANSWERED, LOAD_CODE_LOST, LOAD_CODE_MALFORMED
)
WINDOW_MAX = LOAD_WINDOW_MAX
IN_SEND = 256 * 1024    # many times the answers of a window
IN_PULL = 8 << 20       # a message of 4 MiB, a broker's largest, and its frame
OUT_MIN = 64 * 1024     # with a smaller buffer a window would go out in pieces
FOLLOW_MAX = 4096       # a request that follows an answer is a small header
OUT_MAX = 4 << 20       # a larger window goes out in pieces: a socket accepts at most this at once


cdef class Load:
    """A run of the load generator; see the stub."""

    cdef load run_of
    cdef bytes texts, body, follow_text
    cdef load_template *templates
    cdef uint32_t connection_max, queue_max, template_count, template_max
    cdef readonly int ended
    cdef bint begun
    cdef size_t body_max
    cdef object corpus

    def __cinit__(self, bytes texts not None, templates, bytes body not None, *,
                  uint32_t connections, uint32_t queues=0, size_t rows=0):
        cdef tuple known = tuple(templates)
        self.texts, self.body, self.ended = texts, body, -1
        self.connection_max, self.queue_max = connections, queues
        self.template_count = len(known)
        self.templates = <load_template *>claim(len(known), sizeof(load_template))
        for number, row in enumerate(known):
            self.templates[number] = load_template_of(row, len(texts))
            self.template_max = max(self.template_max, self.templates[number].size)
        self.run_of.texts = <const uint8_t *>self.texts
        self.run_of.templates = self.templates
        self.run_of.body.bytes = <const uint8_t *>self.body
        self.run_of.body.size = self.body_max = len(body)
        self.run_of.messages_per_send = 1
        self.run_of.connections = <load_connection *>claim(connections, sizeof(load_connection))
        self.run_of.queues = <load_queue *>claim(queues, sizeof(load_queue))
        self.run_of.touched = <uint32_t *>claim(connections, sizeof(uint32_t))
        self.run_of.rows = <load_row *>claim(rows, sizeof(load_row))
        self.run_of.row_max = rows
        self.run_of.delivery = <load_hist *>claim(1, sizeof(load_hist))

    def __dealloc__(self):
        cdef uint32_t i, kind
        for i in range(self.run_of.connection_count):
            free(self.run_of.connections[i].free)
            free(self.run_of.connections[i].started_ns)
            free(self.run_of.connections[i].sizes)
            free(self.run_of.connections[i].in_)
            free(self.run_of.connections[i].out)
        for kind in range(<uint32_t>LOAD_KINDS):
            free(self.run_of.stats[kind].total)
            free(self.run_of.stats[kind].interval)
        free(self.run_of.delivery)
        free(self.run_of.connections)
        free(self.run_of.queues)
        free(self.run_of.touched)
        free(self.run_of.rows)
        free(self.templates)

    cdef int unrun(self) except -1:
        """Raise once the run may have begun: the thread that runs it reads this memory."""
        if self.begun:
            raise ValueError("a load runs once, and is ready before that")
        return 0

    def set_batch(self, uint32_t count, size_t unique_at, size_t stride):
        """Declare that the body is a batch of `count` elements; unique_at 0: without UNIQ_KEYs."""
        self.unrun()
        check_batch(len(self.body), count, unique_at, stride)
        self.run_of.messages_per_send = self.run_of.body.count = count
        self.run_of.body.unique_at, self.run_of.body.stride = unique_at, stride

    def set_corpus(self, const uint8_t[::1] data, const int64_t[::1] starts,
                   const int64_t[::1] ends, *, bytes element=b"", size_t unique_at=0,
                   uint32_t per_send=1):
        """Replace the body by a corpus whose bodies are sent in turn; see the stub."""
        self.unrun()
        if self.run_of.connection_count:
            raise ValueError("the connections are there already")
        self.body_max = corpus_of(
            &self.run_of.corpus, data, starts, ends, element, unique_at, per_send
        )
        self.run_of.messages_per_send = per_send
        self.corpus = (data, starts, ends, element)  # they live as long as the run

    def set_due(self, uint32_t at, int64_t first_ms, int64_t spread_ms):
        """Declare 13 digits of a time to deliver in all templates; see the stub."""
        cdef uint32_t i
        self.unrun()
        for i in range(self.template_count):
            if at == 0 or <uint64_t>at + 13 > self.templates[i].size:
                raise ValueError("the time to deliver reaches out of its template")
        if first_ms < 0 or spread_ms <= 0:
            raise ValueError(f"no times to deliver: {first_ms}, {spread_ms}")
        self.run_of.due.at = at
        self.run_of.due.first_ms, self.run_of.due.spread_ms = first_ms, spread_ms

    def set_follow(self, uint32_t kind, bytes text not None):
        """Let requests follow good answers; see the stub."""
        self.unrun()
        if self.run_of.connection_count:
            raise ValueError("the connections are there already")
        if kind not in (LOAD_FOLLOW_END, LOAD_FOLLOW_ACKS) or len(text) > FOLLOW_MAX:
            raise ValueError("no such requests to follow")
        self.follow_text = text
        self.run_of.follow_up.kind = kind
        self.run_of.follow_up.text.at = <const uint8_t *>self.follow_text
        self.run_of.follow_up.text.size = <uint32_t>len(text)

    def set_limits(self, *, int64_t interval_ns=0, int64_t warmup_ns=0, int64_t duration_ns=0,
                   int64_t drain_ns=0, int64_t silence_ns=0, uint64_t messages=0, uint64_t serial=0,
                   bint follow=False, bint check_crc=False, bint reconnect=False,
                   uint32_t pause_us=0):
        self.unrun()
        self.run_of.interval_ns, self.run_of.warmup_ns = interval_ns, warmup_ns
        self.run_of.duration_ns, self.run_of.drain_ns = duration_ns, drain_ns
        self.run_of.silence_ns, self.run_of.pause_us = silence_ns, pause_us
        self.run_of.limit, self.run_of.serial = messages, serial
        self.run_of.follow, self.run_of.check_crc = follow, check_crc
        self.run_of.reconnect = reconnect

    cdef load_connection *_connection(self, int fd, uint32_t kind, uint32_t window) except NULL:
        cdef load_connection *made
        self.unrun()
        if self.run_of.connection_count >= self.connection_max:
            raise ValueError("no room for another connection")
        if not 0 < window <= LOAD_WINDOW_MAX:
            raise ValueError(f"a window of {window} requests")
        made = &self.run_of.connections[self.run_of.connection_count]
        self.run_of.connection_count += 1
        made.fd, made.kind, made.window = fd, kind, window
        made.free = <uint32_t *>claim(window, sizeof(uint32_t))
        made.started_ns = <int64_t *>claim(window, sizeof(int64_t))
        if self.run_of.stats[kind].total == NULL:
            self.run_of.stats[kind].total = <load_hist *>claim(1, sizeof(load_hist))
            self.run_of.stats[kind].interval = <load_hist *>claim(1, sizeof(load_hist))
        return made

    def add_sender(self, int fd, uint32_t window, uint32_t first, uint32_t count,
                   uint32_t begin=0):
        """Add a connection that sends templates [first, first + count) in turn, beginning with
        `begin`."""
        cdef load_connection *made
        if begin >= count or first + count > self.template_count:
            raise ValueError("no such templates")
        if self.run_of.follow_up.kind == LOAD_FOLLOW_ACKS and window != 1:
            raise ValueError("a connection has one pop in flight")
        made = self._connection(fd, LOAD_SEND, window)
        made.first_target, made.target_count, made.next_target = first, count, begin
        for slot in range(window):
            made.free[slot] = window - 1 - slot
        made.free_count = window
        made.request_max = self.template_max + self.run_of.body.size
        if self.corpus is not None:
            made.request_max = self.template_max
            made.sizes = <uint32_t *>claim(window, sizeof(uint32_t))
        made.in_size = IN_SEND
        largest = self.template_max + self.body_max
        made.out_size = max(OUT_MIN, largest, min(OUT_MAX, largest * window))
        made.in_ = <uint8_t *>claim(made.in_size, 1)
        made.out = <uint8_t *>claim(made.out_size, 1)

    def add_puller(self, int fd, queues):
        """Add a connection that pulls queues, each (template, next queue offset, end)."""
        cdef load_connection *made
        cdef load_queue *queue
        cdef tuple known = tuple(queues)
        cdef uint32_t first = self.run_of.queue_count
        if first + len(known) > self.queue_max:
            raise ValueError("no room for another queue")
        made = self._connection(fd, LOAD_PULL, len(known))
        for template, begin, end in known:
            if not 0 <= template < self.template_count or not self.templates[template].offset_at:
                raise ValueError("no such template of a pull")
            queue = &self.run_of.queues[self.run_of.queue_count]
            queue.template, queue.next, queue.end = template, begin, end
            self.run_of.queue_count += 1
        made.first_target, made.target_count = first, len(known)
        made.request_max = self.template_max + LOAD_OFFSET_DIGITS_MAX
        made.in_size, made.out_size = IN_PULL, made.request_max * len(known)
        made.in_ = <uint8_t *>claim(made.in_size, 1)
        made.out = <uint8_t *>claim(made.out_size, 1)

    def run(self, int epoll_fd):
        """Run to the end without the GIL and return DONE, LATE, LOST or SYSTEM. May be called
        once."""
        cdef int ended
        self.unrun()
        self.begun = True
        self.run_of.epoll_fd = epoll_fd
        with nogil:
            ended = load_run(&self.run_of)
        self.ended = ended
        return ended

    def stop(self):
        """Ask the run to end; any thread may call this."""
        self.run_of.stop = 1

    cdef uint32_t _number(self, uint32_t number) except? 0:
        if number >= self.run_of.connection_count:
            raise ValueError(f"no connection {number}")
        return number

    def is_away(self, uint32_t number):
        """Whether a connection waits for a new socket."""
        cdef load_connection *at = &self.run_of.connections[self._number(number)]
        return at.lost == LOAD_AWAY and not at.handed

    def hand_over(self, uint32_t number, int fd):
        """Give a lost connection a new socket; one other thread may call this."""
        if not self.is_away(number) or not load_hand_over(&self.run_of, number, fd):
            raise ValueError(f"connection {number} is not away")

    def drop(self, uint32_t number):
        """Drop a connection whose peer does not answer; one other thread may call this."""
        load_drop(&self.run_of, self._number(number))

    @property
    def away(self):
        """Number of connections that wait for a new socket."""
        return self.run_of.away

    def outages(self):
        """Return (begin, end or -1, longest gap, failed sends) of each outage, in ns since the
        start."""
        found = []
        for i in range(self.run_of.outage_count):
            outage = self.run_of.outages[i]
            resumed_ns, gap_ns = outage.resumed_ns - self.run_of.start_ns, outage.gap_ns
            if outage.resumed_ns == 0:
                resumed_ns = -1
                acked_ns = self.run_of.acked_ns or self.run_of.start_ns
                gap_ns = max(gap_ns, self.run_of.now_ns - acked_ns)
            found.append((outage.began_ns - self.run_of.start_ns, resumed_ns, gap_ns,
                          outage.failed))
        return found

    def progress(self):
        """Return the current (seconds since the start, messages sent, messages read, errors)."""
        errors = 0
        for kind in range(LOAD_KINDS):
            for i in range(self.run_of.stats[kind].code_count):
                errors += self.run_of.stats[kind].codes[i].count
        elapsed_ns = self.run_of.now_ns - self.run_of.start_ns
        return (elapsed_ns / 1e9, self.run_of.stats[LOAD_SEND].all_messages,
                self.run_of.stats[LOAD_PULL].all_messages, errors)

    def rows(self):
        """Return, for each whole second, (messages, p50, p99, max in ns) of sends, then of
        pulls."""
        return [
            tuple((row.messages[kind], row.p50_ns[kind], row.p99_ns[kind], row.max_ns[kind])
                  for kind in range(LOAD_KINDS))
            for row in self.run_of.rows[:self.run_of.row_count]
        ]

    def counters(self, int kind):
        """Return all counters of SEND or PULL by name."""
        cdef load_stats *stats
        if not 0 <= kind < LOAD_KINDS:
            raise ValueError("SEND or PULL")
        stats = &self.run_of.stats[kind]
        return {
            "requests": stats.requests, "messages": stats.messages, "bytes": stats.bytes,
            "all_requests": stats.all_requests, "all_messages": stats.all_messages,
            "errors": [(stats.codes[i].code, stats.codes[i].count,
                        stats.codes[i].remark[:stats.codes[i].remark_size])
                       for i in range(stats.code_count)],
        }

    def latency(self, int kind, double share):
        """Return the latency in ns that `share` of the requests did not exceed."""
        if self.run_of.stats[kind].total == NULL:
            return 0
        return load_hist_at(self.run_of.stats[kind].total, share)

    def latency_max(self, int kind):
        return self.run_of.stats[kind].total.max if self.run_of.stats[kind].total != NULL else 0

    def delivery(self, double share):
        """Return the time in ns from born to read that `share` of the answers did not exceed."""
        return load_hist_at(self.run_of.delivery, share)

    @property
    def measured_ns(self):
        return max(self.run_of.end_ns - self.run_of.begin_ns, 0)

    @property
    def lost_connections(self):
        return self.run_of.lost_connections

    @property
    def unread_queues(self):
        """Number of queues whose pulls failed before their end."""
        return sum(self.run_of.queues[i].state == LOAD_QUEUE_FAILED
                   for i in range(self.run_of.queue_count))

    @property
    def unsent(self):
        """Number of requests that were due while no connection had room for them."""
        if not self.run_of.interval_ns or not self.run_of.end_ns or self.run_of.limit:
            return 0
        due = (self.run_of.begin_ns + self.run_of.duration_ns - self.run_of.start_ns
               ) // self.run_of.interval_ns
        return max(due - <int64_t>self.run_of.issued, 0)

    @property
    def failure(self):
        """Value of errno if the run ended with SYSTEM."""
        return self.run_of.failure
