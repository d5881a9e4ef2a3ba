"""Properties of the codec: any split, any command, any bytes."""

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from turbopump.engine import fastjson
from turbopump.net.transport.peer import Peer
from turbopump.net.transport.receive_buffer import Area, Receiver
from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.command import FRAME_MAX, Codec, Command, WireError, decode, encode
from turbopump.net.wire.heartbeat import HeartbeatData
from turbopump.net.wire.message import decode_batch, decode_messages, encode_batch
from turbopump.net.wire.properties import decode_properties, encode_properties
from turbopump.net.wire.registration.register import RegisterBrokerBody
from turbopump.net.wire.route import TopicRouteData
from turbopump.net.wire.topics import DataVersion, TopicConfig, TopicConfigs

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)


@st.composite
def commands(draw: st.DrawFn) -> Command:
    codec = draw(st.sampled_from(Codec))
    binary = codec is Codec.ROCKETMQ
    remark = draw(st.none() | TEXT)
    return Command(
        code=draw(INT16 if binary else INT32),
        opaque=draw(INT32),
        flag=draw(INT32),
        language=draw(st.sampled_from(["JAVA", "GO", "PYTHON", "OTHER"])),
        version=draw(INT16 if binary else INT32),
        remark=remark or None if binary else remark,
        fields=draw(st.dictionaries(TEXT, TEXT, max_size=6)),
        body=draw(st.binary(max_size=5000)),
        codec=codec,
    )


@given(commands())
def test_every_command_comes_back(command) -> None:
    assert decode(b"".join(encode(command))) == command


@given(st.lists(commands(), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_any_split_of_the_bytes_gives_the_same_frames(sent, chance: random.Random) -> None:
    stream = b"".join(b"".join(encode(command)) for command in sent)
    area = Area(1 << 24)
    receiver = Receiver(area, FRAME_MAX, Nobody())
    got: list[Command] = []
    while stream:
        room = receiver.room()
        size = min(len(room), len(stream), chance.choice([1, 2, 5, 50, 500, 5000]))
        room[:size] = stream[:size]
        receiver.received(size, lambda frame: got.append(decode(frame)) is None)
        stream = stream[size:]
    assert got == sent
    assert not receiver.partial
    assert area.in_use == 0


@given(st.binary(max_size=300))
def test_any_bytes_are_a_command_or_an_error(data) -> None:
    try:
        command = decode(data)
    except WireError:
        return
    assert decode(b"".join(encode(command))) == command


@given(commands(), st.data())
def test_a_damaged_frame_is_a_command_or_an_error(command, data) -> None:
    frame = bytearray(b"".join(encode(command)))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(frame)))
    for candidate in (bytes(frame), bytes(frame[:cut])):
        try:
            decode(candidate)
        except WireError:
            pass


class Nobody:
    """Protocol of a receiver, which must not abort the connection."""

    peer = Peer("10.0.0.1:1", bytes(8), None)

    def abort(self) -> None:
        raise AssertionError("it is the only one")


@given(st.lists(st.binary(max_size=60), max_size=20), st.integers(1, 64))
def test_garbage_makes_frames_or_an_error_and_gives_its_memory_back(pieces, budget_kb) -> None:
    area = Area(budget_kb << 10)
    receiver = Receiver(area, FRAME_MAX, Nobody())
    try:
        for piece in pieces:
            room = receiver.room()
            size = min(len(room), len(piece))
            if size:
                room[:size] = piece[:size]
                receiver.received(size, lambda frame: len(frame) >= 4)
            assert area.in_use <= budget_kb << 10
    except WireError:
        pass
    receiver.release()
    assert area.in_use == 0


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def without_none(value):
    if isinstance(value, dict):
        return {key: without_none(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [without_none(one) for one in value]
    return value


@given(PLAIN, st.booleans())
def test_fastjsons_text_is_json(value, pretty) -> None:
    text = fastjson.dumps(value, pretty=pretty)
    assert json.loads(text) == without_none(value)


@given(st.dictionaries(st.integers(-(1 << 63), (1 << 63) - 1), TEXT, max_size=6), TEXT)
def test_raw_keys_come_back_as_text(table, name) -> None:
    text = fastjson.dumps({name: fastjson.RawKeys(table)})
    assert fastjson.loads(text) == {name: {str(key): value for key, value in table.items()}}


LOOSE = st.text(st.sampled_from("{}[]:,'\"\\ ab01-.u$\n"), max_size=60)


@given(LOOSE | st.binary(max_size=60))
def test_any_text_is_json_or_a_value_error(text) -> None:
    try:
        value = fastjson.loads(text)
    except ValueError:
        return
    fastjson.dumps(value)


@given(st.dictionaries(TEXT.filter(bool), TEXT.filter(bool), max_size=8))
def test_properties_come_back(properties) -> None:
    safe = {
        key: value
        for key, value in properties.items()
        if not {"\x01", "\x02"} & set(key) and "\x02" not in value
    }
    assert decode_properties(encode_properties(safe)) == safe


@given(st.binary(max_size=200))
def test_any_bytes_are_properties(data) -> None:
    decode_properties(data)


ELEMENTS = st.lists(st.tuples(INT32, st.binary(max_size=50), st.binary(max_size=50)), max_size=5)


@given(ELEMENTS, st.integers(0, 600))
def test_batches_come_back_and_cut_ones_are_refused_or_shorter(elements, cut) -> None:
    batch = encode_batch(elements)
    assert list(decode_batch(batch)) == elements
    try:
        assert list(decode_batch(batch[:cut])) == elements[: len(list(decode_batch(batch[:cut])))]
    except BadBody:
        pass


@given(st.binary(max_size=300))
def test_any_bytes_are_records_or_a_bad_body(data) -> None:
    try:
        decode_messages(data)
    except BadBody:
        assert data


CONFIGS = st.builds(
    TopicConfig,
    topic_name=st.text(st.characters(categories=["Lu", "Nd"]), min_size=1, max_size=10),
    read_queue_nums=INT32,
    write_queue_nums=INT32,
    perm=st.integers(0, 15),
    topic_filter_type=st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    attributes=st.dictionaries(TEXT, TEXT, max_size=3),
)


@given(st.lists(CONFIGS, max_size=5), st.booleans())
def test_registrations_come_back(configs, compressed) -> None:
    table = {config.topic_name: config for config in configs}
    body = RegisterBrokerBody(TopicConfigs(DataVersion(1, 2, 3), table), ["f"])
    assert (
        RegisterBrokerBody.decode(body.encode(compressed=compressed), compressed=compressed) == body
    )


MEMBERS = [
    "clientID",
    "consumerDataSet",
    "producerDataSet",
    "queueDatas",
    "brokerDatas",
    "topicConfigSerializeWrapper",
    "filterServerList",
]


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(MEMBERS), PLAIN))
def test_any_json_is_a_typed_body_or_a_bad_body(value) -> None:
    for read in (HeartbeatData.decode, TopicRouteData.decode, RegisterBrokerBody.decode):
        try:
            read(fastjson.dumps(value).encode())
        except BadBody:
            pass
