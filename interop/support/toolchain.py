"""Finds Java, Maven and Go, builds the clients and remembers what was built.

Owns interop/.cache and interop/**/target. Never skips: a tool that is missing is a failure that
names the tool. Called by the session fixtures of conftest.py.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent.parent
CACHE = HERE / ".cache"
TOOLS = {"java": "a Java 17 runtime", "mvn": "Maven 3.8 or newer", "go": "Go 1.21 or newer"}
MODULES = ("client-5.5", "client-4.9", "server", "namesrv-4.9", "proxy", "client-grpc")
# A cold Maven or Go cache downloads some 200 MB.
BUILD_TIMEOUT_S = 540


class BuildError(Exception):
    """A build failed or cannot start; the text is for the person who runs the suite."""


def missing_tools() -> list[str]:
    """One sentence for each tool that is not on the PATH."""
    return [
        f"{what} is needed ({name} is not on the PATH)"
        for name, what in TOOLS.items()
        if shutil.which(name) is None
    ]


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


def build_go() -> Path:
    """Builds the Go client; Go's own cache makes a second build quick. Returns the program."""
    CACHE.mkdir(exist_ok=True)
    program = CACHE / "go-client"
    _run(["go", "build", "-o", str(program), "."], HERE / "go")
    return program
