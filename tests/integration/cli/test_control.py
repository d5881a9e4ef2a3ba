"""`turbopump node` sends requests to `turbopump up`: responses, refusals, and malformed
requests.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turbopump.cli.errors import CommandFailed, UserError
from turbopump.cli.group.control import LINE_MAX, SOCKET, Control, ask_running_group, is_served


async def echo(question: dict[str, Any]) -> Any:
    if "refuse" in question:
        raise UserError("the node controller-9 is not known")
    return question


def served(data: Path, work: Callable[[], Any]) -> Any:
    """Result of `work` in a thread of its own while requests are answered."""

    async def main() -> Any:
        control = Control(data, echo)
        await control.start()
        try:
            return await asyncio.to_thread(work)
        finally:
            for _ in range(50):
                await asyncio.sleep(0)  # connections that were answered, or only made, are closed
            await control.stop()

    return asyncio.run(main())


def response(data: Path, line: bytes) -> Any:
    """The answer to a line that no command of ours sends."""
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(str(data / SOCKET))
        made.sendall(line)
        made.shutdown(socket.SHUT_WR)
        with made.makefile("rb") as lines:
            return json.loads(lines.readline())


def test_a_question_is_answered(tmp_path: Path) -> None:
    question = {"do": "restart", "node": "bröker", "n": 1}
    assert served(tmp_path, lambda: ask_running_group(tmp_path, question)) == question


def test_a_refusal_is_the_sentence(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"^the node controller-9 is not known$"):
        served(tmp_path, lambda: ask_running_group(tmp_path, {"refuse": True}))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"{",
        b"[]\n",
        b"null\n",
        b'"x"\n',
        b"\xff\n",
        b"{}" + b" " * LINE_MAX,
        b"[" * (LINE_MAX - 2) + b"\n",
    ],
    ids=lambda line: repr(line[:3]) + str(len(line)),
)
def test_an_invalid_question_is_answered_with_an_error(tmp_path: Path, line: bytes) -> None:
    found = served(tmp_path, lambda: response(tmp_path, line))
    assert found == {"error": "the question cannot be understood"}


def test_a_path_that_is_too_long_for_a_socket_is_asked_all_the_same(tmp_path: Path) -> None:
    data = tmp_path / ("d" * 100) / ("e" * 100)
    data.mkdir(parents=True)
    assert served(data, lambda: ask_running_group(data, {"n": 2})) == {"n": 2}


def test_two_of_one_folder(tmp_path: Path) -> None:
    def another() -> None:
        asyncio.run(Control(tmp_path, echo).start())

    with pytest.raises(UserError, match="runs already with the data folder"):
        served(tmp_path, another)


def test_a_socket_that_a_killed_process_left_is_taken_over(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / SOCKET))
    assert not is_served(tmp_path)
    with pytest.raises(UserError, match="no turbopump up whose nodes are processes runs"):
        ask_running_group(tmp_path, {})
    assert served(tmp_path, lambda: ask_running_group(tmp_path, {"n": 3})) == {"n": 3}
    assert not (tmp_path / SOCKET).exists()


@pytest.mark.parametrize("folder", ["none", "file"])
def test_without_one_the_folder_is_named(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=f"runs with the data folder .*{folder}") as refused:
        ask_running_group(tmp_path / folder, {})
    assert not isinstance(refused.value, CommandFailed)


@pytest.mark.parametrize("part", [b"", b'{"ans', b'{"answer": 1}'])
def test_an_answer_that_breaks_off(tmp_path: Path, part: bytes) -> None:
    """The other process died while it wrote."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / SOCKET))
        listening.listen()

        def dies() -> None:
            made, _ = listening.accept()
            with made:
                made.recv(1024)
                made.sendall(part)

        thread = threading.Thread(target=dies)
        thread.start()
        with pytest.raises(CommandFailed, match="ended before it answered"):
            ask_running_group(tmp_path, {})
        thread.join()
