#include "dispatch.h"

void dsp_put(struct dsp_table *table, enum dsp_list which, int32_t slot)
{
    struct dsp_slot *at = &table->slots[slot];
    struct dsp_ends *ends = &table->lists[which];
    if (at->listed & 1u << which) {
        return;
    }
    at->listed |= (uint8_t)(1u << which);
    at->next[which] = -1;
    if (ends->last < 0) {
        ends->first = slot;
    } else {
        table->slots[ends->last].next[which] = slot;
    }
    ends->last = slot;
}

/* Remove a slot of the list, whose predecessor is `before`, -1: it is the first. */
static void unlink_slot(struct dsp_table *table, enum dsp_list which, int32_t slot, int32_t before)
{
    struct dsp_slot *at = &table->slots[slot];
    struct dsp_ends *ends = &table->lists[which];
    if (before < 0) {
        ends->first = at->next[which];
    } else {
        table->slots[before].next[which] = at->next[which];
    }
    if (ends->last == slot) {
        ends->last = before;
    }
    at->listed &= (uint8_t)~(1u << which);
}

int32_t dsp_take(struct dsp_table *table, enum dsp_list which)
{
    int32_t slot = table->lists[which].first;
    if (slot >= 0) {
        unlink_slot(table, which, slot, -1);
    }
    return slot;
}

void dsp_drop(struct dsp_table *table, enum dsp_list which, int32_t slot)
{
    int32_t before = -1;
    if (!(table->slots[slot].listed & 1u << which)) {
        return;
    }
    for (int32_t at = table->lists[which].first; at != slot; at = table->slots[at].next[which]) {
        before = at;
    }
    unlink_slot(table, which, slot, before);
}

void dsp_note_arrival(struct dsp_table *table, int32_t slot)
{
    if (table->slots[slot].watched) {
        dsp_put(table, DSP_WOKEN, slot);
    }
    dsp_put(table, DSP_ARRIVED, slot);
}
