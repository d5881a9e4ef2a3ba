/* When a load is over, and how it ended; the rows of its seconds.
 *
 * Called by the loop (load.c) between two turns, with load.now_ns set; both look at counters only.
 */
#ifndef TURBOPUMP_LOAD_END_H
#define TURBOPUMP_LOAD_END_H

struct load;

/* Close the row of a second: what came in it, and its latencies. There is room for it. */
void load_close_row(struct load *load);

/* -1 to go on, else how it ended (enum load_end). */
int load_judge(struct load *load);

#endif
