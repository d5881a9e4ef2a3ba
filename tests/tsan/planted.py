"""Faults of I/O threads, planted into a copy of their source, that a run must find.

Owns the list. A fault replaces text that stands exactly once in its file.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of a source file of `csrc`, and the build that finds it."""

    text: str
    """The fault in words."""
    file: str
    before: str
    after: str
    by: str
    """`tsan`: the thread sanitizer or a checker under it; `fast`: a build without it, whose threads
    meet in a few nanoseconds."""


_TAIL: Final = "atomic_store_explicit(&ring->tail, tail + cost(size), memory_order_release);"
_SLEEPS: Final = "    atomic_store_explicit(&{}sleeps, 1, memory_order_relaxed);\n"
_DELAY: Final = "    for (volatile int left = 1000; left > 0; left--) {\n    }\n"
"""A delay, as if the thread lost its processor for a moment: nanoseconds are hardly ever hit."""
_FENCE: Final = "    atomic_thread_fence(memory_order_seq_cst);\n"

FAULTS: Final = {
    "push": Fault(
        "`ring_push` publishes a record without release",
        "byte_ring.c",
        _TAIL,
        _TAIL.replace("release", "relaxed"),
        "tsan",
    ),
    "peek": Fault(
        "`ring_peek` reads `tail` without acquire",
        "byte_ring.c",
        "atomic_load_explicit(&ring->tail, memory_order_acquire)",
        "atomic_load_explicit(&ring->tail, memory_order_relaxed)",
        "tsan",
    ),
    "pop": Fault(
        "`ring_pop` returns memory without release",
        "byte_ring.c",
        "atomic_store(&ring->head, head + cost(record->size));",
        "atomic_store_explicit(&ring->head, head + cost(record->size), memory_order_relaxed);",
        "tsan",
    ),
    "begin": Fault(
        "`ring_begin` reads `head` without acquire",
        "byte_ring.c",
        "atomic_load_explicit(&ring->head, memory_order_acquire)",
        "atomic_load_explicit(&ring->head, memory_order_relaxed)",
        "tsan",
    ),
    "sent": Fault(
        "`io_sent` reads without acquire: memory that a thread sends is freed",
        "io_loop.c",
        "atomic_load_explicit(&connection->sent, memory_order_acquire)",
        "atomic_load_explicit(&connection->sent, memory_order_relaxed)",
        "tsan",
    ),
    "counted": Fault(
        "bytes count as sent before they are",
        "io_thread.c",
        "        result = sendmsg(",
        "        count_sent(thread, connection, 1);\n        result = sendmsg(",
        "tsan",
    ),
    "forget": Fault(
        "IO_FORGET frees a connection that is due",
        "io_thread.c",
        "    if (connection->is_due) {\n",
        "    if (0) {\n",
        "tsan",
    ),
    "recheck": Fault(
        "`ring_wait_room` does not look at `head` again",
        "byte_ring.c",
        "return head != ring->head_seen;",
        "return head != head;",
        "fast",
    ),
    "short": Fault(
        "the thread forgets that the loop waits for room",
        "io_thread.c",
        "if (ring_take_waiting(&thread->commands)) {",
        "if (0) {",
        "tsan",
    ),
    "stalled": Fault(
        "`is_stalled` does not look at `taken` again",
        "io_thread.c",
        "if (connection->received - atomic_load(&connection->taken) >= window) {",
        "if (window) {",
        "fast",
    ),
    "wake": Fault(
        "`io_wake` has no fence", "io_thread.c", f"`sleeps`. */\n{_FENCE}", "`sleeps`. */\n", "fast"
    ),
    "sleep": Fault(
        "the thread looks for commands before it sets `sleeps`",
        "io_thread.c",
        f"{_SLEEPS.format('thread->waker.')}{_FENCE}"
        "    return ring_peek(&thread->commands) == NULL",
        "    int none = ring_peek(&thread->commands) == NULL;\n"
        "    atomic_store(&thread->waker.sleeps, 1);\n"
        "    return none",
        "fast",
    ),
    "rest": Fault(
        "the loop looks for events before it sets `sleeps`",
        "io_loop.c",
        f"{_SLEEPS.format('loop->')}{_FENCE}",
        "    int some = 0;\n"
        "    for (number = 0; number < count; number++) {\n"
        "        some |= threads[number].has_waiting;\n"
        "        some |= ring_peek(&threads[number].events) != NULL;\n"
        f"    }}\n{_DELAY}"
        "    atomic_store(&loop->sleeps, !some);\n"
        "    return some;\n",
        "fast",
    ),
    "notice": Fault(
        "`io_notice` reads `sent` before it stores the position",
        "io_loop.c",
        "    atomic_store(&connection->notice_at, position);\n"
        "    return atomic_load(&connection->sent) >= position;\n",
        f"    int is_past = atomic_load(&connection->sent) >= position;\n{_DELAY}"
        "    atomic_store(&connection->notice_at, position);\n"
        "    return is_past;\n",
        "fast",
    ),
    "count": Fault(
        "`count_sent` reads the position before it stores `sent`",
        "io_thread.c",
        "    atomic_store(&connection->sent, sent);\n"
        "    notice_at = atomic_load(&connection->notice_at);\n",
        f"    notice_at = atomic_load(&connection->notice_at);\n{_DELAY}"
        "    atomic_store(&connection->sent, sent);\n",
        "fast",
    ),
    "twice": Fault(
        "the end of a half-closed peer is sent again",
        "io_thread.c",
        "if (!connection->has_ended) {",
        "if (1) {",
        "tsan",
    ),
    "hung": Fault(
        "a short read counts as the last although the peer ended",
        "io_thread.c",
        "(size_t)size == room || connection->has_hung_up;",
        "(size_t)size == room;",
        "tsan",
    ),
    "owed": Fault(
        "an event without room is dropped",
        "io_thread.c",
        "        if (connection->owes) {\n            break;\n",
        "        if (connection->owes) {\n            connection->owes = 0;\n            break;\n",
        "tsan",
    ),
    "close": Fault(
        "IO_CLOSE does not wait for unsent bytes",
        "io_thread.c",
        "if (connection->first != NULL || ends == 0",
        "if (ends == 0",
        "tsan",
    ),
    "edge": Fault(
        "room in a full socket is not noted",
        "io_thread.c",
        "bits & (EPOLLOUT | EPOLLHUP | EPOLLERR)) {",
        "bits & EPOLLHUP) {",
        "tsan",
    ),
    "paused": Fault(
        "a paused connection stays due",
        "io_thread.c",
        "IO_WINDOW)) {\n        return 0;",
        "IO_WINDOW)) {\n        return connection->may_read;",
        "tsan",
    ),
    "event": Fault(
        "the thread does not read its eventfd",
        "io_thread.c",
        "        eventfd_read(thread->waker.descriptor, &times);\n",
        "        (void)times;\n",
        "tsan",
    ),
}  # fmt: skip
