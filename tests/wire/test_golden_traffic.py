"""The traffic requests of real clients through the native codec: it reads them all."""

from tests.traffic_model import check, reference
from tests.wire.frames import Golden

from turbopump.net.wire.codes import RequestCode
from turbopump.pyx import traffic

LONGEST = (1 << 15) - 1
"""Bytes of properties that a record can hold; one send of each capture has more."""


def requests(frames: list[Golden]) -> list[Golden]:
    return [
        golden for golden in frames if golden.is_request and golden.truth["code"] in traffic.CODES
    ]


def test_every_request_that_is_served_is_plain(all_frames) -> None:
    golden = requests(all_frames)
    in_json_alone = {(RequestCode.ACK_MESSAGE, 1), (RequestCode.POP_MESSAGE, 1)}
    assert {(each.truth["code"], each.frame[4]) for each in golden} == {
        (code, codec) for code in traffic.CODES for codec in (0, 1)
    } - in_json_alone
    for each in golden:
        served = reference(each.frame) is not None
        assert served or not each.truth["bodyLength"], str(each)
        assert check(each.frame) == (traffic.PLAIN if served else traffic.OTHER), str(each)


def test_everything_else_is_left_to_python(all_frames) -> None:
    others = [each for each in all_frames if each not in requests(all_frames)]
    assert len(others) > 1000
    assert {check(each.frame) for each in others} == {traffic.OTHER}


def test_properties_of_real_clients_are_plain(all_frames) -> None:
    plain = 0
    for each in requests(all_frames):
        verdict, members = traffic.decode(each.frame)
        if verdict == traffic.PLAIN and "properties" in members["header"]:
            text = members["header"]["properties"]
            assert traffic.scan_properties(text)[0] == (len(text) <= LONGEST), str(each)
            plain += len(text) <= LONGEST
    assert plain > 50
