"""Processes that this suite starts: their output goes to files, and they are ended by their own
pid.

Never ends a process that it did not start.
"""

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1
STOP_TIMEOUT_S = 30
JAVA_SMALL = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
# RocketMQ needs these of Java 17 to unmap files and size direct memory.
JAVA_OPENINGS = [
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
]
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A child process with its output in `folder/NAME.out` and `folder/NAME.err`.

    Must be started on the main thread: the kernel ends the child together with the thread that
    started it, and the threads of an event loop's executor end when the loop is closed.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        folder: Path,
        *,
        environment: dict[str, str] | None = None,
        talks: bool = False,
    ) -> None:
        assert threading.current_thread() is threading.main_thread()
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.out = folder / f"{name}.out"
        self.err = folder / f"{name}.err"
        with self.err.open("ab") as err:
            out: IO[bytes] | int = subprocess.PIPE if talks else self.out.open("ab")
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                preexec_fn=_die_with_parent,
            )
            if not isinstance(out, int):
                out.close()

    @property
    def running(self) -> bool:
        """Whether the child is running."""
        return self.child.poll() is None

    def wait(self, timeout_s: float) -> int:
        """Return the exit code; kill the child and raise TimeoutExpired if it takes longer."""
        try:
            return self.child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if the process does not end."""
        if self.running:
            self.child.terminate()
        try:
            self.child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close_pipes()

    def kill(self) -> None:
        """Send SIGKILL, so that the process cannot clean up."""
        self.child.kill()
        self.child.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                pipe.close()

    def tail(self, size: int = 3000) -> str:
        """Return the end of its output."""
        parts = [
            file.read_text(errors="replace")[-size:]
            for file in (self.out, self.err)
            if file.exists()
        ]
        return f"--- {self.name} ---\n" + "\n".join(parts)


def java(
    name: str,
    main: str,
    class_path: str,
    arguments: list[str],
    folder: Path,
    *,
    heap_mb: int,
    talks: bool = False,
    options: Sequence[str] = JAVA_SMALL,
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Starts a Java program whose home, logs and offsets stay inside `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    options = [
        f"-Xms{heap_mb}m",
        f"-Xmx{heap_mb}m",
        *options,
        *JAVA_OPENINGS,
        f"-Duser.home={folder}",
        "-Drocketmq.client.logLevel=WARN",
        f"-Drocketmq.client.localOffsetStoreDir={folder}/offsets",
    ]
    command = ["java", *options, "-cp", class_path, main, *arguments]
    home = {"ROCKETMQ_HOME": str(folder)}
    return Process(name, command, folder, environment={**home, **(environment or {})}, talks=talks)
