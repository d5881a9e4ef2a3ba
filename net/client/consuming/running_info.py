"""Answers about this consumer: GET_CONSUMER_RUNNING_INFO and GET_CONSUMER_STATUS.

Owns the bodies of these answers (remoting/protocol/body/ConsumerRunningInfo). It must never change
the consumer.

Tests: tests/integration/client/test_consumer_answers.py
"""

from typing import Any, Final

from turbopump.engine.fastjson import RawKeys
from turbopump.net.allocation.strategies import STICKY
from turbopump.net.client.consuming.leader_assignor import PROPERTY, kept_shares
from turbopump.net.client.consuming.membership import ConsumerMembership, Running
from turbopump.net.wire.bodies import encode_json

MIB: Final = 1024 * 1024
"""Bytes of a MiB."""


def running_info(membership: ConsumerMembership, started_ms: int) -> bytes:
    """The JSON body of the answer to 307 (GET_CONSUMER_RUNNING_INFO); `started_ms` is the start of
    the consumer in epoch milliseconds."""
    options, now_ms = membership.options, membership.instance.steady_ms()
    properties = {
        "PROP_NAMESERVER_ADDR": ";".join(membership.instance.namesrv) + ";",
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CONSUMEORDERLY": "true" if options.ordered else "false",
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_THREADPOOL_CORE_SIZE": str(options.concurrency),
        "PROP_CLIENT_VERSION": "V5_5_0",
        "consumerGroup": membership.group,
        "consumeFromWhere": options.consume_from.value,
        "maxReconsumeTimes": str(options.max_reconsume_times),
        "messageModel": options.model.value,
        "pullBatchSize": str(options.pull_batch),
        "pullThresholdForQueue": str(membership.limits.queue_messages),
        "pullThresholdSizeForQueue": str(membership.limits.queue_bytes // MIB),
    }
    if options.strategy == STICKY:
        properties[PROPERTY] = encode_json(kept_shares(membership)).decode()
    statuses = {}
    for topic in membership.subscriptions:
        rates = membership.rates.read(topic, now_ms)
        statuses[topic] = {
            "consumeFailedMsgs": rates.failed_count,
            "consumeFailedTPS": rates.failed_tps,
            "consumeOKTPS": rates.ok_tps,
            "consumeRT": rates.handling_ms,
            "pullRT": rates.pulling_ms,
            "pullTPS": rates.pull_tps,
        }
    subscriptions = sorted(membership.subscriptions.values(), key=lambda data: data.topic)
    return encode_json(
        {
            "jstack": "",
            "mqPopTable": {},
            "mqTable": RawKeys(
                {
                    queue.bean_key(): _queue_info(running, now_ms)
                    for queue, running in membership.running.items()
                }
            ),
            "properties": properties,
            "statusTable": statuses,
            "subscriptionSet": [data.to_json() for data in subscriptions],
            "userConsumerInfo": {},
        }
    )


def consumer_status(membership: ConsumerMembership, topic: str) -> bytes:
    """The JSON body of the answer to 221 (GET_CONSUMER_STATUS_FROM_CLIENT): by queue, the offset
    that a commit would write now, for running queues of `topic` ("": all topics)."""
    return encode_json(
        {
            "messageQueueTable": RawKeys(
                {
                    queue.bean_key(): running.process.commit_queue_offset
                    for queue, running in membership.running.items()
                    if running.positioned and topic in ("", queue.topic)
                }
            )
        }
    )


def _queue_info(running: Running, now_ms: int) -> dict[str, Any]:
    """Return RocketMQ's ProcessQueueInfo of a running queue, as a dict."""
    process = running.process
    return {
        "cachedMsgCount": process.count,
        "cachedMsgMaxOffset": process.newest_queue_offset,
        "cachedMsgMinOffset": process.commit_queue_offset if process.count else 0,
        "cachedMsgSizeInMiB": process.size // MIB,
        "commitOffset": process.commit_queue_offset,
        # RocketMQ's spelling.
        "droped": process.dropped,
        "lastConsumeTimestamp": process.last_consume_ms,
        "lastLockTimestamp": process.last_lock_ms,
        "lastPullTimestamp": process.last_pull_ms,
        "locked": process.ordered and now_ms < process.lock_until_ms,
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }
