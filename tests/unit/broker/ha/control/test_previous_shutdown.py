"""Ends of a broker's process that may have cost acknowledged bytes."""

import random

import pytest
from tests.sim.disk import SimDisk

from turbopump.broker.ha.control import previous_shutdown
from turbopump.broker.ha.control.previous_shutdown import PreviousShutdown
from turbopump.engine.config import StoreConfig
from turbopump.engine.disk import checkpoint as checkpoints
from turbopump.engine.disk.checkpoint import Checkpoint
from turbopump.engine.types import FlushMode, LogOffset

END = LogOffset(1000)


def config(mode: FlushMode = FlushMode.ASYNC_FLUSH) -> StoreConfig:
    return StoreConfig(root="/store", flush_disk_type=mode)


def disk_of(*, crashed: bool, confirmed: int = 0) -> SimDisk:
    disk = SimDisk(random.Random(1), lambda: 0)
    disk.make_folders("/store")
    disk.sync_folder("/")
    previous_shutdown.record_boot(disk, config(), "")
    checkpoints.save(disk, "/store", Checkpoint(confirm_offset=confirmed))
    if crashed:
        disk.write("/store/abort", b"1")
        disk.sync("/store/abort")
    disk.sync_folder("/store")
    return disk


@pytest.mark.parametrize("crashed", [True, False])
@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("mode", list(FlushMode))
def test_only_a_machine_that_went_down_loses_unsynced_bytes(
    crashed: bool, power: bool, mode: FlushMode
) -> None:
    disk = disk_of(crashed=crashed)
    disk.kill = not power
    disk.end()
    disk.restart()
    lost = previous_shutdown.read_previous_shutdown(disk, config(mode)).loss_reason(END)
    assert bool(lost) == (crashed and power and mode is FlushMode.ASYNC_FLUSH), lost


def test_an_unrecorded_boot_is_another_one() -> None:
    disk = disk_of(crashed=True)
    disk.remove("/store/bootId")
    assert previous_shutdown.read_previous_shutdown(disk, config()).loss_reason(END)


def test_a_log_that_lacks_confirmed_bytes_is_not_whole() -> None:
    disk = disk_of(crashed=False, confirmed=1001)
    life = previous_shutdown.read_previous_shutdown(disk, config(FlushMode.SYNC_FLUSH))
    assert "confirmed offset 1001" in life.loss_reason(END)
    assert life.loss_reason(LogOffset(1001)) == ""


@pytest.mark.parametrize("crashed", [True, False])
def test_a_doubt_stays_until_it_was_told(crashed: bool) -> None:
    disk = disk_of(crashed=True)
    disk.kill = False
    disk.end()
    disk.restart()
    why = previous_shutdown.read_previous_shutdown(disk, config()).loss_reason(END)
    assert why
    previous_shutdown.record_boot(disk, config(), why)
    if not crashed:
        disk.remove("/store/abort")
    disk.kill = True
    disk.end()
    disk.restart()
    assert previous_shutdown.read_previous_shutdown(disk, config()).loss_reason(END) == why
    previous_shutdown.record_boot(disk, config(), "")
    assert previous_shutdown.read_previous_shutdown(disk, config()).loss_reason(END) == ""


def test_a_first_start_has_lost_nothing() -> None:
    disk = SimDisk(random.Random(1), lambda: 0)
    assert previous_shutdown.read_previous_shutdown(disk, config()).loss_reason(LogOffset(0)) == ""
    assert PreviousShutdown().loss_reason(LogOffset(0)) == ""
