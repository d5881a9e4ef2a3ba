"""Keys of users and rights: checked at the start, and never shown."""

import pytest

from turbopump.broker.config.config import load_config
from turbopump.net.wire.java_properties import ConfigError

INIT = 'initAuthenticationUser={"username":"root","password":"hidden"}\n'
INNER = (
    'innerClientAuthenticationCredentials={"accessKey":"in","secretKey":"hidden",'
    '"securityToken":"hidden2"}\n'
)


def test_the_keys_of_a_file_of_rocketmq() -> None:
    classes = "org.apache.rocketmq.auth"
    config, warnings = load_config(
        f"authenticationEnabled=true\nauthorizationEnabled=true\n{INIT}{INNER}"
        f"authenticationMetadataProvider={classes}.authentication.provider"
        ".LocalAuthenticationMetadataProvider\n"
        f"authorizationMetadataProvider={classes}.authorization.provider"
        ".LocalAuthorizationMetadataProvider\n"
        "authenticationWhitelist= 28, 310 ,\nauthorizationWhitelist=28\nuserCacheMaxNum=1000\n"
    )
    assert not warnings
    auth = config.auth
    assert auth.init_user is not None and auth.init_user.secret == "hidden"
    assert auth.inner_credentials is not None and auth.inner_credentials.token == "hidden2"
    assert auth.authentication_whitelist == {28, 310}
    assert "hidden" not in repr(config) and "hidden" not in str(config.values_as_text())
    assert config.values_as_text()["authenticationWhitelist"] == "28,310"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("authorizationEnabled=true", "needs authenticationEnabled"),
        ("authenticationEnabled=true\ngrpcServerPort=8081", "grpcServerPort"),
        ("initAuthenticationUser=hidden", "initAuthenticationUser"),
        ('initAuthenticationUser={"username":"","password":"hidden"}', "initAuthenticationUser"),
        ('innerClientAuthenticationCredentials={"accessKey":"hidden"}', "innerClient"),
        ("authenticationWhitelist=hidden", "authenticationWhitelist"),
        ("authenticationWhitelist=-1", "authenticationWhitelist"),
        ("authorizationWhitelist=3001", "3001 to 3010"),
        ("authenticationStrategy=x.StatefulAuthenticationStrategy", "stateful"),
        ("authorizationProvider=com.example.Mine", "authorizationProvider"),
        ("migrateAuthFromV1Enabled=true", "migrateAuthFromV1Enabled"),
        ("aclEnable=true", "aclEnable"),
    ],
)
def test_values_that_are_refused(text: str, part: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(f"{text}\n")
    assert part in str(raised.value)
    if "Whitelist" not in text:
        assert "hidden" not in str(raised.value)


def test_values_that_are_unlikely() -> None:
    _, warnings = load_config(INIT)
    assert len(warnings) == 1 and "every peer is admitted" in warnings[0]
    _, warnings = load_config(f"authenticationEnabled=true\n{INIT}")
    assert len(warnings) == 1 and "every user may do everything" in warnings[0]
