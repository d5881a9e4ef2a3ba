# cython: auto_pickle=False
"""The load generator's parts one at a time: its histogram, its requests, its reading of answers.

Owns nothing. It must never see a socket. Tests compare these parts with plain models and with
net/wire.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from turbopump.pyx.c_load cimport *

OPAQUE_BASE = LOAD_OPAQUE_BASE


cdef class Histogram:
    """Latencies in nanoseconds, 3 significant digits (csrc/load_hist.h)."""

    cdef load_hist *hist

    def __cinit__(self):
        self.hist = <load_hist *>claim(1, sizeof(load_hist))

    def __dealloc__(self):
        free(self.hist)

    def record(self, int64_t value):
        load_hist_record(self.hist, value)

    def at(self, double share):
        return load_hist_at(self.hist, share)

    @property
    def total(self):
        return self.hist.total

    @property
    def max(self):
        return self.hist.max

    def counts(self):
        return [(load_hist_upper(i), self.hist.counts[i])
                for i in range(LOAD_HIST_COUNTS) if self.hist.counts[i]]


def put(bytes texts not None, template, bytes body not None, *, uint32_t slot=0,
        int64_t epoch_ms=0, uint64_t serial=0, int64_t queue_offset=0, batch=(1, 0, 0)) -> bytes:
    """Return one request as the generator writes it: a pull if the template has a queue offset."""
    cdef load_template known = load_template_of(template, len(texts))
    cdef load_body behind
    cdef load_stamp stamp
    cdef bytearray out = bytearray(len(texts) + len(body) + LOAD_OFFSET_DIGITS_MAX)
    memset(&behind, 0, sizeof(behind))
    memset(&stamp, 0, sizeof(stamp))
    behind.bytes, behind.size = body, len(body)
    behind.count, behind.unique_at, behind.stride = batch
    check_batch(len(body), behind.count, behind.unique_at, behind.stride)
    load_stamp_set(&stamp, epoch_ms)
    if known.offset_at:
        size = load_put_pull(out, texts, &known, slot, queue_offset)
    else:
        size = load_put_send(out, texts, &known, &behind, slot, &stamp, &serial)
    return bytes(out[:size])


def put_replay(bytes texts not None, template, const uint8_t[::1] data, const int64_t[::1] starts,
               const int64_t[::1] ends, *, bytes element=b"", size_t unique_at=0,
               size_t per_send=1, uint64_t serial=0, size_t count=1) -> list:
    """Return `count` consecutive requests of a corpus as the generator writes them."""
    cdef load_template known = load_template_of(template, len(texts))
    cdef load_corpus corpus
    cdef load_stamp stamp
    cdef bytearray out
    memset(&corpus, 0, sizeof(corpus))
    memset(&stamp, 0, sizeof(stamp))
    corpus_of(&corpus, data, starts, ends, element, unique_at, per_send)
    load_stamp_set(&stamp, 1)
    made = []
    for _ in range(count):
        out = bytearray(known.size + load_replay_size(&corpus))
        size = load_put_replay(out, texts, &known, &corpus, 0, &stamp, &serial)
        assert size == <size_t>len(out)
        made.append(bytes(out))
    return made


def read(bytes frame not None, names=()):
    """Parse an answer: (code, opaque, remark, numbers of the named extFields); None for other
    bytes."""
    cdef load_hint hint
    cdef load_answer answer
    cdef uint8_t remark[LOAD_REMARK]
    cdef int64_t value
    hint.opaque = 0
    if len(frame) < 8 or not load_read(frame, len(frame), &hint, &answer):
        return None
    numbers = {}
    for name in names:
        if load_number(&answer, name.encode(), &value):
            numbers[name] = value
    size = load_remark(&answer, remark, LOAD_REMARK)
    return answer.code, answer.opaque, remark[:size], numbers


def count_records(bytes body not None, bint check_crc=False):
    """Count the records of a body: (records, born timestamp of the last record in ms); -1 records:
    the body is no sequence of records."""
    cdef int64_t born_ms = 0
    count = load_count_records(body, len(body), check_crc, &born_ms)
    return count, born_ms
