"""Request and response codes, under RocketMQ's names.

Owns the numbers of the remoting protocol. It must never hold behaviour. DLedger's codes are not
here: they belong to another protocol in the same frames.

Tests: tests/wire/test_golden_frames.py
"""

from enum import IntEnum


class RequestCode(IntEnum):
    """Kind of a request (RocketMQ: remoting/protocol/RequestCode); `code` of a request's header.
    net/wire/headers has the fields of each, docs/reference/remoting.md also their meaning."""

    SEND_MESSAGE = 10
    """Store a message; header with long names."""
    PULL_MESSAGE = 11
    """Read messages of a queue from an offset; the subscription is in the heartbeat."""
    QUERY_MESSAGE = 12
    """Find messages by key in a broker's index."""
    QUERY_BROKER_OFFSET = 13
    QUERY_CONSUMER_OFFSET = 14
    """Get a group's committed offset in a queue."""
    UPDATE_CONSUMER_OFFSET = 15
    """Commit a group's offset in a queue."""
    UPDATE_AND_CREATE_TOPIC = 17
    """Create or change a topic at a broker."""
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    """Create or change several topics at a broker."""
    GET_ALL_TOPIC_CONFIG = 21
    """Get the topics of a broker."""
    GET_TOPIC_CONFIG_LIST = 22
    GET_TOPIC_NAME_LIST = 23
    UPDATE_BROKER_CONFIG = 25
    """Change properties of a broker's configuration."""
    GET_BROKER_CONFIG = 26
    """Get a broker's configuration as a properties text."""
    TRIGGER_DELETE_FILES = 27
    GET_BROKER_RUNTIME_INFO = 28
    """Get a broker's figures as a table of texts."""
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    """Get the queue offset at a store time."""
    GET_MAX_OFFSET = 30
    """Get the end of a queue."""
    GET_MIN_OFFSET = 31
    """Get the first stored offset of a queue."""
    GET_EARLIEST_MSG_STORETIME = 32
    """Get the store time of a queue's first message."""
    VIEW_MESSAGE_BY_ID = 33
    """Get the record at a log offset."""
    HEART_BEAT = 34
    """Register a client with its groups at a broker, or renew that."""
    UNREGISTER_CLIENT = 35
    """Remove a client's group from a broker."""
    CONSUMER_SEND_MSG_BACK = 36
    """Have a broker deliver a failed message again later."""
    END_TRANSACTION = 37
    """Commit or roll back a half message."""
    GET_CONSUMER_LIST_BY_GROUP = 38
    """Get the client ids of a group's members."""
    CHECK_TRANSACTION_STATE = 39
    """Broker to producer: how did a transaction end?"""
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    """Broker to consumer: the group's members changed."""
    LOCK_BATCH_MQ = 41
    """Get or renew locks of queues for ordered consumption."""
    UNLOCK_BATCH_MQ = 42
    """Give locks of queues back."""
    GET_ALL_CONSUMER_OFFSET = 43
    """Replica to master: get all groups' offsets."""
    GET_ALL_DELAY_OFFSET = 45
    """Replica to master: get the progress of the delay levels."""
    CHECK_CLIENT_CONFIG = 46
    """Have a broker check a subscription's expression."""
    GET_CLIENT_CONFIG = 47
    GET_TIMER_CHECK_POINT = 60
    """Replica to master: get the progress of the timers."""
    GET_TIMER_METRICS = 61
    """Replica to master: get the numbers of timers by topic."""
    PUT_KV_CONFIG = 100
    """Set a value in a name server's key-value table."""
    GET_KV_CONFIG = 101
    """Get a value from a name server's key-value table."""
    DELETE_KV_CONFIG = 102
    """Delete a value from a name server's key-value table."""
    REGISTER_BROKER = 103
    """Register a broker with its topics at a name server."""
    UNREGISTER_BROKER = 104
    """Remove a broker from a name server."""
    GET_ROUTEINFO_BY_TOPIC = 105
    """Get a topic's route from a name server."""
    GET_BROKER_CLUSTER_INFO = 106
    """Get all clusters and broker groups from a name server."""
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    """Create or change a consumer group at a broker."""
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    """Get the consumer groups of a broker."""
    GET_TOPIC_STATS_INFO = 202
    """Get the offsets of a topic's queues."""
    GET_CONSUMER_CONNECTION_LIST = 203
    """Get the members of a consumer group with addresses and subscriptions."""
    GET_PRODUCER_CONNECTION_LIST = 204
    """Get the members of a producer group with addresses."""
    WIPE_WRITE_PERM_OF_BROKER = 205
    """Remove the write permission of a broker's topics at a name server."""
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    """Get the names of all topics from a name server."""
    DELETE_SUBSCRIPTIONGROUP = 207
    """Delete a consumer group at a broker."""
    GET_CONSUME_STATS = 208
    """Get a group's progress by queue."""
    SUSPEND_CONSUMER = 209
    RESUME_CONSUMER = 210
    RESET_CONSUMER_OFFSET_IN_CONSUMER = 211
    RESET_CONSUMER_OFFSET_IN_BROKER = 212
    ADJUST_CONSUMER_THREAD_POOL = 213
    WHO_CONSUME_THE_MESSAGE = 214
    DELETE_TOPIC_IN_BROKER = 215
    """Delete a topic at a broker."""
    DELETE_TOPIC_IN_NAMESRV = 216
    """Delete a topic at a name server."""
    REGISTER_TOPIC_IN_NAMESRV = 217
    """Register a topic's queues at a name server."""
    GET_KVLIST_BY_NAMESPACE = 219
    """Get all values of a namespace of a name server's key-value table."""
    RESET_CONSUMER_CLIENT_OFFSET = 220
    """Broker to consumer: continue at other offsets."""
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    """Broker to consumer: the offsets in its queues."""
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    """Have a broker reset a group's offsets in a topic."""
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    """Have a broker ask a group's members for their offsets."""
    GET_TOPICS_BY_CLUSTER = 224
    """Get the topics of a cluster from a name server."""
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    """Get the groups that consume a topic, or did."""
    REGISTER_FILTER_SERVER = 301
    REGISTER_MESSAGE_FILTER_CLASS = 302
    QUERY_CONSUME_TIME_SPAN = 303
    """Get the store times of a topic's first, last and consumed messages."""
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    """Remove queue files whose messages have left the log."""
    GET_CONSUMER_RUNNING_INFO = 307
    """Get a consumer's state, through its broker."""
    QUERY_CORRECTION_OFFSET = 308
    """Get the smallest offsets of a topic's groups."""
    CONSUME_MESSAGE_DIRECTLY = 309
    """Have a consumer handle a stored message, through its broker."""
    SEND_MESSAGE_V2 = 310
    """Store a message; header with one-letter names."""
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    CLONE_GROUP_OFFSET = 314
    """Copy a group's offsets to another group."""
    VIEW_BROKER_STATS_DATA = 315
    """Get a broker's statistics of a topic or group."""
    CLEAN_UNUSED_TOPIC = 316
    """Remove the queue files of deleted topics."""
    GET_BROKER_CONSUME_STATS = 317
    """Get the progress of all groups of a broker."""
    UPDATE_NAMESRV_CONFIG = 318
    """Change properties of a name server's configuration."""
    GET_NAMESRV_CONFIG = 319
    """Get a name server's configuration as a properties text."""
    SEND_BATCH_MESSAGE = 320
    """Store a batch of messages; header with one-letter names."""
    QUERY_CONSUME_QUEUE = 321
    """Get units of a queue, and whether a group's filter takes them."""
    QUERY_DATA_VERSION = 322
    """Broker to name server: are its topics of this version known?"""
    RESUME_CHECK_HALF_MESSAGE = 323
    """Have a broker check a half message again that it gave up."""
    SEND_REPLY_MESSAGE = 324
    """Store the reply to a request, and pass it on; header with long names."""
    SEND_REPLY_MESSAGE_V2 = 325
    """Store the reply to a request, and pass it on; one-letter names."""
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    """Broker to producer: the reply to its request."""
    ADD_WRITE_PERM_OF_BROKER = 327
    """Give write permission to a broker's topics at a name server."""
    GET_ALL_PRODUCER_INFO = 328
    """Get all producers of a broker."""
    DELETE_EXPIRED_COMMITLOG = 329
    """Delete log files older than fileReservedTime now."""
    QUERY_TOPICS_BY_CONSUMER = 343
    """Get the topics in which a group has offsets."""
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    """Get a group's subscription to a topic."""
    GET_TOPIC_CONFIG = 351
    """Get a topic of a broker."""
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    """Get a consumer group of a broker."""
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353
    """Forbid or allow a group to read a topic."""
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS = 354
    EXPORT_ROCKSDB_CONFIG_TO_JSON = 355
    LITE_PULL_MESSAGE = 361
    """Read messages of a queue from an offset; the request has the subscription."""
    RECALL_MESSAGE = 370
    """Cancel a timer that is not due yet."""
    QUERY_ASSIGNMENT = 400
    """Get a member's queues of a topic, divided by the broker."""
    SET_MESSAGE_REQUEST_MODE = 401
    """Decide whether a group pulls or pops a topic."""
    GET_ALL_MESSAGE_REQUEST_MODE = 402
    """Replica to master: get the modes of all groups."""
    UPDATE_AND_CREATE_STATIC_TOPIC = 513
    GET_BROKER_MEMBER_GROUP = 901
    """Get the addresses of a broker group."""
    ADD_BROKER = 902
    """Have a container start a broker."""
    REMOVE_BROKER = 903
    """Have a container stop a broker."""
    BROKER_HEARTBEAT = 904
    """Broker to name server or controller: it lives."""
    NOTIFY_MIN_BROKER_ID_CHANGE = 905
    """Name server to broker: the smallest online id of its group changed."""
    EXCHANGE_BROKER_HA_INFO = 906
    """Broker to broker: addresses and flush offset of the master."""
    GET_BROKER_HA_STATUS = 907
    """Get the state of a broker's replication."""
    RESET_MASTER_FLUSH_OFFSET = 908
    """Set the master's flush offset that a replica knows."""
    CONTROLLER_ALTER_SYNC_STATE_SET = 1001
    """Master to controller: replace the SyncStateSet."""
    CONTROLLER_ELECT_MASTER = 1002
    """Have a controller elect the master of a group."""
    CONTROLLER_REGISTER_BROKER = 1003
    """Broker to controller: register its address, get the master."""
    CONTROLLER_GET_REPLICA_INFO = 1004
    """Get the master and SyncStateSet of a group."""
    CONTROLLER_GET_METADATA_INFO = 1005
    """Get a controller's view of its quorum."""
    CONTROLLER_GET_SYNC_STATE_DATA = 1006
    """Get the replicas of several groups."""
    GET_BROKER_EPOCH_CACHE = 1007
    """Get the master epochs in a broker's log."""
    NOTIFY_BROKER_ROLE_CHANGED = 1008
    """Controller to broker: the master of its group changed."""
    UPDATE_CONTROLLER_CONFIG = 1009
    """Change properties of a controller's configuration."""
    GET_CONTROLLER_CONFIG = 1010
    """Get a controller's configuration as a properties text."""
    CLEAN_BROKER_DATA = 1011
    """Have a controller forget replicas or a group."""
    CONTROLLER_GET_NEXT_BROKER_ID = 1012
    """Get the next free broker id of a group."""
    CONTROLLER_APPLY_BROKER_ID = 1013
    """Reserve a broker id."""
    UPDATE_COLD_DATA_FLOW_CTR_CONFIG = 2001
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG = 2002
    GET_COLD_DATA_FLOW_CTR_INFO = 2003
    SET_COMMITLOG_READ_MODE = 2004
    AUTH_CREATE_USER = 3001
    AUTH_UPDATE_USER = 3002
    AUTH_DELETE_USER = 3003
    AUTH_GET_USER = 3004
    AUTH_LIST_USER = 3005
    AUTH_CREATE_ACL = 3006
    AUTH_UPDATE_ACL = 3007
    AUTH_DELETE_ACL = 3008
    AUTH_GET_ACL = 3009
    AUTH_LIST_ACL = 3010
    SWITCH_TIMER_ENGINE = 5001
    POP_MESSAGE = 200050
    """Take messages of any queue of a topic, and hide them from the group."""
    ACK_MESSAGE = 200051
    """Acknowledge a popped message."""
    PEEK_MESSAGE = 200052
    """Read messages without hiding them."""
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    """Hide a popped message for another time."""
    NOTIFICATION = 200054
    """Wait until there are messages to pop."""
    POLLING_INFO = 200055
    """Get the number of waiting pops."""
    POP_ROLLBACK = 200056
    POP_LITE_MESSAGE = 200070
    LITE_SUBSCRIPTION_CTL = 200071
    ACK_LITE_MESSAGE = 200072
    NOTIFY_UNSUBSCRIBE_LITE = 200073
    GET_BROKER_LITE_INFO = 200074
    GET_PARENT_TOPIC_INFO = 200075
    GET_LITE_TOPIC_INFO = 200076
    GET_LITE_CLIENT_INFO = 200077
    GET_LITE_GROUP_INFO = 200078
    TRIGGER_LITE_DISPATCH = 200079
    BATCH_ACK_MESSAGE = 200151
    """Acknowledge several popped messages."""


class ResponseCode(IntEnum):
    """Outcome of a request (RocketMQ: ResponseCode, RemotingSysResponseCode); `code` of a
    response's header. SUCCESS is 0."""

    RPC_TIME_OUT = -1006
    RPC_SEND_TO_CHANNEL_FAILED = -1004
    RPC_ADDR_IS_NULL = -1002
    RPC_UNKNOWN = -1000
    SUCCESS = 0
    """The request was carried out."""
    SYSTEM_ERROR = 1
    """The request failed; the remark has the reason."""
    SYSTEM_BUSY = 2
    """The server has too many requests; this request was not carried out."""
    REQUEST_CODE_NOT_SUPPORTED = 3
    """The server does not know the request code."""
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    """A send: stored, but not flushed to disk in time."""
    SLAVE_NOT_AVAILABLE = 11
    """A send: stored, but too few replicas are connected and up to date."""
    FLUSH_SLAVE_TIMEOUT = 12
    """A send: stored, but too few replicas acknowledged it in time."""
    MESSAGE_ILLEGAL = 13
    """The message or the handle in the request is malformed, too large or too late."""
    SERVICE_NOT_AVAILABLE = 14
    """The server does not serve the request for the moment, as while it is no master."""
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    """The broker, the topic or the group may not be read or written."""
    TOPIC_NOT_EXIST = 17
    """The topic, or a route of it, does not exist."""
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    """A pull: no message was stored at its offset until the wait ended."""
    PULL_RETRY_IMMEDIATELY = 20
    """A pull: the filter left out all messages; pull again at nextBeginOffset."""
    PULL_OFFSET_MOVED = 21
    """A pull: its offset is outside of the queue, or was reset; pull at nextBeginOffset."""
    QUERY_NOT_FOUND = 22
    """The message, the offset or the value of the query does not exist."""
    SUBSCRIPTION_PARSE_FAILED = 23
    """The expression of a subscription is invalid."""
    SUBSCRIPTION_NOT_EXIST = 24
    """The broker has no subscription of the group to the topic; a heartbeat adds it."""
    SUBSCRIPTION_NOT_LATEST = 25
    """The broker has an older subscription than the client; a heartbeat renews it."""
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    """The broker has no configuration of the consumer group."""
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    """A field of the request is missing or out of range."""
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    """The consumer group, or the client, is not connected to the broker."""
    CONSUME_MSG_TIMEOUT = 207
    """A client did not answer a request that the broker passed on to it."""
    NO_MESSAGE = 208
    """An acknowledgement: its message does not exist, or its topic or group was deleted."""
    POLLING_FULL = 209
    """A pop: no message, and the broker holds too many polls to hold another."""
    POLLING_TIMEOUT = 210
    """A pop: no message came until the wait ended."""
    BROKER_NOT_EXIST = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215
    """The client sends too many requests; try again a little later."""
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    """The end of a transaction came too late: the broker checks it instead."""
    GO_AWAY = 1500
    """The server is about to close the connection: send the request again over a new connection."""
    CONTROLLER_FENCED_MASTER_EPOCH = 2000
    """The request has another master epoch than the controller."""
    CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH = 2001
    """The request has another SyncStateSet epoch than the controller."""
    CONTROLLER_INVALID_MASTER = 2002
    """The sender is not the group's master."""
    CONTROLLER_INVALID_REPLICAS = 2003
    """The wanted SyncStateSet has a replica that is not registered."""
    CONTROLLER_MASTER_NOT_AVAILABLE = 2004
    """The group has no master, and no replica may become it now."""
    CONTROLLER_INVALID_REQUEST = 2005
    """The request lacks a field."""
    CONTROLLER_BROKER_NOT_ALIVE = 2006
    """The wanted SyncStateSet has a replica without recent heartbeats."""
    CONTROLLER_NOT_LEADER = 2007
    """The controller does not lead its quorum; it changed nothing."""
    CONTROLLER_BROKER_METADATA_NOT_EXIST = 2008
    """The controller does not know the broker group."""
    CONTROLLER_INVALID_CLEAN_BROKER_METADATA = 2009
    """The replicas to forget are alive, unknown, or no numbers."""
    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED = 2010
    """The controller does not know the broker: it must register first."""
    CONTROLLER_MASTER_STILL_EXIST = 2011
    """An election was not needed: the answer names the present master."""
    CONTROLLER_ELECT_MASTER_FAILED = 2012
    """The wanted replica cannot become master."""
    CONTROLLER_ALTER_SYNC_STATE_SET_FAILED = 2013
    """The SyncStateSet was not changed; the remark has the reason."""
    CONTROLLER_BROKER_ID_INVALID = 2014
    """The requested broker id is not free."""
    CONTROLLER_JRAFT_INTERNAL_ERROR = 2015
    CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS = 2016
    LMQ_QUOTA_EXCEEDED = 2017
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 2018
    USER_NOT_EXIST = 3001
    POLICY_NOT_EXIST = 3002
