"""The keys of pop consumption.

Owns their declarations (RocketMQ: BrokerConfig). It must never decide anything about a message.
broker/assembly.py reads them when it makes the parts of pop.

Tests: tests/unit/broker/config/test_config.py
"""

from dataclasses import dataclass

from turbopump.engine.keys import BOOLEAN, integer_kind, key


@dataclass(frozen=True, slots=True)
class PopConfig:
    """Settings of pop consumption, as BrokerConfig.pop. Changes take effect at the next start."""

    enable_retry_topic_v2: bool = key(
        "enableRetryTopicV2",
        BOOLEAN,
        False,
        "Whether messages without acknowledgement go to %RETRY%group+topic; false: to"
        " %RETRY%group_topic.",
    )
    retrieve_from_v1: bool = key(
        "retrieveMessageFromPopRetryTopicV1",
        BOOLEAN,
        True,
        "Whether pops read retry topics of the old form, too.",
    )
    retry_probability: int = key(
        "popFromRetryProbability",
        integer_kind(0, 100),
        20,
        "Percent of pops that read the retry topic first.",
    )
