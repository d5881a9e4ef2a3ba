"""The frames of real replication connections: read as the truth has them, written byte for byte."""

from typing import Any

import pytest
from tests.wire.ha_streams import CONNECTIONS, PLAIN_CONNECTIONS, steps, stream

from turbopump.engine.log.epochs import Epochs
from turbopump.net.ha.frames import (
    Ack,
    DefaultHaFramer,
    DefaultHaTransfer,
    Handshake,
    HandshakeReply,
    MasterFramer,
    ReplicaFramer,
    Report,
    ReportFramer,
    Transfer,
)


def truth(run: str, connection: int, direction: str) -> list[dict[str, Any]]:
    return [step for step in steps(run, connection) if step["direction"] == direction]


@pytest.mark.parametrize(("run", "connection"), CONNECTIONS)
def test_frames_of_a_replica(run: str, connection: int) -> None:
    data = stream(run, connection, "slave-to-master")
    frames = list(ReplicaFramer().feed(data))
    expected: list[Handshake | Ack] = []
    for step in truth(run, connection, "slave-to-master"):
        if step["kind"] == "ack":
            expected.append(Ack(step["offset"]))
        else:
            flags = step["syncFromLastFile"] == 1, step["asyncLearner"] == 1
            expected.append(Handshake(step["slaveBrokerId"], *flags))
    assert frames == expected
    assert b"".join(frame.encode() for frame in frames) == data


@pytest.mark.parametrize(("run", "connection"), CONNECTIONS)
def test_frames_of_a_master(run: str, connection: int) -> None:
    data = stream(run, connection, "master-to-slave")
    frames = list(MasterFramer().feed(data))
    expected = truth(run, connection, "master-to-slave")
    assert len(frames) == len(expected)
    for frame, step in zip(frames, expected, strict=True):
        at = step["at"]
        if isinstance(frame, HandshakeReply):
            assert (frame.log_end, frame.epochs) == (
                step["offset"],
                Epochs.from_pairs(step["entries"]),
            )
            encoded = frame.encode()
        else:
            assert isinstance(frame, Transfer)
            assert frame.log_offset == step["offset"]
            assert (frame.epoch, frame.epoch_start) == (step["epoch"], step["epochStartOffset"])
            assert (frame.confirm_offset, len(frame.body)) == (step["confirmOffset"], step["size"])
            encoded = frame.encode_header(len(frame.body)) + frame.body
        assert encoded == data[at : at + len(encoded)]


@pytest.mark.parametrize("connection", PLAIN_CONNECTIONS)
def test_frames_of_a_plain_pair(connection: int) -> None:
    data = stream("plain", connection, "slave-to-master")
    reports = list(ReportFramer().feed(data))
    expected = truth("plain", connection, "slave-to-master")
    assert reports == [Report(step["offset"]) for step in expected]
    assert b"".join(report.encode() for report in reports) == data
    data = stream("plain", connection, "master-to-slave")
    frames = list(DefaultHaFramer().feed(data))
    expected = truth("plain", connection, "master-to-slave")
    assert [(f.log_offset, len(f.body)) for f in frames] == [
        (step["offset"], step["size"]) for step in expected
    ]
    assert all(isinstance(frame, DefaultHaTransfer) for frame in frames)
    assert b"".join(frame.encode_header(len(frame.body)) + frame.body for frame in frames) == data
