"""Bounds of a registration: names, versions and timeouts must be such as brokers send.

Owns the bounds of a registration. It must never change the route table, read a clock or open a
socket.

Any peer that reaches a name server can register. This module rejects values that no broker sends;
it does not decide which peers may register.
"""

import logging
from typing import Final

from turbopump.namesrv.registrations import BrokerRegistration
from turbopump.net.wire.bodies import READ, Steps, encode_json
from turbopump.net.wire.names import MAX_ANY_NAME_LENGTH, check_lengths
from turbopump.net.wire.topics import DataVersion

logger = logging.getLogger(__name__)

MAX_TIMEOUT_MS: Final = 300_000
"""Maximum timeout of a silent broker, in ms; a longer timeout is shortened to it.

A broker sends brokerNotActiveTimeoutMillis, 10 s by default; without one the timeout is 120 s.
"""

MAX_STATE_VERSION: Final = 2**31 - 1
"""Maximum state version of a DataVersion: a master's epoch, an int in RocketMQ; 0 without a
controller."""

MAX_COUNT: Final = 2**53
"""Limit, excluded, of a DataVersion's counter and of its timestamp in ms: far beyond any broker's
life."""

MAX_FILTER_SERVERS: Final = 16
"""Maximum number of filter servers of a broker; RocketMQ 5 has removed them."""

MAX_MAPPING: Final = 64 << 10
"""Maximum bytes of a static topic's mapping as JSON: some thousand queues."""


def find_refusal(broker: BrokerRegistration) -> str | None:
    """Return the remark that refuses a registration, or None if it is valid.

    If it is valid, `broker.timeout_ms` is changed to lie within 0 and MAX_TIMEOUT_MS.
    """
    wrong = check_lengths(
        clusterName=broker.cluster,
        brokerName=broker.name,
        brokerAddr=broker.address,
        haServerAddr=broker.ha_address,
        zone=broker.zone,
    )
    if wrong is None and not _is_possible_version(broker.topics.data_version):
        wrong = "the data version is out of range"
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


def _is_possible_version(version: DataVersion) -> bool:
    """Whether a broker may have sent this version: its numbers are in range."""
    return (
        -1 <= version.state_version <= MAX_STATE_VERSION
        and 0 <= version.counter < MAX_COUNT
        and 0 <= version.timestamp < MAX_COUNT
    )


def remove_long_topics(broker: BrokerRegistration) -> Steps[None]:
    """Remove from the registration's `broker.topics` the topics with a name over
    MAX_ANY_NAME_LENGTH and the mappings over MAX_MAPPING, and log their numbers; yields between
    steps."""
    table, mappings = broker.topics.topic_config_table, broker.topics.topic_queue_mapping_info_map
    long = [key for key, one in table.items() if len(one.topic_name) > MAX_ANY_NAME_LENGTH]
    large: list[str] = []
    for number, (key, info) in enumerate(mappings.items(), 1):
        if len(encode_json(info)) > MAX_MAPPING:
            large.append(key)
        if number % READ == 0:
            yield
    for key in long:
        del table[key]
    for key in large:
        del mappings[key]
    if long or large:
        logger.warning(
            "%s: %d topics and %d mappings of its registration are too long: ignored",
            broker.name,
            len(long),
            len(large),
        )
