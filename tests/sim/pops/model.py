"""Invariants of popped messages (I16).

* A message whose acknowledgement was confirmed before its time ended is never given out again.
* An unacknowledged message is not given out again before its time, and is after it: once
  consumers are there and acknowledge, each message that was sent safely is acknowledged.
* Under ASYNC_FLUSH a power cut may undo the last responses. Where it, or a kill, comes between a
  message's copy and the record that ends the hand-out, the copy may be made twice.
"""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Message:
    """A message, as its producer and its consumers know it."""

    number: int
    life: int = 0
    """Number of deletions of its topic or group before it was sent."""
    is_wanted: bool = True
    """Whether the group's filter lets it through."""
    gone_in: int | None = None
    """The life before which the topic was deleted with it."""
    may_be_gone: bool = False
    """Whether a deletion was asked for since it was sent."""
    is_safe: bool = False
    """Whether it was acknowledged to its producer, and cannot be lost."""
    until_ms: int = 0
    """Time until which its confirmed hand-outs hide it; 0: unknown."""
    seen_ms: int = 0
    """The latest that the clock has shown since it was given out last."""
    is_done: bool = False
    """Whether a consumer was answered, in time, that it is acknowledged."""
    was_before: bool = False
    """Whether a consumer handled it before the last deletion of the group was requested."""
    was_handled: bool = False
    """Whether a consumer ever acknowledged it; the response may have been lost, or come late."""
    may_double: bool = False
    is_changing: bool = False
    """Whether its time is being changed: its new check point may be there and the acknowledgement
    of the old one not, so that a power cut leaves both."""
    handles: list[str] = field(default_factory=list)


class Model:
    """All messages of a seed."""

    def __init__(self, is_sync: bool) -> None:
        self.is_sync = is_sync
        self.messages: list[Message] = []
        self.acked = self.again = 0

    def leave(self, messages: list[Message], *, keep: bool = False) -> list[Message]:
        """Note that the topic is about to be deleted, or, with `keep`, the group with its offsets;
        return the messages. Earlier deliveries and acknowledgements do not count afterwards.
        """
        left = [message for message in messages if message.gone_in is None]
        for message in left:
            message.may_double = True
            message.handles.clear()
            message.until_ms = 0
            if keep:
                message.was_before |= message.was_handled
                message.was_handled = False
            else:
                message.is_safe, message.may_be_gone = False, True
        return left

    def given_back(self) -> None:
        """The group was deleted with its offsets: it gets all messages again."""
        for message in self.messages:
            message.was_before = message.is_done = False

    def seen(self, now_ms: int) -> None:
        """The clock shows that time; it may go back later."""
        for message in self.messages:
            message.seen_ms = max(message.seen_ms, now_ms)

    def popped(self, message: Message, now_ms: int, until_ms: int, life: int) -> None:
        """Check a message that was given out to a consumer whose request was sent in that life."""
        is_gone = message.gone_in is not None and message.gone_in <= life
        assert not is_gone, f"given out after its topic was deleted: {message}"
        assert message.is_wanted, f"given out past the filter: {message}"
        if not message.may_double:
            assert not message.is_done, f"given out after its acknowledgement: {message}"
            is_due = message.seen_ms >= message.until_ms
            assert is_due, f"given out at {now_ms}, before its time: {message}"
        self.again += bool(message.handles)
        message.until_ms = until_ms
        message.seen_ms = now_ms

    def done(self, message: Message, until_ms: int) -> None:
        """An acknowledgement of it was answered."""
        self.acked += 1
        if message.seen_ms < until_ms:
            message.is_done = True

    def ended(self, *, power: bool, reviving: bool) -> None:
        """Note the end of the broker's life;

        `reviving`: between a message's copy and the record that ends its hand-out.
        """
        for message in self.messages:
            message.was_handled |= message.was_before  # the group may be there as before
            message.was_before = False
            if power and not self.is_sync:
                message.is_safe = message.is_done = False
                message.until_ms = 0
                message.may_double = True
            elif power and message.is_changing:
                message.may_double = True
            elif (power or reviving) and message.handles and message.seen_ms >= message.until_ms:
                message.may_double |= not message.is_done

    def settled(self) -> None:
        """Consumers were there for long, and acknowledged all they got."""
        for message in self.messages:
            is_due = message.is_safe and message.is_wanted
            assert message.was_handled or not is_due, f"lost: {message}"
