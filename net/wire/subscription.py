"""A group's subscription to a topic, and its text form.

Owns RocketMQ's SubscriptionData and FilterAPI.build. It must never filter messages itself beyond
the tag test.
"""

from dataclasses import dataclass
from typing import Any, Final

from turbopump.net.wire.bodies import (
    BadBody,
    as_int,
    as_object,
    as_text,
    read_flag,
    read_int64,
    read_list,
    read_text,
)
from turbopump.net.wire.names import MAX_ANY_NAME_LENGTH, kept_size, name_member
from turbopump.pyx.index import java_hash

ALL: Final = "*"
"""Expression for every message."""
TAG: Final = "TAG"
"""Expression type of tags."""
SQL92: Final = "SQL92"
"""Expression type of conditions on properties."""

EXPRESSION_MAX: Final = 64 << 10
"""Maximum characters of an expression, thousands of tags: a broker keeps one for each group and
topic, and parses it at every pull that has one."""

TAGS_MAX: Final = 8_192
"""Maximum tags of a subscription."""


@dataclass(slots=True)
class SubscriptionData:
    """A group's subscription to a topic.

    `sub_string` is the expression, `tags_set` the wanted tags and `code_set` their Java hashes,
    both empty for every message or for an expression of another type; `sub_version` is the client's
    wall clock (epoch ms) at the subscription, the larger is newer; `class_filter_mode`: a class of
    a filter server decides.
    """

    topic: str
    sub_string: str = ALL
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()
    sub_version: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False

    @property
    def size(self) -> int:
        """Estimated memory, in bytes, of the subscription's texts and objects."""
        texts = kept_size(self.topic, self.sub_string, self.expression_type, *self.tags_set)
        return texts + 600 + 100 * (len(self.tags_set) + len(self.code_set))

    @property
    def is_tag_type(self) -> bool:
        """Whether messages are chosen by tags (or not at all), not by an expression."""
        return self.expression_type == TAG

    @property
    def filter_codes(self) -> frozenset[int] | None:
        """Hashes of the wanted tags for a store's filter; None if tags leave out no message."""
        if self.sub_string == ALL or self.class_filter_mode or not self.is_tag_type:
            return None
        return self.code_set

    def wants_tag(self, tag: str | None) -> bool:
        """Whether the tag's text is wanted; True without tags. To be tested after its hash
        (RocketMQ: PullAPIWrapper)."""
        return not self.tags_set or self.class_filter_mode or tag in self.tags_set

    @classmethod
    def from_json(cls, value: Any) -> "SubscriptionData":
        """Decode the JSON bean; Go sends codeSet as texts. Raises BadBody, also beyond
        EXPRESSION_MAX or TAGS_MAX. Tags and hashes are taken as sent."""
        members = as_object(value)
        sub_string = read_text(members, "subString")
        tags = frozenset(read_list(members, "tagsSet", as_text))
        codes = frozenset(read_list(members, "codeSet", _to_int32))
        characters = max(len(sub_string), sum(map(len, tags)))
        if characters > EXPRESSION_MAX or max(len(tags), len(codes)) > TAGS_MAX:
            raise BadBody(f"a subscription exceeds {EXPRESSION_MAX} characters or {TAGS_MAX} tags")
        return cls(
            topic=name_member(members, "topic"),
            sub_string=sub_string,
            tags_set=tags,
            code_set=codes,
            sub_version=read_int64(members, "subVersion"),
            expression_type=name_member(members, "expressionType", TAG) or TAG,
            class_filter_mode=read_flag(members, "classFilterMode"),
        )

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON-ready dict with RocketMQ's member names."""
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": sorted(self.code_set),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": sorted(self.tags_set),
            "topic": self.topic,
        }


def parse_subscription(
    topic: str, expression: str | None, kind: str | None = None, sub_version: int = 0
) -> SubscriptionData:
    """Parse an expression to a subscription; kind None or `TAG` is tags separated by `||`, for
    which None, "" and `*` are every message. An expression of another kind is not parsed.

    Raises ValueError where RocketMQ responds with SUBSCRIPTION_PARSE_FAILED (FilterAPI.build), and
    for an expression beyond EXPRESSION_MAX or TAGS_MAX.
    """
    if expression and len(expression) > EXPRESSION_MAX:
        raise ValueError(f"an expression of {len(expression)} characters")
    if kind and kind != TAG:
        if len(kind) > MAX_ANY_NAME_LENGTH:
            raise ValueError(f"a kind of expression of {len(kind)} characters")
        if not expression:
            raise ValueError(f"Expression can't be null! {kind}")
        return SubscriptionData(topic, expression, sub_version=sub_version, expression_type=kind)
    if not expression or expression == ALL:
        return SubscriptionData(topic, ALL, sub_version=sub_version)
    pieces = expression.split("||")
    if not any(pieces):
        raise ValueError("subString split error")
    tags = frozenset(piece.strip() for piece in pieces if piece.strip())
    if len(tags) > TAGS_MAX:
        raise ValueError(f"an expression of {len(tags)} tags")
    codes = frozenset(java_hash(tag.encode("utf-8", "replace")) for tag in tags)
    return SubscriptionData(topic, expression, tags, codes, sub_version)


def _to_int32(value: Any) -> int:
    """Convert a hash code to Java's int of 32 bits: a peer may send its unsigned form."""
    code = as_int(value, "codeSet") & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code
