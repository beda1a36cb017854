"""The exception tree; each surface maps it to its own protocol in one table.

PdpError
├── InvalidArgument        the caller sent something that cannot be a request
│   ├── InvalidReference   an object reference or principal that does not parse
│   │   └── AmbiguousName  a name that an engine and a catalog would read differently
│   ├── TooManyChecks      a batch above its limit
│   ├── ReferencedByDepthExceeded   more views in a chain than the limit
│   ├── NamespaceDepthExceeded      a namespace of more parts than the limit
│   ├── AmbiguousViewOwner          two trusted engines name different owners of a view
│   └── UnresolvableViewOwner       an owner of a view that names no user
├── Unauthenticated        nobody knows the caller
├── Forbidden              a request that its sender, or its actor, may not make
│   ├── AssertionNotAllowed a caller that speaks for others without being allowed to
│   └── ProtectedPropertyModification   a change of a view's owner by other than its engine
├── PayloadTooLarge        a body above its limit
├── UnsupportedMedia       a body in an encoding or type that is not accepted
├── Overloaded             too many checks or bytes in flight
├── Unavailable            a revision, a deadline or the audit cannot be served
├── ConfigError            settings that cannot be used
└── PolicyError            policy files that cannot be loaded
    ├── RuleCompileError   a rule that does not parse or type-check
    └── DuplicateRule      one rule id in two places
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class PdpError(Exception):
    """Everything this package raises on purpose; `code` is stable, the text is not."""

    code: ClassVar[str] = "internal"


class InvalidArgument(PdpError):
    """A request, or one check of it, that cannot be understood."""

    code = "invalid_argument"


class InvalidReference(InvalidArgument):
    """An object reference or principal that does not parse."""


class AmbiguousName(InvalidReference):
    """A name that an engine and a catalog would read differently."""

    code = "ambiguous_name"


class TooManyChecks(InvalidArgument):
    """More checks in one request than `limits.max_checks`."""

    code = "too_many_checks"


class ReferencedByDepthExceeded(InvalidArgument):
    """More views in `referencedBy` than `limits.referenced_by_depth`."""

    code = "ReferencedByDepthExceeded"


class NamespaceDepthExceeded(InvalidArgument):
    """More parts in a namespace than `limits.namespace_depth`."""

    code = "NamespaceDepthExceeded"


class AmbiguousViewOwner(InvalidArgument):
    """Two trusted engines match the caller and name different owners of one view."""

    code = "AmbiguousViewOwner"


class UnresolvableViewOwner(InvalidArgument):
    """The owner property of a view names no user."""

    code = "UnresolvableViewOwner"


class Unauthenticated(PdpError):
    """No configured caller matches the peer."""

    code = "unauthenticated"


class Forbidden(PdpError):
    """A request that its sender, or the actor it names, may not make."""

    code = "forbidden"


class AssertionNotAllowed(Forbidden):
    """A caller names a principal, and its configuration does not let it assert any."""

    code = "assertion_not_allowed"


class ProtectedPropertyModification(Forbidden):
    """A view's owner property, in any casing, set or removed by other than the trusted engine that it belongs to."""

    code = "ProtectedPropertyModification"


class PayloadTooLarge(PdpError):
    """A body above `limits.max_body_bytes`."""

    code = "payload_too_large"


class UnsupportedMedia(PdpError):
    """A content encoding that is not accepted."""

    code = "unsupported_media_type"


class Overloaded(PdpError):
    """More requests or bytes in flight than the limits allow; try again later."""

    code = "overloaded"


class Unavailable(PdpError):
    """The answer cannot be given now: a revision, a deadline, the audit trail."""

    code = "unavailable"


class ConfigError(PdpError):
    """Settings that cannot be used; the text names the key."""

    code = "config_error"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: a file (or `<inline>`), line and column counted from 1."""

    file: str = "<inline>"
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about a file that is worth saying and stops nothing."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class PolicyError(PdpError):
    """A policy file that cannot be loaded; `place` says where."""

    code = "policy_error"

    def __init__(self, message: str, place: Place) -> None:
        super().__init__(f"{place}: {message}")
        self.message = message
        self.place = place


class RuleCompileError(PolicyError):
    """A rule that does not parse or type-check; `rule` is its id."""

    code = "rule_compile_error"

    def __init__(self, rule: str, message: str, place: Place) -> None:
        super().__init__(f"rule `{rule}`: {message}", place)
        self.rule = rule


class DuplicateRule(PolicyError):
    """The same rule id stands in two places."""

    code = "duplicate_rule"
