"""mqadmin in one JVM: it reads commands, and returns their output."""

import base64
import json
import re
from pathlib import Path
from typing import Any

from interop.support import processes, toolchain
from interop.support.groups import Group

# A raw integer key of a map, as RocketMQ's own JSON writes it.
RAW_KEY = re.compile(r"([{,]\s*)(\d+)(\s*:)")
HEAP_MB = 128


class Admin:
    """A running Admin.java."""

    def __init__(self, group: Group, folder: Path) -> None:
        self._namesrv = group.ports.namesrv_address
        self._process = processes.java(
            "mqadmin",
            "turbopump.interop.Admin",
            toolchain.classpath("server"),
            [],
            folder,
            heap_mb=HEAP_MB,
            talks=True,
        )
        # The first command's output starts with lines of the logging library.
        self.run("topicList")

    def run(self, command: str, *words: object) -> str:
        """Return the output of `mqadmin COMMAND -n NAMESRV WORDS...`, including errors."""
        line = "\t".join([command, "-n", self._namesrv, *map(str, words)])
        child = self._process.child
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(line.encode() + b"\n")
        child.stdin.flush()
        printed = child.stdout.readline()
        assert printed, self._process.tail()
        return base64.b64decode(printed).decode(errors="replace")

    def rows(self, command: str, *words: object) -> list[list[str]]:
        """Return the rows of a printed table without its header and the text around it."""
        printed = self.run(command, *words)
        assert "Exception" not in printed, printed
        lines = [line.split() for line in printed.splitlines()]
        headers = [at for at, line in enumerate(lines) if line and line[0].startswith("#")]
        assert headers, printed
        rows = lines[headers[0] + 1 :]
        return rows[: rows.index([])] if [] in rows else rows

    def json(self, command: str, *words: object) -> Any:
        """Parse a printed JSON document."""
        printed = self.run(command, *words)
        assert printed.lstrip().startswith("{"), printed
        return json.loads(RAW_KEY.sub(r'\1"\2"\3', printed))

    def pairs(self, command: str, *words: object) -> dict[str, str]:
        """Parse printed lines of `name : value` or `name = value`."""
        printed = self.run(command, *words)
        assert "Exception" not in printed, printed
        found = re.findall(r"^(\S.*?)[ \t]*(?::|[ \t]=)[ \t]*(.*)$", printed, re.MULTILINE)
        return {name.strip(): value.strip() for name, value in found}

    def close(self) -> None:
        """Ends the JVM."""
        self._process.stop()
