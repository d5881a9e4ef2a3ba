"""Requests without header and body: RocketMQ 5.5.0 accepts many of them (observed)."""

from typing import Any

import pytest

EMPTY = {
    12: 1,
    17: 1,
    18: 1,
    21: 0,
    25: 0,
    26: 0,
    28: 0,
    30: 1,
    33: 1,
    35: 0,
    38: 1,
    41: 1,
    42: 1,
    43: 0,
    45: 0,
    46: 0,
    200: 0,
    201: 0,
    202: 1,
    203: 1,
    204: 1,
    207: 1,
    208: 1,
    215: 29,
    222: 1,
    300: 1,
    303: 1,
    305: 0,
    306: 0,
    307: 1,
    308: 0,
    314: 0,
    315: 1,
    316: 0,
    317: 0,
    328: 0,
    329: 0,
    343: 0,
    345: 1,
    351: 1,
    352: 1,
    353: 1,
    1008: 0,
}
"""Request code -> the answer's code."""


@pytest.mark.parametrize("code", sorted(EMPTY))
def test_an_empty_request_is_answered_as_by_rocketmq(admin: Any, code: int) -> None:
    response = admin.ask(code)
    assert response.code == EMPTY[code], response.remark
    if code == 215:
        assert response.remark == "The specified topic is blank."
    if code == 308:
        assert bytes(response.body) == b'{"correctionOffsets":{}}'
