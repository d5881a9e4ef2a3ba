"""C from Python's declarations: fields of requests from net/wire/headers, names and numbers.

    PYTHONPATH=src python csrc/wire_tables.py build/generated

Owns the choice of requests that csrc/traffic.c reads and of the names that kernels know, and the C
text made from them: structs, readers, constants.
It must never import an extension: setup.py runs it before it compiles the first one. A class with
a member that C cannot read raises ValueError.
"""

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from turbopump.engine import types
from turbopump.net.wire import header
from turbopump.net.wire.codes import RequestCode, ResponseCode
from turbopump.net.wire.command import (
    FRAME_MAX,
    LANGUAGES,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    VERSION,
)
from turbopump.net.wire.headers.pop import AckMessageRequest, PopMessageRequest
from turbopump.net.wire.headers.pull import PullMessageRequest
from turbopump.net.wire.headers.send import SendMessageRequest, SendMessageRequestV2
from turbopump.net.wire.headers.transactions import EndTransactionRequest
from turbopump.net.wire.properties import RESERVED

REQUESTS: Final[dict[RequestCode, tuple[str, type[Any]]]] = {
    RequestCode.SEND_MESSAGE: ("send", SendMessageRequest),
    RequestCode.SEND_MESSAGE_V2: ("send", SendMessageRequestV2),
    RequestCode.SEND_BATCH_MESSAGE: ("send", SendMessageRequestV2),
    RequestCode.PULL_MESSAGE: ("pull", PullMessageRequest),
    RequestCode.END_TRANSACTION: ("end", EndTransactionRequest),
    RequestCode.ACK_MESSAGE: ("ack", AckMessageRequest),
    RequestCode.POP_MESSAGE: ("pop", PopMessageRequest),
}
"""The kind of each request, which is a member of struct trf_request, and its header's class.
Classes of one kind have the same members."""

UNREAD: Final = {"broker_name", "proxy_froward_client_id"}
"""Members that no handler reads: reading them would take a twentieth of a header's time."""

RESPONSES: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
    ResponseCode.POLLING_FULL,
    ResponseCode.POLLING_TIMEOUT,
)
"""The answers that the load generator distinguishes."""


class CType(NamedTuple):
    """The C type of a member."""

    declared: str
    """The type as C declares it."""
    name: str
    """Its name in enum trf_type, in capitals, and in the name of its reader."""


TYPES: Final[dict[Any, CType]] = {
    header.read_text: CType("struct trf_text", "text"),
    header.read_int64: CType("int64_t", "int64"),
    header.read_int32: CType("int32_t", "int32"),
    header.read_bool: CType("uint8_t", "flag"),
}
"""Python's reader of a member to its C type, in the order of a struct's members, largest first."""

OPTIONAL: Final = {"text", "int32", "flag"}
"""Names of C types that a member with a default may have."""
REQUIRED: Final = {"text", "int32", "int64"}
"""Names of C types that a required member may have."""


class Member(NamedTuple):
    """A member of a header's class."""

    name: str
    """Name in Python and in the C struct."""
    key: str
    """Name on the wire."""
    type: CType
    is_required: bool
    """Whether a request without it is malformed."""

    @property
    def flag(self) -> str:
        """Name of the C member that is 1 if this member is present; "" if no C member records
        that."""
        return f"has_{self.name}" if self.type.name == "int32" and not self.is_required else ""

    @property
    def field(self) -> str:
        """Name of the key in enum field."""
        return "FIELD_" + snake(self.key).upper()


def snake(name: str) -> str:
    """Write a name in camel case with underscores."""
    return "".join("_" + one.lower() if one.isupper() else one for one in name).lstrip("_")


def members_of(cls: type[Any]) -> list[Member]:
    """Return the members of a class that C reads, in the order of the class.

    Raises ValueError for a member that traffic_fields.h has no reader for.
    """
    found = []
    defaults = {one.name: one.default for one in dataclasses.fields(cls)}
    for name, key, read, is_required in header.members_of(cls):
        if name in UNREAD:
            continue
        kind = TYPES.get(read)
        is_none = is_required or defaults[name] is None
        if kind is None or not is_none or kind.name not in (REQUIRED if is_required else OPTIONAL):
            raise ValueError(f"{cls.__name__}.{name}: traffic_fields.h cannot read it")
        found.append(Member(name, key, kind, is_required))
    return found


def c_members(cls: type[Any]) -> list[tuple[str, CType, str]]:
    """Return (name, type, name of the presence flag or "") of each member that C reads: all that a
    struct depends on."""
    return [(one.name, one.type, one.flag) for one in members_of(cls)]


def classes() -> dict[type[Any], str]:
    """Return header's class to kind, for all classes of REQUESTS."""
    return {cls: kind for kind, cls in REQUESTS.values()}


def structs() -> dict[str, type[Any]]:
    """Return kind to the first of its classes, whose members the struct gets. Raises ValueError for
    a later class of the kind with other members."""
    first: dict[str, type[Any]] = {}
    for cls, kind in classes().items():
        if c_members(first.setdefault(kind, cls)) != c_members(cls):
            raise ValueError(f"{cls.__name__}: other members than {first[kind].__name__}")
    return first


def keys() -> dict[str, str]:
    """Return key on the wire to its name in enum field, for all classes."""
    return {one.key: one.field for cls in classes() for one in members_of(cls)}


def write_headers() -> Iterable[str]:
    """The lines of traffic_headers.h: codes, kinds, and a struct for each kind."""
    yield "enum {"
    for code in REQUESTS:
        yield f"    TRF_{code.name} = {code.value},"
    yield f"    TRF_LANGUAGES = {len(LANGUAGES)},"
    yield f"    TRF_LANGUAGE_OTHER = {LANGUAGES.index('OTHER')},"
    yield f"    TRF_FIELDS = {len(keys())}"
    yield "};"
    kinds = ", ".join(f"TRF_{kind.upper()} = {at}" for at, kind in enumerate(structs(), 1))
    yield f"enum trf_kind {{ {kinds} }};"
    for kind, cls in structs().items():
        members = members_of(cls)
        yield f"/* {cls.__name__}. */"
        yield f"struct trf_{kind} {{"
        for wanted in TYPES.values():
            for one in members:
                if one.type == wanted:
                    yield f"    {wanted.declared} {one.name};"
        for one in members:
            if one.flag:
                yield f"    uint8_t {one.flag};"
        yield "};"


def write_readers() -> Iterable[str]:
    """The lines of traffic_readers.h: names to fields, and fields to the struct of a kind."""
    yield '#include "traffic_fields.h"'
    yield f"enum field {{ {', '.join(keys().values())}, UNKNOWN }};"
    yield "static const struct { const char *name; size_t size; } languages[TRF_LANGUAGES] = {"
    for name in LANGUAGES:
        yield f'    {{"{name}", {len(name)}}},'
    yield "};"
    yield from write_find()
    for cls, kind in classes().items():
        out = f"struct trf_{kind} *{kind}"
        yield f"static int {reader(cls)}(const struct trf_fields *fields, {out})"
        yield "{"
        calls = [call(one, kind) for one in members_of(cls)]
        yield "    return " + " &&\n           ".join(calls) + ";"
        yield "}"
    yield "static inline int is_traffic(int32_t code)"
    yield "{"
    yield "    return " + " || ".join(f"code == TRF_{code.name}" for code in REQUESTS) + ";"
    yield "}"
    yield "static int read_header(const struct trf_fields *fields, struct trf_request *out)"
    yield "{"
    yield "    switch (out->code) {"
    for code, (kind, cls) in REQUESTS.items():
        yield f"    case TRF_{code.name}:"
        yield f"        out->kind = TRF_{kind.upper()};"
        yield f"        return {reader(cls)}(fields, &out->{kind});"
    yield "    default:"
    yield "        return 0;"
    yield "    }"
    yield "}"


def write_find() -> Iterable[str]:
    """The lines of two functions that return the field of a key, for keys of one letter and for
    the others."""
    sizes: dict[int, list[str]] = {}
    for key in keys():
        sizes.setdefault(len(key), []).append(key)
    yield "static inline enum field find_letter(uint8_t name)"
    yield "{"
    yield "    switch (name) {"
    for key in sizes.pop(1):
        yield f"    case '{key}': return {keys()[key]};"
    yield "    default: return UNKNOWN;"
    yield "    }"
    yield "}"
    yield "static enum field find_name(const uint8_t *name, size_t size)"
    yield "{"
    yield "    switch (size) {"
    for size, group in sorted(sizes.items()):
        yield f"    case {size}:"
        for key in group:
            yield f'        if (TRF_IS(name, "{key}")) {{ return {keys()[key]}; }}'
        yield "        return UNKNOWN;"
    yield "    default:"
    yield "        return UNKNOWN;"
    yield "    }"
    yield "}"


def reader(cls: type[Any]) -> str:
    """Return the name of the C function that reads a class."""
    return "read_" + snake(cls.__name__)


def call(one: Member, kind: str) -> str:
    """Return the C expression that reads a member; 0 for one that is missing or malformed."""
    target = f"&{kind}->{one.name}"
    if one.type.name == "text":
        return f"read_text(fields, {one.field}, {int(one.is_required)}, {target})"
    if one.flag:
        return f"read_optional(fields, {one.field}, {target}, &{kind}->{one.flag})"
    return f"read_{one.type.name}(fields, {one.field}, {target})"


def write_members() -> Iterable[str]:
    """The lines of traffic_members.h: the members of all structs as data, for pyx/traffic.pyx."""
    yield "enum trf_type { TRF_TEXT, TRF_INT64, TRF_INT32, TRF_FLAG };"
    yield "struct trf_member {"
    yield "    const char *name;"
    yield "    uint8_t kind, type;"
    yield "    size_t place, flag; /* offsets in struct trf_request; flag 0: always present */"
    yield "};"
    yield "static const struct trf_member trf_members[] = {"
    for kind, cls in structs().items():
        for one in members_of(cls):
            place = f"offsetof(struct trf_request, {kind}.{one.name})"
            flag = f"offsetof(struct trf_request, {kind}.{one.flag})" if one.flag else "0"
            kinds = f"TRF_{kind.upper()}, TRF_{one.type.name.upper()}"
            yield f'    {{"{one.name}", {kinds}, {place}, {flag}}},'
    yield "};"
    yield "enum { TRF_MEMBERS = sizeof trf_members / sizeof *trf_members };"


def write_constants() -> Iterable[str]:
    """The lines of wire_constants.h: topics, names of properties, numbers of frames."""
    yield f'#define SCHEDULE_TOPIC "{types.SCHEDULE_TOPIC}"'
    yield f'#define TIMER_TOPIC "{types.TIMER_TOPIC}"'
    yield f'#define HALF_TOPIC "{types.HALF_TOPIC}"'
    yield "/* Each name that a user's own property must not have. */"
    reserved = " ".join(f'NAME("{name}")' for name in sorted(RESERVED))
    yield f"#define RESERVED_PROPERTIES(NAME) {reserved}"
    yield f"enum {{ FRAME_MAX = {FRAME_MAX}, WIRE_VERSION = {VERSION} }};"
    yield f"enum {{ RESPONSE_FLAG = {RESPONSE_FLAG}, ONEWAY_FLAG = {ONEWAY_FLAG} }};"
    codes = ", ".join(f"ANSWER_{code.name} = {code.value}" for code in RESPONSES)
    yield f"enum {{ {codes} }};"


def write(path: Path, lines: Iterable[str]) -> None:
    """Write `lines` after a head unless the file has this text already: the file's time makes
    sources compile again."""
    text = "\n".join(["/* Written by csrc/wire_tables.py. */", "#pragma once", *lines, ""])
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main(folder: Path) -> None:
    """Write all files into a folder, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "wire_constants.h", write_constants())
    write(folder / "traffic_headers.h", write_headers())
    write(folder / "traffic_readers.h", write_readers())
    write(folder / "traffic_members.h", write_members())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
