"""Records the bytes that RocketMQ's clients of gRPC send to a broker, for tests/golden/grpc.

    python -m interop.grpc.recording FOLDER

Starts its own broker that records the bytes of each connection, and runs the scenario `simple` of
each client without TLS, under a separate host name, because the bytes contain it. A file
CLIENT-N.bin is one connection, in the order in which they were opened. The recordings hold the
behaviour of these versions; unit tests replay them (tests/unit/broker/grpc/test_recorded.py). Needs
root, for the host name, and the tools that `make interop` needs.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from interop.support import groups, processes, toolchain
from interop.support.groups import Group, Ports
from interop.support.mqadmin import Admin
from interop.support.processes import Process
from turbopump.net.grpc.connection import GrpcConnection

HOST_NAME = "client"
SCENARIO = "simple"
RUN_S = 120.0
_Hear = Callable[[GrpcConnection, memoryview], None]


def serve(folder: Path) -> None:
    """Run a broker that records, until it is stopped: `up` with the rest of the command line."""
    from turbopump.cli import main as command

    hear: _Hear = GrpcConnection._on_read
    numbers: dict[str, int] = {}

    def recorded(connection: GrpcConnection, data: memoryview) -> None:
        number = numbers.setdefault(connection.address, len(numbers))
        with (folder / f"{number}.bin").open("ab") as file:
            file.write(data)
        hear(connection, data)

    GrpcConnection._on_read = recorded  # type: ignore[method-assign, assignment]
    sys.argv = ["turbopump", "up", *sys.argv[3:]]
    command()


def _clients(endpoints: str) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Return the command and its environment, by client."""
    here = Path(__file__).parent
    python, node = str(toolchain.build_python()), str(toolchain.build_node())
    java = [
        "java",
        *processes.JAVA_SMALL,
        "-Xmx256m",
        "-cp",
        toolchain.classpath("client-grpc"),
        "turbopump.interop.Proxied",
    ]
    plain = "rocketmq.client.enableSsl=false"
    return {
        "java": ([*java, endpoints, SCENARIO], {}),
        "python": (
            [python, str(here / "python_client.py"), endpoints, SCENARIO],
            {"PYTHONPATH": ""},
        ),
        "node": (
            ["node", str(here / "node_client.cjs"), endpoints, SCENARIO],
            {"NODE_PATH": node},
        ),
        "go": (["env", plain, str(toolchain.build_go()), "grpc", endpoints, SCENARIO], {}),
        "rust": ([str(toolchain.build_rust()), endpoints, SCENARIO], {}),
    }


def record(target: Path) -> None:
    """Write the files."""
    toolchain.build_java()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        raw = folder / "raw"
        raw.mkdir()
        ports = Ports.free()
        where = ["--data", str(folder / "data"), "--namesrv-port", str(ports.namesrv)]
        where += ["--json", "--broker-port", str(ports.broker)]
        command = [sys.executable, "-m", "interop.grpc.recording", "--serve", str(raw), *where]
        root = {"PYTHONPATH": str(toolchain.HERE.parent)}
        server = Process("server", command, folder / "server", environment=root)
        group = Group(ports, [server])
        try:
            groups.wait_ready(group)
            admin = Admin(group, folder / "admin")
            clients = _clients(ports.broker_address)
            for name in clients:
                topic = SCENARIO if name == "java" else f"{name}-{SCENARIO}"
                made = admin.run(
                    "updateTopic", "-b", ports.broker_address, "-t", topic, "-r", 1, "-w", 1
                )
                assert "success" in made, made
            admin.close()
            for name, (line, environment) in clients.items():
                before = set(raw.iterdir())
                _play(line, {**environment, "HOME": str(folder / name)}, folder / name)
                new = sorted(set(raw.iterdir()) - before, key=lambda one: int(one.stem))
                for number, file in enumerate(new):
                    (target / f"{name}-{number}.bin").write_bytes(file.read_bytes())
                print(name, [len(file.read_bytes()) for file in new])
        finally:
            group.stop()


def _play(line: list[str], environment: dict[str, str], folder: Path) -> None:
    """Run one client, under the other host name."""
    folder.mkdir()
    script = f'hostname {HOST_NAME} && exec "$@"'  # the shell loses names of variables with dots
    done = subprocess.run(
        ["unshare", "--uts", "sh", "-c", script, "sh", *line],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    found = [json.loads(one) for one in done.stdout.splitlines() if one.startswith("{")]
    flaws = [one for one in found if one["kind"] == "check" and not one["ok"]]
    assert found and not flaws, (flaws, done.stdout[-500:], done.stderr[-2_000:])


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(Path(sys.argv[2]))
    else:
        record(Path(sys.argv[1]))
