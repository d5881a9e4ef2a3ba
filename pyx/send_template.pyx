# cython: auto_pickle=False
"""The template of a connection's sends: when a header is learned, and when it is replaced.

Owns the memory of a template (csrc/traffic_template.h, at most TRF_TEMPLATE_MAX bytes), which
ends with its connection. It must never remember anything but bytes of requests: a topic, a
permission or a configuration would have to be forgotten whenever it changes.

A connection that sends to several topics in turn keeps its template as long as every fourth send
matches. Without a match, headers are learned ever more rarely, because learning costs as much as
decoding.
"""

from libc.stdint cimport uint8_t

from turbopump.pyx.c_traffic cimport *

cdef enum:
    PATIENCE = 4                  # sends in a row without a match
    PATIENCE_MAX = 256


cdef class SendTemplate:
    """See the stub."""

    def __cinit__(self):
        self.patience = 1

    cdef bint match(self, const uint8_t *frame, size_t size, uint8_t *scratch):
        """Decode a frame that is like the learned one into `core.request` and `properties`; False:
        it has to be decoded. `scratch` has room for TRF_HEADER_MAX bytes."""
        if not trf_match(&self.core, frame, size, scratch, &self.properties):
            return False
        self.missed = 0
        self.patience = PATIENCE
        return True

    cdef int learn(self, const uint8_t *frame, const trf_request *request) except -1:
        """Note a decoded send that the lane answered; its header, which did not match, may be
        learned."""
        self.missed += 1
        if self.missed >= self.patience:
            self.missed = 0
            self.patience = min(2 * self.patience, PATIENCE_MAX)
            trf_learn(&self.core, frame, request)
        return 0
