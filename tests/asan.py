"""The kernel tests under the address and undefined-behaviour sanitizers.

    python -m tests.asan [pytest arguments]

Builds the extensions once more, instrumented, into build/asan (the ones in use stay as they are)
and runs the tests of the kernels on those. Python's own allocator is switched off, so that each
bytes object is its own malloc'd block, with red zones around it.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "build" / "asan"
TEMP = str(ROOT / "build" / "asan-temp")
TESTS = [
    "tests/unit/pyx",
    "tests/unit/net/ha/test_ha_copy.py",
    "tests/unit/broker/traffic/test_fast_path.py",
    "tests/unit/broker/traffic/test_native_holds.py",
    "tests/property/queues/test_held_pulls.py",
    "tests/unit/broker/test_reentrancy.py",
    "tests/unit/broker/grpc/test_native_acks.py",
    "tests/unit/broker/grpc/test_native_receives.py",
    "tests/unit/broker/grpc/test_native_sends.py",
    "tests/unit/net/messaging/test_sending.py",
    "tests/unit/broker/traffic/test_pending_answers.py",
    "tests/integration/transport/test_transport_cut.py",
    "tests/unit/broker/scheduled",
    "tests/property/test_timer_batches.py",
    # Ends of transactions (csrc/lane_end.c), which the kernels' own tests do not reach.
    "tests/property/test_fast_lane.py::test_both_paths_keep_and_end_the_same",
    "tests/property/descriptors",
    "tests/property/templates",
    "tests/property/test_fast_lane_acks.py",
    "tests/property/pops/test_fast_lane_pops.py",
    "tests/unit/net/grpc",
    *map(str, sorted((ROOT / "tests/property").glob("test_kernels*.py"))),
]


OPTIONS = (
    "--import-mode=importlib -p no:cacheprovider --disable-plugin-autoload"
    " -p xdist -p timeout -p benchmark -p hypothesispytest"
)
"""Options of pyproject.toml without the plugin `turbopump`, which needs modules that are not built
here.
"""

REFERENCES = ["engine", "net", "broker"]
"""Rooms in Python that kernels are compared with; they run on the instrumented extensions."""


def build() -> None:
    """Build the instrumented extensions, and link the files beside them that make them importable
    and comparable.
    """
    subprocess.run(
        [
            sys.executable,
            "setup.py",
            "--quiet",
            "build_clib",
            "--build-clib",
            TEMP,
            "--build-temp",
            TEMP,
            "build_ext",
            "--build-lib",
            str(BUILT),
            "--build-temp",
            TEMP,
        ],
        cwd=ROOT,
        check=True,
        env={**os.environ, "TURBOPUMP_SANITIZE": "1"},
    )
    (BUILT / "turbopump" / "__init__.py").write_text("")
    (BUILT / "turbopump" / "pyx" / "__init__.py").write_text("")
    for room in REFERENCES:
        link = BUILT / "turbopump" / room
        if not link.is_symlink():
            link.symlink_to(ROOT / room)


def library(name: str) -> str:
    """Path of a sanitizer's run-time library."""
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


def environment() -> dict[str, str]:
    """Environment in which Python uses the instrumented extensions, and ends at the first
    report.
    """
    return {
        **os.environ,
        "PYTHONPATH": str(BUILT),
        "PYTHONMALLOC": "malloc",
        # The C++ run time first: its exceptions must be known to the sanitizer from the start.
        "LD_PRELOAD": f"{library('libasan.so')} {library('libstdc++.so.6')}",
        # CPython leaks by design at exit; memory that the kernels own is never allocated by them.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }


def main() -> int:
    """Build, run, and return pytest's exit code."""
    build()
    variables = environment()
    where = "import turbopump.pyx.record as kernel; print(kernel.__file__)"
    used = subprocess.run(
        [sys.executable, "-c", where], env=variables, check=True, capture_output=True, text=True
    ).stdout
    assert str(BUILT) in used, f"the tests would run on {used}"
    # A report goes to file descriptor 2 and the process ends: pytest must not hold it back.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-o",
        f"addopts={OPTIONS}",
        "-q",
        "--capture=sys",
        "--timeout=600",
        "-n",
        "2",
        "--max-worker-restart=0",
        *TESTS,
        *sys.argv[1:],
    ]
    return subprocess.run(command, cwd=ROOT, env=variables).returncode


if __name__ == "__main__":
    sys.exit(main())
