"""The codec of the traffic requests, for tests and benchmarks.

Owns nothing. It must never be part of the path it tests: the connection calls csrc/traffic.h
itself. Each input is copied to a block of exactly its size, so that a sanitizer detects a read of
one byte too many.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from turbopump.pyx.c_traffic cimport *

PLAIN = <int>TRF_PLAIN
OTHER = <int>TRF_OTHER
BAD = <int>TRF_BAD
CODES = (
    TRF_SEND_MESSAGE, TRF_PULL_MESSAGE, TRF_SEND_MESSAGE_V2, TRF_SEND_BATCH_MESSAGE,
    TRF_END_TRANSACTION, TRF_ACK_MESSAGE, TRF_POP_MESSAGE,
)
SPECIAL = {
    "DELAY": TRF_DELAY, "TIMER": TRF_TIMER, "TRAN_MSG": TRF_TRAN_MSG, "INNER_NUM": TRF_INNER_NUM,
    "POP_CK": TRF_POP_CK, "OWN": TRF_OWN, "LIGHT": TRF_LIGHT,
}
assert sum(SPECIAL.values()) == TRF_SPECIAL


cdef uint8_t *_block(Py_ssize_t size) except? NULL:
    cdef uint8_t *block = <uint8_t *>malloc(<size_t>size)
    if block == NULL and size > 0:
        raise MemoryError
    return block


cdef uint8_t *_copy(bytes data) except? NULL:
    cdef uint8_t *block = _block(len(data))
    if len(data) > 0:
        memcpy(block, <const char *>data, <size_t>len(data))
    return block


cdef object _text(trf_text text):
    return None if text.at == NULL else (<const char *>text.at)[:text.size]


cdef trf_text _view(bytes data):
    cdef trf_text text
    text.at = NULL
    text.size = 0
    if data is not None:
        text.at = <const uint8_t *><const char *>data
        text.size = <uint32_t>len(data)
    return text


def decode(bytes frame not None, Py_ssize_t scratch_size=-1) -> tuple[int, dict[str, object]]:
    """Decode one whole frame: (verdict, members); members only if PLAIN, texts as bytes or None.

    "header" has the members of the header's class. `scratch_size` is the room for unescaped texts
    in bytes, by default the frame's size.
    """
    cdef trf_request request
    cdef trf_verdict verdict
    cdef uint8_t *copy = NULL
    cdef uint8_t *scratch = NULL
    scratch_size = len(frame) if scratch_size < 0 else scratch_size
    try:
        copy = _copy(frame)
        scratch = _block(scratch_size)
        verdict = trf_decode(copy, <size_t>len(frame), scratch, <size_t>scratch_size, &request)
        return <int>verdict, _members(&request) if verdict == TRF_PLAIN else {}
    finally:
        free(copy)
        free(scratch)


cdef dict _members(trf_request *request):
    return {
        "code": request.code, "opaque": request.opaque, "flag": request.flag,
        "version": request.version, "codec": request.codec, "language": request.language,
        "is_oneway": bool(request.is_oneway), "body": _text(request.body),
        "header": _header(request),
    }


cdef dict _header(trf_request *request):
    cdef const uint8_t *base = <const uint8_t *>request
    cdef const trf_member *member
    cdef dict found = {}
    cdef int number
    for number in range(TRF_MEMBERS):
        member = &trf_members[number]
        if member.kind == request.kind:
            found[member.name.decode()] = _value(base, member)
    return found


cdef object _value(const uint8_t *base, const trf_member *member):
    cdef const uint8_t *at = base + member.place
    if member.type == TRF_TEXT:
        return _text((<const trf_text *>at)[0])
    if member.flag and not base[member.flag]:
        return None
    if member.type == TRF_INT64:
        return (<const int64_t *>at)[0]
    return (<const int32_t *>at)[0] if member.type == TRF_INT32 else bool(at[0])


def decode_repeatedly(bytes frame not None, Py_ssize_t rounds) -> int:
    """Decode a frame `rounds` times without Python in between; returns the number of PLAIN
    verdicts."""
    cdef trf_request request
    cdef const uint8_t *at = <const uint8_t *><const char *>frame
    cdef size_t size = <size_t>len(frame)
    cdef bytearray room = bytearray(len(frame))
    cdef uint8_t *scratch = <uint8_t *><char *>room
    cdef Py_ssize_t plain = 0
    cdef Py_ssize_t round_
    with nogil:
        for round_ in range(rounds):
            plain += trf_decode(at, size, scratch, size, &request) == TRF_PLAIN
    return plain


def scan_properties(bytes text) -> tuple[bool, dict[str, object]]:
    """Scan a send's properties (None: missing); returns (whether they are plain, values found)."""
    cdef trf_properties found
    cdef uint8_t *copy = NULL
    cdef trf_text view = _view(text)
    try:
        if text is not None:
            copy = _copy(text)
            view.at = copy
        plain = trf_scan_properties(view, &found)
        return bool(plain), _found(&found)
    finally:
        free(copy)


cdef dict _found(const trf_properties *found):
    return {
        "names": found.names, "canonical": bool(found.canonical),
        "unended": bool(found.unended), "waits": bool(found.waits),
        "unique_key": _text(found.unique_key), "keys": _text(found.keys),
        "tags": _text(found.tags),
        "timer": _text(found.timer) if found.names & TRF_TIMER else None,
        "real_topic": _text(found.real_topic) if found.names & TRF_REAL_TOPIC else None,
        "real_queue": _text(found.real_queue) if found.names & TRF_REAL_QID else None,
        "producer_group": _text(found.producer_group) if found.names & TRF_PGROUP else None,
        "is_half": bool(found.is_half) if found.names & TRF_TRAN_MSG else None,
    }


def match(bytes learned not None, bytes frame not None) -> tuple[bool, object]:
    """Learn a send's header and match another frame; see the stub."""
    cdef trf_template *template = NULL
    cdef trf_request request
    cdef trf_properties found
    cdef uint8_t *copy = NULL
    cdef uint8_t *scratch = NULL
    cdef bint is_learned
    try:
        template = <trf_template *>_block(sizeof(trf_template))
        copy = _copy(learned)
        scratch = _block(max(TRF_HEADER_MAX, len(learned)))
        is_learned = trf_decode(copy, <size_t>len(learned), scratch, <size_t>len(learned),
                                &request) == TRF_PLAIN and trf_learn(template, copy, &request)
        # The template must not point to these bytes.
        free(copy)
        free(scratch)
        copy = scratch = NULL
        if not is_learned:
            return False, None
        copy = _copy(frame)
        scratch = _block(TRF_HEADER_MAX)
        if not trf_match(template, copy, <size_t>len(frame), scratch, &found):
            return True, None
        return True, (_members(&template.request), _found(&found))
    finally:
        free(template)
        free(copy)
        free(scratch)


def match_repeatedly(bytes frame not None, Py_ssize_t rounds) -> int:
    """Match a frame that was learned `rounds` times; returns the number of matches."""
    cdef trf_template template
    cdef trf_request request
    cdef trf_properties found
    cdef const uint8_t *at = <const uint8_t *><const char *>frame
    cdef size_t size = <size_t>len(frame)
    cdef bytearray room = bytearray(max(TRF_HEADER_MAX, len(frame)))
    cdef uint8_t *scratch = <uint8_t *><char *>room
    cdef Py_ssize_t matched = 0
    cdef Py_ssize_t round_
    if trf_decode(at, size, scratch, <size_t>len(room), &request) != TRF_PLAIN:
        return 0
    if not trf_learn(&template, at, &request):
        return 0
    with nogil:
        for round_ in range(rounds):
            matched += trf_match(&template, at, size, scratch, &found)
    return matched


def scan_repeatedly(bytes text not None, Py_ssize_t rounds) -> int:
    """Scan properties `rounds` times; returns the number of plain verdicts."""
    cdef trf_properties found
    cdef trf_text view = _view(text)
    cdef Py_ssize_t plain = 0
    cdef Py_ssize_t round_
    with nogil:
        for round_ in range(rounds):
            plain += trf_scan_properties(view, &found)
    return plain


def send_reply(
    int code, int opaque, int queue_id, int64_t queue_offset, list log_offsets not None,
    bytes store_host not None, bytes transaction_id, bytes batch_id, bytes region not None,
    bint trace_on, Py_ssize_t missing_room=0, Py_ssize_t rounds=1, bytes recall_handle=None
) -> bytes:
    """Return the frame of a send's answer, b"" if the writer refused; see the stub."""
    cdef trf_send_answer answer
    cdef int64_t *offsets = NULL
    cdef uint8_t *out = NULL
    cdef size_t size = 0
    cdef size_t room
    cdef Py_ssize_t i
    try:
        offsets = <int64_t *>_block(len(log_offsets) * <Py_ssize_t>sizeof(int64_t))
        for i in range(len(log_offsets)):
            offsets[i] = log_offsets[i]
        answer.code, answer.opaque, answer.queue_id = code, opaque, queue_id
        answer.queue_offset, answer.trace_on = queue_offset, trace_on
        answer.log_offsets = offsets
        answer.count = <size_t>len(log_offsets)
        answer.store_host = <const uint8_t *><const char *>store_host
        answer.store_host_size = <size_t>len(store_host)
        answer.transaction_id, answer.batch_id = _view(transaction_id), _view(batch_id)
        answer.recall_handle = _view(recall_handle)
        answer.region = _view(region)
        room = trf_send_reply_room(&answer) - <size_t>missing_room
        out = _block(<Py_ssize_t>room)
        for i in range(rounds):
            size = trf_send_reply(out, room, &answer)
        return (<const char *>out)[:size]
    finally:
        free(offsets)
        free(out)


def pull_reply(
    int code, int opaque, bytes remark not None, int64_t suggest_which_broker_id,
    int64_t next_begin_offset, int64_t min_offset, int64_t max_offset, int topic_sys_flag,
    int group_sys_flag, Py_ssize_t body_size, Py_ssize_t missing_room=0
) -> bytes:
    """Return the frame of a pull's answer up to its body, b"" if the writer refused."""
    cdef trf_pull_answer answer
    cdef uint8_t *out = NULL
    cdef size_t size
    cdef size_t room
    answer.code, answer.opaque, answer.remark = code, opaque, _view(remark)
    answer.suggest_which_broker_id = suggest_which_broker_id
    answer.next_begin_offset = next_begin_offset
    answer.min_offset, answer.max_offset = min_offset, max_offset
    answer.topic_sys_flag, answer.group_sys_flag = topic_sys_flag, group_sys_flag
    answer.body_size = <size_t>body_size
    room = trf_pull_reply_room(&answer) - <size_t>missing_room
    out = _block(<Py_ssize_t>room)
    try:
        size = trf_pull_reply(out, room, &answer)
        return (<const char *>out)[:size]
    finally:
        free(out)
