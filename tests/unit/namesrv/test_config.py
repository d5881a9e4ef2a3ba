from pathlib import Path

import pytest

from turbopump.namesrv.config import NamesrvConfig
from turbopump.net.wire.java_properties import ConfigError, Property, parse_properties


def test_defaults_are_rocketmqs() -> None:
    values = NamesrvConfig().values_as_text()
    assert values["listenPort"] == "9876"
    assert values["returnOrderTopicConfigToBroker"] == "true"
    assert values["scanNotActiveBrokerInterval"] == "5000"
    assert values["configBlackList"] == "configBlackList;configStorePath;kvConfigPath"
    assert values["clientRequestThreadPoolNums"] == "8"


def test_values_are_taken_over_by_key() -> None:
    config = NamesrvConfig()
    text = "listenPort=19876\norderMessageEnable = TRUE\nserverWorkerThreads:4\n"
    assert config.update_keys(parse_properties(text)) == [
        "known, but without effect here: serverWorkerThreads=4 (line 3)"
    ]
    assert (config.listen_port, config.order_message_enable) == (19876, True)
    assert config.values_as_text()["serverWorkerThreads"] == "4"
    assert config.values_as_text()["orderMessageEnable"] == "true"


def test_an_unknown_key_is_named_in_a_warning() -> None:
    config = NamesrvConfig()
    assert config.update_keys(parse_properties("# port\n\nlistenprt=1\nlistenPort=1")) == [
        "unknown key listenprt ignored (line 3) (did you mean listenPort?)"
    ]
    assert config.listen_port == 1


def test_every_key_of_rocketmqs_name_server_is_known() -> None:
    """Keys without an effect are silent only with RocketMQ's default."""
    lines = (Path(__file__).parents[2] / "golden" / "config_keys_5_5_0.tsv").read_text()
    for row in lines.splitlines():
        of, key, _, default = row.split("\t")
        if of in ("NamesrvConfig", "NettyServerConfig", "NettyClientConfig"):
            assert NamesrvConfig.has_key(key), key
            given = [] if default == "null" else [Property(key, default)]
            assert NamesrvConfig().update_keys(given) == [], key
            if default != "null" and of != "NettyClientConfig":
                assert key in NamesrvConfig().values_as_text(), key


@pytest.mark.parametrize("line", ["clusterTest=true", "useTLS=true", "socksProxyConfig={hidden}"])
def test_a_key_that_is_harmful_to_ignore_is_an_error(line: str) -> None:
    with pytest.raises(ConfigError, match="not supported yet") as raised:
        NamesrvConfig().update_keys(parse_properties(line))
    assert "hidden" not in str(raised.value)


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
            "tls.server.mode=on: expected disabled or permissive or enforcing (line 2)",
        ),
    ],
)
def test_a_bad_value_is_named_and_changes_nothing(line: str, expected: str) -> None:
    config = NamesrvConfig()
    with pytest.raises(ConfigError) as caught:
        config.update_keys(parse_properties("bindAddress=127.0.0.1\n" + line))
    assert str(caught.value) == expected
    assert config == NamesrvConfig()


def test_black_list_is_split_and_trimmed() -> None:
    config = NamesrvConfig(config_black_list=" a;b ;;c")
    own = {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
    assert config.black_list == {"a", "b", "c"} | own


def test_a_password_is_never_shown() -> None:
    config = NamesrvConfig()
    config.update_keys([Property("tls.server.keyPassword", "secret")])
    assert config.tls_properties == {"tls.server.keyPassword": "secret"}
    assert "secret" not in str(config.values_as_text())
