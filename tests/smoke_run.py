"""`make run` as a newcomer types it: wait for the ready event, send, consume, stop. Run by CI."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 20.0


async def exchange(namesrv: str) -> None:
    """Send one message and read it back through the public client."""
    import turbopump

    async with turbopump.Producer("smoke", namesrv=[namesrv]) as producer:
        await producer.send(turbopump.Message("Smoke", b"hello"))
    async with turbopump.PullConsumer("smoke-reader", namesrv=[namesrv]) as consumer:
        await consumer.assign(await consumer.queues("Smoke"))
        for _ in range(100):
            messages = await consumer.poll(timeout_ms=1000)
            if any(message.body == b"hello" for message in messages):
                return
        raise AssertionError("the message did not come back")


def main() -> int:
    """Start `make run`, use it, stop it with SIGINT as Ctrl-C would; 0 when all went well."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = f"--json --data {folder}/data --namesrv-port 0 --broker-port 0"
        process = subprocess.Popen(
            ["make", "--no-print-directory", "run", f"ARGS={arguments}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            ready = {}
            for line in process.stdout:
                if line.startswith("{"):
                    ready = json.loads(line)
                    break
            assert ready.get("event") == "ready", ready
            asyncio.run(asyncio.wait_for(exchange(ready["namesrv"][0]), READY_TIMEOUT_S))
            os.kill(ready["brokers"][0]["pid"], signal.SIGINT)
            process.wait(STOP_TIMEOUT_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        assert not list(Path(folder).rglob("abort"))
    print(f"ready, sent, received, stopped with exit code {process.returncode}")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
