"""The lag that consumerProgress reads from GET_CONSUME_STATS, with its time if a broker reports
it."""

from turbopump.net.client.admin.parse import consume_stats
from turbopump.net.client.admin.results import time_behind

KEY = b'{"brokerName":"b","queueId":%d,"topic":"T"}'


def body(*queues: bytes) -> bytes:
    shown = b",".join(
        KEY % number + b':{"brokerOffset":9,"consumerOffset":4,"lastTimestamp":5' + more + b"}"
        for number, more in enumerate(queues)
    )
    return b'{"consumeTps":0.0,"offsetTable":{' + shown + b"}}"


def test_the_queue_furthest_behind_counts() -> None:
    queues, _, _ = consume_stats(
        body(b',"delayTime":3,"delayTimeKnown":true', b',"delayTime":70,"delayTimeKnown":true')
    )
    assert [(queue.behind_ms, queue.behind_known) for queue in queues] == [(3, True), (70, True)]
    assert time_behind(queues) == (70, True)


def test_one_that_is_not_known_makes_all_a_bound() -> None:
    queues, _, _ = consume_stats(
        body(b',"delayTime":3,"delayTimeKnown":false', b',"delayTime":7,"delayTimeKnown":true')
    )
    assert time_behind(queues) == (7, False)
    queues, _, _ = consume_stats(body(b"", b',"delayTime":7,"delayTimeKnown":true'))
    assert time_behind(queues) == (7, False)


def test_a_broker_that_does_not_tell() -> None:
    queues, _, _ = consume_stats(body(b"", b',"delayTime":-1,"delayTimeKnown":false'))
    assert [queue.behind_ms for queue in queues] == [None, None]
    assert time_behind(queues) == (None, False)
