/* A filter over the properties of messages, compiled from an expression of SQL92 (RocketMQ:
 * filter/SelectorParser and its expressions), and its evaluation for one record.
 *
 * A program is one piece of bytes that net/wire/sql writes, little endian:
 *
 *     head      magic, names, depth, ops, entries, text bytes       24 bytes
 *     ops       op, flag, name, arg, operand                        16 bytes each
 *     entries   position and size of a text                          8 bytes each
 *     texts
 *
 * The first entries are the names of properties that the program reads; the others are members of
 * IN lists, each list in ascending order of (size, bytes). Jumps go forward only, so an evaluation
 * ends after at most as many steps as the program has ops.
 *
 * Values are null, true or false, a text, an int, a long or a double. If Java would throw, the
 * evaluation ends with FLT_ERROR at any depth; RocketMQ treats that message as not matched.
 *
 * flt_open checks a program, so that any bytes are either refused or safe to run. */
#ifndef TURBOPUMP_FILTER_H
#define TURBOPUMP_FILTER_H

#include <stddef.h>
#include <stdint.h>

enum {
    FLT_MAGIC = 0x31544C46, /* "FLT1" */
    FLT_HEAD = 24,
    FLT_OP = 16,
    FLT_ENTRY = 8,
    FLT_NAMES_MAX = 128,
    FLT_DEPTH_MAX = 512,
    FLT_OPS_MAX = 1 << 14,
    FLT_SEARCHED = 1 /* bytes searched for the cost of an op, at worst */
};

/* Brackets show the stack before and after an op. `arg` of a jump is the number of the next op. */
enum flt_opcode {
    FLT_PROPERTY = 0, /* [] -> [text or null]: property `name` */
    FLT_NULL,         /* [] -> [null] */
    FLT_BOOLEAN,      /* [] -> [flag] */
    FLT_TEXT,         /* [] -> [text]: operand is its position and size */
    FLT_INT,          /* [] -> [int] */
    FLT_LONG,         /* [] -> [long] */
    FLT_DOUBLE,       /* [] -> [double] */
    FLT_CAST,         /* [any] -> [boolean]: values but null and booleans are false */
    FLT_NOT,          /* [boolean] -> [boolean] */
    FLT_NEGATE,       /* [any] -> [number or null] */
    FLT_IF_FALSE,     /* [boolean] -> the same; jumps if false */
    FLT_IF_TRUE,      /* [boolean] -> the same; jumps if true */
    FLT_IF_NULL,      /* [any] -> the same; jumps if null */
    FLT_AND,          /* [boolean, boolean] -> [boolean] */
    FLT_OR,           /* [boolean, boolean] -> [boolean] */
    FLT_COMPARE,      /* [any, any] -> [boolean]: flag is an flt_relation */
    FLT_COMPARE_INT,  /* [] -> [boolean]: property `name` with an int */
    FLT_COMPARE_LONG,
    FLT_COMPARE_DOUBLE,
    FLT_COMPARE_TEXT,    /* FLT_EQUAL only */
    FLT_COMPARE_BOOLEAN, /* FLT_EQUAL only: with arg */
    FLT_IS_NULL,         /* [any] -> [boolean] */
    FLT_IN,              /* [] -> [boolean]: flag 1: NOT IN; arg entries from operand's first on */
    FLT_CONTAINS,        /* [any] -> [boolean]: flag 1: NOT; operand is the text */
    FLT_STARTS,
    FLT_ENDS,
    FLT_BETWEEN_LOW,  /* [v, low] -> [v, boolean], or [boolean] with a jump: flag 1: NOT */
    FLT_BETWEEN_HIGH, /* [v, boolean, high] -> [boolean] */
    FLT_OPCODES
};

enum flt_relation { FLT_EQUAL = 0, FLT_LESS, FLT_LESS_EQUAL, FLT_GREATER, FLT_GREATER_EQUAL };

enum flt_answer { FLT_FALSE = 0, FLT_TRUE = 1, FLT_NULL_ANSWER = 2, FLT_ERROR = 3 };

struct flt_place {
    uint32_t at, size; /* in the texts */
};

struct flt_op {
    uint8_t op, flag;
    uint16_t name;
    uint32_t arg;
    union {
        int64_t whole;
        double real;
        struct flt_place place;
    } operand;
};
_Static_assert(sizeof(struct flt_op) == FLT_OP, "an op as it lies in a program");

struct flt_program {
    const struct flt_op *ops;
    const struct flt_place *entries;
    const uint8_t *texts;
    uint32_t name_count, depth, op_count, entry_count, text_size;
    uint64_t name_marks; /* a bit for each name: most other properties lack it */
};

/* The bit of a name; it is not empty. */
static inline uint64_t flt_mark(const uint8_t *name, size_t size)
{
    return (uint64_t)1 << ((size + 7u * name[0] + 13u * name[size - 1]) & 63);
}

/* Check a program at an address that is a multiple of 8, and find its parts. Returns whether the
 * bytes are a valid program. The caller keeps the bytes. */
int flt_open(const uint8_t *bytes, size_t size, struct flt_program *program);

/* The greatest cost of an evaluation, with properties of the greatest length. */
int64_t flt_cost(const struct flt_program *program);

/* Evaluate for a properties text (`name 0x01 value 0x02 ...`, as rec_find_properties reads it). The
 * cost is added to *work, in units of some nanoseconds. */
enum flt_answer flt_evaluate(const struct flt_program *program, const uint8_t *properties,
                             size_t size, int64_t *work);

/* State for reading a queue with a filter: the data that cq_wish.matches needs. */
struct flt_span {
    const uint8_t *memory; /* of the log file that begins at `start`; NULL: removed */
    int64_t start;
};
enum { FLT_SPANS = 17 };
/* Cost limit of a read, some milliseconds; the record that exceeds it is the last one
 * examined. */
#define FLT_WORK_MAX (1 << 18)

struct flt_scan {
    const struct flt_program *program;
    int64_t file_size, log_end;
    int64_t work;
    int64_t lacking; /* the file whose lack ended the scan, else -1 */
    size_t recent;   /* the span used last */
    size_t span_count;
    struct flt_span spans[FLT_SPANS];
};

/* As cq_wish.matches, with a flt_scan. A unit whose record does not lie in the log matches: the
 * caller handles it. */
int flt_choose(void *scan, const uint8_t *units, size_t left);

/* Whether a reader with this filter receives the record of a queue unit at record[0:size): FLT_TRUE
 * only. Bytes that are no record of `size` bytes match: the caller reports them. */
int flt_matches(const struct flt_program *program, const uint8_t *record, size_t size,
                int64_t *work);

#endif
