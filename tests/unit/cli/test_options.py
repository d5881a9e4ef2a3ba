import errno

import pytest

from turbopump.cli.errors import CommandFailed, UserError, exit_with_error, sentence_of
from turbopump.cli.options import Switch, one_place, split_addresses


def test_addresses_are_split_at_semicolons_and_commas() -> None:
    assert split_addresses("a:1; b:2 ,c:3;") == ["a:1", "b:2", "c:3"]
    assert split_addresses("[::1]:9876") == ["[::1]:9876"]


@pytest.mark.parametrize("text", ["", ";", "host", "host:", ":1", "host:0", "host:65536", "h:x"])
def test_an_invalid_address_is_named(text: str) -> None:
    with pytest.raises(UserError, match="host:port"):
        split_addresses(text)


def test_switches() -> None:
    assert Switch("true")
    assert not Switch("false")


@pytest.mark.parametrize("given", [(None, None), ("b:10911", "c")])
def test_a_command_goes_to_one_place(given: tuple[str | None, str | None]) -> None:
    with pytest.raises(UserError):
        one_place(*given)


def test_one_place_is_enough() -> None:
    one_place("b:10911", None)
    one_place(None, "c")


@pytest.mark.parametrize("address", ["b", "broker-a", "b:", ":1", "b:0", "b:65536", "b:\u00b2"])
def test_a_broker_is_named_by_its_address(address: str) -> None:
    with pytest.raises(UserError, match="host:port"):
        one_place(address, None)


def test_the_systems_refusals_are_sentences() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "data/x")
    assert sentence_of(full) == "data/x: the disk is full"
    assert sentence_of(OSError(errno.EACCES, "x")) == "Permission denied"
    assert sentence_of(OSError("plain")) == "plain"


@pytest.mark.parametrize(("kind", "code"), [(UserError, 2), (CommandFailed, 1)])
def test_a_failure_is_one_line_and_a_code(
    kind: type[UserError], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        exit_with_error(kind("something is wrong"))
    assert ended.value.code == code
    assert capsys.readouterr().err == "turbopump: something is wrong\n"
