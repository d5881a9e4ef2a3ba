"""The dialect of fastjson: accepted texts, written texts, and refused texts."""

import math

import pytest

from turbopump.engine import fastjson
from turbopump.engine.fastjson import RawKeys, dumps, loads

QUEUE = '{"brokerName":"b","queueId":0,"topic":"T"}'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":1}', {"a": 1}),
        (b'{"a":[1,2.5,true,false,null]}', {"a": [1, 2.5, True, False, None]}),
        (memoryview(b"[]"), []),
        ("{0:'x',1:\"y\"}", {"0": "x", "1": "y"}),
        ("{-1:1e3}", {"-1": 1000.0}),
        ("{name:{ }}", {"name": {}}),
        (f"{{{QUEUE}:5}}", {QUEUE: 5}),
        ('{{"topic":"T","queueId":0, "brokerName":"b"}:5}', {QUEUE: 5}),
        ("{'it\\'s':'a \"b\"'}", {"it's": 'a "b"'}),
        ("{'\\u0041':\"\\n\n\"}", {"A": "\n\n"}),
        ('{"s":"\\ud83d\\ude00","x":"\\ud800"}', {"s": "\U0001f600", "x": "?"}),
        (b'{"a":"\xff"}', {"a": "�"}),
        ("{[1,2]:3}", {"[1,2]": 3}),
        ("{{'a':[{b:'c'}]}:{d:'e'},'f':'g'}", {'{"a":[{"b":"c"}]}': {"d": "e"}, "f": "g"}),
        ("{[{'a' :'1'}\n] : [ 'b', 1 ,],1.5 : true , }", {'[{"a":"1"}]': ["b", 1], "1.5": True}),
        ("{'a{1:2}':'x:y,z:',\"b,c:\":'\\\\'}", {"a{1:2}": "x:y,z:", "b,c:": "\\"}),
        ("{'\0':1}", {"\0": 1}),
        ("  7  ", 7),
    ],
)
def test_read(text, value) -> None:
    assert loads(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{a}",
        "{'a':}",
        "{'a':1,,}",
        "{1:2}x",
        "[1 2]",
        "{'a':01x}",
        "nope",
        "'",
        "{'a'",
        "{'a':'b\\'",
        '{1:"b\\"',
        "{1:2 \0}",
        "{1.:2}",
        "{-a:2}",
        "{a b:2}",
        "{1:NaN}",
        "{1:2}}:3}",
        ":",
    ],
)
def test_refused(text) -> None:
    with pytest.raises(ValueError):
        loads(text)


def test_nesting_is_bounded() -> None:
    with pytest.raises(ValueError, match="deeply"):
        loads("[" * 100_000 + "]" * 100_000)
    with pytest.raises(ValueError, match="deeply"):
        loads("{1:" * 300 + "1" + "}" * 300)
    nested: list[object] = []
    for _ in range(fastjson.DEPTH_MAX):
        nested = [nested]
    with pytest.raises(ValueError, match="nested"):
        dumps(nested)


def test_parsed_json_can_be_written() -> None:
    limit = fastjson.DEPTH_MAX
    deepest = "[" * limit + "]" * limit
    assert dumps(loads(deepest)) == deepest
    for opening, closing in ("[]", ("{1:", "}")):
        with pytest.raises(ValueError, match="deeply"):
            loads(opening * (limit + 1) + "1" + closing * (limit + 1))
    with pytest.raises(ValueError, match="deeply"):
        loads("[" * 900 + '"\\ud800"' + "]" * 900)
    half = "[" * 150 + "1" + "]" * 150
    with pytest.raises(ValueError, match="deeply"):
        loads('{"a":' + half + ',"b":' + half.replace("1", '{"$ref":"$.a"}') + "}")


def test_beans_as_keys_do_not_nest() -> None:
    """Each level would double the backslashes of the level inside."""
    assert loads("{{1:2}:3}") == {'{"1":2}': 3}
    with pytest.raises(ValueError, match="key inside a key"):
        loads("{" * 100 + "1:2" + "}:3" * 99 + "}")


def test_size_is_bounded() -> None:
    with pytest.raises(ValueError, match="over"):
        loads(" " * (fastjson.SIZE_MAX + 1))


def test_values_python_takes_piece_by_piece_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastjson, "SLOW_MAX", 2)
    for slow in ("{{a:%d}:1}", "'%d\\n'", "'\"%d'"):
        fine = "[" + ",".join(slow % number for number in range(2)) + ",'x']"
        assert len(loads(fine)) == 3
        with pytest.raises(ValueError, match="over 2"):
            loads(fine[:-1] + "," + slow % 2 + "]")


@pytest.mark.parametrize(
    "text",
    [
        "[" + "1" * 3_000_000 + "x]",
        "{1:'" + "\\'" * 1_000_000,
        '{1:"' + '\\"' * 1_000_000,
        "{" + "a" * 3_000_000,
        "{1:" + ", " * 1_000_000,
        "{1:" + " " * 3_000_000,
        "{1:" + "}" * 3_000_000,
        "{1:" + "} " * 1_000_000,
        "{1:" + "{:" * 1_000_000,
    ],
)
def test_each_character_is_read_once(text: str) -> None:
    """Quadratic time would take hours here."""
    with pytest.raises(ValueError):
        loads(text)


def test_a_large_file_of_a_java_broker_is_read() -> None:
    name = "topic" * 20
    table = {f"{name}{number}@group": RawKeys({0: number, 1: 2}) for number in range(40_000)}
    text = dumps({"offsetTable": table}, pretty=True)
    assert len(text) > 5 << 20
    assert loads(text)["offsetTable"][f"{name}39999@group"] == {"0": 39_999, "1": 2}


def test_references_are_resolved_where_simple() -> None:
    text = '{"a":[{"q":1},{"$ref":"$.a[0]"}],"b":{"$ref":"$.a[0].q"},"c":{"d":{"$ref":".."}}}'
    value = loads(text)
    assert value["a"][1] == {"q": 1}
    assert value["b"] == 1
    # A reference to what contains it stays as it is.
    assert value["c"] == {"d": {"$ref": ".."}}
    assert loads('{"a":{"$ref":"$.nowhere"}}') == {"a": {"$ref": "$.nowhere"}}
    assert loads('{"a":{"$ref":"$"}}') == {"a": {"$ref": "$"}}


def test_references_cannot_multiply() -> None:
    """Twenty levels with two references each would be a million values."""
    levels = ['"l0":[1,1]']
    levels += [f'"l{n}":[{{"$ref":"$.l{n - 1}"}},{{"$ref":"$.l{n - 1}"}}]' for n in range(1, 21)]
    value = loads("{" + ",".join(levels) + "}")
    assert value["l1"] == [[1, 1], [1, 1]]
    assert value["l20"][0] == {"$ref": "$.l19"}
    many = "[" + ",".join(['{"$ref":"$"}'] * (fastjson.REFERENCES_MAX + 1)) + "]"
    with pytest.raises(ValueError, match="references"):
        loads(many)
    long = "x" * fastjson.REFERENCE_TEXT_MAX
    assert loads(f'["{long}",{{"$ref":"$[0]"}}]')[1] == long
    for target in (f'"{long}x"', f'{{"{long}x":1}}'):
        assert loads(f'[{target},{{"$ref":"$[0]"}}]')[1] == {"$ref": "$[0]"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": None, "c": [None]}, '{"b":1,"c":[null]}'),
        ({"é": 'q"\n'}, '{"é":"q\\"\\n"}'),
        ({2: "b", 1: "a"}, '{"1":"a","2":"b"}'),
        (RawKeys({10: "b", 2: "a"}), '{2:"a",10:"b"}'),
        ({"t": RawKeys({QUEUE: 0})}, f'{{"t":{{{QUEUE}:0}}}}'),
        ([True, False, 1, 0.5, "x", ()], '[true,false,1,0.5,"x",[]]'),
        ({"e": {}, "l": []}, '{"e":{},"l":[]}'),
        ([math.nan, math.inf], "[null,null]"),
    ],
)
def test_written(value, text) -> None:
    assert dumps(value) == text


def test_pretty_equals_rocketmqs_files() -> None:
    value = {"offsetTable": {"T@g": RawKeys({0: 2, 1: 3})}, "groups": ["a"], "none": {}}
    assert dumps(value, pretty=True) == (
        '{\n\t"groups":[\n\t\t"a"\n\t],\n\t"none":{},\n'
        '\t"offsetTable":{\n\t\t"T@g":{\n\t\t\t0:2,\n\t\t\t1:3\n\t\t}\n\t}\n}'
    )


def test_values_outside_json_are_refused() -> None:
    with pytest.raises(TypeError):
        dumps({"a": b"bytes"})
