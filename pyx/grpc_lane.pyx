# cython: auto_pickle=False
"""Plain calls of SendMessage and AckMessage, from the events of a read to records and answers,
without an object for each call, its message, its request.

Owns what was stored or noted in a read and is not visible yet. It must never decide what is plain
beyond the bytes: the broker does for each call (broker/grpc/plain_calls.py), and all else is left
to the service in Python. Called by H2Session.
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
        """The framed answer to a send that is stored; None: it is for Python, and nothing was
        done. `data` and what `head` points to lie in an object that the caller holds, for `place`
        is Python. To be written behind `settle`."""
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

    cdef int note_ack(self, const uint8_t *data, size_t size, const grc_head *head) except -1:
        """Note an acknowledgement, whose bytes stay until `write_acks`. GRL_ELSEWHERE: it is for
        Python; GRL_FULL: what was noted is to be written first."""
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
        """Write what was noted; then `acked` says of each what came of it, until all is written
        again, or `settle`."""
        if self.lane is not None:
            self.lane.write_acks()
        return 0

    cdef int forget_acks(self) except -1:
        """Nothing is noted any more: what lies where it was noted may go."""
        if self.lane is not None:
            self.lane.forget_acks()
        return 0

    cdef bytes acked(self, int number, const uint8_t *data, size_t size):
        """The framed answer to the acknowledgement that was noted as that number, and lies at
        `data`; None: it could not be written, and is for Python."""
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
        """Store in this lane until `settle`; False: it is another one already."""
        if self.lane is None:
            self.lane = lane
        return self.lane is lane

    cdef int settle(self) except -1:
        """What was stored becomes visible, and nothing is noted any more."""
        cdef Lane lane = self.lane
        self.lane = None
        if lane is not None:
            lane.forget_acks()
            lane.end_puts()
        return 0
