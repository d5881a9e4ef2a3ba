# cython: auto_pickle=False
"""TLS records in and out of a session, without layers of Python between.

Owns what is called for each read and write of an encrypted connection. It must never begin a
session nor touch a socket. The base class of net.transport.tls.TlsSession, which does the handshake
and knows the errors; FastConnection calls it.

The session is that of Python's `ssl`, so there is one OpenSSL in the process, the one Python came
with. Its calls copy what they are given, run no Python and keep no pointer.
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
        # What ssl.SSLObject hands both on to, with the same arguments.
        inner = getattr(session, "_sslobj", session)
        self.read, self.write = inner.read, inner.write

    cdef int use(self, shared) except -1:
        """Most reads go there."""
        self.shared, self.whole = shared, (len(shared), shared)
        return 0

    def feed(self, data) -> None:
        """Bytes from the peer; they are copied."""
        self.put(data)
        self.left = 1

    @property
    def pending(self) -> int:
        """Bytes from the peer that were not read yet."""
        return self.inbound.pending

    def read_into(self, room) -> int:
        """Decrypted bytes into `room`; see the stub."""
        return self.decrypt(room, len(room))

    def sealed(self, data) -> bytes:
        """Encrypt what is to be sent; see the stub."""
        return self.encrypt(data)

    def outgoing(self) -> bytes:
        """What the session itself has to send to the peer."""
        return self.own_words()

    cdef int put_in(self, const uint8_t *bytes_, Py_ssize_t size) except -1:
        """As `feed`, of memory that stays for the call."""
        if size <= COPIED_MAX:
            self.put(PyBytes_FromStringAndSize(<char *>bytes_, size))
        else:
            self.put(PyMemoryView_FromMemory(<char *>bytes_, size, PyBUF_READ))
        self.left = size
        return 0

    cdef Py_ssize_t decrypt(self, room, Py_ssize_t size) except? -2:
        """As `read_into`; `left` is known behind it."""
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
        """Encrypt behind what is to be sent already; `own_words` takes it."""
        cdef Py_ssize_t size = len(data)
        cdef Py_ssize_t at = self.write(data)
        while at < size:
            at += self.write(memoryview(data)[at:])
        return 0

    cdef bytes own_words(self):
        return self.take() if self.outbound.pending else b""
