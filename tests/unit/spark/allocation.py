"""Two small models of allocation, and histories of groups that use them.

`averaged` is the default of RocketMQ's clients: queues in order, cut into equal runs by the order
of the client ids. `sticky` lets each member keep its queues up to an even share.
"""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

Queue = tuple[str, int]
Owned = dict[str, list[Queue]]
Allocate = Callable[[list[str], list[Queue], Owned], Owned]


def averaged(members: list[str], queues: list[Queue], before: Owned) -> Owned:
    each, more = divmod(len(queues), len(members))
    made: Owned = {}
    at = 0
    for number, client in enumerate(sorted(members)):
        size = each + (number < more)
        made[client] = sorted(queues)[at : at + size]
        at += size
    return made


def sticky(members: list[str], queues: list[Queue], before: Owned) -> Owned:
    each, more = divmod(len(queues), len(members))
    there = set(queues)
    had = {client: sorted(set(before.get(client, [])) & there) for client in members}
    larger = sorted(members, key=lambda client: (-len(had[client]), client))[:more]
    made = {client: had[client][: each + (client in larger)] for client in members}
    free = sorted(there - {queue for owned in made.values() for queue in owned})
    for client in sorted(members):
        while len(made[client]) < each + (client in larger):
            made[client].append(free.pop())
    return made


def history(
    allocate: Allocate, seed: int, count: int, *, group: str = "billing", topic: str = "Orders"
) -> Iterator[dict[str, Any]]:
    """`count` rebalances of a group with changing members and, now and then, changing queues."""
    rng = random.Random(seed)
    members = ["c0", "c1"]
    brokers = ["broker-a"]
    after: Owned = {}
    for number in range(count):
        trigger = rng.choice(["join", "leave", "queues"]) if number else "join"
        if trigger == "join":
            members.append(f"c{number + 2}")
        elif trigger == "leave" and len(members) > 1:
            members.remove(rng.choice(members))
        elif trigger == "queues":
            brokers = ["broker-a", "broker-b"] if len(brokers) == 1 else ["broker-a"]
        queues = [(broker, queue) for broker in brokers for queue in range(8)]
        before, after = after, allocate(members, queues, after)
        time_ms = 1_795_270_000_000 + number * 60_000
        yield {
            "time_ms": time_ms,
            "group": group,
            "topic": topic,
            "allocator": allocate.__name__,
            "trigger": trigger,
            "members": list(members),
            "queues": queues,
            "before": before,
            "after": after,
            "compute_ms": 0.5 + number % 10,
            "start_ms": time_ms - 7,
            "end_ms": time_ms - 7 + 100 * (1 + number % 10),
        }


def lines(rebalances: Iterator[dict[str, Any]]) -> list[str]:
    return [json.dumps(one) for one in rebalances]
