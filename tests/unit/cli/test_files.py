"""Properties files written by hand: JSON is refused, a repeated key is a warning."""

import logging
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Command

from turbopump.cli.errors import UserError
from turbopump.cli.files import properties_text


@pytest.mark.parametrize("node", ["broker", "namesrv", "controller", "container"])
def test_json_is_no_properties_file(node: str, tmp_path: Path, command: Command) -> None:
    path = tmp_path / "broker.json"
    path.write_text('\n{\n"brokerName": "a"\n}\n')
    code, sentence = command(node, "-c", path).failure
    assert (code, "is JSON" in sentence) == (2, True)


def test_a_key_twice_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=a\n# {\nbrokerName=b\nbrokerId=0\n")
    with caplog.at_level(logging.WARNING):
        assert properties_text(path) == path.read_text()
    (record,) = caplog.records
    assert "brokerName is given twice, in lines 1 and 3" in record.getMessage()
    path.write_text("a=\\u12\n")
    with pytest.raises(UserError, match="line 1"):
        properties_text(path)


def test_a_send_without_a_body_is_refused(command: Command) -> None:
    code, sentence = command("send", "-t", "T", "-n", "127.0.0.1:1").failure
    assert (code, sentence.startswith("there is no body")) == (2, True)
