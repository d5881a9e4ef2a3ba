"""The guard before the handlers: who sent a request, and may it be executed?

Owns the order of the checks and their remarks. It must never cache a decision
beyond its request, nor let a handler run before the answer to both questions is yes.

A request whose code is in authenticationWhitelist needs no credentials; without them it is
anonymous, and no policy allows it anything: its code must be in authorizationWhitelist, too.

Tests: tests/unit/broker/handlers/test_guarding.py
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from turbopump.broker.auth.policies import (
    USER_PREFIX,
    Acl,
    Need,
    PolicyDecision,
    read_address,
)
from turbopump.broker.auth.rights import BODY_RIGHTS, RIGHTS, NoRight, RequestFacts
from turbopump.broker.auth.users import User
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire.bodies import SMALL_MAX, BadBody, load_object, object_in_steps
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, is_signed

CHANGES: Final = frozenset(
    {
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
    }
)
"""Requests that change users and policies: for super users alone. In RocketMQ a user with the right
to update the cluster may give itself every right."""
ADMIN: Final = CHANGES | {
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
}
"""Requests that change or show users and policies: no list opens them."""

NO_USER: Final = "username cannot be null."
"""Remark of the refusal of a request without AccessKey."""
WRONG: Final = "check signature failed."
"""Remark of the refusal of an unknown user and of a wrong signature, the same for both: names
cannot be probed."""
UNCLEAR: Final = "parse authorization context error."
"""Remark of the refusal of a request whose resources cannot be known."""

_NEEDS_PER_STEP: Final = 200
_NO_ACL: Final = Acl()
_UNKNOWN_SECRET: Final = "no user has this secret"


@dataclass(frozen=True, slots=True)
class Denial:
    """A refused request, for the audit log. `user` is the name that the request claims; empty
    without one."""

    code: int
    user: str
    address: str
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """Settings of the guard: whether rights are checked, and the codes that skip a check."""

    authorizes: bool
    unauthenticated: frozenset[int] = frozenset()
    unauthorized: frozenset[int] = frozenset()


class Guard:
    """Checks each request before its handler runs. Loop thread only."""

    def __init__(
        self,
        options: GuardOptions,
        find_user: Callable[[str], User | None],
        find_acl: Callable[[str], Acl | None],
        facts: RequestFacts,
        on_denial: Callable[[Denial, int], None],
    ) -> None:
        """`find_user` and `find_acl` return the user and the policies of a name; `on_denial` is
        called for each refused request with the time of the handlers' clock in ms."""
        self._options = options
        self._find_user, self._find_acl = find_user, find_acl
        self._facts = facts
        self._on_denial = on_denial

    def __call__(
        self, request: Command, peer: Peer, now_ms: int
    ) -> Command | Steps[Command | None] | None:
        """Return the refusal of a request (NO_PERMISSION), None if its handler may run, or steps
        that return one of them: the needs of a long body are collected in steps. Signature and
        SecurityToken are removed from an admitted request: handlers may pass its fields on."""
        remark = self._authenticate(request)
        if remark is None and self._options.authorizes and not self._skips(request):
            return self._authorize(request, peer, now_ms)
        return self._close(remark, request, peer, now_ms)

    def _authenticate(self, request: Command) -> str | None:
        """Return the remark of a refusal, None for a request that is signed by an enabled user, or
        that needs no credentials."""
        is_open = request.code in self._options.unauthenticated and request.code not in ADMIN
        name = request.fields.get(ACCESS_KEY, "")
        if not name.strip():
            return None if is_open else NO_USER
        user = self._find_user(name)
        # An unknown name takes as long as a known one.
        secret = _UNKNOWN_SECRET if user is None else user.secret
        signed = is_signed(request, secret)
        if user is not None and signed and user.is_enabled:
            for_super = CHANGES if self._options.authorizes else ADMIN
            if request.code in for_super and not user.is_super:
                return _super_only(request, name)
            return None
        if is_open:
            del request.fields[ACCESS_KEY]  # anonymous: the name is not proved
            return None
        return f"User:{name} is disabled." if user is not None and signed else WRONG

    def _skips(self, request: Command) -> bool:
        """Whether a code needs no rights."""
        return request.code in self._options.unauthorized and request.code not in ADMIN

    def _authorize(
        self, request: Command, peer: Peer, now_ms: int
    ) -> Command | Steps[Command | None] | None:
        """Check the rights of the request's user."""
        name = request.fields.get(ACCESS_KEY, "")
        user = self._find_user(name)
        if user is None:
            return self._close(NO_USER, request, peer, now_ms)
        if user.is_super:
            return self._close(None, request, peer, now_ms)
        if request.code in BODY_RIGHTS and len(request.body) > SMALL_MAX:
            return self._authorize_in_steps(request, peer, now_ms)
        remark, refusal = None, self._refusals(name, peer)
        try:
            needs = self._needs(request)
            if needs is None:
                remark = _super_only(request, name)
            for need in needs or ():
                remark = refusal(need)
                if remark is not None:
                    break
        except (NoRight, BadBody):
            remark = UNCLEAR
        return self._close(remark, request, peer, now_ms)

    def _authorize_in_steps(
        self, request: Command, peer: Peer, now_ms: int
    ) -> Steps[Command | None]:
        """Check the rights of the user of a request with a long body."""
        remark, refusal = None, self._refusals(request.fields[ACCESS_KEY], peer)
        try:
            members = yield from object_in_steps(request.body)
            for number, need in enumerate(BODY_RIGHTS[request.code](members, self._facts), 1):
                remark = refusal(need)
                if remark is not None:
                    break
                if number % _NEEDS_PER_STEP == 0:
                    yield
        except (NoRight, BadBody):
            remark = UNCLEAR
        return self._close(remark, request, peer, now_ms)

    def _needs(self, request: Command) -> Iterable[Need] | None:
        """Return the needs of a request; None for a code without an entry. Raises NoRight,
        BadBody."""
        by_body, by_fields = BODY_RIGHTS.get(request.code), RIGHTS.get(request.code)
        if by_body is not None:
            return by_body(load_object(request.body), self._facts)
        return None if by_fields is None else by_fields(request, self._facts)

    def _refusals(self, name: str, peer: Peer) -> Callable[[Need], str | None]:
        """Return a function that returns the remark of a refusal, None if the user has a right."""
        host, acl = host_of(peer.address), self._find_acl(name) or _NO_ACL
        address = read_address(host)

        def refusal(need: Need) -> str | None:
            decision = acl.decide(need, address)
            if decision is PolicyDecision.ALLOW:
                return None
            reason = "no matched policies" if decision is None else "the decision is deny"
            return (
                f"{USER_PREFIX}{name} has no permission to access {need} from"
                f" {host or 'unknown'}, {reason}."
            )

        return refusal

    def _close(
        self, remark: str | None, request: Command, peer: Peer, now_ms: int
    ) -> Command | None:
        """Report a refusal and return it, or prepare an admitted request for its handler."""
        if remark is None:
            request.fields.pop(SIGNATURE, None)
            request.fields.pop(SECURITY_TOKEN, None)
            return None
        user = request.fields.get(ACCESS_KEY, "")
        self._on_denial(Denial(request.code, user, peer.address, remark), now_ms)
        return new_response(request, ResponseCode.NO_PERMISSION, remark)


def host_of(address: str) -> str:
    """The host in a peer's address `ip:port`, without brackets."""
    return address.rpartition(":")[0].strip("[]")


def _super_only(request: Command, name: str) -> str:
    """The remark of the refusal of a request for super users."""
    return (
        f"{USER_PREFIX}{name} has no permission to send request {request.code}, it is for super"
        " users."
    )
