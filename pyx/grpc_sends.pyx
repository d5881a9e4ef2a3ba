# cython: auto_pickle=False
"""Plain calls of SendMessage, from the events of a read to records and answers, without an object
for each call, its message, its request.

Owns what was stored in a read and is not visible yet. It must never decide what may be sent: the
broker says so for each call (broker/grpc/plain_sends.py), and all else is left to the service in
Python. Called by H2Session.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from cpython.bytes cimport PyBytes_FromStringAndSize

from turbopump.pyx.c_grpc_send cimport *
from turbopump.pyx.c_lane cimport lane_sent
from turbopump.pyx.c_traffic cimport bytes_of, text_of, trf_send, trf_text
from turbopump.pyx.lane cimport Lane


cdef class GrpcSends:
    """See the stub."""

    def __init__(self, place not None, bytes headers not None, bytes trailers not None):
        self.place, self.headers, self.trailers = place, headers, trailers

    cdef bytes serve(self, const uint8_t *data, size_t size, const grs_head *head, bytes address,
                     bytes host):
        """The framed answer to a call that is stored; None: it is for Python, and nothing was
        done. `data` and what `head` points to lie in an object that the caller holds, for `place`
        is Python. To be written behind `settle`."""
        cdef grs_message message
        cdef trf_send send
        cdef lane_sent sent
        cdef Lane lane
        cdef int64_t born_ms
        if len(address) > GRS_NAME_MAX or not grs_read(data, size, &message):
            return None
        placed = self.place(bytes_of(message.topic), bytes_of(head.client_id))
        if placed is None:
            return None
        lane, queue_id, client_host = placed
        if self.lane is not lane:
            self.settle()
            self.lane = lane
        memset(&send, 0, sizeof(trf_send))
        born_ms = message.born_ms if message.born_ms > 0 else lane.now()
        send.topic, send.queue_id, send.born_timestamp_ms = message.topic, queue_id, born_ms
        send.properties.at = self.properties
        send.properties.size = grs_properties(&message, text_of(address), born_ms, self.properties)
        if client_host is not None:
            host = client_host
        if not lane.put(&send, message.body, text_of(host), &sent):
            return None
        self.send_count += 1
        size = grs_answer(&message, sent.unique_key, sent.queue_offset, self.out)
        return PyBytes_FromStringAndSize(<char *>self.out, <Py_ssize_t>size)

    cdef int settle(self) except -1:
        """What was stored becomes visible."""
        cdef Lane lane = self.lane
        self.lane = None
        if lane is not None:
            lane.end_puts()
        return 0
