"""Every check point and acknowledgement that a real RocketMQ wrote is read and written alike."""

from typing import Any

from tests.golden_stores.test_records import decoded_records

from turbopump.net.wire import properties as names
from turbopump.net.wire.pop_records import (
    CHECK_POINT_LEAD_MS,
    CHECK_POINT_TAG,
    Acknowledgement,
    CheckPoint,
    unique_key,
)
from turbopump.net.wire.properties import decode_properties

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


def test_records_of_the_revive_topic_are_written_alike(unpack: Any) -> None:
    tags = []
    for record, _raw in decoded_records(unpack("shapes-v4")).values():
        properties = decode_properties(record.properties)
        tag = properties.get(names.TAGS, "")
        if REVIVE not in (record.topic.decode(), properties.get(names.REAL_TOPIC)):
            continue
        tags.append(tag)
        key = properties[names.UNIQ_KEY]
        if tag == CHECK_POINT_TAG:
            check_point = CheckPoint.parse(record.body)
            assert check_point.encode_body() == record.body
            assert unique_key(check_point.key, tag) == key
            due = properties.get(names.TIMER_DELIVER_MS)
            assert due in (None, str(check_point.revive_ms - CHECK_POINT_LEAD_MS))
        else:
            ack = Acknowledgement.parse(record.body, tag == "bAck")
            assert ack.encode_body() == record.body
            assert unique_key(ack.key, tag, -1 if ack.is_batch else ack.queue_offsets[0]) == key
    assert {"ck", "ack"} <= set(tags), tags
