/* The growing end of the commit log, shared by the engine and the native path, so that each number
 * exists once.
 *
 *     base            dispatched          end                    base + size
 *     +----------------+------------------+----------------------+
 *     | in queues, index| appended         | room                 |
 *     +----------------+------------------+----------------------+
 *
 * Used by one thread only. The memory is the mapping of the file that is written. */
#ifndef TURBOPUMP_TAIL_H
#define TURBOPUMP_TAIL_H

#include <stddef.h>
#include <stdint.h>

#include "descriptors.h"

struct log_tail {
    uint8_t *memory; /* NULL: no file is open */
    size_t size;     /* of the file */
    int64_t base;    /* log offset of its first byte */
    int64_t end;     /* log offset of the next record */
    int64_t last_store_timestamp_ms; /* latest store time of all records, epoch ms */
    int64_t dispatched; /* queues and index are complete up to this offset */
    int64_t dispatched_timestamp_ms; /* store time of the last record dispatched */
    int64_t limit; /* confirmOffset, where dispatch stops; INT64_MAX without replicas */
    uint32_t refusals;  /* reasons why nothing may be appended, as bits of commit_log.py; 0: none */
    /* Descriptors of records that are not dispatched; NULL: records are not described. A cut of
     * the log and another file forget all of them. */
    struct des_ring *descriptors;
};

#endif
