"""TLS records, for the connection that reads and writes them."""

from libc.stdint cimport uint8_t


cdef class TlsRecords:
    cdef object inbound, outbound   # the session's two buffers (ssl.MemoryBIO)
    cdef object put, take           # inbound.write, outbound.read
    cdef object read, write         # the session's own methods
    cdef public object failure      # raised by the next call, or None
    cdef object shared              # the memory that most reads fill, shared by all connections
    cdef tuple whole                # the arguments for such a read
    cdef bint full                  # the last read filled its room: the session may have more
    cdef public bint over           # decryption has ended
    cdef Py_ssize_t left            # bytes not yet examined after the last read 

    cdef int use(self, shared) except -1
    cdef int put_in(self, const uint8_t *bytes_, Py_ssize_t size) except -1
    cdef Py_ssize_t decrypt(self, room, Py_ssize_t size) except? -2
    cdef bytes encrypt(self, data)
    cdef int seal(self, data) except -1
    cdef bytes own_words(self)
