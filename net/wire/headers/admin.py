"""Headers of the admin requests: message lookup, topics, groups, offsets and the broker itself.

Owns the fields of the RocketMQ header classes of the same names. It must never hold behaviour.
Called by the broker's admin handlers and by the admin client.
"""

from dataclasses import dataclass, field

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class QueryMessageRequest:
    """QueryMessageRequestHeader; times are epoch ms.

    `unique_key_query` is an extra field beside the header ("true" or "false"); `index_type` of
    5.5.0 is `K` (key), `U` (unique key) or `T` (tag).
    """

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    index_type: str | None = None
    unique_key_query: str | None = field(default=None, metadata={"key": "_UNIQUE_KEY_QUERY"})


@dataclass(slots=True)
class QueryMessageResponse:
    """QueryMessageResponseHeader: how far the index has come."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


@dataclass(slots=True)
class ViewMessageRequest:
    """ViewMessageRequestHeader; `offset` is a log offset."""

    offset: Int64
    topic: str | None = None


@dataclass(slots=True)
class QueryConsumeQueueRequest:
    """QueryConsumeQueueRequestHeader; `index` is a queue offset."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


@dataclass(slots=True)
class CreateTopicRequest:
    """CreateTopicRequestHeader; `attributes` is `+key=value,-key`."""

    topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    default_topic: str | None = None
    topic_sys_flag: Int32 | None = None
    order: bool | None = None
    attributes: str | None = None
    force: bool | None = None


@dataclass(slots=True)
class DeleteTopicRequest:
    """DeleteTopicRequestHeader."""

    topic: str = ""


@dataclass(slots=True)
class GetTopicStatsInfoRequest:
    """GetTopicStatsInfoRequestHeader."""

    topic: str


@dataclass(slots=True)
class GetTopicConfigRequest:
    """GetTopicConfigRequestHeader; `lo` asks for the logical topic."""

    topic: str
    lo: bool | None = None


@dataclass(slots=True)
class GetAllTopicConfigRequest:
    """GetAllTopicConfigRequestHeader; all absent (or none at all): the whole table."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


@dataclass(slots=True)
class GetAllTopicConfigResponse:
    """GetAllTopicConfigResponseHeader."""

    total_topic_num: Int32


@dataclass(slots=True)
class QueryTopicConsumeByWhoRequest:
    """QueryTopicConsumeByWhoRequestHeader."""

    topic: str


@dataclass(slots=True)
class DeleteSubscriptionGroupRequest:
    """DeleteSubscriptionGroupRequestHeader."""

    group_name: str
    clean_offset: bool = False


@dataclass(slots=True)
class GetAllSubscriptionGroupRequest:
    """GetAllSubscriptionGroupRequestHeader; all absent (or none at all): the whole table."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


@dataclass(slots=True)
class GetAllSubscriptionGroupResponse:
    """GetAllSubscriptionGroupResponseHeader."""

    total_group_num: Int32


@dataclass(slots=True)
class GetSubscriptionGroupConfigRequest:
    """GetSubscriptionGroupConfigRequestHeader."""

    group: str


@dataclass(slots=True)
class UpdateGroupForbiddenRequest:
    """UpdateGroupForbiddenRequestHeader; `readable` absent only asks."""

    group: str
    topic: str
    readable: bool | None = None


@dataclass(slots=True)
class QueryTopicsByConsumerRequest:
    """QueryTopicsByConsumerRequestHeader."""

    group: str = ""


@dataclass(slots=True)
class QuerySubscriptionByConsumerRequest:
    """QuerySubscriptionByConsumerRequestHeader."""

    group: str
    topic: str = ""


@dataclass(slots=True)
class GetConsumeStatsRequest:
    """GetConsumeStatsRequestHeader; `topic_list` is separated by semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@dataclass(slots=True)
class QueryConsumeTimeSpanRequest:
    """QueryConsumeTimeSpanRequestHeader."""

    topic: str
    group: str


@dataclass(slots=True)
class QueryCorrectionOffsetRequest:
    """QueryCorrectionOffsetHeader; `filter_groups` is separated by commas."""

    topic: str = ""
    compare_group: str = ""
    filter_groups: str | None = None


@dataclass(slots=True)
class CloneGroupOffsetRequest:
    """CloneGroupOffsetRequestHeader."""

    src_group: str = ""
    dest_group: str = ""
    topic: str | None = None
    offline: bool = False


@dataclass(slots=True)
class GetBrokerConsumeStatsRequest:
    """GetConsumeStatsInBrokerHeader; `is_order` asks for topics with the order flag only."""

    is_order: bool = False


@dataclass(slots=True)
class ViewBrokerStatsDataRequest:
    """ViewBrokerStatsDataRequestHeader, such as TOPIC_PUT_NUMS of a topic."""

    stats_name: str
    stats_key: str


@dataclass(slots=True)
class GetBrokerConfigResponse:
    """GetBrokerConfigResponseHeader; the DataVersion of the configuration as JSON text."""

    version: str


@dataclass(slots=True)
class ResetMasterFlushOffsetRequest:
    """ResetMasterFlushOffsetHeader; a log offset."""

    master_flush_offset: Int64 | None = None


@dataclass(slots=True)
class AddBrokerRequest:
    """AddBrokerRequestHeader; `config_path` is a file of the container's machine."""

    config_path: str | None = None


@dataclass(slots=True)
class RemoveBrokerRequest:
    """RemoveBrokerRequestHeader: which broker of a container."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64
