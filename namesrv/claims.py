"""What a registration may claim: names, versions and timeouts such as brokers send.

Owns the bounds of a registration, and who is asked when two brokers claim one place. It must never
touch the route table by itself, read a clock or open a socket. Called by the handler of 103.

Any peer that reaches a name server can register. This keeps out what no broker says, and what
claims the place of another without being there; who may register at all is not decided here.
"""

import logging
from typing import Final

from turbopump.namesrv.registrations import BrokerRegistration
from turbopump.net.wire.bodies import READ, Steps, dump
from turbopump.net.wire.names import MAX_NAME_LENGTH, check_lengths
from turbopump.net.wire.topics import DataVersion

logger = logging.getLogger(__name__)

MAX_TIMEOUT_MS: Final = 300_000
"""The longest a silent broker is kept; brokerNotActiveTimeoutMillis is 10 s, none means 120 s."""

MAX_STATE_VERSION: Final = 2**31 - 1
"""The epoch of a master, an int in RocketMQ; 0 without a controller."""

MAX_COUNT: Final = 2**53
"""Of changes, or of milliseconds: far beyond any broker's life."""

MAX_FILTER_SERVERS: Final = 16
"""Of one broker; RocketMQ 5 has none any more."""

MAX_MAPPING: Final = 64 << 10
"""Bytes of a static topic's mapping, some thousand queues."""


def refusal(broker: BrokerRegistration) -> str | None:
    """Why a registration is none of a broker; None if it is one. Its timeout is then one that
    brokers have."""
    wrong = check_lengths(
        clusterName=broker.cluster,
        brokerName=broker.name,
        brokerAddr=broker.address,
        haServerAddr=broker.ha_address,
        zone=broker.zone,
    )
    if wrong is None and not _is_a_brokers(broker.topics.data_version):
        wrong = "no broker has such a data version"
    servers = broker.filter_servers or []
    if wrong is None and len(servers) > MAX_FILTER_SERVERS:
        wrong = f"a broker has at most {MAX_FILTER_SERVERS} filter servers"
    for server in servers[:MAX_FILTER_SERVERS]:
        wrong = wrong or check_lengths(filterServer=server)
    if wrong is not None:
        return f"register broker failed, {wrong}"
    if broker.timeout_ms is not None:
        broker.timeout_ms = min(max(broker.timeout_ms, 0), MAX_TIMEOUT_MS)
    return None


def _is_a_brokers(version: DataVersion) -> bool:
    return (
        -1 <= version.state_version <= MAX_STATE_VERSION
        and 0 <= version.counter < MAX_COUNT
        and 0 <= version.timestamp < MAX_COUNT
    )


def leave_out_long_ones(broker: BrokerRegistration) -> Steps[None]:
    """Topics and mappings that are too long for the table are left out, in steps."""
    table, mappings = broker.topics.topic_config_table, broker.topics.topic_queue_mapping_info_map
    long = [key for key, one in table.items() if len(one.topic_name) > MAX_NAME_LENGTH]
    large: list[str] = []
    for number, (key, info) in enumerate(mappings.items(), 1):
        if len(dump(info)) > MAX_MAPPING:
            large.append(key)
        if number % READ == 0:
            yield
    for key in long:
        del table[key]
    for key in large:
        del mappings[key]
    if long or large:
        logger.warning(
            "%s registers %d topics and %d mappings that are too long: left out",
            broker.name,
            len(long),
            len(large),
        )
