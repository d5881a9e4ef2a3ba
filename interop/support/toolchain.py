"""Finds Java, Maven and Go, builds the clients and remembers finished builds.

Owns interop/.cache, interop/**/target and build/interop. Never skips: a missing tool is a failure
that names the tool.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent.parent
CACHE = HERE / ".cache"
PACKAGES = HERE.parent / "build" / "interop"
"""Folders of other projects' files, which are no source of this repository."""
TOOLS = {
    "java": "a Java 17 runtime",
    "mvn": "Maven 3.8 or newer",
    "go": "Go 1.25 or newer",
    "cargo": "Rust 1.85 or newer",
    "node": "Node.js 18 or newer",
    "npm": "npm",
}
MODULES = ("client-5.5", "client-4.9", "server", "namesrv-4.9", "proxy", "client-grpc")
GRPC_PYTHON = "rocketmq-python-client==5.1.2"
GRPC_NODE = "rocketmq-client-nodejs@1.0.8"
H2SPEC = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"
# A cold Maven or Go cache downloads some 200 MB.
BUILD_TIMEOUT_S = 540


class BuildError(Exception):
    """A build failed or cannot start; the text is for the person who runs the suite."""


def missing_tools() -> list[str]:
    """Return one sentence for each tool that is not on the PATH."""
    return [
        f"{what} is needed ({name} is not on the PATH)"
        for name, what in TOOLS.items()
        if shutil.which(name) is None
    ]


@contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock: test processes side by side build one after the other, and share the results."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(str(file.relative_to(HERE)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S
    )
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed in {folder}:\n{done.stdout}{done.stderr}")


@_alone()
def build_java() -> None:
    """Compiles the Maven modules unless they were built from these very sources."""
    folder = HERE / "java"
    sources = [
        file
        for kind in ("*.java", "pom.xml")
        for file in folder.rglob(kind)
        if "target" not in file.parts
    ]
    stamp, wanted = CACHE / "java.stamp", _digest(sources)
    if stamp.exists() and stamp.read_text() == wanted and _classpaths_exist(folder):
        return
    _run(["mvn", "-q", "-B", "-ntp", "clean", "compile"], folder)
    CACHE.mkdir(exist_ok=True)
    stamp.write_text(wanted)


def _classpaths_exist(folder: Path) -> bool:
    lists = [folder / module / "target" / "classpath.txt" for module in MODULES]
    return all(
        listed.exists() and all(Path(jar).exists() for jar in listed.read_text().split(":"))
        for listed in lists
    )


def classpath(module: str) -> str:
    """The class path of a built module: its own classes, then its libraries."""
    target = HERE / "java" / module / "target"
    return f"{target / 'classes'}:{(target / 'classpath.txt').read_text().strip()}"


@_alone()
def build_python() -> Path:
    """Makes the environment of RocketMQ's Python client of gRPC. Returns its interpreter."""
    folder, stamp = PACKAGES / "grpc-python", PACKAGES / "grpc-python.stamp"
    program = folder / "bin" / "python"
    if not (program.exists() and stamp.exists() and stamp.read_text() == GRPC_PYTHON):
        stamp.unlink(missing_ok=True)
        PACKAGES.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)], HERE)
        _run([str(program), "-m", "pip", "install", "-q", *GRPC_PYTHON.split()], HERE)
        stamp.write_text(GRPC_PYTHON)
    return program


@_alone()
def build_node() -> Path:
    """Fetches RocketMQ's Node.js client of gRPC. Returns the folder of its packages."""
    folder, stamp = PACKAGES / "grpc-node", PACKAGES / "grpc-node.stamp"
    if not (stamp.exists() and stamp.read_text() == GRPC_NODE):
        stamp.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        quiet = ["--no-audit", "--no-fund", "--no-save", "--prefix", str(folder)]
        _run(["npm", "install", *quiet, GRPC_NODE], folder)
        stamp.write_text(GRPC_NODE)
    return folder / "node_modules"


@_alone()
def build_h2spec() -> Path:
    """Builds h2spec, a conformance test of HTTP/2 servers. Returns the program."""
    program, stamp = PACKAGES / "h2spec", PACKAGES / "h2spec.stamp"
    if not (program.exists() and stamp.exists() and stamp.read_text() == H2SPEC):
        stamp.unlink(missing_ok=True)
        PACKAGES.mkdir(parents=True, exist_ok=True)
        _run(["env", f"GOBIN={PACKAGES}", "go", "install", H2SPEC], HERE)
        stamp.write_text(H2SPEC)
    return program


@_alone()
def build_rust() -> Path:
    """Builds the Rust client of gRPC unless it was built from these very sources. Returns the
    program."""
    folder, stamp = HERE / "rust", CACHE / "rust.stamp"
    program = PACKAGES / "rust" / "debug" / "interop-rust"
    wanted = _digest([folder / "Cargo.toml", folder / "Cargo.lock", *folder.glob("src/*.rs")])
    if not (program.exists() and stamp.exists() and stamp.read_text() == wanted):
        # The build takes some minutes beside tests of another process.
        build = ["nice", "-n", "10", "cargo", "build", "-q", "--locked", "--target-dir"]
        _run([*build, str(PACKAGES / "rust")], folder)
        stamp.write_text(wanted)
    return program


@_alone()
def build_go() -> Path:
    """Builds the Go client; Go's own cache makes a second build quick. Returns the program."""
    CACHE.mkdir(exist_ok=True)
    program = CACHE / "go-client"
    _run(["go", "build", "-o", str(program), "."], HERE / "go")
    return program
