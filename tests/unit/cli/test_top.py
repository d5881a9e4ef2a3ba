"""`turbopump top`: its interval, its screen and lines, and its errors."""

import asyncio
import json
from contextlib import ExitStack
from typing import Any

import pytest
from tests.unit.cli.conftest import Command
from tests.unit.net.client.cluster import NAME_SERVER, ScriptedCluster, play

from turbopump.cli import top
from turbopump.cli.top import CHANGES_SHOWN, JsonLines, PlainLines, Screen
from turbopump.net.client.admin.group_view import BrokerView, Change, GroupView, Sample

AT_MS = 1_700_000_000_000


def sample(master: int, epoch: int, at_ms: int = AT_MS) -> Sample:
    brokers = [
        BrokerView(number, f"h:{number}", "master" if number == master else "slave", True, True)
        for number in (1, 2)
    ]
    group = GroupView("C", "broker-a", master, epoch, 9, [1, 2], brokers)
    return Sample(at_ms, [], [group])


class Watch:
    """Returns samples in order, each after `takes_s`; the last sample ends the watch."""

    def __init__(self, stop: asyncio.Event, takes_s: float, *samples: Sample) -> None:
        self._stop, self._takes_s, self._samples = stop, takes_s, list(samples)
        self.times: list[float] = []

    async def sample(self) -> Sample:
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self._takes_s)
        if len(self._samples) == 1:
            self._stop.set()
        return self._samples.pop(0)


class Shown:
    """A view that records its samples."""

    def __init__(self) -> None:
        self.all: list[tuple[Sample, list[Change]]] = []

    def show(self, sample: Sample, changes: list[Change]) -> None:
        self.all.append((sample, changes))


def watched(takes_s: float, interval_s: float, *samples: Sample) -> tuple[Watch, Shown]:
    async def story() -> tuple[Watch, Shown]:
        stop, shown = asyncio.Event(), Shown()
        watch = Watch(stop, takes_s, *samples)
        await top._show_repeatedly(watch, shown, stop, interval_s)  # type: ignore[arg-type]
        return watch, shown

    return play(story())


def test_an_election_is_a_change() -> None:
    _, shown = watched(0, 1, sample(1, 3), sample(1, 3), sample(2, 4), sample(2, 4))
    kinds = [[change.kind for change in changes] for _, changes in shown.all]
    assert kinds[0] == kinds[1] == kinds[3] == []
    assert "election" in kinds[2]
    (election,) = [one for one in shown.all[2][1] if one.kind == "election"]
    assert "2" in election.text and "epoch 4" in election.text


def test_the_pace_is_that_of_the_clock() -> None:
    watch, _ = watched(0.25, 1, *[sample(1, 3)] * 4)
    assert watch.times == [0, 1, 2, 3], "how long a look takes is not added"
    watch, _ = watched(3, 1, *[sample(1, 3)] * 3)
    assert watch.times == [0, 3, 6], "nor are looks made up for"


def test_a_stop_is_not_waited_for() -> None:
    async def story() -> float:
        stop = asyncio.Event()
        watch = Watch(asyncio.Event(), 0, *[sample(1, 3)] * 2)
        looking = asyncio.ensure_future(top._show_repeatedly(watch, Shown(), stop, 3_600))  # type: ignore[arg-type]
        await asyncio.sleep(5)
        stop.set()
        await looking
        return asyncio.get_running_loop().time()

    assert play(story()) == 5


def test_lines_and_documents(capsys: pytest.CaptureFixture[str]) -> None:
    change = Change(AT_MS, "election", "broker-a: 2 is master in epoch 4 (was 1)")
    JsonLines().show(sample(2, 4), [change])
    JsonLines().show(sample(2, 4), [])
    first, second = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert first["changes"] == [change.to_json()] and second["changes"] == []
    assert first["groups"][0]["master_id"] == 2
    PlainLines().show(sample(2, 4), [change])
    lines = capsys.readouterr().out.splitlines()
    assert "broker-a: 2 is master in epoch 4 (was 1)" in lines[0]
    assert "broker-a of C: master 2, epoch 4, SyncStateSet {1,2} of epoch 9" in lines


@pytest.mark.parametrize(
    ("as_json", "is_terminal", "kind"),
    [(True, True, JsonLines), (False, False, PlainLines), (False, True, Screen)],
)
def test_where_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, as_json: bool, is_terminal: bool, kind: type[Any]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr("rich.live.Live.start", lambda self: None)
    monkeypatch.setattr("rich.live.Live.stop", lambda self: None)
    with ExitStack() as stack:
        assert isinstance(top._choose_output(as_json, "title", stack), kind)


def test_the_screen_keeps_the_last_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[Change]] = []
    monkeypatch.setattr("rich.live.Live.start", lambda self: None)
    monkeypatch.setattr("rich.live.Live.stop", lambda self: None)
    monkeypatch.setattr("rich.live.Live.update", lambda self, shown, refresh: None)

    def screen(title: str, _sample: Sample, changes: list[Change], _width: int) -> str:
        assert title == "title"
        drawn.append(changes)
        return ""

    monkeypatch.setattr("turbopump.cli.top_view.build_screen", screen)
    with Screen("title") as shown:
        for number in range(CHANGES_SHOWN + 5):
            shown.show(sample(1, 3), [Change(AT_MS, "election", str(number))])
    assert [change.text for change in drawn[-1]] == [str(5 + n) for n in range(CHANGES_SHOWN)]


def test_no_server_answers(cluster: ScriptedCluster, command: Command) -> None:
    cluster.down.add(NAME_SERVER)
    code, error = command("top", "--once").failure
    assert code == 1 and NAME_SERVER in error
    assert cluster.open == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-n", "nowhere"), "nowhere is no address"),
        (("-a", "nowhere"), "nowhere is no address"),
        (("--interval", "0"), "0.05"),
        (("--interval", "nan"), "--interval"),
        (("--interval", "4000"), "3600"),
    ],
)
def test_clusters_that_cannot_be_watched(
    cluster: ScriptedCluster, command: Command, words: tuple[str, ...], sentence: str
) -> None:
    ran = command("top", "--once", *words)
    assert ran.code == 2 and sentence in ran.err and not ran.out and not cluster.calls
