import pytest

from turbopump.namesrv.config import ConfigError, NamesrvConfig
from turbopump.net.wire.java_properties import Property, parse_properties


def test_defaults_are_rocketmqs() -> None:
    values = NamesrvConfig().values()
    assert values["listenPort"] == "9876"
    assert values["returnOrderTopicConfigToBroker"] == "true"
    assert values["scanNotActiveBrokerInterval"] == "5000"
    assert values["configBlackList"] == "configBlackList;configStorePath;kvConfigPath"
    assert values["clientRequestThreadPoolNums"] == "8"


def test_values_are_taken_over_by_key() -> None:
    config = NamesrvConfig()
    text = "listenPort=19876\norderMessageEnable = TRUE\nserverWorkerThreads:4\n"
    assert config.update(parse_properties(text)) == []
    assert (config.listen_port, config.order_message_enable) == (19876, True)
    assert config.values()["serverWorkerThreads"] == "4"
    assert config.values()["orderMessageEnable"] == "true"


def test_an_unknown_key_is_named_in_a_warning() -> None:
    config = NamesrvConfig()
    assert config.update(parse_properties("# port\n\nlistenprt=1\nlistenPort=1")) == [
        "unknown key listenprt ignored (line 3)"
    ]
    assert config.listen_port == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("listenPort=65536", "listenPort=65536: expected a whole number from 0 to 65535 (line 2)"),
        ("listenPort=", "listenPort=: expected a whole number from 0 to 65535 (line 2)"),
        (
            "needWaitForService=yes",
            "needWaitForService=yes: expected true or false (line 2)",
        ),
        (
            "tls.server.mode=on",
            "tls.server.mode is 'on', not one of disabled, permissive, enforcing (line 2)",
        ),
    ],
)
def test_a_bad_value_is_named_and_changes_nothing(line: str, expected: str) -> None:
    config = NamesrvConfig()
    with pytest.raises(ConfigError) as caught:
        config.update(parse_properties("bindAddress=127.0.0.1\n" + line))
    assert str(caught.value) == expected
    assert config == NamesrvConfig()


def test_black_list_is_split_and_trimmed() -> None:
    config = NamesrvConfig(config_black_list=" a;b ;;c")
    assert config.black_list == {"a", "b", "c"}


def test_a_password_is_never_shown() -> None:
    config = NamesrvConfig()
    config.update([Property("tls.server.keyPassword", "secret")])
    assert config.tls == {"tls.server.keyPassword": "secret"}
    assert "secret" not in str(config.values())
    assert config.values(secrets=True)["tls.server.keyPassword"] == "secret"
