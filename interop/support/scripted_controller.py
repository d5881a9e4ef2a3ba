"""A scripted controller that answers the requests of a RocketMQ broker in controller mode.

The test chooses the master. The SyncStateSet is the last that this master asked for, because a
RocketMQ master that is refused never counts a replica as in sync again. It owns its port and
threads; the real controller has its own tests.
"""

import json
import socketserver
import struct
import threading
from dataclasses import dataclass, field
from typing import Any

from interop.support.groups import BROKER_NAME, CLUSTER, ask
from interop.support.ports import free_port

NOTIFY_ROLE = 1008
MASTER_STILL_EXISTS, SET_REFUSED, UNKNOWN = 2011, 2013, 3


@dataclass
class Controller:
    """The controller's state, for the broker with the id `guest`."""

    guest: int
    addresses: dict[int, str]
    port: int = field(default_factory=free_port)
    epoch: int = 0
    master: int = 0
    members: list[int] = field(default_factory=list)
    set_epoch: int = 0
    """Epoch of `members`: it rises with each change of them and with each election."""

    def __post_init__(self) -> None:
        controller = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while sizes := self.rfile.read(8):
                    size, header_size = struct.unpack(">II", sizes)
                    header_size &= 0xFFFFFF
                    request = json.loads(self.rfile.read(header_size))
                    body = self.rfile.read(size - 4 - header_size)
                    self.wfile.write(controller._answer(request, body))

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True
            block_on_close = False

        self._lock = threading.Lock()
        self._server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """Address for controllerAddr."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def elect(self, master: int, members: list[int]) -> None:
        """Begin the next epoch, with that master and SyncStateSet."""
        with self._lock:
            self.epoch += 1
            self.master, self.members = master, members
            self.set_epoch += 1

    def notify(self, port: int) -> None:
        """Notify a broker, which otherwise asks only every five seconds."""
        with self._lock:
            fields = {**self._master(), "syncStateSetEpoch": str(self.set_epoch)}
            body = self._set()
        response = ask(port, NOTIFY_ROLE, fields, body)
        assert response.code == 0, response

    def _master(self) -> dict[str, str]:
        return {
            "masterBrokerId": str(self.master),
            "masterEpoch": str(self.epoch),
            "masterAddress": self.addresses[self.master],
        }

    def _set(self) -> bytes:
        return json.dumps(
            {"syncStateSet": self.members, "syncStateSetEpoch": self.set_epoch}
        ).encode()

    def _alter(self, fields: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Set the SyncStateSet that a master asks for, if the master knows the current one."""
        wanted = json.loads(body)
        if (int(fields["masterEpoch"]), wanted["syncStateSetEpoch"]) != (
            self.epoch,
            self.set_epoch,
        ):
            return SET_REFUSED, {}, b""
        self.members, self.set_epoch = sorted(wanted["syncStateSet"]), self.set_epoch + 1
        return 0, {}, self._set()

    def _answer(self, request: dict[str, Any], asked: bytes) -> bytes:
        with self._lock:
            code, fields, body = self._answer_to(request, asked)
        header = json.dumps(
            {
                "code": code,
                "language": "OTHER",
                "version": 513,
                "opaque": request["opaque"],
                "flag": 1,
                "serializeTypeCurrentRPC": "JSON",
                "extFields": fields,
            }
        ).encode()
        return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body

    def _answer_to(
        self, request: dict[str, Any], asked: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        group = {"clusterName": CLUSTER, "brokerName": BROKER_NAME}
        known = {**group, **self._master(), "syncStateSetEpoch": str(self.set_epoch)}
        match request["code"]:
            case 904:  # a heartbeat
                return 0, {}, b""
            case 1001:  # another SyncStateSet
                return self._alter(request["extFields"], asked)
            case 1002:  # an election
                members = json.dumps({"syncStateSet": self.members}).encode()
                return MASTER_STILL_EXISTS, known, members
            case 1003:  # registration
                return 0, known, self._set()
            case 1004:  # the master
                return 0, self._master(), self._set()
            case 1005:  # the leading controller
                return (
                    0,
                    {
                        "group": "g",
                        "controllerLeaderId": "n0",
                        "isLeader": "true",
                        "controllerLeaderAddress": self.address,
                        "peers": f"n0:{self.address};",
                    },
                    b"",
                )
            case 1012:  # the next free id
                return 0, {**group, "nextBrokerId": str(self.guest)}, b""
            case 1013:  # takes that id
                return 0, group, b""
            case _:
                return UNKNOWN, {}, b""
