"""Builds bench/tls_load.c, by which the load generator speaks TLS with any broker.

    LD_PRELOAD=$(python -m bench.tls_load FOLDER) turbopump bench producer ...

Needs a C compiler and OpenSSL's headers (libssl-dev).
"""

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().with_suffix(".c")


def compile_library(folder: Path) -> Path:
    """Compile bench/tls_load.c into the folder; return the library for LD_PRELOAD."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "tls_load.so"
    command = ["gcc", "-O3", "-shared", "-fPIC", "-o", library, SOURCE, "-lssl", "-lcrypto", "-ldl"]
    subprocess.run(list(map(str, command)), check=True)
    return library


if __name__ == "__main__":
    print(compile_library(Path(sys.argv[1]).resolve()))
