"""A group that switches without a controller: its master and members are written in a file.

Owns the file's format; `service` reads it. All brokers of the group have the same file
(haGroupFile), and look at it each second; each change of it raises the epoch:

    {"epoch": 2, "master": 1, "brokers": {"1": "10.0.0.1:10912", "2": "10.0.0.2:10912"}}

`brokers` are the HA addresses by brokerId of the group; `members` may name the brokers in the
SyncStateSet (without it, all). A message counts as replicated when every member has it, so the next
master in the file must be a member of the previous version. A broker that was no member before
counts only once the master of that file has confirmed a byte of its own term: until then it may
lack messages acknowledged earlier.
"""

import json
from dataclasses import dataclass

BROKERS_MAX = 64
"""Maximum number of brokers in a group file."""


class GroupFileError(ValueError):
    """A group file does not describe a group; the text is the reason."""


@dataclass(slots=True, frozen=True)
class GroupFile:
    """Content of a group file."""

    epoch: int
    """Epoch of the master, and of the SyncStateSet; from 1."""
    master: int
    """Broker id of the master, from 1."""
    brokers: dict[int, str]
    """HA address `host:port` of each broker, by broker id."""
    members: frozenset[int]
    """Broker ids of the SyncStateSet, the master's included."""

    @property
    def master_address(self) -> str:
        """The master's HA address, `host:port`."""
        return self.brokers[self.master]


def parse_group(text: bytes) -> GroupFile:
    """Parse the JSON text of a group file, whose format is in the module. Raises GroupFileError
    with one clear sentence, also for a group that contradicts itself."""
    try:
        found = json.loads(text)
        brokers = {int(number): address for number, address in found["brokers"].items()}
        members = frozenset(found.get("members", brokers))
        group = GroupFile(found["epoch"], found["master"], brokers, members)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise GroupFileError(
            f"epoch, master or brokers are missing or malformed: {type(error).__name__} {error}"
        ) from None
    numbers = [group.epoch, group.master, *brokers, *members]
    if not all(type(number) is int and 0 < number < 1 << 31 for number in numbers):
        raise GroupFileError("epoch and broker ids must be whole numbers, 1 or more")
    if not all(isinstance(address, str) and ":" in address for address in brokers.values()):
        raise GroupFileError("the address of a broker must be host:port")
    if group.master not in members or not members <= brokers.keys() or len(brokers) > BROKERS_MAX:
        raise GroupFileError("the master must be a member, and members must be among the brokers")
    return group
