"""The keys of authentication and authorization (RocketMQ: AuthConfig).

Owns their declarations, and the checks for contradicting values. It must never show a credential,
nor decide about a request.
"""

from dataclasses import dataclass, field
from typing import Final

from turbopump.engine.keys import BOOLEAN, OURS, TEXT, Kind, key
from turbopump.net.config.idle import IdleKey
from turbopump.net.wire.bodies import BadBody, load_small_object, read_text
from turbopump.net.wire.codes import RequestCode
from turbopump.net.wire.command import Command
from turbopump.net.wire.signature import sign_request

CODES_MAX: Final = 500
"""Maximum codes of a list: RocketMQ has some 200."""
_CLASSES: Final = "org.apache.rocketmq.auth"
_ALWAYS_CLOSED: Final = range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1)


@dataclass(frozen=True, slots=True)
class UserCredentials:
    """A user's name and secret; `token` is sent along, "" for none."""

    name: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)

    def sign(self, request: Command) -> None:
        """Sign a request as this user; to be called when the request is complete."""
        sign_request(request, self.name, self.secret, self.token)


def _parse_codes(value: str) -> frozenset[int]:
    """Parse `10, 310` to request codes. Raises ValueError."""
    parts = [part.strip() for part in value.split(",") if part.strip()]
    expected = f"at most {CODES_MAX} request codes, separated by commas"
    if len(parts) > CODES_MAX or not all(one.isdecimal() and len(one) <= 9 for one in parts):
        raise ValueError(expected)
    codes = frozenset(map(int, parts))
    if any(code in _ALWAYS_CLOSED for code in codes):
        raise ValueError("request codes other than 3001 to 3010, which are for users and policies")
    return codes


def _credentials(name_member: str, secret_member: str) -> Kind[UserCredentials | None]:
    """The kind of a JSON object with a name and a secret; None for an empty text."""
    expected = f'{{"{name_member}":"...","{secret_member}":"..."}}'

    def parse(value: str) -> UserCredentials | None:
        if not value:
            return None
        try:
            members = load_small_object(value.encode())
            name, secret = read_text(members, name_member), read_text(members, secret_member)
            token = read_text(members, "securityToken")
        except BadBody:
            raise ValueError(expected) from None
        if not name.strip() or not secret.strip():
            raise ValueError(expected)
        return UserCredentials(name, secret, token)

    return Kind("a JSON object", parse, lambda value: "" if value is None else "***")


CODES: Final = Kind(
    "request codes, separated by ,", _parse_codes, lambda codes: ",".join(map(str, sorted(codes)))
)
"""Decimal request codes, as a frozenset."""


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Settings of authentication and authorization, as BrokerConfig.auth; read at the start, and no
    request changes them."""

    authentication_enabled: bool = key(
        "authenticationEnabled",
        BOOLEAN,
        False,
        "Whether each request must be signed by a user of this broker.",
    )
    authentication_whitelist: frozenset[int] = key(
        "authenticationWhitelist",
        CODES,
        frozenset(),
        "Request codes that need no signature.",
        shows_empty=False,
    )
    init_user: UserCredentials | None = key(
        "initAuthenticationUser",
        _credentials("username", "password"),
        None,
        "A super user that the start creates, if no user has its name.",
        shows_empty=False,
    )
    inner_credentials: UserCredentials | None = key(
        "innerClientAuthenticationCredentials",
        _credentials("accessKey", "secretKey"),
        None,
        "The user whose signature this broker's own requests have; the start creates it as a super"
        " user, if no user has its name.",
        shows_empty=False,
    )
    authorization_enabled: bool = key(
        "authorizationEnabled",
        BOOLEAN,
        False,
        "Whether users need rights; only together with authenticationEnabled.",
    )
    authorization_whitelist: frozenset[int] = key(
        "authorizationWhitelist",
        CODES,
        frozenset(),
        "Request codes that need no rights.",
        shows_empty=False,
    )
    secrets_key_file: str = key(
        "authSecretsKeyFile",
        TEXT,
        "",
        "A file with 32 random bytes, as base64 or hex, by which users' secrets are encrypted.",
        rocketmq=OURS,
        shows_empty=False,
    )

    def contradiction(self, grpc_port: int) -> str | None:
        """A sentence about values that contradict each other or grpcServerPort, which is below 0
        without such a port; None if all agree."""
        if self.authorization_enabled and not self.authentication_enabled:
            return (
                "authorizationEnabled=true needs authenticationEnabled=true: without it a name"
                " proves nothing"
            )
        if self.authentication_enabled and grpc_port >= 0:
            return (
                "grpcServerPort: with authenticationEnabled=true there is no gRPC, whose requests"
                " are not authenticated here yet"
            )
        return None

    def remarks(self) -> list[str]:
        """Sentences about values that are allowed but unlikely."""
        if not self.authentication_enabled:
            given = self.init_user is not None or self.inner_credentials is not None
            needless = "users are given, but authenticationEnabled is false: every peer is admitted"
            return [needless] if given else []
        if not self.authorization_enabled:
            return ["authorizationEnabled is false: every user may do everything"]
        return []


def _only(name: str, harm: str) -> IdleKey:
    """A key that names a class of RocketMQ, of which only one is like this broker."""
    return IdleKey("String", None, f"{_CLASSES}.{name}", harm)


_OTHER: Final = "users and policies are in this broker's own table"
_STATEFUL: Final = "there is no stateful mode here"

AUTH_CLASS_KEYS: Final[dict[str, IdleKey]] = {
    "authenticationMetadataProvider": _only(
        "authentication.provider.LocalAuthenticationMetadataProvider", _OTHER
    ),
    "authenticationProvider": _only(
        "authentication.provider.DefaultAuthenticationProvider", _OTHER
    ),
    "authenticationStrategy": _only(
        "authentication.strategy.StatelessAuthenticationStrategy", _STATEFUL
    ),
    "authorizationMetadataProvider": _only(
        "authorization.provider.LocalAuthorizationMetadataProvider", _OTHER
    ),
    "authorizationProvider": _only("authorization.provider.DefaultAuthorizationProvider", _OTHER),
    "authorizationStrategy": _only(
        "authorization.strategy.StatelessAuthorizationStrategy", _STATEFUL
    ),
}
"""Keys that name classes of RocketMQ: a class that works otherwise than this broker is refused."""
