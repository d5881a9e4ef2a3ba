"""How this broker's last life ended, as far as its store may have lost what it acknowledged.

Owns BOOT_FILE, and the verdict that a controller gets at registration. It must never repair
anything, nor forget a doubt that no controller knows of. `look` before the store is opened,
`record` after, `write` by a disk's thread; called by replicating.py and node.py.

Without SYNC_FLUSH what was acknowledged may be in the page cache only. The end of the process does
not take that, the end of the machine does. So a store that was not closed (`abort`) on a machine
that was booted anew since may lack what its SyncStateSet says it has: KIP-966 calls it an unclean
restart, and it is no candidate until it has caught up once. RocketMQ does not look.

A life in which no controller could be reached leaves its doubt to the next one, which begins in the
same boot and would see nothing: BOOT_FILE has the boot in its first line, and behind it why the
store may lack something, until a registration with these words was answered.
"""

import logging
from dataclasses import dataclass

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.files import Files, sync_above
from turbopump.engine.types import FlushMode, LogOffset, StoreError
from turbopump.engine.upkeep.unit_cutting import ABORT_FILE

logger = logging.getLogger(__name__)

NOTHING = LogOffset(0)
BOOT_FILE = "bootId"
"""Which boot of the machine the store was last open in, and a doubt; beside `abort`."""


@dataclass(frozen=True, slots=True)
class LastLife:
    """What was found before the store was opened."""

    crashed: bool = False
    same_boot: bool = True
    is_sync: bool = False
    confirmed: LogOffset = NOTHING
    """haConfirmOffset of the checkpoint."""
    doubt: str = ""
    """What a life before said of itself without being heard."""

    def lost(self, log_end: LogOffset) -> str:
        """Why the store may lack what it acknowledged, "" if it surely has it."""
        if self.doubt:
            return self.doubt
        if self.confirmed > log_end:
            return f"the log ends at {log_end}, {self.confirmed} was confirmed"
        if self.crashed and not self.same_boot and not self.is_sync:
            return "the machine went down while the store was open, without SYNC_FLUSH"
        return ""


def look(files: Files, config: StoreConfig, confirmed: LogOffset = NOTHING) -> LastLife:
    """Before the store is opened. An unrecorded boot is another one. `confirmed` is what a
    life before in this very process had confirmed: the checkpoint may be a second older."""
    root = config.root
    path = f"{root}/{BOOT_FILE}"
    try:
        text = files.read(path) if files.exists(path) else b""
    except OSError as error:
        logger.warning("%s cannot be read: %s", path, error)
        text = b""
    recorded, _, doubt = (part.strip() for part in text.partition(b"\n"))
    return LastLife(
        crashed=files.exists(f"{root}/{ABORT_FILE}"),
        same_boot=recorded != b"" and recorded == files.boot_id().encode(),
        is_sync=config.flush_disk_type is FlushMode.SYNC_FLUSH,
        confirmed=LogOffset(max(checkpoints.load(files, root).confirm_offset, confirmed)),
        doubt=doubt.decode(errors="replace"),
    )


def record(files: Files, config: StoreConfig, doubt: str) -> None:
    """After the store was opened, before anything is acknowledged. Raises StoreError."""
    try:
        write(files, config, doubt)
    except OSError as error:
        raise StoreError(f"{config.root}/{BOOT_FILE} cannot be written: {error}") from error


def write(files: Files, config: StoreConfig, doubt: str) -> None:
    """As `record`, on any thread; with `doubt` "" when it was reported. Raises OSError."""
    path = f"{config.root}/{BOOT_FILE}"
    files.write(path, f"{files.boot_id()}\n{doubt}".encode())
    files.sync(path)
    files.sync_folder(config.root)
    sync_above(files, config.root)
