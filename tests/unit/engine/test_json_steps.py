"""Long JSON texts in pieces: the same values as at once, with limits checked before objects are
made."""

import json
import random
import tracemalloc

import pytest

from turbopump.engine import fastjson, json_steps
from turbopump.engine.json_steps import PIECE, JsonBounds, Lazy
from turbopump.net.wire import bodies


def run(steps):
    """The result of the steps, and their number."""
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as done:
            return done.value, count


def a_value(chance: random.Random, depth: int = 0):
    kind = chance.randrange(8 if depth < 4 else 5)
    if kind == 0:
        return chance.randrange(-(2**60), 2**60)
    if kind == 1:
        return chance.choice([None, True, False, 1.5])
    if kind < 5:
        return "".join(chance.choice("ab,:{}[]\"\\'é\n") for _ in range(chance.randrange(20)))
    many = (2_000, 40)[depth] if depth < 2 and chance.random() < 0.4 else chance.randrange(4)
    if kind == 5:
        return [a_value(chance, depth + 1) for _ in range(many)]
    return {f"key {number}{'{,'}": a_value(chance, depth + 1) for number in range(many)}


def plain(value):
    """The value after a round trip: None members are not written."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items() if one is not None}
    return [plain(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(10))
def test_any_value_is_written_and_read_as_at_once(seed) -> None:
    value = {"a": a_value(random.Random(seed)), "b": [a_value(random.Random(seed + 100))]}
    text, _ = run(json_steps.dump_in_steps(value))
    assert text == fastjson.dumps(value).encode()
    found, _ = run(json_steps.load_in_steps(text))
    assert found == fastjson.loads(text) == plain(value)
    spaced = json.dumps(value, indent=3).encode()
    assert run(json_steps.load_in_steps(spaced))[0] == value


def test_a_step_reads_a_bounded_part_of_the_text() -> None:
    topics = {f"topic{number}": {"perm": 6, "attributes": {}} for number in range(20_000)}
    text = fastjson.dumps({"dataVersion": {"counter": 1}, "topicConfigTable": topics}).encode()
    seen: list[int] = []
    real = fastjson.loads
    try:
        json_steps.fastjson.loads = lambda piece: seen.append(len(piece)) or real(piece)
        found, steps = run(json_steps.load_in_steps(text))
    finally:
        json_steps.fastjson.loads = real
    assert found["topicConfigTable"] == topics
    assert max(seen) <= PIECE + 2
    assert steps >= len(text) // PIECE


def test_a_step_writes_a_bounded_number_of_values() -> None:
    made: list[int] = []
    numbers = {f"t{number}": number for number in range(10_000)}
    table = Lazy(numbers, lambda n: made.append(n) or [n])
    steps = json_steps.dump_in_steps({"version": 1, "table": table, "z": [1] * 50_000})
    before = 0
    for _ in steps:
        assert len(made) - before <= json_steps.WRITTEN_TEXTS
        before = len(made)
    text, count = run(json_steps.dump_in_steps({"version": 1, "table": table, "z": [1] * 50_000}))
    assert json.loads(text)["table"]["t77"] == [77]
    assert count > 100_000 // json_steps.WRITTEN


def test_a_long_text_is_not_copied_at_its_end() -> None:
    """The copy would be a single step of 8 to 15 ms for 20 MiB."""
    value = ["x" * 1_000] * 4_000
    tracemalloc.start()
    try:
        text, steps = run(json_steps.dump_in_steps(value))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert steps > 100
    assert peak < 1.5 * len(text)


def test_fastjsons_dialect_too() -> None:
    queues = ",".join(f"{number}:{number * 3}" for number in range(20_000))
    text = f"{{'offsetTable':{{\"T@G\":{{{queues}}}}},}}".encode()
    found, steps = run(json_steps.load_in_steps(text))
    assert found == {"offsetTable": {"T@G": {str(n): n * 3 for n in range(20_000)}}}
    assert steps > 5
    beans = ",".join(f'{{"queueId":{number},"topic":"T"}}:{number}' for number in range(5_000))
    found, _ = run(json_steps.load_in_steps(f'{{"mqTable":{{{beans}}}}}'.encode()))
    assert len(found["mqTable"]) == 5_000


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"{}," * 60_000,
        b"[" + b"{}," * 60_000 + b"{}}",
        b"[" + b"{}," * 60_000 + b"{}]x",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"a":[' + b"1," * 60_000 + b"1] 2}",
        b'[7 {"a":"' + b"x" * 60_000 + b'"}]',
        b'{"a":"' + b"x" * 100_000,
        b"[" + b"\0" * 100_000 + b"]",
        b"7" * 300_000,
        b'[{"$ref":"$[1]"}' + b",{}" * 100_000 + b"]",
    ],
)
def test_text_other_than_json_is_refused(text) -> None:
    with pytest.raises(ValueError):
        run(json_steps.load_in_steps(text))


def test_bounds_are_counted_before_objects_are_made() -> None:
    bounds = JsonBounds(1 << 20, 1_000, 10_000)
    made = 0
    for text in (b"[" + b"{}," * 300_000 + b"{}]", b"[" + b"1," * 300_000 + b"1]"):
        with pytest.raises(ValueError, match="more values"):
            for _ in json_steps.load_in_steps(text, bounds):
                made += 1
        assert made < 5
    with pytest.raises(ValueError, match="is over"):
        run(json_steps.load_in_steps(b" " * (2 << 20), bounds))
    with pytest.raises(ValueError, match="is over 100 bytes"):
        run(json_steps.dump_in_steps(["x" * 60_000] * 3, 100))


def test_a_value_of_a_peer_that_is_too_long_is_refused() -> None:
    bounds = json_steps.JsonBounds(1 << 30, 100, 100, 100_000)
    short, long = b'{"a":"%s"}' % (b"x" * 90_000), b'{"a":"%s"}' % (b"x" * 110_000)
    assert len(bodies.run_to_result(json_steps.load_in_steps(short, bounds))["a"]) == 90_000
    with pytest.raises(ValueError, match="a value of"):
        bodies.run_to_result(json_steps.load_in_steps(long, bounds))
    assert bodies.run_to_result(json_steps.load_in_steps(long)) == {"a": "x" * 110_000}
