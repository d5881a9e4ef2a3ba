#include <string.h>

#include "filter.h"

/* Whether the names, texts and entries of an op exist. */
static int is_sound(const struct flt_program *program, uint32_t at)
{
    const struct flt_op *op = &program->ops[at];
    struct flt_place place = op->operand.place;
    int is_jump = 0, has_text = 0, has_name = 0;
    uint8_t flag_max = 1;
    switch ((enum flt_opcode)op->op) {
    case FLT_IF_FALSE:
    case FLT_IF_TRUE:
    case FLT_IF_NULL:
    case FLT_BETWEEN_LOW:
        is_jump = 1;
        break;
    case FLT_TEXT:
    case FLT_CONTAINS:
    case FLT_STARTS:
    case FLT_ENDS:
        has_text = 1;
        break;
    case FLT_COMPARE:
        flag_max = FLT_GREATER_EQUAL;
        break;
    case FLT_COMPARE_INT:
    case FLT_COMPARE_LONG:
    case FLT_COMPARE_DOUBLE:
        flag_max = FLT_GREATER_EQUAL;
        has_name = 1;
        break;
    case FLT_COMPARE_TEXT:
        has_text = has_name = 1;
        flag_max = FLT_EQUAL;
        break;
    case FLT_COMPARE_BOOLEAN:
        has_name = 1;
        flag_max = FLT_EQUAL;
        break;
    case FLT_IN:
        has_name = 1;
        if (place.at > program->entry_count || op->arg > program->entry_count - place.at) {
            return 0;
        }
        break;
    case FLT_PROPERTY:
        has_name = 1;
        break;
    default:
        break;
    }
    return op->op < FLT_OPCODES && op->flag <= flag_max &&
           (!has_name || op->name < program->name_count) &&
           (!is_jump || (op->arg > at && op->arg <= program->op_count)) &&
           (!has_text || (place.at <= program->text_size &&
                          place.size <= program->text_size - place.at));
}

int flt_open(const uint8_t *bytes, size_t size, struct flt_program *program)
{
    uint32_t head[FLT_HEAD / 4];
    uint64_t whole;
    if (size < FLT_HEAD) {
        return 0;
    }
    memcpy(head, bytes, sizeof head);
    program->name_count = head[1];
    program->depth = head[2];
    program->op_count = head[3];
    program->entry_count = head[4];
    program->text_size = head[5];
    whole = FLT_HEAD + (uint64_t)program->op_count * FLT_OP +
            (uint64_t)program->entry_count * FLT_ENTRY + program->text_size;
    if (head[0] != FLT_MAGIC || whole != size || program->name_count > FLT_NAMES_MAX ||
        program->name_count > program->entry_count || program->depth > FLT_DEPTH_MAX ||
        program->depth == 0 || program->op_count > FLT_OPS_MAX) {
        return 0;
    }
    program->ops = (const struct flt_op *)(const void *)(bytes + FLT_HEAD);
    program->entries = (const struct flt_place *)(const void *)(program->ops + program->op_count);
    program->texts = (const uint8_t *)(program->entries + program->entry_count);
    program->name_marks = 0;
    for (uint32_t i = 0; i < program->entry_count; i++) {
        struct flt_place place = program->entries[i];
        if (place.at > program->text_size || place.size > program->text_size - place.at) {
            return 0;
        }
        if (i < program->name_count) {
            if (place.size == 0) {
                return 0;
            }
            program->name_marks |= flt_mark(program->texts + place.at, place.size);
        }
    }
    for (uint32_t at = 0; at < program->op_count; at++) {
        if (!is_sound(program, at)) {
            return 0;
        }
    }
    return 1;
}

int64_t flt_cost(const struct flt_program *program)
{
    int64_t cost = program->op_count;
    for (uint32_t at = 0; at < program->op_count; at++) {
        cost += program->ops[at].op == FLT_CONTAINS ? INT16_MAX / FLT_SEARCHED : 0;
    }
    return cost;
}
