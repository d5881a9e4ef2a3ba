"""Records in golden pull and query answers, and the bodies of golden batches."""

from turbopump.net.wire.hosts import unpack_host
from turbopump.net.wire.message import decode_batch, decode_messages, encode_batch
from turbopump.net.wire.message_id import decode_message_id
from turbopump.net.wire.properties import decode_properties, encode_properties

RECORDS_OF = {"PULL_MESSAGE", "LITE_PULL_MESSAGE", "QUERY_MESSAGE", "VIEW_MESSAGE_BY_ID"}


def test_answers_with_records(all_frames) -> None:
    responses = [
        golden
        for golden in all_frames
        if golden.truth["requestName"] in RECORDS_OF
        and not golden.is_request
        and golden.truth["code"] == 0
    ]
    assert len(responses) > 20
    for golden in responses:
        messages = decode_messages(golden.body)
        assert sum(message.size for message in messages) == len(golden.body), golden
        for message in messages:
            assert message.topic and message.properties, golden
            assert unpack_host(message.store_host).startswith("127.0.0.1:"), golden
            host, log_offset = decode_message_id(message.offset_message_id)
            assert (host, log_offset) == (message.store_host, message.log_offset), golden
            assert decode_properties(encode_properties(message.properties)) == message.properties


def test_pulled_queue_offsets_are_consecutive_from_the_asked_one(all_frames) -> None:
    asked = {
        (golden.capture, golden.truth["frame"]): golden.truth["extFields"]
        for golden in all_frames
        if golden.is_request and golden.truth["name"] == "PULL_MESSAGE"
    }
    seen = 0
    for golden in all_frames:
        request = asked.get((golden.capture, golden.truth["pair"]))
        if golden.is_request or golden.truth["code"] != 0 or request is None:
            continue
        messages = decode_messages(golden.body)
        assert messages[0].queue_offset >= int(request["queueOffset"]), golden
        assert messages[0].queue_id == int(request["queueId"]), golden
        offsets = [message.queue_offset for message in messages]
        assert offsets == sorted(set(offsets)), golden
        seen += 1
    assert seen


def test_batches(all_frames) -> None:
    batches = [one for one in all_frames if one.truth["name"] == "SEND_BATCH_MESSAGE"]
    assert batches
    for golden in batches:
        elements = list(decode_batch(golden.body))
        assert encode_batch(elements) == golden.body, golden
        assert len(elements) >= 2
        for _, body, properties in elements:
            assert body
            assert encode_properties(decode_properties(properties)) == properties, golden


def test_properties_of_sends_come_back(all_frames) -> None:
    seen = 0
    for golden in all_frames:
        fields = golden.truth["extFields"] or {}
        text = fields.get("i") or fields.get("properties")
        if golden.is_request and text:
            properties = decode_properties(text)
            # Ours always ends with a separator; some clients leave the last one out.
            ended = text.removesuffix("\x02") + "\x02"
            assert encode_properties(properties).decode() == ended, golden
            seen += 1
    assert seen > 30
