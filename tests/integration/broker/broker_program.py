"""A broker as a process: prints its address when it serves, stops cleanly at SIGTERM."""

import sys
from pathlib import Path

import uvloop

from turbopump.broker.config.config import load_config
from turbopump.broker.node import BrokerNode
from turbopump.cli.serve import serve_until_signal


async def main(path: str) -> None:
    config, _ = load_config(Path(path).read_text())
    node = BrokerNode(config)
    await serve_until_signal(node, lambda: print(node.address, flush=True))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
