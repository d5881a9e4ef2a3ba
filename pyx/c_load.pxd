"""csrc/load.h, load_follow.h, load_frame.h and load_hist.h: the load generator."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from turbopump.pyx.c_traffic cimport trf_text

cdef extern from "load_hist.h" nogil:
    enum:
        LOAD_HIST_COUNTS
    struct load_hist:
        uint64_t *counts
        uint64_t total
        int64_t max
    void load_hist_record(load_hist *hist, int64_t value)
    int64_t load_hist_at(const load_hist *hist, double share)
    int64_t load_hist_upper(size_t index)

cdef extern from "load_frame.h" nogil:
    enum:
        LOAD_OPAQUE_BASE
        LOAD_OFFSET_DIGITS_MAX
        LOAD_ELEMENT_HEAD
    struct load_template:
        uint32_t at
        uint32_t size
        uint32_t opaque_at
        uint32_t born_at
        uint32_t keys_at
        uint32_t unique_at
        uint32_t offset_at
        uint32_t codec
    struct load_body:
        const uint8_t *bytes
        size_t size
        size_t unique_at
        size_t stride
        size_t count
    struct load_corpus:
        const uint8_t *bytes
        const int64_t *starts
        const int64_t *ends
        uint64_t count
        uint64_t next
        const uint8_t *element
        size_t element_size
        size_t unique_at
        uint32_t per_send
    struct load_due:
        uint32_t at
        int64_t first_ms
        int64_t spread_ms
    struct load_stamp:
        int64_t ms
    struct load_answer:
        int32_t code
        int32_t opaque
    struct load_hint:
        size_t opaque
    void load_stamp_set(load_stamp *stamp, int64_t epoch_ms)
    size_t load_put_send(uint8_t *out, const uint8_t *texts, const load_template *template,
                         const load_body *body, uint32_t slot, const load_stamp *stamp,
                         uint64_t *serial)
    size_t load_put_pull(uint8_t *out, const uint8_t *texts, const load_template *template,
                         uint32_t slot, int64_t queue_offset)
    size_t load_replay_size(const load_corpus *corpus)
    size_t load_put_replay(uint8_t *out, const uint8_t *texts, const load_template *template,
                           load_corpus *corpus, uint32_t slot, const load_stamp *stamp,
                           uint64_t *serial)
    int load_read(const uint8_t *frame, size_t size, load_hint *hint, load_answer *answer)
    int load_number(const load_answer *answer, const char *name, int64_t *value)
    size_t load_remark(const load_answer *answer, uint8_t *text, size_t room)
    int64_t load_count_records(const uint8_t *body, size_t size, int check_crc, int64_t *born_ms)

cdef extern from "load_follow.h" nogil:
    enum:
        LOAD_FOLLOW_NOTHING
        LOAD_FOLLOW_END
        LOAD_FOLLOW_ACKS
    struct load_follow:
        uint32_t kind
        trf_text text

cdef extern from "load_outage.h" nogil:
    struct load_outage:
        int64_t began_ns
        int64_t resumed_ns
        int64_t gap_ns
        uint64_t failed

cdef extern from "load.h" nogil:
    enum:
        LOAD_WINDOW_MAX
        LOAD_CODES
        LOAD_REMARK
        LOAD_SEND
        LOAD_PULL
        LOAD_KINDS
        LOAD_DONE
        LOAD_LATE
        LOAD_LOST
        LOAD_SYSTEM
        LOAD_CODE_UNANSWERED
        LOAD_CODE_LOST
        LOAD_CODE_MALFORMED
        LOAD_QUEUE_FAILED
        LOAD_AWAY
    struct load_code:
        int32_t code
        uint32_t remark_size
        uint64_t count
        uint8_t *remark
    struct load_stats:
        uint64_t all_requests
        uint64_t all_messages
        uint64_t requests
        uint64_t messages
        uint64_t bytes
        uint32_t code_count
        load_code *codes
        load_hist *total
        load_hist *interval
    struct load_row:
        uint64_t *messages
        int64_t *p50_ns
        int64_t *p99_ns
        int64_t *max_ns
    struct load_queue:
        int64_t next
        int64_t end
        uint32_t template
        uint32_t state
    struct load_connection:
        int fd
        uint32_t kind
        uint32_t window
        uint32_t first_target
        uint32_t target_count
        uint32_t next_target
        uint32_t free_count
        uint32_t *free
        int64_t *started_ns
        uint8_t *in_ "in"
        size_t in_size
        uint8_t *out
        size_t out_size
        size_t request_max
        uint32_t *sizes
        uint32_t lost
        int handed
    struct load:
        const uint8_t *texts
        const load_template *templates
        load_body body
        load_corpus corpus
        load_due due
        load_follow follow_up
        load_connection *connections
        load_queue *queues
        uint32_t *touched
        load_row *rows
        size_t row_max
        uint32_t connection_count
        uint32_t queue_count
        uint32_t messages_per_send
        int epoll_fd
        int follow
        int check_crc
        int reconnect
        int64_t interval_ns
        int64_t warmup_ns
        int64_t duration_ns
        int64_t drain_ns
        int64_t silence_ns
        uint32_t pause_us
        uint64_t limit
        uint64_t serial
        int stop
        int failure
        uint32_t lost_connections
        uint32_t away
        uint32_t outage_count
        load_outage *outages
        int64_t acked_ns
        uint64_t issued
        size_t row_count
        int64_t now_ns
        int64_t start_ns
        int64_t begin_ns
        int64_t end_ns
        load_stats *stats
        load_hist *delivery
    int load_run(load *load)
    int load_hand_over(load *load, uint32_t number, int fd)
    void load_drop(load *load, uint32_t number)
