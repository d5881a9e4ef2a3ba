"""TLS settings from RocketMQ's properties."""

import pytest

from turbopump.net.transport.options import ClientAuth, ClientTlsSettings, TlsMode, TlsSettings


def test_defaults_are_rocketmqs() -> None:
    settings = TlsSettings.from_properties({})
    assert settings == TlsSettings()
    assert (settings.mode, settings.test_mode) == (TlsMode.PERMISSIVE, True)
    assert ClientTlsSettings.from_properties({}) is None


def test_every_key() -> None:
    settings = TlsSettings.from_properties(
        {
            "tls.server.mode": " Enforcing",
            "tls.server.certPath": "c",
            "tls.server.keyPath": "k",
            "tls.server.keyPassword": "p",
            "tls.server.trustCertPath": "t",
            "tls.server.need.client.auth": "require",
            "tls.server.authClient": "true",
            "tls.test.mode.enable": "false",
        }
    )
    assert settings == TlsSettings(
        TlsMode.ENFORCING, "c", "k", "p", "t", ClientAuth.REQUIRE, True, False
    )
    client = ClientTlsSettings.from_properties(
        {"tls.enable": "true", "tls.client.authServer": "true", "tls.client.trustCertPath": "t"}
    )
    assert client == ClientTlsSettings(trust_cert_path="t", auth_server=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tls.server.mode", "on"),
        ("tls.server.need.client.auth", "yes"),
        ("tls.server.authClient", "1"),
        ("tls.test.mode.enable", ""),
    ],
)
def test_a_bad_value_names_its_key(key, value) -> None:
    with pytest.raises(ValueError, match=key):
        TlsSettings.from_properties({key: value})
