"""Requests of administrators for users and policies: 3001 to 3010.

Owns the answers of RocketMQ's AdminBrokerProcessor to them. It must never answer a secret: a super
user gets it encrypted, if this broker has a key, so that `copyUser` can carry it to a broker with
the same key. The guard has checked that a change is a super user's (broker/auth/guard.py).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from turbopump.broker.auth.audit_log import AuditLog
from turbopump.broker.auth.copies import COPY, copy_in_steps, version_text
from turbopump.broker.auth.policies import (
    USER_PREFIX,
    BadPolicy,
    Resource,
    read_policies,
    read_policy_type,
    read_subject,
)
from turbopump.broker.auth.sealing import Sealer
from turbopump.broker.auth.table import AuthTable, FullAuthTable
from turbopump.broker.auth.users import BadUser, User, changed_user, new_user
from turbopump.broker.handlers.json_responses import json_response, response_in_steps
from turbopump.net.transport.dispatcher import Dispatcher
from turbopump.net.transport.fair_scheduler import Steps
from turbopump.net.transport.peer import Peer
from turbopump.net.wire import bodies
from turbopump.net.wire.bodies import BadBody, load_small_object, read_text
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import Command, new_response
from turbopump.net.wire.signature import ACCESS_KEY

_BLANK: Final = "The username is blank"
_NO_SUBJECT: Final = "The subject is not exist."
_COPY_HERE: Final = "users and policies are changed at the group's master; this replica copies them"
_NO_ACL: Final = "The acl is not exist."


class _Refused(Exception):
    """A request that is refused with NO_PERMISSION; the read_text is RocketMQ's."""


def register(
    table: Dispatcher,
    users: AuthTable,
    log: AuditLog,
    sealer: Sealer | None,
    is_master: Callable[[], bool],
) -> None:
    """Add the handlers of this module's request codes to the table, which must not have them yet.
    `sealer` encrypts the copies for replicas; None: they get none. With a sealer only a master
    takes changes: a replica's table is a copy."""

    def may_change() -> bool:
        return sealer is None or is_master()

    requests = _AuthRequests(users, sealer)
    changes: dict[RequestCode, Callable[[Command, int], str]] = {
        RequestCode.AUTH_CREATE_USER: requests.create_user,
        RequestCode.AUTH_UPDATE_USER: requests.update_user,
        RequestCode.AUTH_DELETE_USER: requests.delete_user,
        RequestCode.AUTH_CREATE_ACL: requests.put_acl,
        RequestCode.AUTH_UPDATE_ACL: requests.put_acl,
        RequestCode.AUTH_DELETE_ACL: requests.delete_acl,
    }
    for code, change in changes.items():
        table.add(code, partial(_change, change, log, may_change))
    table.add(RequestCode.AUTH_GET_USER, requests.get_user)
    table.add(RequestCode.AUTH_LIST_USER, requests.list_users)
    table.add(RequestCode.AUTH_GET_ACL, requests.get_acl)
    table.add(RequestCode.AUTH_LIST_ACL, requests.list_acls)


def _change(
    change: Callable[[Command, int], str],
    log: AuditLog,
    may_change: Callable[[], bool],
    request: Command,
    peer: Peer,
    now_ms: int,
) -> Command:
    """Make a change, log it, and answer; a blank name is INVALID_PARAMETER."""
    if not may_change():
        return new_response(request, ResponseCode.SYSTEM_ERROR, _COPY_HERE)
    try:
        target = change(request, now_ms)
    except _Refused as refused:
        code = ResponseCode.NO_PERMISSION
        if str(refused) == _BLANK:
            code = ResponseCode.INVALID_PARAMETER
        return new_response(request, code, str(refused))
    except (BadUser, BadPolicy) as error:
        return new_response(request, ResponseCode.NO_PERMISSION, str(error))
    except FullAuthTable as error:
        return new_response(request, ResponseCode.SYSTEM_ERROR, str(error))
    log.changed(request.fields.get(ACCESS_KEY, ""), peer.address, request.code, target, now_ms)
    return new_response(request, ResponseCode.SUCCESS)


class _AuthRequests:
    """The handlers; `create_user` to `delete_acl` make a change and return its target."""

    def __init__(self, users: AuthTable, sealer: Sealer | None) -> None:
        self._users, self._sealer = users, sealer

    def create_user(self, request: Command, now_ms: int) -> str:
        """Handle 3001. Raises _Refused, BadUser, BadBody, FullAuthTable."""
        name, members = _name(request), load_small_object(request.body)
        if self._users.user(name) is not None:
            raise _Refused("The user is existed")
        user = new_user(name, self._with_secret(name, members))
        self._users.put_user(user, now_ms)
        return _described(user)

    def update_user(self, request: Command, now_ms: int) -> str:
        """Handle 3002: change the given members. Raises _Refused, BadUser, BadBody,
        FullAuthTable."""
        name, members = _name(request), load_small_object(request.body)
        known = self._users.user(name)
        if known is None:
            raise _Refused("The user is not exist")
        user = changed_user(known, self._with_secret(name, members))
        self._users.put_user(user, now_ms)
        return _described(user) + (" password" if user.secret != known.secret else "")

    def delete_user(self, request: Command, now_ms: int) -> str:
        """Handle 3003: delete a user, if it exists, and its policies. Raises _Refused."""
        name = request.fields.get("username", "")
        if not name.strip():
            raise _Refused("username can not be blank")
        self._users.remove_user(name, now_ms)
        return USER_PREFIX + name

    def put_acl(self, request: Command, now_ms: int) -> str:
        """Handle 3006 and 3007, which are the same: merge entries into a user's policies. The
        body's subject has precedence. Raises _Refused, BadPolicy, BadBody, FullAuthTable."""
        members = load_small_object(request.body)
        name = read_subject(read_text(members, "subject") or request.fields.get("subject", ""))
        if not members.get("policies"):
            raise BadBody("The body of acl is null")
        policies = read_policies(members["policies"])
        if self._users.user(name) is None:
            raise _Refused(f"The subject of {USER_PREFIX}{name} is not exist.")
        self._users.merge_acl(name, policies, now_ms)
        entries = [entry for kind in policies.values() for entry in kind]
        named = ", ".join(f"{entry.decision.value} {entry.resource}" for entry in entries)
        return f"{USER_PREFIX}{name} {named}"

    def delete_acl(self, request: Command, now_ms: int) -> str:
        """Handle 3008: delete a user's policies, or the entry of one resource. Raises _Refused,
        BadPolicy."""
        name, key = self._subject(request), request.fields.get("resource", "").strip()
        if self._users.acl(name) is None:
            raise _Refused(_NO_ACL)
        if not key:
            self._users.remove_acl(name, now_ms)
            return USER_PREFIX + name
        kind = read_policy_type(request.fields.get("policyType", "").strip())
        resource = Resource.parse(key)
        try:
            self._users.remove_entry(name, kind, resource, now_ms)
        except KeyError:
            raise _Refused(_NO_ACL) from None
        return f"{USER_PREFIX}{name} {resource}"

    def get_user(self, request: Command, _peer: Peer, _now_ms: int) -> Command:
        """Answer 3004 with a user; without a body if it does not exist."""
        name = request.fields.get("username", "")
        if not name.strip():
            return new_response(request, ResponseCode.INVALID_PARAMETER, _BLANK)
        user = self._users.user(name)
        if user is None:
            return new_response(request, ResponseCode.SUCCESS)
        return json_response(request, self._shown(request, user))

    def list_users(self, request: Command, _peer: Peer, _now_ms: int) -> Steps[Command]:
        """Answer 3005 with the users whose names contain the filter; without a body if there are
        none. A replica's request is answered with a copy of the table."""
        if COPY in request.fields:
            return (yield from self._copy(request))
        part, listed = request.fields.get("filter", ""), []
        for number, name in enumerate(self._users.user_names(), 1):
            user = self._users.user(name) if part in name else None
            if user is not None:
                listed.append(self._shown(request, user))
            if number % bodies.READ == 0:
                yield
        if not listed:
            return new_response(request, ResponseCode.SUCCESS)
        return (yield from response_in_steps(request, listed))

    def get_acl(self, request: Command, _peer: Peer, _now_ms: int) -> Command:
        """Answer 3009 with a user's policies; without a body if it has none."""
        try:
            name = self._subject(request)
        except (_Refused, BadPolicy) as refused:
            return new_response(request, ResponseCode.NO_PERMISSION, str(refused))
        acl = self._users.acl(name)
        if acl is None:
            return new_response(request, ResponseCode.SUCCESS)
        body = {"policies": acl.to_json(), "subject": USER_PREFIX + name}
        return json_response(request, body)

    def list_acls(self, request: Command, _peer: Peer, _now_ms: int) -> Steps[Command]:
        """Answer 3010 with the policies of the users and resources that contain the filters;
        without a body if there are none."""
        part = request.fields.get("subjectFilter", "")
        resource = request.fields.get("resourceFilter", "")
        listed: list[dict[str, Any]] = []
        for number, name in enumerate(self._users.acl_names(), 1):
            subject = USER_PREFIX + name
            acl = self._users.acl(name) if part in subject else None
            policies = acl.to_json(resource) if acl is not None else []
            if policies:
                listed.append({"policies": policies, "subject": subject})
            if number % bodies.READ == 0:
                yield
        if not listed:
            return new_response(request, ResponseCode.SUCCESS)
        return (yield from response_in_steps(request, listed))

    def _copy(self, request: Command) -> Steps[Command]:
        """Answer a replica: without a body if it has this version of the table."""
        if self._sealer is None or not self._is_super(request):
            remark = "copies are for brokers with this broker's inner credentials"
            return new_response(request, ResponseCode.NO_PERMISSION, remark)
        if request.fields[COPY] == version_text(self._users.data_version):
            return new_response(request, ResponseCode.SUCCESS)
        body = yield from copy_in_steps(self._users, self._sealer)
        return (yield from response_in_steps(request, body))

    def _is_super(self, request: Command) -> bool:
        """Whether a super user sent the request."""
        user = self._users.user(request.fields.get(ACCESS_KEY, ""))
        return user is not None and user.is_super

    def _subject(self, request: Command) -> str:
        """Return the name of the user in the field `subject`. Raises BadPolicy, _Refused."""
        name = read_subject(request.fields.get("subject", ""))
        if self._users.user(name) is None:
            raise _Refused(_NO_SUBJECT)
        return name

    def _with_secret(self, name: str, members: dict[str, Any]) -> dict[str, Any]:
        """Return a UserInfo with its password decrypted, if a broker with the same key encrypted
        it. Raises BadBody."""
        return {**members, "password": self._users.unseal(name, read_text(members, "password"))}

    def _shown(self, request: Command, user: User) -> dict[str, Any]:
        """The UserInfo of a user for the sender of the request."""
        members = user.to_json()
        if self._is_super(request):
            members["password"] = self._users.seal(user) or None
        return members


def _name(request: Command) -> str:
    """Return the field `username`. Raises _Refused for a blank one."""
    name = request.fields.get("username", "")
    if not name.strip():
        raise _Refused(_BLANK)
    return name


def _described(user: User) -> str:
    """A user for the audit log."""
    return f"{USER_PREFIX}{user.name} {user.type.value} {user.status.value}"
