"""TLS records, for the connection that reads and writes them."""

from libc.stdint cimport uint8_t


cdef class TlsRecords:
    cdef object inbound, outbound   # the session's two buffers (ssl.MemoryBIO)
    cdef object put, take           # write of the one, read of the other
    cdef object read, write         # of the session
    cdef public object failure      # raised by the next call, None: nothing failed
    cdef object shared              # where most reads go: what all connections share
    cdef tuple whole                # what the session is asked to read then
    cdef bint full                  # the last read filled its room: the session may have more
    cdef public bint over           # nothing is decrypted any more
    cdef Py_ssize_t left            # bytes that were not looked at when something was last read

    cdef int use(self, shared) except -1
    cdef int put_in(self, const uint8_t *bytes_, Py_ssize_t size) except -1
    cdef Py_ssize_t decrypt(self, room, Py_ssize_t size) except? -2
    cdef bytes encrypt(self, data)
    cdef int seal(self, data) except -1
    cdef bytes own_words(self)
