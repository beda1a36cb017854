"""Exceptions. Every surface has a table from these classes to errors of its protocol.

PdpError
├── InvalidArgument        a malformed request, or a malformed part of a request
│   ├── InvalidReference   an object reference or principal with a syntax error
│   │   └── AmbiguousName  a name with different meanings for an engine and a catalog
│   ├── TooManyChecks      a batch above the limit
│   ├── TooMuchRepeated    a text that too many resources share
│   ├── ReferencedByDepthExceeded   more views in a chain than the limit
│   ├── NamespaceDepthExceeded      a namespace of more parts than the limit
│   ├── AmbiguousViewOwner          two trusted engines name different owners of a view
│   ├── UnresolvableViewOwner       a view owner other than a user
│   └── InvalidFilter      a filter of a row policy other than one condition on the table's columns
├── NotFound               a missing row rule
├── AlreadyExists          a second row rule of an id
├── Conflict               a row rule, changed since the caller read the rule
├── Unauthenticated        a peer without a configured caller
├── Forbidden              a request without the right to make the request
│   ├── AssertionNotAllowed evidence without the right to assert the evidence
│   ├── ProtectedPropertyModification   a change of a view owner by the wrong engine
│   └── TableDenied         a statement on a relation without the right to it
├── PayloadTooLarge        a body above its limit
├── UnsupportedMedia       a body in an unsupported encoding or type
├── Overloaded             too many checks or bytes in flight
├── Unavailable            an unreachable revision, deadline or audit record
├── MissingFacts           facts of a revision that an audit folder does not have
├── ConfigError            unusable settings
└── PolicyError            unusable policy files
    ├── RuleCompileError   a rule with a syntax or type error
    ├── DuplicateRule      a rule id in two places
    ├── PolicyInvalid      a Cedar policy that does not parse or does not fit the schema
    ├── EntitiesInvalid    an entity of a Cedar file that does not fit the schema
    └── SchemaInvalid      a Cedar schema that does not parse
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

_NAMELESS_KEY: Final = re.compile(r"`(?:policies|server)\.[a-z_.]+`")


class PdpError(Exception):
    """Base of all exceptions of this package. `code` is stable, the text is not.

    `shown` is for readers without rights, such as those of health: a text may quote names of users and objects.
    """

    code: str = "internal"
    record_id: str = ""
    """Id of the audit record of the refused request, if the request has one already."""

    @property
    def shown(self) -> str:
        """Return the place, if there is one, and the kind of the error."""
        return self.code


class InvalidArgument(PdpError):
    """Malformed request, or malformed check in a request."""

    code = "invalid_argument"


class InvalidReference(InvalidArgument):
    """Object reference or principal with a syntax error."""


class AmbiguousName(InvalidReference):
    """Name with different meanings for an engine and a catalog."""

    code = "ambiguous_name"


class TooManyChecks(InvalidArgument):
    """More checks in one request than `limits.max_checks`."""

    code = "too_many_checks"


class TooMuchRepeated(InvalidArgument):
    """Long text, such as the arguments of a check, that many resources of one request share."""


class ReferencedByDepthExceeded(InvalidArgument):
    """More views in `referencedBy` than `limits.referenced_by_depth`."""

    code = "ReferencedByDepthExceeded"


class NamespaceDepthExceeded(InvalidArgument):
    """More parts in a namespace than `limits.namespace_depth`."""

    code = "NamespaceDepthExceeded"


class AmbiguousViewOwner(InvalidArgument):
    """Two trusted engines match the caller and name different owners of a view."""

    code = "AmbiguousViewOwner"


class UnresolvableViewOwner(InvalidArgument):
    """The owner property of a view names no user."""

    code = "UnresolvableViewOwner"


class InvalidFilter(InvalidArgument):
    """Filter of a row policy other than one condition on the columns of its table."""

    code = "RAP_FILTER_INVALID"


class NotFound(PdpError):
    """Name without an object."""

    code = "not_found"


class AlreadyExists(PdpError):
    """Id in use."""

    code = "already_exists"


class Conflict(PdpError):
    """Edit of an entry in a version that is not the newest."""

    code = "conflict"


class UnverifiedToken(NamedTuple):
    """Issuer and key that a refused token names, escaped and cut. Anybody can write them: for records alone."""

    issuer: str
    kid: str


class Unauthenticated(PdpError):
    """Peer without a configured caller, or with an invalid token. The text quotes no part of a token."""

    code = "unauthenticated"
    unverified: UnverifiedToken | None = None
    """Names in the refused token, if there is one."""


class Forbidden(PdpError):
    """Request without permission: the sender, or the named actor, lacks the right to make the request."""

    code = "forbidden"


class AssertionNotAllowed(Forbidden):
    """Request with evidence that the caller may not assert, where the request as a whole is rejected."""

    code = "assertion_not_allowed"


class ProtectedPropertyModification(Forbidden):
    """Change of a view's owner property, in any casing, without the trusted engine that owns the property."""

    code = "ProtectedPropertyModification"


class TableDenied(Forbidden):
    """Statement, or question for a filter, on a relation that the principal may not use in this way."""

    code = "RAP_ACCESS_DENIED"


class PayloadTooLarge(PdpError):
    """Body above `limits.max_body_bytes`."""

    code = "payload_too_large"


class UnsupportedMedia(PdpError):
    """Body in an unsupported content encoding."""

    code = "unsupported_media_type"


class Overloaded(PdpError):
    """More requests or bytes in flight than the limits allow; try again later."""

    code = "overloaded"


class Unavailable(PdpError):
    """Temporary failure: a revision, a deadline or an audit record is out of reach. `about` ends the text by a name."""

    code = "unavailable"

    def __init__(self, message: str, about: str = "") -> None:
        super().__init__(f"{message}{about}")
        self._message = message

    @property
    def shown(self) -> str:
        """Return the text without the name."""
        return self._message


class MissingFacts(PdpError):
    """Facts of a revision that an audit folder does not have. `cause` is one of few, `place` is exact."""

    code = "missing_facts"

    def __init__(self, cause: str, place: str) -> None:
        super().__init__(f"{cause}: {place}")
        self.cause = cause
        self.place = place


class ConfigError(PdpError):
    """Unusable settings. The text names the key.

    `problems` has the source of each problem, such as `pdp.yaml:3:5`, and its text without the source.
    """

    code = "config_error"

    def __init__(self, message: str, problems: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or (("", message),)

    @property
    def shown(self) -> str:
        """Return the sources of the problems, or a key of a section whose keys name neither users nor objects."""
        key = _NAMELESS_KEY.match(str(self))
        places = [source for source, _ in self.problems if source] or ([key[0]] if key else [])
        return f"{', '.join(places)}: {self.code}" if places else self.code


@dataclass(frozen=True, slots=True)
class Place:
    """Position in a policy: a file (or `<inline>`), line and column counted from 1. Line 0: the file as a whole."""

    file: str = "<inline>"
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Notice:
    """Warning about a place in a policy file."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class PolicyError(PdpError):
    """Unusable policy file. `place` is the position of the error."""

    code = "policy_error"

    def __init__(self, message: str, place: Place) -> None:
        super().__init__(f"{place}: {message}")
        self.message = message
        self.place = place

    @property
    def shown(self) -> str:
        """Return the place and the kind of the error."""
        return f"{self.place}: {self.code}"

    def of_key(self, key: str, source: str = "") -> Self:
        """Return this error, with the key of the settings that names the file, and the place of the key."""
        self.args = (f"{self.place}: {self.message} (`{key}`{f' of {source}' if source else ''})",)
        return self


class RuleCompileError(PolicyError):
    """Rule with a syntax or type error. `rule` is the id of the rule."""

    code = "rule_compile_error"

    def __init__(self, rule: str, message: str, place: Place) -> None:
        super().__init__(f"rule `{rule}`: {message}", place)
        self.rule = rule


class DuplicateRule(PolicyError):
    """Rule id in two places."""

    code = "duplicate_rule"


class PolicyInvalid(PolicyError):
    """Cedar policy that does not parse or does not fit the schema, or that has an empty or a double id."""

    code = "policy_invalid"


class EntitiesInvalid(PolicyError):
    """Entity of a Cedar file that does not fit the schema, or stands twice with different content, or in a cycle."""

    code = "entities_invalid"


class SchemaInvalid(PolicyError):
    """Cedar schema, or fragment of one, that does not parse."""

    code = "schema_invalid"
