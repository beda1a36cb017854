"""Object references and principals as text, such as `table:lake/sales/orders@main`, in one canonical encoding.

Owns the grammar of CONTRACT.md's object references, not their meaning, and the names by which policies know principals.
A text is split first, then each part is decoded once. A raw `@` occurs only before the ref. There is no Unicode
normalisation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from pdp.errors import InvalidArgument, InvalidReference
from pdp.model.question import NAMED_TYPES, RESOURCE_TYPES, VERSIONED_TYPES, Principal, Resource

VERBATIM_TYPES = frozenset({"user", "role"})
"""Types with a name that references hold as it is, without escapes."""
_LONGEST_CACHED = 256
"""Most characters of a cached reference."""
DETACHED: Final = "DETACHED"
"""Type of a ref without a name, and the name that rules see."""
MAX_NAME = 4096
MAX_PATH = 16_384
"""Most characters of a name, and of all parts of a path. Catalogs allow far fewer."""
_MAX_REFERENCE = 4 * MAX_PATH
"""Most characters of a reference: an escape needs three for each byte of a character."""
MOST_PARTS = 256
"""Most parts of a path. Catalogs allow far fewer. The bound limits the loops over all parts of all containers."""
_ANY_PATH = (1, MOST_PARTS)
_PATH_LENGTH = {
    "warehouse": (0, 0),
    "reference": (0, 0),
    "repository_config": (1, 1),
    **dict.fromkeys(("catalog", "system_catalog"), (0, MOST_PARTS)),
}
"""Resource type -> least and most number of parts below the warehouse."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ENCODE = re.compile(r"[%/@\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ESCAPES = {
    ord(sign): quote(sign, safe="") for sign in map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *b"%/@"))
}
NESSIE_SIGNS = "@#`"
"""Characters that Nessie's catalogs read as part of a table reference."""
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_USER = re.compile(r"[a-z0-9-]+~.+", re.DOTALL)


def parse_resource(text: str) -> Resource:
    """Return the resource of a reference; raise InvalidReference with the cause."""
    return _parse_resource(text) if len(text) > _LONGEST_CACHED else _parse_cached(text)


@lru_cache(maxsize=4096)
def _parse_cached(text: str) -> Resource:
    return _parse_resource(text)


def _parse_resource(text: str) -> Resource:
    if len(text) > _MAX_REFERENCE:
        raise InvalidReference(f"a reference has {len(text)} characters, at most {_MAX_REFERENCE} are allowed")
    kind, colon, rest = text.partition(":")
    if kind not in RESOURCE_TYPES:
        raise InvalidReference(f"unknown resource type in `{text}`: write `table:warehouse/namespace/name`")
    if bool(colon) == (kind == "server"):
        raise InvalidReference(f"`{text}` is not a reference: `server` stands alone, every other type has a name")
    if kind == "server":
        return Resource(kind)
    if kind in NAMED_TYPES:
        return Resource(kind, name=_name(kind, rest, text))
    body, ref = _split_ref(kind, rest, text)
    warehouse, *path = (_part(part, text) for part in body.split("/"))
    least, most = _PATH_LENGTH.get(kind, _ANY_PATH)
    if not least <= len(path) <= most:
        raise InvalidReference(f"`{text}` has {len(path)} parts below `{warehouse}`, a {kind} has {_span(least, most)}")
    bound_path(path)
    return Resource(kind, warehouse, tuple(path), ref)


def format_resource(resource: Resource, ref: str | None = None, type: str = "") -> str:
    """Return the canonical reference of a resource. `ref` fills in a missing ref; `type` replaces the type."""
    kind = type or resource.type
    if kind == "server":
        return kind
    if kind in VERBATIM_TYPES:
        return f"{kind}:{resource.name}"
    if kind in NAMED_TYPES:
        return f"{kind}:{encode_part(resource.name)}"
    text = f"{kind}:{format_path(resource)}"
    ref = resource.ref or ref
    return f"{text}@{encode_part(ref)}" if ref and kind in VERSIONED_TYPES else text


def canonical_reference(text: str) -> str:
    """Return a reference in the canonical encoding; raise InvalidReference."""
    return format_resource(parse_resource(text))


def format_path(resource: Resource) -> str:
    """Return the warehouse and the path of a reference, in the canonical encoding."""
    return format_parts((resource.warehouse, *resource.path))


def format_parts(parts: Sequence[str]) -> str:
    """Return parts of a reference, in the canonical encoding."""
    joined = "".join(parts)
    if not joined.isidentifier() and _ENCODE.search(joined):  # most parts need no escape: search all at once
        return "/".join(map(encode_part, parts))
    return "/".join(parts)


def parse_principal(text: str) -> Principal:
    """Return the principal of `user:<idp>~<subject>`, `role:<id>` or `anonymous`; raise InvalidReference."""
    return _parse_principal(text) if len(text) > _LONGEST_CACHED else _parse_principal_cached(text)


@lru_cache(maxsize=4096)
def _parse_principal_cached(text: str) -> Principal:
    return _parse_principal(text)


def _parse_principal(text: str) -> Principal:
    bound_name(text)
    if text == "anonymous":
        return Principal("anonymous", "")
    kind, _, rest = text.partition(":")
    if kind == "user":
        return Principal(kind, _user(rest))
    if kind == "role":
        return Principal(kind, _verbatim(rest))
    raise InvalidReference(f"principal `{text}` is none of `user:<idp>~<subject>`, `role:<id>`, `anonymous`")


def refuse_star(text: str, instead: str) -> None:
    """Raise InvalidReference for a name with `*` in a policy: names are no patterns. `instead` says what to write."""
    if "*" in text:
        raise InvalidReference(f"`*` in `{text}` is no wildcard: {instead}")


_AROUND: Final = re.compile(r" *([~@]) *")
_UNSEEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\xad\u180e\u200b-\u200d\u2060\ufeff]|(?! )\s")
"""Control characters, signs without a width, and blanks but the plain one."""


def refuse_blanks(text: str) -> None:
    """Raise InvalidReference for a principal or grantee with a sign that nobody sees, or a blank around a part.

    What was stored so before keeps its meaning.
    """
    wanted = without_blanks(text)
    if wanted == text:
        return
    sign = _UNSEEN.search(text)
    cause = "has blanks around a name"
    if sign:
        cause = f"has control characters or other signs that nobody sees, such as U+{ord(sign[0]):04X}"
    raise InvalidReference(f"`{_UNSEEN.sub('?', text)}` {cause}: write `{wanted}`")


def without_blanks(text: str) -> str:
    """Return a principal or grantee as the author means it: without unseen signs, and without blanks around a part."""
    if text.isprintable() and " " not in text:
        return text
    plain = _UNSEEN.sub(lambda sign: " " if sign[0].isspace() else "", text).strip()
    kind, colon, name = plain.partition(":")
    name = _AROUND.sub(r"\1", name) if kind.rstrip() in ("user", "serviceAccount") else name
    return f"{kind.rstrip()}{colon}{name.strip()}"


def is_id(text: str) -> bool:
    """Tell whether an id from a client is short and plain enough for records. An empty id is."""
    return not text or bool(_ID.fullmatch(text))


def check_path(kind: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """Check a path from JSON and return the path; raise InvalidReference for a wrong number of parts or a bad part."""
    least, most = _PATH_LENGTH.get(kind, _ANY_PATH)
    if not least <= len(path) <= most:
        raise InvalidReference(f"a {kind} has {_span(least, most)} parts in its `path`, not {len(path)}")
    bound_path(path)
    return tuple(map(check_part, path))


def bound_path(path: Sequence[str]) -> None:
    """Raise InvalidReference for a path whose parts have too many characters together."""
    if sum(map(len, path)) > MAX_PATH:
        raise InvalidReference(f"the parts of a path have more than {MAX_PATH} characters")


def bound_name(text: str) -> None:
    """Raise InvalidReference for a name that is too long. Later steps take time for each character."""
    if len(text) > MAX_NAME:
        raise InvalidReference(f"a name has {len(text)} characters, at most {MAX_NAME} are allowed")


def has_long(texts: Sequence[str], joined: str) -> bool:
    """Tell whether some of the texts are longer than a name may be. `joined` has all of them."""
    return len(joined) > MAX_NAME and len(max(texts, key=len)) > MAX_NAME


def check_part(part: str) -> str:
    """Check a path part, name or ref from JSON and return the text.

    Raise InvalidReference for an empty or long text, a lone surrogate or a control character.
    """
    if not part:
        raise InvalidReference("a path part is empty")
    bound_name(part)
    if not part.isascii():
        _utf8(part)
    if _CONTROL.search(part):
        raise InvalidReference(f"a path part holds a control character: {part!r}")
    return part


def encode_part(part: str) -> str:
    """Return a part or ref in the canonical encoding: `%`, `/`, `@` and control characters as upper-case escapes."""
    return part if part.isalnum() or part.isidentifier() else part.translate(_ESCAPES)


def _span(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _name(kind: str, rest: str, text: str) -> str:
    if kind == "user":
        return _user(rest)
    return _verbatim(rest) if kind in VERBATIM_TYPES else _part(rest, text)


def _split_ref(kind: str, rest: str, text: str) -> tuple[str, str | None]:
    body, at, ref = rest.rpartition("@")
    if not at:
        return rest, None
    if kind not in VERSIONED_TYPES:
        raise InvalidReference(f"a {kind} has no ref: encode the `@` of `{text}` as %40")
    return body, _part(ref, text)


def _part(raw: str, text: str) -> str:
    if not raw:
        raise InvalidReference(f"reference `{text}` has an empty part")
    if "@" in raw or "/" in raw:
        raise InvalidReference(f"a raw `{'@' if '@' in raw else '/'}` in `{raw}` of `{text}` must be percent-encoded")
    if "%" not in raw:
        return _verbatim(raw)
    if not raw.isascii():
        _utf8(raw)
    if _BAD_ESCAPE.search(raw):
        raise InvalidReference(f"bad percent escape in `{text}`")
    try:
        return check_part(unquote_to_bytes(raw).decode())
    except UnicodeDecodeError:
        raise InvalidReference(f"`{raw}` does not decode to UTF-8") from None


def _user(name: str) -> str:
    if not _USER.fullmatch(name):
        raise InvalidReference(f"user `{name}` is not `<idp>~<subject>` with an idp of [a-z0-9-]")
    return _verbatim(name)


def _verbatim(name: str) -> str:
    if not name:
        raise InvalidReference("a name is empty")
    bound_name(name)
    if not name.isascii():
        _utf8(name)
    if _CONTROL.search(name):
        raise InvalidReference(f"a control character in {name!r}")
    return name


def _utf8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidReference(f"{text!r} is not valid Unicode") from None


_QUALIFIED: Final = re.compile(r"[a-z0-9-]+~")
"""Start of a name that looks like the name of another provider's user."""
MAX_CLAIMS: Final = 10_000
MAX_CLAIM_TEXT: Final = 1 << 20
"""Roles and groups that a request may state of one principal, and their characters. Each decision reads all of them."""


def bound_claims(*claims: Sequence[str]) -> None:
    """Raise InvalidArgument for a principal with too many roles and groups."""
    if sum(map(len, claims)) > MAX_CLAIMS:
        raise InvalidArgument(f"a principal has more than {MAX_CLAIMS} roles and groups")
    if sum([len(claim) for some in claims for claim in some]) > MAX_CLAIM_TEXT:
        raise InvalidArgument(f"the roles and groups of a principal have more than {MAX_CLAIM_TEXT} characters")


def qualify(idp: str, name: str, provider: str) -> str:
    """Return the name of a user or group of `idp`, as policies written for `provider` know the name.

    The name stays bare for `provider`, unless it begins like `<idp>~`: then another provider's user could have that
    name. Ids of providers hold no `~`, so different names stay different. An empty text is the name of no user, so an
    empty name does not stay bare.
    """
    return name if name and idp == provider and not is_qualified(name) else f"{idp}~{name}"


def is_qualified(name: str) -> bool:
    """Tell whether a name begins like `<idp>~`, as the name of another provider's user does."""
    return _QUALIFIED.match(name) is not None


def policy_name(principal: Principal, provider: str) -> str:
    """Return the name of a user as policies know it; an empty text for roles and for the anonymous principal."""
    if principal.type != "user":
        return ""
    idp, _, subject = principal.name.partition("~")
    return qualify(idp, subject, provider)
