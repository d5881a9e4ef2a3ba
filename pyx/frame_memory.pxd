from libc.stdint cimport uint8_t


cdef class FrameMemory:
    cdef uint8_t *memory
    cdef readonly Py_ssize_t size
    cdef readonly bint mapped

    @staticmethod
    cdef Py_ssize_t enough(Py_ssize_t have, Py_ssize_t needed)
    cpdef Py_ssize_t cost(self, Py_ssize_t have)
