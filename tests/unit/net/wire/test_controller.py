"""Bodies of controller requests: refused bodies, and the accepted forms of keys."""

import pytest

from turbopump.net.wire.bodies import BadBody
from turbopump.net.wire.controller import (
    BrokerReplicasInfo,
    ElectMasterBody,
    MemberGroup,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
    decode_names,
    decode_peers,
    encode_peers,
)


def test_a_set_is_written_in_order() -> None:
    body = SyncStateSet(frozenset({3, 1, 2}), 7).encode()
    assert body == b'{"syncStateSet":[1,2,3],"syncStateSetEpoch":7}'
    assert SyncStateSet.decode(body) == SyncStateSet(frozenset({1, 2, 3}), 7)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"syncStateSet":1}',
        b'{"syncStateSet":["a"]}',
        b'{"syncStateSet":[-1]}',
        b'{"syncStateSet":[null]}',
        b'{"syncStateSetEpoch":"x"}',
        b'{"syncStateSetEpoch":2147483648}',
    ],
)
def test_invalid_sets(body: bytes) -> None:
    with pytest.raises(BadBody):
        SyncStateSet.decode(body)


def test_raw_and_quoted_ids_are_the_same() -> None:
    quoted = b'{"brokerMemberGroup":{"brokerAddrs":{"1":"a:1"},"brokerName":"b","cluster":"c"}}'
    group = MemberGroup("c", "b", {1: "a:1"})
    assert ElectMasterBody.decode(quoted).group == group
    assert ElectMasterBody.decode(quoted.replace(b'"1"', b"1")).group == group
    assert b'{"1":"a:1"}' in ElectMasterBody(frozenset({1}), group).encode()


def test_an_election_that_changed_nothing_names_no_group() -> None:
    assert ElectMasterBody(frozenset({2, 1})).encode() == b'{"syncStateSet":[1,2]}'


def test_a_group_without_a_master() -> None:
    replica = ReplicaIdentity("b", 1, "a:1", True)
    info = BrokerReplicasInfo({"b": ReplicasInfo(None, None, 2, 3, (replica,))})
    assert b"masterAddress" not in info.encode()
    assert BrokerReplicasInfo.decode(info.encode()) == info


def test_names_and_peers() -> None:
    assert decode_names(b'["a","b"]') == ["a", "b"]
    with pytest.raises(BadBody):
        decode_names(b'{"a":1}')
    peers = {"n0": "127.0.0.1:1", "n1": "[::1]:2"}
    assert encode_peers(peers) == "n0:127.0.0.1:1;n1:[::1]:2;"
    assert decode_peers(encode_peers(peers)) == peers
    assert decode_peers(";x;n0:h:1") == {"n0": "h:1"}
