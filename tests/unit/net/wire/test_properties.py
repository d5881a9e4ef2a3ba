"""The text form of message properties."""

import pytest

from turbopump.net.wire.properties import decode_properties, encode_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("TAGS\x01A\x02KEYS\x01k1 k2\x02", {"TAGS": "A", "KEYS": "k1 k2"}),
        ("TAGS\x01A", {"TAGS": "A"}),
        (b"n\x01\xe4\xb8\xad\x02", {"n": "中"}),
        ("a\x011\x02a\x012\x02", {"a": "2"}),
        ("a\x01x\x01y\x02", {"a": "x\x01y"}),
        ("a\x01\x02\x01b\x02c\x02\x02d\x01e\x02", {"d": "e"}),
    ],
)
def test_decoded_as_rocketmq_does(text, properties) -> None:
    assert decode_properties(text) == properties


def test_encoded_with_a_separator_after_the_last() -> None:
    assert encode_properties({"TAGS": "A", "中": "é"}) == "TAGS\x01A\x02中\x01é\x02".encode()
    assert encode_properties({}) == b""


@pytest.mark.parametrize("properties", [{"a\x02": "b"}, {"a": "b\x02c"}, {"a\x01": "b"}])
def test_values_that_would_not_be_read_back_are_refused(properties) -> None:
    with pytest.raises(ValueError, match="separator"):
        encode_properties(properties)
