"""The nodes of a group as processes: started, watched, stopped, killed, and started again on
request.

Owns the processes and the report of their states. No node is restarted automatically, because the
group is there to break nodes and watch the rest.

States of a node:

    stopped --start--> starting --ready event--> running
    starting, running --exit by itself, or READY_S without progress--> failed
    starting, running --stop, SIGTERM--> stopped
    starting, running --kill, SIGKILL, or no exit within STOP_S--> killed
    failed, killed --start--> starting
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from turbopump.cli.errors import BAD_INPUT, FAILED, CommandFailed
from turbopump.cli.group.files import BROKER, CONTROLLER, NodeFile
from turbopump.net.client.admin.client import Admin
from turbopump.net.client.errors import ClientError
from turbopump.net.client.options import ClientOptions
from turbopump.net.transport.errors import RemotingError

READY_S: Final = 60.0
"""Seconds until a node must serve; each progress event of its recovery starts the time again."""
STOP_S: Final = 30.0
"""Seconds for a node to save its state after SIGTERM; then it is killed and shown as killed."""
GROUP_TIMEOUT_S: Final = 30.0
"""Seconds for controllers to elect a leader, brokers to register, and a master to be elected."""
POLL_S: Final = 0.1
"""Seconds between two queries for the group's master at the start."""
ASK_MS: Final = 1_000
"""Timeout of the name server's response."""
MASTER: Final = "master"
"""Name that stands for the current master in requests, and a broker's role."""

Notify = Callable[[dict[str, Any]], None]
"""Receives each event as a JSON object."""


class GroupError(CommandFailed):
    """A request about a node failed; one sentence."""


@dataclass(slots=True)
class _Node:
    """A node of the group, and its process while it runs."""

    file: NodeFile
    state: str = "stopped"
    """starting, running, stopped (on request), killed (on request) or failed (exit by itself)."""
    wanted: str = "stopped"
    """State after the end of the process."""
    process: asyncio.subprocess.Process | None = None
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)
    has_exited: asyncio.Event = field(default_factory=asyncio.Event)
    heard_s: float = 0.0
    watch: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Pid of the process; 0 if it does not run."""
        return self.process.pid if self.process is not None and not self.has_exited.is_set() else 0


class Processes:
    """All nodes of a data folder.

    Args:
        files: the nodes, in the order of their start.
        logs: the folder that has a folder for each node's log.
        notify: called with each event: changes of a node's state, and progress of its recovery.
        options: client options for queries of the brokers' roles.
    """

    def __init__(
        self,
        files: list[NodeFile],
        logs: Path,
        log_level: str,
        notify: Notify,
        options: ClientOptions,
    ) -> None:
        self._nodes = {each.name: _Node(each) for each in files}
        self._logs = logs
        self._log_level = log_level
        self._notify = notify
        self._options = options
        self._busy = asyncio.Lock()
        self._stopping = False

    # Methods of `serving.Node`

    async def start(self) -> None:
        """Start all nodes; returns when clients can send. On GroupError no node runs."""
        nodes = list(self._nodes.values())
        controllers = [node for node in nodes if node.file.kind == CONTROLLER]
        brokers = [node for node in nodes if node.file.kind == BROKER]
        try:
            await self._start(nodes[0])
            await _await_all(self._start(node) for node in controllers)
            if controllers:
                await self._start(brokers[0])  # alone, so that it gets the first broker id
            await _await_all(self._start(node) for node in brokers if not node.pid)
            await self._await_master()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all nodes: brokers first, then controllers, the name server last."""
        self._stopping = True
        nodes = list(self._nodes.values())
        for kinds in ((BROKER,), (CONTROLLER,)):
            await _await_all(self._end_process(node) for node in nodes if node.file.kind in kinds)
        await self._end_process(nodes[0])

    # Requests of `turbopump node`

    async def act_on_node(self, what: str, name: str) -> dict[str, Any]:
        """Perform `what` ("start", "stop" or "kill") on the node `name`, or on the current master
        (MASTER), and return the node with its new state as a JSON object.

        Returns when a started node serves, or a stopped one has ended; requests run one after
        another. Raises GroupError.
        """
        async with self._busy:
            if self._stopping:
                raise GroupError("the group is being stopped")
            node = await self._node_named(name)
            if what == "start":
                if node.pid:
                    raise GroupError(f"{node.file.name} runs already, pid {node.pid}")
                await self._start(node)
                return self._node_json(node)
            pid = node.pid
            if not pid:
                raise GroupError(f"{node.file.name} does not run")
            await self._end_process(node, signal.SIGKILL if what == "kill" else signal.SIGTERM)
            return {**self._node_json(node), "pid": pid}

    async def node_states(self) -> list[dict[str, Any]]:
        """Return every node with its state as a JSON object, in the order of their start; brokers
        with the role in the name server, "" if unknown."""
        roles = await self._query_roles()
        return [
            {**self._node_json(node), "role": roles.get(node.file.address, "") if node.pid else ""}
            for node in self._nodes.values()
        ]

    async def registered_brokers(self) -> list[dict[str, Any]]:
        """Return the registered brokers in the form of the ready event, the master first."""
        ids = await self._registered_ids()
        found = [
            {
                "name": ids[node.file.address][0],
                "id": ids[node.file.address][1],
                "address": node.file.address,
                "pid": node.pid,
                "role": "slave" if ids[node.file.address][1] else MASTER,
                "node": node.file.name,
            }
            for node in self._nodes.values()
            if node.file.kind == BROKER and node.file.address in ids
        ]
        return sorted(found, key=lambda broker: (broker["id"], broker["node"]))

    def _node_json(self, node: _Node) -> dict[str, Any]:
        """A node with its state as a JSON object."""
        return {
            "node": node.file.name,
            "state": node.state,
            "pid": node.pid,
            "address": node.file.address,
            "config": str(node.file.path),
        }

    async def _node_named(self, name: str) -> _Node:
        """The node with this name, or for MASTER the current master. Raises GroupError."""
        node = self._nodes.get(name)
        if node is None and name == MASTER:
            roles = await self._query_roles()
            node = next(
                (
                    each
                    for each in self._nodes.values()
                    if each.pid and roles.get(each.file.address) == MASTER
                ),
                None,
            )
            if node is None:
                raise GroupError("there is no master now")
        if node is None:
            known = ", ".join([*self._nodes, MASTER])
            raise GroupError(f"there is no node {name}; there are {known}")
        return node

    async def _registered_ids(self) -> dict[str, tuple[str, int]]:
        """Broker name and id by address, from the name server; empty if it does not respond."""
        namesrv = next(iter(self._nodes.values())).file.address
        try:
            async with Admin([namesrv], timeout_ms=ASK_MS, client_options=self._options) as admin:
                listed = (await admin.cluster_list()).brokers
        except (ClientError, RemotingError):
            return {}
        return {line.address: (line.broker_name, line.broker_id) for line in listed}

    async def _query_roles(self) -> dict[str, str]:
        """Role ("master" or "slave") by address of each broker, from the name server."""
        ids = await self._registered_ids()
        return {address: "slave" if number else MASTER for address, (_, number) in ids.items()}

    async def _await_master(self) -> None:
        """Wait until all brokers are registered and one is the master. Raises GroupError."""
        wanted = {node.file.address for node in self._nodes.values() if node.file.kind == BROKER}
        for _ in range(int(GROUP_TIMEOUT_S / POLL_S)):
            ids = await self._registered_ids()
            if wanted <= ids.keys() and any(not ids[address][1] for address in wanted):
                return
            await asyncio.sleep(POLL_S)
        raise GroupError("the brokers did not register, or none of them was elected")

    # Work on one process

    async def _start(self, node: _Node) -> None:
        """Start a process and wait until it serves.

        Raises GroupError with the last line of its log.
        """
        file, logs = node.file, self._logs / node.file.name
        logs.mkdir(parents=True, exist_ok=True)
        words = [
            sys.executable,
            "-m",
            "turbopump.cli.group.child",
            str(os.getpid()),
            file.kind,
            "-c",
            str(file.path),
            "--log-dir",
            str(logs),
            "--log-level",
            self._log_level,
            "--json",
        ]
        with open(logs / "stderr.log", "wb") as err:
            # A new session: Ctrl-C reaches only the parent, which stops the nodes in order.
            node.process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=err,
                start_new_session=True,
            )
        node.is_ready, node.has_exited = asyncio.Event(), asyncio.Event()
        node.state, node.wanted = "starting", "failed"
        node.heard_s = asyncio.get_running_loop().time()
        node.watch = asyncio.create_task(self._watch_events(node, node.process))
        await self._await_ready(node)
        if not node.is_ready.is_set():
            late = node.pid
            code = node.process.returncode
            await self._end_process(node, signal.SIGKILL)
            reason = "it did not get ready in time" if late else _last_line(logs / "stderr.log")
            node.state = "failed"
            failure = GroupError(f"{file.name} did not start: {reason}")
            # The node's configuration or disk is unusable: the command ends with the same exit
            # code.
            failure.exit_code = BAD_INPUT if code == BAD_INPUT else FAILED
            raise failure

    async def _await_ready(self, node: _Node) -> None:
        """Wait until a node is ready or has exited, or reported nothing for READY_S."""
        loop = asyncio.get_running_loop()
        waits = [asyncio.create_task(each.wait()) for each in (node.is_ready, node.has_exited)]
        try:
            while (left_s := node.heard_s + READY_S - loop.time()) > 0:
                done, _ = await asyncio.wait(
                    waits, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    return
        finally:
            for each in waits:
                each.cancel()

    async def _watch_events(self, node: _Node, process: asyncio.subprocess.Process) -> None:
        """Read the events of a process until it ends."""
        assert process.stdout is not None
        while not process.stdout.at_eof():
            # Lines that are no JSON or too long are no events of a node; the loop ends with the
            # pipe.
            with contextlib.suppress(ValueError, RecursionError):
                line = await process.stdout.readline()
                node.heard_s = asyncio.get_running_loop().time()
                event = json.loads(line)
                if isinstance(event, dict):
                    self._on_event(node, event)
        code = await process.wait()
        node.state = node.wanted
        node.has_exited.set()
        ended = {"event": "node", "node": node.file.name, "state": node.state, "pid": process.pid}
        self._notify({**ended, "code": code})

    def _on_event(self, node: _Node, event: dict[str, Any]) -> None:
        """Handle an event of a node's process: it is ready, or has made progress."""
        if event.get("event") == "ready":
            node.state = "running"
            node.is_ready.set()
            self._notify({"event": "node", **self._node_json(node)})
        elif event.get("event") != "stopped":
            self._notify({**event, "node": node.file.name})

    async def _end_process(self, node: _Node, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal and wait for the end of the process; kill it after STOP_S."""
        process = node.process
        if process is None or node.has_exited.is_set():
            return
        node.wanted = "killed" if number == signal.SIGKILL else "stopped"
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            async with asyncio.timeout(STOP_S):
                await node.has_exited.wait()
        except TimeoutError:
            node.wanted = "killed"
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await node.has_exited.wait()


async def _await_all(works: Any) -> None:
    """Wait for all coroutines, then raise the first error."""
    for ended in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended


def _last_line(path: Path) -> str:
    """The last line of a log, without the program's name before it."""
    lines = path.read_text(errors="replace").split("\n")
    texts = [line.strip() for line in lines if line.strip()]
    return texts[-1].removeprefix("turbopump: ") if texts else f"see {path.parent}"
