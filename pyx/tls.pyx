# cython: auto_pickle=False
"""TLS records in and out of a session, without layers of Python between.

Owns the calls of each read and write of an encrypted connection. It must never begin a session nor
touch a socket. The base class of net.transport.tls.TlsSession, which does the handshake and knows
the errors.

The session is that of Python's `ssl`, so the process has one OpenSSL, Python's own. The session's
calls copy their bytes, run no Python and keep no pointer.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t

cdef enum:
    COPIED_MAX = 4096   # bytes up to which a copy costs less than a view

cdef class TlsRecords:
    """See the stub."""

    def __init__(self, session, incoming, outgoing):
        self.inbound, self.outbound = incoming, outgoing
        self.put, self.take = incoming.write, outgoing.read
        # The object to which ssl.SSLObject passes both calls, with the same arguments.
        inner = getattr(session, "_sslobj", session)
        self.read, self.write = inner.read, inner.write

    cdef int use(self, shared) except -1:
        """Remember `shared`, the memory that most reads fill, with its arguments."""
        self.shared, self.whole = shared, (len(shared), shared)
        return 0

    def feed(self, data) -> None:
        """Add bytes from the peer; they are copied."""
        self.put(data)
        self.left = 1

    @property
    def pending(self) -> int:
        """Number of bytes from the peer that were not decrypted yet."""
        return self.inbound.pending

    def read_into(self, room) -> int:
        """Decrypt into `room`; see the stub."""
        return self.decrypt(room, len(room))

    def sealed(self, data) -> bytes:
        """Encrypt `data`; see the stub."""
        return self.encrypt(data)

    def outgoing(self) -> bytes:
        """Return the session's own bytes for the peer."""
        return self.own_words()

    cdef int put_in(self, const uint8_t *bytes_, Py_ssize_t size) except -1:
        """Add bytes from the peer, in memory that stays during the call; see `feed`."""
        if size <= COPIED_MAX:
            self.put(PyBytes_FromStringAndSize(<char *>bytes_, size))
        else:
            self.put(PyMemoryView_FromMemory(<char *>bytes_, size, PyBUF_READ))
        self.left = size
        return 0

    cdef Py_ssize_t decrypt(self, room, Py_ssize_t size) except? -2:
        """Decrypt into memory, see `read_into`; sets `left`."""
        cdef Py_ssize_t have = 0, got
        if self.failure is not None:
            raise self.failure
        # An exception costs more than a record.
        while have < size and not self.over and (self.left or self.full):
            try:
                if have == 0 and room is self.shared:
                    got = self.read(*self.whole)
                else:
                    got = self.read(size - have, room[have:] if have else room)
            except Exception as error:
                if not self.is_end(error, have):
                    self.left, self.full = self.inbound.pending, False
                    break
                got = 0
            have += got
            self.over = got == 0
            self.full = have == size
            self.left = self.inbound.pending
        return have or -self.over

    cdef bytes encrypt(self, data):
        self.seal(data)
        return self.take()

    cdef int seal(self, data) except -1:
        """Encrypt after the bytes already encrypted; `own_words` returns them."""
        cdef Py_ssize_t size = len(data)
        cdef Py_ssize_t at = self.write(data)
        while at < size:
            at += self.write(memoryview(data)[at:])
        return 0

    cdef bytes own_words(self):
        return self.take() if self.outbound.pending else b""
