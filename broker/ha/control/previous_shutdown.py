"""End of the broker's previous life, and whether its store may have lost acknowledged messages.

Owns BOOT_FILE, and the result that a controller gets at registration. It repairs nothing, and keeps
a doubt until a controller knows it. `read_previous_shutdown` runs before the store is opened,
`record_boot` after, `write` in a disk thread.

Without SYNC_FLUSH acknowledged bytes may be in the page cache only. They survive the end of the
process, but not of the machine. So a store that was not closed (`abort`) on a machine that was
rebooted since may lack messages that its SyncStateSet counts on: KIP-966 calls it an unclean
restart, and it is no candidate until it has caught up once. RocketMQ does not check this.

If no controller could be reached in a life, its doubt must outlast it, because the next life begins
in the same boot and would notice nothing. So BOOT_FILE has the boot in its first line, then why the
store may lack messages, until a registration that reports it was answered.
"""

import logging
from dataclasses import dataclass

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.files import Files, sync_parent_folders
from turbopump.engine.lifecycle.truncate_queues import ABORT_FILE
from turbopump.engine.types import FlushMode, LogOffset, StoreError

logger = logging.getLogger(__name__)

NOTHING = LogOffset(0)
"""Confirmed offset of a store that has confirmed no byte."""
BOOT_FILE = "bootId"
"""File with the boot of the machine in which the store was last open, and a doubt; beside
`abort`."""


@dataclass(frozen=True, slots=True)
class PreviousShutdown:
    """State of the store and the machine before the store was opened: whether the last process
    stopped cleanly, and in this boot."""

    crashed: bool = False
    """Whether the store was not closed."""
    same_boot: bool = True
    """Whether the machine has not been rebooted since the store was last open; False if
    unknown."""
    is_sync: bool = False
    """Whether the store is now configured with SYNC_FLUSH."""
    confirmed: LogOffset = NOTHING
    """Confirmed offset of the checkpoint, or a newer one of this process."""
    doubt: str = ""
    """Reason, found in an earlier life, why messages may be missing, if it was not reported to a
    controller yet; "" otherwise."""

    def loss_reason(self, log_end: LogOffset) -> str:
        """Return the reason why the store, whose log ends at `log_end` after recovery, may lack
        acknowledged messages; "" if it surely has them."""
        if self.doubt:
            return self.doubt
        if self.confirmed > log_end:
            return f"the log ends at {log_end}, before the confirmed offset {self.confirmed}"
        if self.crashed and not self.same_boot and not self.is_sync:
            return "the machine went down while the store was open, without SYNC_FLUSH"
        return ""


def read_previous_shutdown(
    files: Files, config: StoreConfig, confirmed: LogOffset = NOTHING
) -> PreviousShutdown:
    """Read the state from the disk; to be called before the store is opened. An unrecorded or
    unreadable boot counts as different. `confirmed` is the offset confirmed by an earlier life in
    this process: the checkpoint may be a second older. Blocks for the disk."""
    root = config.root
    path = f"{root}/{BOOT_FILE}"
    try:
        text = files.read(path) if files.exists(path) else b""
    except OSError as error:
        logger.warning("%s cannot be read: %s", path, error)
        text = b""
    recorded, _, doubt = (part.strip() for part in text.partition(b"\n"))
    return PreviousShutdown(
        crashed=files.exists(f"{root}/{ABORT_FILE}"),
        same_boot=recorded != b"" and recorded == files.boot_id().encode(),
        is_sync=config.flush_disk_type is FlushMode.SYNC_FLUSH,
        confirmed=LogOffset(max(checkpoints.load(files, root).confirm_offset, confirmed)),
        doubt=doubt.decode(errors="replace"),
    )


def record_boot(files: Files, config: StoreConfig, doubt: str) -> None:
    """Write the present boot and `doubt` to BOOT_FILE like `write`, after the store was opened and
    before any acknowledgement; raises StoreError in place of OSError."""
    try:
        write(files, config, doubt)
    except OSError as error:
        raise StoreError(f"{config.root}/{BOOT_FILE} cannot be written: {error}") from error


def write(files: Files, config: StoreConfig, doubt: str) -> None:
    """Write the present boot and `doubt` (the result of `loss_reason`, "" once a controller knows
    it) to BOOT_FILE, durably. Blocks, on any thread; raises OSError."""
    path = f"{config.root}/{BOOT_FILE}"
    files.write(path, f"{files.boot_id()}\n{doubt}".encode())
    files.sync(path)
    files.sync_folder(config.root)
    sync_parent_folders(files, config.root)
