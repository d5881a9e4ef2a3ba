"""Offsets in the responses to pops, decoded as clients decode them (ExtraInfoUtil)."""


def read_offsets(text: str) -> dict[tuple[str, int], list[int]]:
    """(flag, queue id) to offsets, of startOffsetInfo or msgOffsetInfo."""
    found: dict[tuple[str, int], list[int]] = {}
    for part in filter(None, text.split(";")):
        flag, _, rest = part.partition(" ")
        queue_id, _, offsets = rest.partition(" ")
        key = flag, int(queue_id)
        assert key not in found, "a Java client refuses a queue that is there twice"
        found[key] = [int(each) for each in offsets.split(",")]
    return found


def read_counts(text: str) -> dict[tuple[str, str], int]:
    """(flag, `<queue id>` or `qo<queue id>%<offset>`) to count, of orderCountInfo."""
    found: dict[tuple[str, str], int] = {}
    for part in filter(None, text.split(";")):
        words = part.split(" ")
        found[words[0], words[1]] = int(words[2])
    return found
