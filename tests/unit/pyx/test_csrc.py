"""The kernels as C: no warning with the strict flags, and no function that needs a library."""

import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[3] / "csrc"
GENERATED = CSRC.parent / "build" / "generated"
UNITS = sorted(path.name for path in CSRC.glob("*.c"))
FLAGS = ["-std=c11", "-O3", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
# Functions that even a freestanding C implementation must have.
ALLOWED = {"memcpy", "memcmp", "memset", "memmove", "memchr", "bcmp", "__cpu_model"}
# The load generator is not part of a broker: its loop `load.c` is the only unit that does I/O.
LOOP_CALLS = {
    "epoll_ctl", "epoll_wait", "ppoll", "recv", "send", "clock_gettime", "prctl",
    "usleep", "__errno_location",
}  # fmt: skip
ALLOWED_IN = {
    "load.c": LOOP_CALLS,
    "h2_library.c": {"dlopen", "dlsym"},
    # The shell of I/O threads: threads, sockets, and memory that no interpreter can give.
    "byte_ring.c": {"mmap", "munmap", "__errno_location", "__assert_fail"},
    "io_loop.c": {"aligned_alloc", "pthread_getcpuclockid", "clock_gettime"},
    "io_thread.c": {
        "__assert_fail",
        "malloc",
        "free",
        "__errno_location",
        "sigfillset",
        "sched_yield",
        "close",
        "pthread_create",
        "pthread_join",
        "pthread_sigmask",
        "epoll_create1",
        "epoll_ctl",
        "epoll_wait",
        "eventfd",
        "eventfd_read",
        "eventfd_write",
        "recv",
        "send",
        "sendmsg",
        "shutdown",
    },
    "load_frame.c": {"memmem", "strlen"},
    "lane_ack.c": {"strlen"},  # of constants
    "filter.c": {"memmem"},
    # Of digits and an exponent, without a point: the same in every locale.
    "filter_number.c": {"strtod"},
}

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


@pytest.fixture(scope="module", params=UNITS)
def compiled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """The name and the object file of a unit, which is compiled once for all tests."""
    unit: str = request.param
    built = tmp_path_factory.mktemp("unit") / "unit.o"
    done = subprocess.run(
        ["gcc", *FLAGS, f"-I{CSRC}", f"-I{GENERATED}", "-c", str(CSRC / unit), "-o", str(built)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return unit, built


@needs_gcc
def test_compiles_without_a_warning_and_calls_no_library(compiled: tuple[str, Path]) -> None:
    unit, built = compiled
    names = subprocess.run(
        ["nm", "--undefined-only", "--format=just-symbols", str(built)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    own = (
        "crc32_", "rec_", "cq_", "idx_", "dsp_", "qm_", "frame_", "json_", "trf_", "nam_", "load_",
        "walk_", "col_", "utf8_", "flt_", "num_", "tmr_", "lane_", "grc_",
        "des_", "io_", "ring_",
    )  # fmt: skip
    own += ("_GLOBAL_OFFSET_TABLE_",)
    foreign = {name for name in names if not name.startswith(own)}
    foreign -= ALLOWED | ALLOWED_IN.get(unit, set())
    assert not foreign, f"{unit} calls {foreign}"


@needs_gcc
def test_has_no_writable_globals(compiled: tuple[str, Path]) -> None:
    listing = subprocess.run(
        ["nm", str(compiled[1])], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    writable = [line for line in listing if line.split()[-2] in "bBdDC"]
    assert not writable


@needs_gcc
def test_touching_a_page_changes_nothing(tmp_path: Path) -> None:
    """Region.warm does so on kernels before 5.14, on which tests rarely run."""
    source = tmp_path / "touch.c"
    source.write_text(
        '#include "bytes.h"\n'
        "int main(void)\n{\n"
        "    static uint8_t page[64];\n"
        "    for (uint8_t i = 0; i < 64; i++) page[i] = i;\n"
        "    for (size_t i = 0; i < 64; i++) bytes_touch(page + i);\n"
        "    for (uint8_t i = 0; i < 64; i++) if (page[i] != i) return 1;\n"
        "    return 0;\n}\n"
    )
    program = tmp_path / "touch"
    subprocess.run(["gcc", *FLAGS, f"-I{CSRC}", str(source), "-o", str(program)], check=True)
    assert subprocess.run([str(program)]).returncode == 0
