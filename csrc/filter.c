#define _GNU_SOURCE
#include "filter.h"

#include <string.h>

#include "filter_number.h"
#include "json_text.h"

enum { NAME_END = 1, VALUE_END = 2 };

/* A property's text with its conversions so far. */
enum known { UNREAD = 0, READ = 1, UNREADABLE = 2 };

struct slot {
    const uint8_t *at; /* NULL: the message has no such property */
    uint32_t size;
    uint8_t is_int, is_long, is_double; /* enum known: each text is converted once */
    int64_t whole;
    double real;
};

enum type { NOTHING, BOOLEAN, TEXT, INT, LONG, DOUBLE };

struct value {
    enum type type;
    struct slot *slot; /* of a text that is a property's value */
    union {
        int64_t whole; /* also of a boolean */
        double real;
        struct {
            const uint8_t *at;
            uint32_t size;
        } text;
    } as;
};

struct run {
    const struct flt_program *program;
    struct slot slots[FLT_NAMES_MAX];
    struct value stack[FLT_DEPTH_MAX];
    size_t depth;
    int64_t work;
};

static inline const uint8_t *find_byte(const uint8_t *at, const uint8_t *end, uint8_t wanted)
{
    for (; end - at >= 8; at += 8) {
        uint64_t word = json_word(at) ^ JSON_EACH(wanted);
        uint64_t marks = (word - JSON_EACH(1)) & ~word & JSON_EACH(0x80);
        if (marks != 0) {
            return at + json_first(marks);
        }
    }
    while (at < end && *at != wanted) {
        at++;
    }
    return at;
}

static void note(struct run *run, const uint8_t *name, size_t size, const uint8_t *value,
                 size_t value_size)
{
    const struct flt_program *program = run->program;
    for (uint32_t i = 0; i < program->name_count; i++) {
        struct flt_place place = program->entries[i];
        if (place.size == size && memcmp(program->texts + place.at, name, size) == 0) {
            run->slots[i].at = value;
            run->slots[i].size = (uint32_t)value_size;
            return;
        }
    }
}

/* Find the properties that the program names; of two with the same name the later counts. */
static void find_properties(struct run *run, const uint8_t *at, size_t size)
{
    const uint8_t *end = at + size;
    uint64_t names = run->program->name_marks;
    for (uint32_t i = 0; i < run->program->name_count; i++) {
        run->slots[i].at = NULL;
        run->slots[i].is_int = run->slots[i].is_long = run->slots[i].is_double = UNREAD;
    }
    while (at < end) {
        const uint8_t *stop = find_byte(at, end, VALUE_END);
        const uint8_t *middle = find_byte(at, stop, NAME_END);
        if (middle > at && middle + 1 < stop && names & flt_mark(at, (size_t)(middle - at))) {
            note(run, at, (size_t)(middle - at), middle + 1, (size_t)(stop - middle - 1));
            run->work += run->program->name_count / 4;
        }
        at = stop + 1;
        run->work += 1;
    }
    run->work += (int64_t)(size / 16);
}

/* Convert a text to the type of the other operand. */
static int as_whole(const struct value *text, enum type type, int64_t *value)
{
    int64_t low = type == INT ? INT32_MIN : INT64_MIN, high = type == INT ? INT32_MAX : INT64_MAX;
    struct slot *slot = text->slot;
    uint8_t *known;
    if (slot == NULL) {
        return num_whole(text->as.text.at, text->as.text.size, low, high, value);
    }
    known = type == INT ? &slot->is_int : &slot->is_long;
    if (*known == UNREAD) {
        *known = num_whole(slot->at, slot->size, low, high, value) ? READ : UNREADABLE;
        if (*known == READ) {
            slot->whole = *value;
        }
    }
    *value = slot->whole;
    return *known == READ;
}

static int as_real(const struct value *text, double *value)
{
    struct slot *slot = text->slot;
    if (slot == NULL) {
        return num_real(text->as.text.at, text->as.text.size, value);
    }
    if (slot->is_double == UNREAD) {
        slot->is_double = num_real(slot->at, slot->size, &slot->real) ? READ : UNREADABLE;
    }
    *value = slot->real;
    return slot->is_double == READ;
}

/* Boolean.valueOf: any text but "true" (in any case) is false. */
static int is_true(const struct value *text)
{
    static const char wanted[] = "true";
    int same = text->as.text.size == sizeof wanted - 1;
    for (size_t i = 0; same && i < sizeof wanted - 1; i++) {
        same = (text->as.text.at[i] | 0x20) == wanted[i];
    }
    return same;
}

static int is_same_text(const struct value *one, const uint8_t *at, size_t size)
{
    return one->as.text.size == size && memcmp(one->as.text.at, at, size) == 0;
}

static int compare_whole(int64_t left, int64_t right) { return (left > right) - (left < right); }

/* ComparisonExpression.__compare: *order gets its result. Returns 0 if it throws. */
static int compare_values(const struct value *left, const struct value *right, int *order)
{
    int64_t whole;
    double one, other;
    enum type lt = left->type, rt = right->type;
    *order = -1;
    if (lt == TEXT && (rt == INT || rt == LONG)) {
        if (!as_whole(left, rt, &whole)) {
            return 0;
        }
        *order = compare_whole(whole, right->as.whole);
    } else if ((lt == INT || lt == LONG) && rt == TEXT) {
        if (!as_whole(right, lt, &whole)) {
            return 0;
        }
        *order = compare_whole(left->as.whole, whole);
    } else if (lt == TEXT && rt == BOOLEAN) {
        *order = compare_whole(is_true(left), right->as.whole);
    } else if (lt == BOOLEAN || rt == BOOLEAN) {
        if (lt == BOOLEAN && rt == TEXT) {
            return 0; /* Java casts the wrong side */
        }
        *order = lt == rt ? compare_whole(left->as.whole, right->as.whole) : -1;
    } else if (lt == DOUBLE || rt == DOUBLE || lt == TEXT) {
        one = lt == DOUBLE ? left->as.real : (double)left->as.whole;
        other = rt == DOUBLE ? right->as.real : (double)right->as.whole;
        if ((lt == TEXT && !as_real(left, &one)) || (rt == TEXT && !as_real(right, &other))) {
            return 0;
        }
        *order = num_compare_real(one, other);
    } else {
        *order = compare_whole(left->as.whole, right->as.whole);
    }
    return 1;
}

static enum flt_answer relate(enum flt_relation relation, int order)
{
    switch (relation) {
    case FLT_EQUAL:
        return order == 0 ? FLT_TRUE : FLT_FALSE;
    case FLT_LESS:
        return order < 0 ? FLT_TRUE : FLT_FALSE;
    case FLT_LESS_EQUAL:
        return order <= 0 ? FLT_TRUE : FLT_FALSE;
    case FLT_GREATER:
        return order > 0 ? FLT_TRUE : FLT_FALSE;
    default:
        return order >= 0 ? FLT_TRUE : FLT_FALSE;
    }
}

static enum flt_answer compare(enum flt_relation relation, const struct value *left,
                               const struct value *right)
{
    int order;
    if (relation == FLT_EQUAL) {
        if (left->type == NOTHING) {
            return right->type == NOTHING ? FLT_TRUE : FLT_NULL_ANSWER;
        }
        if (right->type == NOTHING) {
            return FLT_FALSE;
        }
        if (left->type == TEXT && right->type == TEXT) {
            return is_same_text(left, right->as.text.at, right->as.text.size) ? FLT_TRUE
                                                                              : FLT_FALSE;
        }
    } else if (left->type == NOTHING || right->type == NOTHING) {
        return FLT_NULL_ANSWER;
    }
    return compare_values(left, right, &order) ? relate(relation, order) : FLT_ERROR;
}

static struct value load(struct run *run, uint32_t name)
{
    struct value value = {.type = NOTHING};
    struct slot *slot = &run->slots[name];
    if (slot->at != NULL) {
        value.type = TEXT;
        value.slot = slot;
        value.as.text.at = slot->at;
        value.as.text.size = slot->size;
    }
    return value;
}

static struct value truth(enum flt_answer answer)
{
    struct value value = {.type = answer == FLT_NULL_ANSWER ? NOTHING : BOOLEAN};
    value.as.whole = answer == FLT_TRUE;
    return value;
}

static enum flt_answer answer_of(const struct value *value)
{
    return value->type != BOOLEAN ? FLT_NULL_ANSWER : value->as.whole ? FLT_TRUE : FLT_FALSE;
}

/* The constant that an op pushes, or compares with a property. */
static struct value constant(const struct run *run, const struct flt_op *op, enum type type)
{
    struct value value = {.type = type};
    if (type == TEXT) {
        value.as.text.at = run->program->texts + op->operand.place.at;
        value.as.text.size = op->operand.place.size;
    } else if (type == DOUBLE) {
        value.as.real = op->operand.real;
    } else {
        value.as.whole = op->operand.whole;
    }
    return value;
}

static enum flt_answer is_in(const struct run *run, const struct flt_op *op, struct value value)
{
    const struct flt_place *entries = run->program->entries + op->operand.place.at;
    size_t low = 0, high = op->arg;
    if (value.type != TEXT) {
        return FLT_NULL_ANSWER;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct flt_place place = entries[middle];
        int order = place.size == value.as.text.size
                        ? memcmp(run->program->texts + place.at, value.as.text.at, place.size)
                        : (place.size > value.as.text.size) - (place.size < value.as.text.size);
        if (order == 0) {
            return op->flag ? FLT_FALSE : FLT_TRUE;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return op->flag ? FLT_TRUE : FLT_FALSE;
}

static enum flt_answer search(struct run *run, const struct flt_op *op, const struct value *value)
{
    const uint8_t *wanted = run->program->texts + op->operand.place.at, *at;
    size_t size = op->operand.place.size, room;
    int is_there;
    if (value->type != TEXT || size == 0) {
        return FLT_FALSE;
    }
    at = value->as.text.at;
    room = value->as.text.size;
    if (size > room) {
        is_there = 0;
    } else if (op->op == FLT_STARTS) {
        is_there = memcmp(at, wanted, size) == 0;
    } else if (op->op == FLT_ENDS) {
        is_there = memcmp(at + room - size, wanted, size) == 0;
    } else {
        is_there = memmem(at, room, wanted, size) != NULL;
        run->work += (int64_t)(room / FLT_SEARCHED);
    }
    return is_there != op->flag ? FLT_TRUE : FLT_FALSE;
}

static struct value negated(struct value value)
{
    if (value.type == INT || value.type == LONG) {
        value.as.whole = (int64_t)(0 - (uint64_t)value.as.whole);
    } else if (value.type == DOUBLE) {
        value.as.real = -value.as.real;
    } else {
        value.type = NOTHING;
    }
    return value;
}

static enum flt_answer both(enum flt_answer one, enum flt_answer other)
{
    if (one == FLT_FALSE || other == FLT_FALSE) {
        return FLT_FALSE;
    }
    return one == FLT_TRUE && other == FLT_TRUE ? FLT_TRUE : FLT_NULL_ANSWER;
}

static enum flt_answer either(enum flt_answer one, enum flt_answer other)
{
    if (one == FLT_TRUE || other == FLT_TRUE) {
        return FLT_TRUE;
    }
    return one == FLT_FALSE && other == FLT_FALSE ? FLT_FALSE : FLT_NULL_ANSWER;
}

static enum flt_answer opposite(enum flt_answer one)
{
    return one == FLT_TRUE ? FLT_FALSE : one == FLT_FALSE ? FLT_TRUE : FLT_NULL_ANSWER;
}

enum { GOES_ON = 0, JUMPS = 1, FAILS = 2 };

static int push(struct run *run, struct value value)
{
    if (run->depth >= run->program->depth) {
        return FAILS;
    }
    run->stack[run->depth++] = value;
    return GOES_ON;
}

static int push_answer(struct run *run, enum flt_answer answer)
{
    return answer == FLT_ERROR ? FAILS : push(run, truth(answer));
}

static int replace(struct run *run, size_t count, enum flt_answer answer)
{
    run->depth -= count;
    return push_answer(run, answer);
}

/* Both ops have their operands on the stack. */
static int between(struct run *run, const struct flt_op *op)
{
    struct value *top = &run->stack[run->depth - 1];
    enum flt_answer low, high;
    if (op->op == FLT_BETWEEN_LOW) {
        low = compare(op->flag ? FLT_LESS : FLT_GREATER_EQUAL, top - 1, top);
        if (low == (op->flag ? FLT_TRUE : FLT_FALSE)) {
            return replace(run, 2, low) == GOES_ON ? JUMPS : FAILS;
        }
        return replace(run, 1, low);
    }
    high = compare(op->flag ? FLT_GREATER : FLT_LESS_EQUAL, top - 2, top);
    low = answer_of(top - 1);
    if (high == FLT_ERROR) {
        return FAILS;
    }
    return replace(run, 3, op->flag ? either(low, high) : both(low, high));
}

/* Ops that begin an expression's value. */
static int begin(struct run *run, const struct flt_op *op)
{
    static const enum type TYPES[FLT_OPCODES] = {
        [FLT_TEXT] = TEXT,
        [FLT_INT] = INT,
        [FLT_LONG] = LONG,
        [FLT_DOUBLE] = DOUBLE,
        [FLT_COMPARE_INT] = INT,
        [FLT_COMPARE_LONG] = LONG,
        [FLT_COMPARE_DOUBLE] = DOUBLE,
        [FLT_COMPARE_TEXT] = TEXT,
        [FLT_COMPARE_BOOLEAN] = BOOLEAN,
    };
    struct value left, right;
    switch ((enum flt_opcode)op->op) {
    case FLT_PROPERTY:
        return push(run, load(run, op->name));
    case FLT_NULL:
        return push_answer(run, FLT_NULL_ANSWER);
    case FLT_BOOLEAN:
        return push_answer(run, op->flag ? FLT_TRUE : FLT_FALSE);
    case FLT_IN:
        return push_answer(run, is_in(run, op, load(run, op->name)));
    case FLT_COMPARE_INT:
    case FLT_COMPARE_LONG:
    case FLT_COMPARE_DOUBLE:
    case FLT_COMPARE_TEXT:
    case FLT_COMPARE_BOOLEAN:
        left = load(run, op->name);
        right = constant(run, op, TYPES[op->op]);
        return push_answer(run, compare((enum flt_relation)op->flag, &left, &right));
    default:
        return push(run, constant(run, op, TYPES[op->op]));
    }
}

/* Ops whose operands are on the stack. */
static int go_on(struct run *run, const struct flt_op *op)
{
    struct value *top = &run->stack[run->depth - 1];
    switch ((enum flt_opcode)op->op) {
    case FLT_CAST:
        return top->type == NOTHING || top->type == BOOLEAN ? GOES_ON : replace(run, 1, FLT_FALSE);
    case FLT_NOT:
        return replace(run, 1, opposite(answer_of(top)));
    case FLT_NEGATE:
        *top = negated(*top);
        return GOES_ON;
    case FLT_IF_FALSE:
        return answer_of(top) == FLT_FALSE ? JUMPS : GOES_ON;
    case FLT_IF_TRUE:
        return answer_of(top) == FLT_TRUE ? JUMPS : GOES_ON;
    case FLT_IF_NULL:
        return top->type == NOTHING ? JUMPS : GOES_ON;
    case FLT_AND:
        return replace(run, 2, both(answer_of(top - 1), answer_of(top)));
    case FLT_OR:
        return replace(run, 2, either(answer_of(top - 1), answer_of(top)));
    case FLT_COMPARE:
        return replace(run, 2, compare((enum flt_relation)op->flag, top - 1, top));
    case FLT_IS_NULL:
        return replace(run, 1, top->type == NOTHING ? FLT_TRUE : FLT_FALSE);
    case FLT_CONTAINS:
    case FLT_STARTS:
    case FLT_ENDS:
        return replace(run, 1, search(run, op, top));
    case FLT_BETWEEN_LOW:
    case FLT_BETWEEN_HIGH:
        return between(run, op);
    default:
        return FAILS;
    }
}

/* Number of values that an op takes from the stack. */
static const uint8_t NEEDS[FLT_OPCODES] = {
    [FLT_CAST] = 1,     [FLT_NOT] = 1,      [FLT_NEGATE] = 1,  [FLT_IF_FALSE] = 1,
    [FLT_IF_TRUE] = 1,  [FLT_IF_NULL] = 1,  [FLT_AND] = 2,     [FLT_OR] = 2,
    [FLT_COMPARE] = 2,  [FLT_IS_NULL] = 1,  [FLT_CONTAINS] = 1, [FLT_STARTS] = 1,
    [FLT_ENDS] = 1,     [FLT_BETWEEN_LOW] = 2, [FLT_BETWEEN_HIGH] = 3,
};

enum flt_answer flt_evaluate(const struct flt_program *program, const uint8_t *properties,
                             size_t size, int64_t *work)
{
    struct run run;
    enum flt_answer answer = FLT_ERROR;
    run.program = program;
    run.depth = 0;
    run.work = 0;
    find_properties(&run, properties, size);
    for (uint32_t at = 0; at < program->op_count;) {
        const struct flt_op *op = &program->ops[at];
        int step = FAILS;
        run.work++;
        if (run.depth >= NEEDS[op->op]) {
            step = NEEDS[op->op] == 0 ? begin(&run, op) : go_on(&run, op);
        }
        if (step == FAILS) {
            run.depth = 0;
            break;
        }
        at = step == JUMPS ? op->arg : at + 1;
    }
    *work += run.work;
    if (run.depth == 1) {
        answer = run.stack[0].type == NOTHING ? FLT_NULL_ANSWER
                 : answer_of(&run.stack[0]) == FLT_TRUE ? FLT_TRUE
                                                        : FLT_FALSE;
    }
    return answer;
}
