"""The configuration of a proxy: RocketMQ's JSON file or properties."""

import json
from pathlib import Path

import pytest

from turbopump.net.client.credentials import Credentials
from turbopump.net.wire.java_properties import ConfigError, PropertiesError, Property
from turbopump.proxy.config import ProxyConfig, read_file


def test_rocketmqs_json_file_is_read() -> None:
    config = ProxyConfig()
    text = """
    {"rocketMQClusterName": "DefaultCluster", "namesrvAddr": "a:9876;b:9876", "grpcServerPort": 81,
     "useEndpointPortFromRequest": true, "tlsCertPath": "/c.pem", "tlsTestModeEnable": false,
     "grpcThreadPoolNums": 20, "remotingListenPort": 8080, "namesrvDomain": null}
    """
    assert config.update_keys(read_file(text)) == []
    assert config.namesrv_addr == ["a:9876", "b:9876"]
    assert (config.cluster_name, config.grpc_server_port) == ("DefaultCluster", 81)
    assert config.echoes_port
    assert (config.tls.cert_path, config.tls.test_mode) == ("/c.pem", False)


def test_properties_are_read_too() -> None:
    config = ProxyConfig()
    warnings = config.update_keys(read_file("grpcServerPort=82\nremotingListenPort=90\nnone=1\n"))
    assert config.grpc_server_port == 82
    assert warnings == [
        "unknown key none ignored (line 3)",
        "known, but without effect here: remotingListenPort=90 (line 2)",
    ]


@pytest.mark.parametrize(
    "text", ['{"grpcServerPort": [1]}', "{", '{"grpcServerPort": "x"}', '{"proxyMode": "LOCAL"}']
)
def test_a_file_that_cannot_be_used_is_one_sentence(text: str) -> None:
    with pytest.raises(PropertiesError):
        ProxyConfig().update_keys(read_file(text))


def test_the_credentials_of_the_proxy_are_read_and_never_shown() -> None:
    config = ProxyConfig()
    value = '{"accessKey": "inner", "secretKey": "s3cret"}'
    text = json.dumps(
        {"innerClientAuthenticationCredentials": value, "enableAclRpcHookForClusterMode": True}
    )
    assert config.update_keys(read_file(text)) == []
    assert config.inner_credentials == Credentials("inner", "s3cret")
    assert "innerClientAuthenticationCredentials" not in config.values_as_text()
    assert "s3cret" not in repr(config) + str(config.values_as_text())
    wrong = [Property("innerClientAuthenticationCredentials", '{"secretKey": "s3cret"}')]
    with pytest.raises(ConfigError, match="expected a JSON object with accessKey") as caught:
        config.update_keys(wrong)
    assert "s3cret" not in str(caught.value)
    config.update_keys([Property("innerClientAuthenticationCredentials", "")])
    assert config.inner_credentials is None


@pytest.mark.parametrize("key", ["authenticationEnabled", "authorizationEnabled"])
def test_a_proxy_that_should_authenticate_its_clients_does_not_start(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}=true: not supported"):
        ProxyConfig().update_keys([Property(key, "true")])


def test_every_key_of_rocketmqs_proxy_is_known() -> None:
    """Keys without an effect are silent only with RocketMQ's default."""
    lines = (Path(__file__).parents[2] / "golden" / "config_keys_5_5_0.tsv").read_text()
    rows = [row.split("\t") for row in lines.splitlines()]
    found: dict[str, str] = {}
    for owner in ("AuthConfig", "ProxyConfig"):  # the proxy reads its file for both classes
        found |= {key: default for name, key, _, default in rows if name == owner}
    for key in ("clusterName", "configName"):
        del found[key]  # set at its start, whatever the file has
    for key, default in found.items():
        assert ProxyConfig.has_key(key), key
        given = [] if default == "null" else [Property(key, default)]
        assert ProxyConfig().update_keys(given) == [], key
