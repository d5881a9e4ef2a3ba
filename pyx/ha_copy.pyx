# cython: auto_pickle=False
"""The plain frames of a master's stream, at the replica: from the read bytes into the log.

Owns the end of the copied log and confirmOffset, as the frames name them. It must never handle a
frame that is not plain: the machines do (net/ha/replica.py, net/ha/default_ha.py).
"""

from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from turbopump.pyx.tail cimport Tail, log_tail

cdef extern from "ha_copy.h" nogil:
    enum ha_protocol:
        HA_DEFAULT
        HA_SWITCHING
    enum:
        HA_BODIES
        HA_WRITE_MAX
    struct walk_piece:
        const uint8_t *at
        size_t size
    struct ha_copy:
        ha_protocol protocol
        int32_t epoch
        int64_t epoch_start
        int64_t stop
        int64_t log_end
        int64_t confirm
        int64_t first
        size_t size
        size_t count
        walk_piece bodies[HA_BODIES]
    size_t ha_take(ha_copy *copy, const uint8_t *in_, size_t size)
    int ha_write(const ha_copy *copy, log_tail *tail)

BODIES_MAX = HA_BODIES
WRITE_MAX = HA_WRITE_MAX


cdef class PlainFrames:
    """See the stub."""

    cdef ha_copy copy
    cdef object held              # the bytes that the bodies lie in

    def __cinit__(self, *, bint switching):
        self.copy.protocol = HA_SWITCHING if switching else HA_DEFAULT

    @property
    def log_end(self) -> int:
        """Log offset of the end of the copied log, the taken bodies included."""
        return self.copy.log_end

    @log_end.setter
    def log_end(self, int64_t value):
        self.copy.log_end = value

    @property
    def confirm_offset(self) -> int:
        """The newest confirmOffset of the master, at most `log_end`."""
        return self.copy.confirm

    @confirm_offset.setter
    def confirm_offset(self, int64_t value):
        self.copy.confirm = value

    @property
    def count(self) -> int:
        """Number of bodies that the last call of `take` took."""
        return <Py_ssize_t>self.copy.count

    def expect(self, int32_t epoch=0, int64_t epoch_start=0, int64_t stop=INT64_MAX) -> None:
        """Take the next frames; see the stub."""
        self.copy.epoch, self.copy.epoch_start, self.copy.stop = epoch, epoch_start, stop

    def stop(self) -> None:
        """Take no frame until `expect`."""
        self.copy.stop = 0
        self.drop()

    def take(self, data not None) -> int:
        """Take the plain frames at the beginning of the read bytes; see the stub."""
        cdef object view = PyMemoryView_FromObject(data)
        self.held = view
        return <Py_ssize_t>ha_take(
            &self.copy,
            <const uint8_t *>PyMemoryView_GET_BUFFER(view).buf,
            <size_t>PyMemoryView_GET_BUFFER(view).len,
        )

    def write(self, Tail tail not None) -> bool:
        """Append the taken bodies to the log; see the stub."""
        cdef bint written = self.held is not None and ha_write(&self.copy, &tail.tail) != 0
        if written:
            self.drop()
        return written

    def bodies(self) -> list[tuple[int, memoryview]]:
        """Return the taken bodies; see the stub."""
        cdef list found = []
        cdef int64_t log_offset = self.copy.first
        cdef const uint8_t *begin
        cdef Py_ssize_t at, size
        cdef size_t number
        if self.held is None:
            return found
        begin = <const uint8_t *>PyMemoryView_GET_BUFFER(self.held).buf
        for number in range(self.copy.count):
            at = self.copy.bodies[number].at - begin
            size = <Py_ssize_t>self.copy.bodies[number].size
            found.append((log_offset, self.held[at:at + size]))
            log_offset += size
        return found

    def drop(self) -> None:
        """Forget the taken bodies: their memory may be reused."""
        self.held = None
        self.copy.count = self.copy.size = 0
