# cython: auto_pickle=False
"""Plain calls of SendMessage and AckMessage: from the events of a read to records and answers,
without an object for each call, message or request.

Owns the records stored and acknowledgements noted in a read that are not visible yet. It must never
decide which calls are plain beyond their bytes: the broker does for each call
(broker/grpc/simple_calls.py), and the service in Python handles all others.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from cpython.bytes cimport PyBytes_FromStringAndSize

from turbopump.pyx.c_grpc cimport *
from turbopump.pyx.c_lane cimport lane_acks_full, lane_sent
from turbopump.pyx.c_traffic cimport (
    TRF_ACK,
    bytes_of,
    text_of,
    trf_request,
    trf_send,
)
from turbopump.pyx.lane cimport Lane


cdef class GrpcLane:
    """See the stub."""

    def __init__(
        self, place not None, may_ack not None, bytes headers not None, bytes trailers not None
    ):
        self.place, self.may_ack = place, may_ack
        self.headers, self.trailers = headers, trailers

    cdef bytes send(self, const uint8_t *data, size_t size, const grc_head *head, bytes address,
                    bytes host):
        """Store a send and return its framed answer, to be written after `settle`; None: nothing
        was done, and Python has to serve the call. The caller must hold the object in which `data`
        and the texts of `head` lie, because `place` runs Python."""
        cdef grs_message message
        cdef trf_send send
        cdef lane_sent sent
        cdef Lane lane
        cdef int64_t born_ms
        if len(address) > GRC_NAME_MAX or not grs_read(data, size, &message):
            return None
        placed = self.place(bytes_of(message.topic), bytes_of(head.client_id))
        if placed is None:
            return None
        lane, queue_id, client_host = placed
        if not self.uses(lane):
            return None
        memset(&send, 0, sizeof(trf_send))
        born_ms = message.born_ms if message.born_ms > 0 else lane.now()
        send.topic, send.queue_id, send.born_timestamp = message.topic, queue_id, born_ms
        send.properties.at = self.properties
        send.properties.size = grs_properties(&message, text_of(address), born_ms, self.properties)
        if client_host is not None:
            host = client_host
        if not lane.put(&send, message.body, text_of(host), &sent):
            return None
        self.send_count += 1
        size = grs_answer(&message, sent.unique_key, sent.queue_offset, self.out)
        return PyBytes_FromStringAndSize(<char *>self.out, <Py_ssize_t>size)

    cdef int note_ack(self, const uint8_t *data, size_t size, const grc_head *head) except -1:
        """Note an acknowledgement, whose bytes must stay until `write_acks`. GRL_ELSEWHERE: Python
        has to serve it; GRL_FULL: the caller must write the noted ones first."""
        cdef gra_entry entry
        cdef trf_request request
        cdef Lane lane
        if not gra_read(data, size, &entry):
            return GRL_ELSEWHERE
        lane = self.may_ack(
            bytes_of(entry.ack.consumer_group), bytes_of(entry.ack.topic), bytes_of(head.client_id)
        )
        if lane is None or not lane.is_named(entry.broker_name):
            return GRL_ELSEWHERE
        if not self.uses(lane):
            return GRL_ELSEWHERE
        if entry.until_ms <= lane.now():
            return GRL_ELSEWHERE
        memset(&request, 0, sizeof(trf_request))
        request.kind, request.is_oneway, request.ack = TRF_ACK, True, entry.ack
        if lane_acks_full(&lane.acks.core, &request):
            return GRL_FULL
        return GRL_NOTED if lane.note_ack(&request, data, size) else GRL_ELSEWHERE

    cdef int write_acks(self) except -1:
        """Write the noted acknowledgements; then `acked` returns the outcome of each, until the
        next write or `settle`."""
        if self.lane is not None:
            self.lane.write_acks()
        return 0

    cdef int forget_acks(self) except -1:
        """Forget the noted acknowledgements, so that their bytes may be released."""
        if self.lane is not None:
            self.lane.forget_acks()
        return 0

    cdef bytes acked(self, int number, const uint8_t *data, size_t size):
        """Return the framed answer to the noted acknowledgement with this number, which lies at
        `data`; None: it could not be written, and Python has to serve it."""
        cdef gra_entry entry
        cdef Lane lane = self.lane
        if not lane.acks.core.joined[lane.acks.core.acked[number].joined].is_written:
            return None
        if not gra_read(data, size, &entry):
            raise AssertionError("it was read when it was noted")
        self.ack_count += 1
        size = gra_answer(&entry, self.out)
        return PyBytes_FromStringAndSize(<char *>self.out, <Py_ssize_t>size)

    cdef bint uses(self, Lane lane):
        """Store in this lane until `settle`; False: another lane is in use."""
        if self.lane is None:
            self.lane = lane
        return self.lane is lane

    cdef int settle(self) except -1:
        """Make the stored records visible, and forget the noted acknowledgements."""
        cdef Lane lane = self.lane
        self.lane = None
        if lane is not None:
            lane.forget_acks()
            lane.end_puts()
        return 0
