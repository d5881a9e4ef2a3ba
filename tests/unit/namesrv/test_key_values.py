import pytest

from turbopump.namesrv.key_values import KeyValues, table_from_json, table_to_json
from turbopump.net.wire.bodies import BadBody


def test_the_file_is_rocketmqs() -> None:
    table = {"ORDER_TOPIC_CONFIG": {"T": "a:4;b:4"}, "NS": {}}
    assert table_to_json(table) == {"configTable": table}
    assert table_from_json({"configTable": table}) == table
    assert table_from_json({}) == {}


@pytest.mark.parametrize("value", [[], None, {"configTable": []}, {"configTable": {"n": ["x"]}}])
def test_another_shape_is_refused(value: object) -> None:
    with pytest.raises(BadBody):
        table_from_json(value)


def test_deleting_nothing_saves_nothing() -> None:
    saved: list[object] = []
    values = KeyValues(saved.append, {"n": {"k": "v"}})
    values.delete("n", "other")
    values.delete("other", "k")
    assert saved == []
    assert values.count == 1
    values.delete("n", "k")
    assert saved == [{"n": {}}]
    assert values.namespace("n") == {}
