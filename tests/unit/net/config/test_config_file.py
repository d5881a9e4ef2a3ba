"""The replacement of a node's configuration file."""

from pathlib import Path

import pytest

from turbopump.engine.disk.real_files import RealFiles
from turbopump.net.config.config_file import save_changes
from turbopump.net.wire.java_properties import Property

BEFORE = "# mine\na=1\nb=2\n"


class Fragile(RealFiles):
    """Files on which the process dies before the `left`-th rename from now."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self._left = left

    def rename(self, old: str, new: str) -> None:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        super().rename(old, new)


def test_changed_lines_are_replaced_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "new" / "node.conf"
    save_changes(RealFiles(), str(path), [Property("a", "1")])
    assert path.read_text() == "a=1\n"
    path.write_text(BEFORE)
    save_changes(RealFiles(), str(path), [Property("b", "3")])
    assert path.read_text() == "# mine\na=1\nb=3\n"
    assert path.with_name("node.conf.bak").read_text() == BEFORE


@pytest.mark.parametrize("left", [0, 1])
def test_there_is_a_whole_file_of_its_name_whenever_the_process_dies(
    tmp_path: Path, left: int
) -> None:
    path = tmp_path / "node.conf"
    path.write_text(BEFORE)
    with pytest.raises(KeyboardInterrupt):
        save_changes(Fragile(left), str(path), [Property("b", "3")])
    assert path.read_text() == BEFORE
