"""Machines of a simulated group that are no brokers: their common base, the name server, clients.

A machine has a name, two clocks, a port and a process, which may be paused, killed, or lose its
power at any moment. The process's memory is lost then; the files that survive depend on the disk.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.disk_parts import saved_at_once
from tests.sim.disk import PowerCut
from tests.sim.group.calls import Clock, Endpoint
from turbopump.engine.deferred import Deferred
from turbopump.namesrv import handlers
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.handlers import NameServer
from turbopump.namesrv.key_values import KeyValues
from turbopump.namesrv.routes import RouteTable
from turbopump.net.transport.dispatcher import Dispatcher, Response
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_request, new_response
from turbopump.net.wire.headers.routes import GetRouteInfoRequest
from turbopump.net.wire.registration.register import RegisterBrokerBody
from turbopump.net.wire.route import TopicRouteData

if TYPE_CHECKING:
    from tests.sim.group.suite import Run

NAMES_ADDRESS = "names:9876"
CLUSTER, GROUP = "cluster", "broker"
CALL_TIMEOUT_MS = 3000
DEAD_MS = 6_000
"""Time after which the name server drops a silent broker, where replicas act."""
SEND_CODES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
    }
)
"""Permitted codes of a send's response."""
# A client that was refused asks for the route, and tries again after this.
AGAIN_MS = (50, 200, 700)


class Process:
    """A machine and the process on it."""

    port = 0
    tick_ms = 100
    """Interval of ticks."""

    def __init__(self, group: "Run", name: str) -> None:
        self.group = group
        self.name = name
        self.paused = False
        self.clock = Clock(lambda: group.now_ms, group.start_ms)
        self.endpoint = Endpoint(group.net, self, self.port, group.trouble)
        self.due_ms = 0
        self.up = False

    def run(self, what: Callable[..., Any], *args: Any) -> Any:
        """Run its code; the process may die of that."""
        try:
            return what(*args)
        except PowerCut:
            self.died()
            return None

    def start(self) -> None:
        """Start a process."""
        self.paused = False
        self.up = True
        self.endpoint.start()
        self.run(self.begin)

    def died(self) -> None:
        """Note that its disk failed during an operation, which ended the process."""
        self.ended(power=True)

    def crash(self, *, power: bool) -> None:
        """Kill the process, or cut the power."""
        self.ended(power=power)

    def ended(self, *, power: bool) -> None:
        """The process is gone."""
        self.up = self.paused = False
        self.endpoint.gone(power=power)

    def tick(self) -> None:
        """Advance the process by one tick."""
        self.run(self._tick)

    def turn(self) -> bool:
        """The loop's turn ends; True if there is more to do soon."""
        if self.endpoint.wire.due:
            self.run(self.endpoint.wire.turn)
        return False

    def _tick(self) -> None:
        self.endpoint.tick()
        if self.up:
            self.on_tick(self.clock.now_ms)

    def begin(self) -> None:
        """Set up a new process."""

    def on_tick(self, now_ms: int) -> None:
        """Do periodic work, by the machine's own clock."""

    def answer(self, request: Command, peer: Peer) -> Response:
        """Refuse the request: no peer sends requests to this machine."""
        return new_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


class Names(Process):
    """The name server: the real table and handlers. It keeps nothing."""

    port = 9876

    def begin(self) -> None:
        config = NamesrvConfig(support_acting_master=self.group.acts)
        self.routes = RouteTable()
        server = NameServer(
            config,
            self.routes,
            KeyValues(saved_at_once),
            self.clock.now_ms,
            lambda notice: None,
            saved_at_once,
        )
        self.table = Dispatcher()
        handlers.register(self.table, server)
        self._scan_ms = config.scan_not_active_broker_interval_ms
        self._scanned_ms = self.clock.now_ms

    def answer(self, request: Command, peer: Peer) -> Response:
        if request.code != RequestCode.REGISTER_BROKER:
            return self.table.dispatch(request, peer, self.clock.now_ms)
        before = self.master
        if request.fields["brokerId"] == "0":
            version = RegisterBrokerBody.decode(request.body).topics.data_version
            self.group.journal.registered(request.fields["brokerAddr"], version.state_version)
        response = self.table.dispatch(request, peer, self.clock.now_ms)
        now = self.master
        if before and now and before != now:
            self.group.journal.shown(before, now)
        return response

    @property
    def master(self) -> str:
        """The broker it takes for the group's master."""
        return self.routes.member_group(GROUP).get(0, "")

    def on_tick(self, now_ms: int) -> None:
        if now_ms - self._scanned_ms >= self._scan_ms:
            self._scanned_ms = now_ms
            for expired in self.routes.unregister_silent(now_ms):
                expired.connection.close()


class Client(Process):
    """Sends messages to the broker that the name server calls the master, one at a time."""

    def __init__(self, group: "Run", name: str, topic: str, queues: int) -> None:
        super().__init__(group, name)
        self.topic = topic
        self.queues = queues
        self.active = True
        """Whether it has anything to send."""
        self.acked = 0
        self.refused: list[str] = []
        """Last reasons for sends that failed since `asked`."""
        self._rng: random.Random = group.rng
        self._busy = False
        self._next_ms = 0
        self._address = ""

    def begin(self) -> None:
        self._busy, self._address, self._next_ms = False, "", 0

    def on_tick(self, now_ms: int) -> None:
        if self._busy or now_ms < self._next_ms or not self.active:
            return
        self._busy = True
        if self._address:
            self._send()
        else:
            header = GetRouteInfoRequest(topic=self.topic)
            request = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            self._ask(NAMES_ADDRESS, request, self._routed)

    def _ask(self, address: str, request: Command, then: Callable[[Command | str], None]) -> None:
        later: Deferred[Command | str] = self.endpoint.call(address, request, CALL_TIMEOUT_MS)
        later.then(then)

    def _routed(self, response: Command | str) -> None:
        if isinstance(response, str) or response.code != ResponseCode.SUCCESS:
            self._wait(response if isinstance(response, str) else f"route: {response.code}")
            return
        route = TopicRouteData.decode(response.body)
        masters = [group.broker_addrs[0] for group in route.broker_datas if 0 in group.broker_addrs]
        if not masters:
            self._wait("the route knows no master")
            return
        self.group.journal.routed(masters[0])
        self._address = masters[0]
        self._send()

    def _send(self) -> None:
        rng = self._rng
        queue_id = int(rng.random() * self.queues)
        body = self.group.new_body()
        fields = {"topic": self.topic, "queueId": str(queue_id)}
        request = new_request(RequestCode.SEND_MESSAGE, None, body, fields=fields)
        self._ask(self._address, request, partial(self._sent, body))

    def _sent(self, body: bytes, response: Command | str) -> None:
        if isinstance(response, str):
            self._address = ""
            self._wait(response)
            return
        assert response.code in SEND_CODES, (
            f"a send is answered with {response.code} {response.remark}"
        )
        if response.code != ResponseCode.SUCCESS:
            self._address = ""
            self._wait(f"{response.code} {response.remark}")
            return
        self.acked += 1
        self.refused.clear()
        self.group.client_acked(self, body)
        self._busy = False
        self._next_ms = self.clock.now_ms + self.group.think_ms()

    def _wait(self, why: str) -> None:
        self.refused = [*self.refused[-3:], why]
        self._busy = False
        self._next_ms = self.clock.now_ms + AGAIN_MS[int(self._rng.random() * len(AGAIN_MS))]


class Admin(Process):
    """An operator: asks for the leading controller, and sends its command there."""

    def __init__(self, group: "Run", name: str) -> None:
        super().__init__(group, name)
        self.codes: list[int] = []
        """Codes of the responses."""

    def elect(self, broker_id: int) -> None:
        """Send CONTROLLER_ELECT_MASTER for a broker."""
        fields = {
            "clusterName": CLUSTER,
            "brokerName": GROUP,
            "brokerId": str(broker_id),
            "designateElect": "true",
        }
        self.tell(RequestCode.CONTROLLER_ELECT_MASTER, fields)

    def tell(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        """Any request to the leader."""
        for controller in self.group.controllers:
            if controller.is_leader and self.up:
                request = new_request(code, None, body, fields=fields)
                later = self.endpoint.call(controller.endpoint.address, request, CALL_TIMEOUT_MS)
                later.then(self._told)
                return

    def send_junk(self, address: str, code: int, fields: dict[str, str], body: bytes) -> None:
        """Send a request that no client sends. Any response, or none, is accepted."""
        if self.up:
            request = new_request(code, None, body, fields=fields)
            self.endpoint.call(address, request, CALL_TIMEOUT_MS)

    def _told(self, response: Command | str) -> None:
        if isinstance(response, Command):
            self.codes.append(response.code)
