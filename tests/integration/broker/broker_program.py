"""A broker as a process: prints its address when it serves, stops cleanly at SIGTERM."""

import asyncio
import signal
import sys
from pathlib import Path

import uvloop

from turbopump.broker.config import load_config
from turbopump.broker.node import BrokerNode


async def main(path: str) -> None:
    config, _ = load_config(Path(path).read_text())
    node = BrokerNode(config)
    await node.start()
    print(node.address, flush=True)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await node.stop()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
