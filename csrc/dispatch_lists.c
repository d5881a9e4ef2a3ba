#include "dispatch.h"

void dsp_forget_arrival(struct dsp_table *table, int32_t slot)
{
    int32_t before = -1, at = table->first_arrived;
    while (at >= 0 && at != slot) {
        before = at;
        at = table->slots[at].next_arrived;
    }
    if (at < 0) {
        return;
    }
    if (before < 0) {
        table->first_arrived = table->slots[slot].next_arrived;
    } else {
        table->slots[before].next_arrived = table->slots[slot].next_arrived;
    }
    if (table->last_arrived == slot) {
        table->last_arrived = before;
    }
}

void dsp_forget_woken(struct dsp_table *table, int32_t slot)
{
    int32_t before = -1, at = table->first_woken;
    while (at != slot) {
        before = at;
        at = table->slots[at].next_woken;
    }
    if (before < 0) {
        table->first_woken = table->slots[slot].next_woken;
    } else {
        table->slots[before].next_woken = table->slots[slot].next_woken;
    }
    if (table->last_woken == slot) {
        table->last_woken = before;
    }
}

void dsp_note_arrival(struct dsp_table *table, int32_t slot)
{
    struct dsp_slot *at = &table->slots[slot];
    if (at->watched) {
        dsp_note_woken(table, slot);
    }
    if (at->arrived) {
        return;
    }
    at->arrived = 1;
    at->next_arrived = -1;
    if (table->last_arrived < 0) {
        table->first_arrived = slot;
    } else {
        table->slots[table->last_arrived].next_arrived = slot;
    }
    table->last_arrived = slot;
}

int32_t dsp_take_arrival(struct dsp_table *table)
{
    int32_t slot = table->first_arrived;
    if (slot < 0) {
        return -1;
    }
    table->slots[slot].arrived = 0;
    table->first_arrived = table->slots[slot].next_arrived;
    if (table->first_arrived < 0) {
        table->last_arrived = -1;
    }
    return slot;
}

void dsp_note_woken(struct dsp_table *table, int32_t slot)
{
    struct dsp_slot *at = &table->slots[slot];
    if (at->woken) {
        return;
    }
    at->woken = 1;
    at->next_woken = -1;
    if (table->last_woken < 0) {
        table->first_woken = slot;
    } else {
        table->slots[table->last_woken].next_woken = slot;
    }
    table->last_woken = slot;
}

int32_t dsp_take_woken(struct dsp_table *table)
{
    int32_t slot = table->first_woken;
    if (slot < 0) {
        return -1;
    }
    table->slots[slot].woken = 0;
    table->first_woken = table->slots[slot].next_woken;
    if (table->first_woken < 0) {
        table->last_woken = -1;
    }
    return slot;
}
