"""Brokers come, go, change name, id and cluster, disconnect and fall silent in any order: the route
table never shows an absent broker, and is empty when all have gone.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from turbopump.namesrv.registrations import BrokerRegistration
from turbopump.namesrv.routes import RouteTable
from turbopump.net.wire.bodies import run_to_result
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs

NAMES = st.sampled_from(["a", "b", "d"])
CLUSTERS = st.sampled_from(["c1", "c2"])
ADDRESSES = st.sampled_from([f"10.0.0.{n}:1" for n in range(4)])
CONNECTIONS = st.integers(0, 3)
TOPICS = st.sets(st.sampled_from(["T", "U", "V", "W"]))
LONG_MS = 1_000_000


class Routes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now_ms = LONG_MS

    @rule(
        name=NAMES,
        cluster=CLUSTERS,
        address=ADDRESSES,
        connection=CONNECTIONS,
        topics=TOPICS,
        broker_id=st.integers(0, 2),
        state=st.integers(0, 2),
        counter=st.integers(0, 2),
        acting=st.sampled_from([None, False, True]),
        timeout_ms=st.sampled_from([None, 50, 500]),
        delete=st.booleans(),
    )
    def register(
        self,
        name: str,
        cluster: str,
        address: str,
        connection: int,
        topics: set[str],
        broker_id: int,
        state: int,
        counter: int,
        acting: bool | None,
        timeout_ms: int | None,
        delete: bool,
    ) -> None:
        version = DataVersion(counter, state, 0)
        configs = TopicConfigs(version, {topic: TopicConfig(topic, 2, 2) for topic in topics})
        broker = BrokerRegistration(
            cluster, name, broker_id, address, configs, timeout_ms=timeout_ms, acting_master=acting
        )
        before, known = self.table.member_group(name), self.table.data_version(cluster, address)
        is_holder = known is not None and before.get(broker_id) == address
        done = self.table.register(broker, connection, self.now_ms, delete_missing_topics=delete)
        members = self.table.member_group(name)
        if done.refusal is not None:
            assert members == before
        elif is_holder and known is not None and known.state_version > state:
            assert members == before, "of an earlier term"
            assert self.table.data_version(cluster, address) == known
        elif members.get(broker_id) == address:
            assert list(members.values()).count(address) == 1
            assert self.table.data_version(cluster, address) == version
        else:
            assert self.table.data_version(cluster, address) is None

    @rule(name=NAMES, cluster=CLUSTERS, address=ADDRESSES)
    def unregister(self, name: str, cluster: str, address: str) -> None:
        self.table.unregister(cluster, name, address)
        assert self.table.data_version(cluster, address) is None

    @rule(connection=CONNECTIONS)
    def hang_up(self, connection: int) -> None:
        self.table.connection_closed(connection)

    @rule(cluster=CLUSTERS, address=ADDRESSES)
    def beat(self, cluster: str, address: str) -> None:
        self.table.record_heartbeat(cluster, address, self.now_ms)

    @rule(passed_ms=st.sampled_from([1, 60, 600]))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        for expired in self.table.unregister_silent(self.now_ms):
            assert self.table.data_version(*expired.key) is None
        assert self.table.unregister_silent(self.now_ms) == []

    @rule(topic=st.sampled_from(["T", "U"]), cluster=st.sampled_from([None, "c1"]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.table.delete_topic(topic, cluster)

    @rule(name=NAMES)
    @precondition(lambda self: self.table.topics())
    def permissions(self, name: str) -> None:
        assert run_to_result(self.table.wipe_write_permission(name)) == run_to_result(
            self.table.add_write_permission(name)
        )

    @invariant()
    def groups_are_whole(self) -> None:
        info = self.table.cluster_info()
        listed = {name for names in info.cluster_addr_table.values() for name in names}
        assert listed == set(info.broker_addr_table)
        for group in info.broker_addr_table.values():
            addresses = list(group.broker_addrs.values())
            assert addresses
            assert len(set(addresses)) == len(addresses)

    @invariant()
    def routes_name_known_brokers(self) -> None:
        known = set(self.table.cluster_info().broker_addr_table)
        for topic in self.table.topics():
            for acting in (False, True):
                route = self.table.find_route(topic, acting_master=acting)
                assert route is not None
                names = [queue.broker_name for queue in route.queue_datas]
                assert names == [group.broker_name for group in route.broker_datas]
                assert names
                assert set(names) <= known

    @invariant()
    def topics_of_clusters_are_topics(self) -> None:
        for cluster in self.table.cluster_info().cluster_addr_table:
            assert set(run_to_result(self.table.topics_of_cluster(cluster))) <= set(
                self.table.topics()
            )

    def teardown(self) -> None:
        self.table.unregister_silent(self.now_ms + 2 * LONG_MS)
        assert self.table.topics() == []
        assert self.table.cluster_info().to_json() == {
            "brokerAddrTable": {},
            "clusterAddrTable": {},
        }


Routes.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
TestRoutes = Routes.TestCase
