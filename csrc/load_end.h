/* The end of a load and its status; the rows of its seconds.
 *
 * The loop (load.c) calls both between two turns, with load.now_ns set; both read only counters. */
#ifndef TURBOPUMP_LOAD_END_H
#define TURBOPUMP_LOAD_END_H

struct load;

/* Close the row of a second: its messages and latencies. There must be room for it. */
void load_close_row(struct load *load);

/* -1 to continue, else the status of the end (enum load_end). */
int load_judge(struct load *load);

#endif
