"""Headers of the admin requests: message lookup, topics, groups, offsets and the broker itself.

Owns the fields of the RocketMQ header classes of the same names. It must never hold behaviour.

Tests: tests/wire/test_golden_headers.py
"""

from dataclasses import dataclass, field

from turbopump.net.wire.header import Int32, Int64


@dataclass(slots=True)
class QueryMessageRequest:
    """Request QUERY_MESSAGE (QueryMessageRequestHeader); times are epoch ms and bound the store
    time; `max_num` bounds the messages of the answer.

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
    """Response to QUERY_MESSAGE (QueryMessageResponseHeader): the store time (epoch ms) and log
    offset of the last message of the index."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


@dataclass(slots=True)
class ViewMessageRequest:
    """Request VIEW_MESSAGE_BY_ID (ViewMessageRequestHeader); `offset` is a log offset."""

    offset: Int64
    topic: str | None = None


@dataclass(slots=True)
class QueryConsumeQueueRequest:
    """Request QUERY_CONSUME_QUEUE (QueryConsumeQueueRequestHeader): `count` queue units from the
    queue offset `index`, tested against the subscription of `consumer_group`."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


@dataclass(slots=True)
class CreateTopicRequest:
    """Request UPDATE_AND_CREATE_TOPIC (CreateTopicRequestHeader); `perm` has the PERM_ bits of
    net/wire/topics.py, `attributes` is `+key=value,-key`."""

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
    """Request DELETE_TOPIC_IN_BROKER (DeleteTopicRequestHeader)."""

    topic: str = ""


@dataclass(slots=True)
class GetTopicStatsInfoRequest:
    """Request GET_TOPIC_STATS_INFO (GetTopicStatsInfoRequestHeader): offsets of a topic's
    queues."""

    topic: str


@dataclass(slots=True)
class GetTopicConfigRequest:
    """Request GET_TOPIC_CONFIG (GetTopicConfigRequestHeader); `lo` requests the logical topic."""

    topic: str
    lo: bool | None = None


@dataclass(slots=True)
class GetAllTopicConfigRequest:
    """Request GET_ALL_TOPIC_CONFIG (GetAllTopicConfigRequestHeader); without any field: the whole
    table, else up to `max_topic_num` topics from number `topic_seq` on. `data_version` is JSON."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


@dataclass(slots=True)
class GetAllTopicConfigResponse:
    """Response to GET_ALL_TOPIC_CONFIG (GetAllTopicConfigResponseHeader): the number of all topics,
    also beyond the answer's part."""

    total_topic_num: Int32


@dataclass(slots=True)
class QueryTopicConsumeByWhoRequest:
    """Request QUERY_TOPIC_CONSUME_BY_WHO (QueryTopicConsumeByWhoRequestHeader): the groups that
    consume a topic, or did."""

    topic: str


@dataclass(slots=True)
class DeleteSubscriptionGroupRequest:
    """Request DELETE_SUBSCRIPTIONGROUP (DeleteSubscriptionGroupRequestHeader); `clean_offset`
    removes the group's offsets, too."""

    group_name: str
    clean_offset: bool = False


@dataclass(slots=True)
class GetAllSubscriptionGroupRequest:
    """Request GET_ALL_SUBSCRIPTIONGROUP_CONFIG (GetAllSubscriptionGroupRequestHeader); without any
    field: the whole table, else up to `max_group_num` groups from number `group_seq` on.
    `data_version` is JSON."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


@dataclass(slots=True)
class GetAllSubscriptionGroupResponse:
    """Response to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (GetAllSubscriptionGroupResponseHeader): the
    number of all groups, also beyond the answer's part."""

    total_group_num: Int32


@dataclass(slots=True)
class GetSubscriptionGroupConfigRequest:
    """Request GET_SUBSCRIPTIONGROUP_CONFIG (GetSubscriptionGroupConfigRequestHeader)."""

    group: str


@dataclass(slots=True)
class UpdateGroupForbiddenRequest:
    """Request UPDATE_AND_GET_GROUP_FORBIDDEN (UpdateGroupForbiddenRequestHeader): whether a group
    may read a topic; without `readable` nothing is changed."""

    group: str
    topic: str
    readable: bool | None = None


@dataclass(slots=True)
class QueryTopicsByConsumerRequest:
    """Request QUERY_TOPICS_BY_CONSUMER (QueryTopicsByConsumerRequestHeader): the topics in which a
    group has offsets."""

    group: str = ""


@dataclass(slots=True)
class QuerySubscriptionByConsumerRequest:
    """Request QUERY_SUBSCRIPTION_BY_CONSUMER (QuerySubscriptionByConsumerRequestHeader): the
    expression by which an online group subscribes to a topic."""

    group: str
    topic: str = ""


@dataclass(slots=True)
class GetConsumeStatsRequest:
    """Request GET_CONSUME_STATS (GetConsumeStatsRequestHeader): a group's progress in a topic, in
    the topics of `topic_list` (separated by semicolons), or without both in all topics."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@dataclass(slots=True)
class QueryConsumeTimeSpanRequest:
    """Request QUERY_CONSUME_TIME_SPAN (QueryConsumeTimeSpanRequestHeader): the store times of each
    queue's first, last and last consumed message."""

    topic: str
    group: str


@dataclass(slots=True)
class QueryCorrectionOffsetRequest:
    """Request QUERY_CORRECTION_OFFSET (QueryCorrectionOffsetHeader): for each queue of a topic the
    smallest offset of all groups but `filter_groups` (separated by commas); the largest int64 where
    `compare_group` has a smaller offset."""

    topic: str = ""
    compare_group: str = ""
    filter_groups: str | None = None


@dataclass(slots=True)
class CloneGroupOffsetRequest:
    """Request CLONE_GROUP_OFFSET (CloneGroupOffsetRequestHeader): copy the offsets of `src_group`
    in a topic, or without `topic` in all topics, to `dest_group`; with `offline` the source need
    not be online."""

    src_group: str = ""
    dest_group: str = ""
    topic: str | None = None
    offline: bool = False


@dataclass(slots=True)
class GetBrokerConsumeStatsRequest:
    """Request GET_BROKER_CONSUME_STATS (GetConsumeStatsInBrokerHeader); `is_order` requests only
    topics with the order flag."""

    is_order: bool = False


@dataclass(slots=True)
class ViewBrokerStatsDataRequest:
    """Request VIEW_BROKER_STATS_DATA (ViewBrokerStatsDataRequestHeader), such as TOPIC_PUT_NUMS of
    a topic."""

    stats_name: str
    stats_key: str


@dataclass(slots=True)
class GetBrokerConfigResponse:
    """Response to GET_BROKER_CONFIG (GetBrokerConfigResponseHeader); `version` is the DataVersion
    of the configuration as JSON text, the body a properties text."""

    version: str


@dataclass(slots=True)
class ResetMasterFlushOffsetRequest:
    """Request RESET_MASTER_FLUSH_OFFSET (ResetMasterFlushOffsetHeader) to a replica; the field is
    the log offset up to which its master has flushed."""

    master_flush_offset: Int64 | None = None


@dataclass(slots=True)
class AddBrokerRequest:
    """Request ADD_BROKER (AddBrokerRequestHeader); `config_path` is a file on the container's
    machine."""

    config_path: str | None = None


@dataclass(slots=True)
class RemoveBrokerRequest:
    """Request REMOVE_BROKER (RemoveBrokerRequestHeader): stop a broker of a container."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64
