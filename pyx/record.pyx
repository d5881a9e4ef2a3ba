# cython: auto_pickle=False
"""Commit log records: encode into a region, decode one, scan many.

Owns nothing; the caller owns positions, offsets and files. It must never choose a record's place,
nor decide the consequences of a damaged one.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from turbopump.pyx.c_record cimport *
from turbopump.pyx.region cimport Region

cdef extern from "bytes.h" nogil:
    int32_t be_i32(const uint8_t *at)

V1, V2, BLANK = REC_MAGIC_V1, REC_MAGIC_V2, REC_BLANK_MAGIC
FILLER_SIZE = REC_FILLER
MAX_PROPERTIES = REC_MAX_PROPERTIES

OK = <int>REC_OK
BLANK_FOUND = <int>REC_BLANK
BAD_RECORD = <int>REC_BAD
SHORT = <int>REC_SHORT
NO_ROOM = <int>REC_NO_ROOM

(
    POSITION, SIZE, MAGIC, BODY_CRC, QUEUE_ID, FLAG, QUEUE_OFFSET, PHYSICAL_OFFSET, SYS_FLAG,
    BORN_TIMESTAMP_MS, BORN_HOST_AT, BORN_HOST_SIZE, STORE_TIMESTAMP_MS, STORE_HOST_AT,
    STORE_HOST_SIZE, RECONSUME_TIMES, PREPARED_TRANSACTION_OFFSET, BODY_AT, BODY_SIZE, TOPIC_AT,
    TOPIC_SIZE, PROPERTIES_AT, PROPERTIES_SIZE, CRC_OK,
) = range(REC_ROW_WIDTH)
ROW_WIDTH = REC_ROW_WIDTH


cdef object text_of(rec_reason reason):
    return rec_reason_text(reason).decode("ascii")


cdef class Record:
    """A decoded record; texts and hosts are raw bytes."""

    cdef readonly int64_t log_offset, queue_offset, physical_offset
    cdef readonly int64_t born_timestamp_ms, store_timestamp_ms, prepared_transaction_offset
    cdef readonly int32_t size, magic, body_crc, queue_id, flag, sys_flag, reconsume_times
    cdef readonly bytes born_host, store_host, body, topic, properties
    cdef readonly bint crc_ok


cdef bytes copy(const uint8_t *memory, int64_t at, int64_t size):
    return (<const char *>memory + at)[:size]


def decode(
    Region region not None, Py_ssize_t position, Py_ssize_t end, int64_t log_base=0
) -> Record:
    """Decode one record; raises ValueError with the reason."""
    cdef object held = region.buffer
    cdef const uint8_t *at = region.reading(position, end - position)
    cdef rec_row row
    cdef rec_reason reason
    cdef Record record = Record.__new__(Record)
    rec_parse(at, 0, <size_t>(end - position), REC_CHECK_BODY, &row, &reason)
    if reason != REC_FINE and reason != REC_BAD_BODY_CRC:
        raise ValueError(text_of(reason))
    record.log_offset = log_base + position
    record.size, record.magic = <int32_t>row.size, <int32_t>row.magic
    record.body_crc, record.flag = <int32_t>row.body_crc, <int32_t>row.flag
    record.queue_id, record.sys_flag = <int32_t>row.queue_id, <int32_t>row.sys_flag
    record.queue_offset = row.queue_offset
    record.physical_offset = row.physical_offset
    record.born_timestamp_ms = row.born_timestamp_ms
    record.born_host = copy(at, row.born_host_at, row.born_host_size)
    record.store_timestamp_ms = row.store_timestamp_ms
    record.store_host = copy(at, row.store_host_at, row.store_host_size)
    record.reconsume_times = <int32_t>row.reconsume_times
    record.prepared_transaction_offset = row.prepared_transaction_offset
    record.body = copy(at, row.body_at, row.body_size)
    record.topic = copy(at, row.topic_at, row.topic_size)
    record.properties = copy(at, row.properties_at, row.properties_size)
    record.crc_ok = row.crc_ok != 0
    return record


def record_size(
    Py_ssize_t topic_size, Py_ssize_t body_size, Py_ssize_t properties_size,
    Py_ssize_t born_host_size, Py_ssize_t store_host_size, int32_t version,
) -> int:
    """Return the size of a record with such fields (without CRC property); ValueError if no record
    fits."""
    cdef rec_fields fields
    cdef rec_reason reason
    cdef size_t size
    memset(&fields, 0, sizeof(fields))
    fields.topic_size = <size_t>topic_size
    fields.body_size = <size_t>body_size
    fields.properties_size = <size_t>properties_size
    fields.born_host_size = <size_t>born_host_size
    fields.store_host_size = <size_t>store_host_size
    fields.magic = version
    if rec_measure(&fields, &size, &reason) != REC_OK:
        raise ValueError(text_of(reason))
    return size


cdef void put_text(const uint8_t **at, size_t *size, bytes text) noexcept:
    at[0] = <const uint8_t *><const char *>text
    size[0] = <size_t>len(text)


def append(
    Region region not None, Py_ssize_t position, Py_ssize_t limit, *, int64_t log_offset,
    bytes topic not None, object body, bytes properties not None, int32_t queue_id, int32_t flag,
    int64_t queue_offset, int32_t sys_flag, int64_t born_timestamp_ms, bytes born_host not None,
    int64_t store_timestamp_ms, bytes store_host not None, int32_t reconsume_times,
    int64_t prepared_transaction_offset, int32_t version, bint property_crc=False,
) -> int:
    """Encode one record at position; returns its size, or -NO_ROOM (nothing written then)."""
    cdef rec_fields fields
    cdef rec_reason reason
    cdef rec_status status
    cdef size_t size
    cdef uint8_t *at
    cdef Py_buffer view
    put_text(&fields.topic, &fields.topic_size, topic)
    put_text(&fields.properties, &fields.properties_size, properties)
    put_text(&fields.born_host, &fields.born_host_size, born_host)
    put_text(&fields.store_host, &fields.store_host_size, store_host)
    fields.log_offset = log_offset
    fields.queue_offset = queue_offset
    fields.born_timestamp_ms = born_timestamp_ms
    fields.store_timestamp_ms = store_timestamp_ms
    fields.prepared_transaction_offset = prepared_transaction_offset
    fields.magic = version
    fields.queue_id = queue_id
    fields.flag = flag
    fields.sys_flag = sys_flag
    fields.reconsume_times = reconsume_times
    fields.property_crc = property_crc
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        at = region.writing(position, limit - position)
        fields.body = <const uint8_t *>view.buf
        fields.body_size = <size_t>view.len
        status = rec_encode(at, 0, <size_t>(limit - position), &fields, &size, &reason)
    finally:
        PyBuffer_Release(&view)
    if status == REC_BAD:
        raise ValueError(text_of(reason))
    return <Py_ssize_t>size if status == REC_OK else -<int>status


def append_batch(
    Region region not None, Py_ssize_t position, Py_ssize_t limit, *, int64_t log_offset,
    bytes topic not None, object batch, int32_t queue_id, int64_t queue_offset, int32_t sys_flag,
    int64_t born_timestamp_ms, bytes born_host not None, int64_t store_timestamp_ms,
    bytes store_host not None, int32_t reconsume_times, int32_t version, bint property_crc=False,
) -> list[int] | int:
    """Encode the elements of a batch body (remoting.md 9.4) as consecutive records, all or none."""
    cdef object held = region.buffer
    cdef rec_fields common
    cdef rec_reason reason
    cdef rec_status status
    cdef size_t count
    cdef uint8_t *at
    cdef Py_buffer view
    cdef list sizes = []
    memset(&common, 0, sizeof(common))
    put_text(&common.topic, &common.topic_size, topic)
    put_text(&common.born_host, &common.born_host_size, born_host)
    put_text(&common.store_host, &common.store_host_size, store_host)
    common.log_offset = log_offset
    common.queue_offset = queue_offset
    common.born_timestamp_ms = born_timestamp_ms
    common.store_timestamp_ms = store_timestamp_ms
    common.magic = version
    common.queue_id = queue_id
    common.sys_flag = sys_flag
    common.reconsume_times = reconsume_times
    common.property_crc = property_crc
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        at = region.writing(position, limit - position)
        status = rec_encode_batch(at, 0, <size_t>(limit - position), <const uint8_t *>view.buf,
                                  <size_t>view.len, &common, &count, &reason)
    finally:
        PyBuffer_Release(&view)
    if status == REC_BAD:
        raise ValueError(text_of(reason))
    if status != REC_OK:
        return -<int>status
    for _ in range(<Py_ssize_t>count):
        sizes.append(be_i32(at))
        at += be_i32(at)
    return sizes


def count_batch(object batch) -> tuple[int, int]:
    """Count the elements of a batch body, and the bytes of their bodies and properties."""
    cdef rec_reason reason
    cdef rec_status status
    cdef size_t count, payload
    cdef Py_buffer view
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        status = rec_count_batch(<const uint8_t *>view.buf, <size_t>view.len, &count, &payload,
                                 &reason)
    finally:
        PyBuffer_Release(&view)
    if status != REC_OK:
        raise ValueError(text_of(reason))
    return count, payload


def append_filler(Region region not None, Py_ssize_t position, Py_ssize_t limit) -> None:
    """Write the end-of-file filler. Raises ValueError if fewer than FILLER_SIZE bytes are left."""
    cdef uint8_t *at = region.writing(position, limit - position)
    if rec_encode_filler(at, 0, <size_t>(limit - position)) != REC_OK:
        raise ValueError(f"no filler fits {limit - position} bytes")


cdef class ScanResult:
    """Result of a scan: its rows, and the position and reason of its end."""

    cdef readonly int status
    cdef readonly Py_ssize_t position, count
    cdef readonly object rows
    cdef readonly str reason


cdef ScanResult run(Region region, Py_ssize_t position, Py_ssize_t end, int checks,
                    rec_row *rows, size_t max_rows):
    cdef ScanResult result = ScanResult.__new__(ScanResult)
    cdef const uint8_t *memory
    cdef size_t at = <size_t>position, count
    cdef rec_reason reason
    cdef object held = region.buffer  # outlives a release without the GIL
    region.reading(position, end - position)
    memory = region.memory
    with nogil:
        result.status = rec_scan(memory, &at, <size_t>end, checks, rows, max_rows, &count, &reason)
    result.position = <Py_ssize_t>at
    result.count = <Py_ssize_t>count
    result.reason = text_of(reason) if result.status == REC_BAD else ""
    return result


def scan(
    Region region not None, Py_ssize_t position, Py_ssize_t end, Py_ssize_t max_rows=4096,
    bint check_crc=True,
) -> ScanResult:
    """Decode all complete records in [position, end) without the GIL."""
    cdef Py_ssize_t room = max(1, min(max_rows, max(0, end - position) // REC_MIN + 1))
    cdef bytearray memory = bytearray(room * sizeof(rec_row))
    cdef ScanResult result = run(
        region, position, end, REC_CHECK_BODY if check_crc else REC_CHECK_NOTHING,
        <rec_row *><char *>memory, <size_t>max(0, min(room, max_rows)),
    )
    flat = memoryview(memory)[:result.count * sizeof(rec_row)]
    # A memoryview cannot have a zero in its shape: without rows it is flat and empty.
    result.rows = flat.cast("q", (result.count, REC_ROW_WIDTH)) if result.count else flat.cast("q")
    return result


def validate(
    Region region not None, Py_ssize_t position, Py_ssize_t end, bint check_crc=True,
    bint check_property_crc=False,
) -> ScanResult:
    """Scan to the end of the range without rows; see the stub."""
    cdef int checks = (REC_CHECK_BODY if check_crc else 0) | (
        REC_CHECK_PROPERTY if check_property_crc else 0
    )
    cdef ScanResult result = run(region, position, end, checks, NULL, <size_t>-1)
    result.rows = memoryview(b"").cast("q")
    return result
