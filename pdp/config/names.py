"""Names that policies compare with: the forms and the case that a check can have, and what to write instead.

A name in another form matches nobody without a word, so a forbid or a mask with such a name would bind nobody. Serves
all kinds of policies, and knows none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from pdp.config import words
from pdp.config.origins import suggest


class KnownNames(msgspec.Struct, frozen=True):
    """Names of a configuration that policies may compare with. An empty set: no such name is known.

    `roles` are ids of roles, `token_roles` roles of tokens that stand for them. `provider` is `identity.cel_provider`,
    whose users have no prefix; `users` are its subjects, if it has a list. `catalogs` are those of Trino with a
    warehouse behind them; functions of `builtin` ones are asked by name. `unmanaged` tells whether others may be used.
    """

    warehouses: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()
    refs: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    token_roles: frozenset[str] = frozenset()
    providers: frozenset[str] = frozenset()
    provider: str = ""
    users: frozenset[str] = frozenset()
    catalogs: frozenset[str] = frozenset()
    unmanaged: bool = False
    builtin: frozenset[str] = frozenset()

    @property
    def trino(self) -> bool:
        """Tell whether Trino asks."""
        return bool(self.catalogs)


NO_NAMES: Final = KnownNames()


class NameFault(NamedTuple):
    """Fault of a name in a policy. `is_wrong`: no check has a name in this form or case; otherwise it is unknown."""

    is_wrong: bool
    message: str


_USER: Final = re.compile(r"(?:user:)?([A-Za-z0-9-]+)~(.*)", re.DOTALL)
_TYPED: Final = re.compile(
    r"(?:server|project|warehouse|namespace|table|view|table_or_view|generic_table|dataset|metadata_table):(.*)",
    re.DOTALL,
)


def name_fault(kind: str, test: str, text: str, known: KnownNames = NO_NAMES) -> NameFault | None:
    """Return the fault of a text that a policy compares with a name; None for a text that a name may have.

    `kind` is one of NAME_KINDS, `test` is equals, starts, ends or contains: how the name meets the text.
    """
    fault = NAME_KINDS[kind](test, text, known) if text else None
    if fault is None and "*" in text:  # an object may have such a name, so it is no error
        return NameFault(False, f"`{text}`: `*` is no wildcard here: test a beginning or an end, or by a pattern")
    if fault is None and kind in _BLANKS_COUNT and _has_blanks(kind, test, text):
        return NameFault(False, f"`{text}` has blanks around, and names match to the letter")
    return fault


def _has_blanks(kind: str, test: str, text: str) -> bool:
    """Tell whether a name has blanks around, or a part of a path."""
    if kind not in ("path", "place"):
        return test == "equals" and text != text.strip()
    begins = test in ("equals", "starts") and text != text.lstrip()
    return begins or (test in ("equals", "ends") and text != text.rstrip()) or bool(_AT_A_DOT.search(text))


_AT_A_DOT: Final = re.compile(r"\s[.]|[.]\s")
_BLANKS_COUNT: Final = frozenset({"role", "user", "subject", "path", "place", "ref", "group"})
"""Kinds of names of which a configuration does not list all, so that nothing else finds a blank."""


def _of_set(what: str, test: str, text: str, known: Collection[str]) -> NameFault | None:
    """Return the fault of a text that no known name meets; None if none is known."""
    meets = words.TESTS[test]
    if not known or any(meets(name, text) for name in known):
        return None
    folded = text.casefold()
    near = min((name for name in known if meets(name.casefold(), folded)), default="")
    if near:
        return NameFault(True, f"`{text}` and the {what} `{near}` differ in case: write it as the configuration does")
    return NameFault(False, f"no {what} `{text}` is configured{suggest(text, known)}")


def _warehouse_fault(test: str, text: str, known: KnownNames) -> NameFault | None:
    if text.startswith("warehouse:"):
        return NameFault(True, f"`{text}`: a warehouse has no prefix here: write `{text.removeprefix('warehouse:')}`")
    if test == "equals" and text in known.catalogs - known.warehouses:
        return NameFault(False, f"`{text}` is a catalog of Trino: write the warehouse behind the catalog")
    fault = _of_set("warehouse", test, text, known.warehouses)
    head = re.split("[/.@]", text, maxsplit=1)[0]
    if fault and not fault.is_wrong and head != text and head.casefold() in map(str.casefold, known.warehouses):
        return NameFault(
            True, f"`{text}` has more than the name of a warehouse: write `{head}`, and test the path apart"
        )
    return fault


def _project_fault(test: str, text: str, known: KnownNames) -> NameFault | None:
    if text.startswith("project:"):
        return NameFault(True, f"`{text}`: a project has no prefix here: write `{text.removeprefix('project:')}`")
    return _of_set("project", test, text, known.projects)


def _role_fault(test: str, text: str, known: KnownNames) -> NameFault | None:
    """Return the fault of the id of a role. Tokens and grants have roles that no configuration lists."""
    listed = known.roles | known.token_roles
    prefix = next((one for one in ("role:", "user:") if text.startswith(one)), "")
    if test not in ("equals", "starts") or any(words.TESTS[test](name, text) for name in listed):
        return None
    if prefix == "user:":
        return NameFault(True, f"`{text}` is a user and no role")
    if prefix:
        message = f"`{text}`: the id of a role has no prefix: write `{text.removeprefix(prefix)}`"
        return NameFault(True, f"{message}; a provider whose roles begin so lists them in `role_map`")
    near = words.case_variant(text, listed) if test == "equals" else ""
    return NameFault(True, f"`{text}` and the role `{near}` differ in case: write `{near}`") if near else None


def _user_fault(test: str, text: str, known: KnownNames) -> NameFault | None:
    """Return the fault of the name of a user in rules: bare for one provider, else `<idp>~<subject>`."""
    if test not in ("equals", "starts"):
        is_prefixed = text == "role:" or (known.provider and f"{known.provider}~" in text)
        return NameFault(False, f"`{text}`: {_BARE_USERS}") if is_prefixed else None
    if text.startswith("role:"):
        role = text.removeprefix("role:")
        return NameFault(True, f"`{text}` is a role and no user: test `roles`, such as `'{role}' in roles`")
    found = _USER.fullmatch(text)
    idp, subject = (found[1], found[2]) if found else ("", "")
    providers = known.providers | ({known.provider} if known.provider else frozenset())
    near = words.case_variant(idp, providers) if idp else ""
    name = f"{near or idp}~{subject}" if idp else text.removeprefix("user:")
    if (near or idp) == known.provider and known.provider and _USER.fullmatch(subject) is None:
        name = subject
    if text.startswith("user:") or near or name != text:
        return NameFault(True, f"`{text}`: {_BARE_USERS}" + (f": write `{name}`" if name else ""))
    if idp and known.providers and idp not in providers:
        return NameFault(False, f"no provider `{idp}` is configured{suggest(idp, providers)}")
    if idp == "" and test == "equals" and (variant := words.case_variant(text, known.users)):
        return NameFault(True, f"`{text}` and the user `{variant}` differ in case: write `{variant}`")
    if sign := _other_sign(text, providers):
        idp, _, subject = text.partition(sign)
        write = subject if idp == known.provider else f"{idp}~{subject}"
        return NameFault(False, f"`{text}`: {_BARE_USERS}: write `{write}`")
    if text == "anonymous":
        return NameFault(False, "the anonymous user has no name: write `''`")
    is_role = test == "equals" and text in known.roles - known.users
    return NameFault(False, f"`{text}` is a role: for its members, test `'{text}' in roles`") if is_role else None


_BARE_USERS: Final = "users of `identity.cel_provider` have no prefix, and all others `<idp>~`"


def _other_sign(text: str, providers: Collection[str]) -> str:
    """Return the sign in place of `~` behind a known provider; empty without."""
    return next((sign for sign in ":/" if text.partition(sign)[0] in providers and text.partition(sign)[2]), "")


def _subject_fault(test: str, text: str, known: KnownNames) -> NameFault | None:
    """Return the fault of a subject, which has no provider before it."""
    if test not in ("equals", "starts"):
        return None
    prefixes = ("user:", "role:", *(f"{idp}~" for idp in sorted(known.providers | {known.provider} - {""})))
    prefix = next((one for one in prefixes if text.casefold().startswith(one)), "")
    if not prefix and test == "equals" and (variant := words.case_variant(text, known.users)):
        return NameFault(True, f"`{text}` and the user `{variant}` differ in case: write `{variant}`")
    if not prefix and (sign := _other_sign(text, known.providers | {known.provider})):
        return NameFault(False, f"`{text}`: a subject has no prefix: write `{text.partition(sign)[2]}`")
    bare = text[len(prefix) :].rpartition("~")[2] if prefix == "user:" else text[len(prefix) :]
    return NameFault(True, f"`{text}`: a subject has no prefix: write `{bare}`") if prefix else None


def _provider_fault(test: str, text: str, known: KnownNames) -> NameFault | None:
    if any(sign in text for sign in "~:"):
        return NameFault(True, f"`{text}` is no id of a provider: write what stands before `~`, such as `oidc`")
    if text != text.lower():
        return NameFault(True, f"ids of providers are in lower case: write `{text.lower()}`")
    return _of_set("provider", test, text, known.providers and known.providers | {known.provider})


def _path_fault(test: str, text: str, known: KnownNames) -> NameFault | None:
    """Return the fault of a path, whose parts are joined by dots, without type, warehouse and ref."""
    typed = _TYPED.fullmatch(text) if test in ("equals", "starts") else None
    body = typed[1] if typed else text
    parts = [part for part in body.split("/") if part]
    has_warehouse = bool(parts) and bool(typed or ("/" in body and _is_warehouse(parts[0], known)))
    is_slashed = bool(parts) and "/" in body and "." not in body and (test != "contains" or len(parts) > 1)
    if typed or has_warehouse or is_slashed:
        wanted = ".".join(parts[has_warehouse:]) + ("." if body.endswith("/") else "")
        wanted = wanted if wanted.strip(".") else ""
        # a path alone could mean a namespace with the name of the warehouse
        place = f"test `warehouse == '{parts[0]}'`" if has_warehouse else ""
        hints = [f"write `{wanted}`"] * bool(wanted) + [place] * bool(place)
        write = f": {', and '.join(hints)}" if hints else ""
        return NameFault(True, f"`{text}`: a path has dots between its parts, without type and warehouse{write}")
    if fault := _dots_fault(test, text):
        return fault
    if known.trino and (found := words.metadata_fault(test, text)):
        return NameFault(*found)
    base, at, ref = body.rpartition("@")
    if at and test in ("equals", "ends") and ref in known.refs | {"main"}:
        return NameFault(True, f"`{text}`: a path has no ref: write `{base}`, and test `ref == '{ref}'`")
    return _part_fault(text, known) if test == "contains" else None


def _dots_fault(test: str, text: str) -> NameFault | None:
    """Return the fault of a path with an empty part, or with a sign that no part has."""
    begins = text.startswith(".") and test in ("equals", "starts")
    ends = text.endswith(".") and test in ("equals", "ends")
    if begins or ends or ".." in text:
        bare = ".".join(part for part in text.split(".") if part)
        write = ""
        if bare and not begins and ".." not in text and test == "equals":
            write = f": write `{bare}`, or `path.startsWith('{text}')` for what is below"
        elif bare:
            write = f": write `{bare}`"
        return NameFault(True, f"`{text}`: a path has no empty part{write}")
    if sign := _NO_SIGN.search(text):
        return NameFault(True, f"a path has no control character {sign[0]!r}")
    return None


_NO_SIGN: Final = re.compile(r"[\x01-\x1c\x1e\x1f\x7f-\x9f\u2028\u2029]")
"""Sign that no part of a path has. Rules see U+001D for a dot in a part."""


def _part_fault(text: str, known: KnownNames) -> NameFault | None:
    """Return the fault of a part of a path. A name may have any sign, so nothing is certain."""
    if _TYPED.search(text):
        return NameFault(False, f"`{text}`: a path has no type and no warehouse")
    _, at, ref = text.rpartition("@")
    if at and ref in known.refs | {"main"}:
        return NameFault(False, f"`{text}`: a path has no ref: test `ref == '{ref}'`")
    return NameFault(False, f"`{text}`: a path has dots between its parts") if text.strip("/") != text != "/" else None


def _name_fault(test: str, text: str, known: KnownNames) -> NameFault | None:
    """Return the fault of the name of an object, which may have any sign: of a path with its type or its warehouse."""
    if _TYPED.fullmatch(text) or ("/" in text and _is_warehouse(text.partition("/")[0], known)):
        return _path_fault(test, text, known)
    if known.trino and (found := words.metadata_fault(test, text)):
        return NameFault(*found)
    last = text.rpartition(".")[2]
    if last in ("", text) or test != "equals":
        return None
    return NameFault(False, f"`{text}`: a name is the last part of a path: write `{last}`, and test the rest apart")


def _is_warehouse(text: str, known: KnownNames) -> bool:
    return text.casefold() in map(str.casefold, known.warehouses)


def _place_fault(test: str, text: str, known: KnownNames) -> NameFault | None:
    """Return the fault of a path in a policy without a test of the warehouse.

    `<warehouse>.<namespace>.<table>` has one part too many. In two parts, the first may be a namespace of that name.
    """
    fault = _path_fault(test, text, known)
    first, dot, rest = text.partition(".")
    if fault or test not in ("equals", "starts") or not dot:
        return fault
    if not _is_warehouse(first, known):
        write = f"write `{rest}`" if rest else "test `warehouse`"
        message = f"`{text}` begins with the catalog `{first}` of Trino, and a path has none: {write}"
        message += f"; for a namespace `{first}`, add a test of `warehouse`" * bool(rest)
        return NameFault("." in rest, message) if first in known.catalogs else None
    write = f"write `{rest}` and " if rest else "write "
    message = f"`{text}` begins with the warehouse `{first}`, and a path has none: {write}`warehouse == '{first}'`"
    return NameFault("." in rest, f"{message}; for a namespace `{first}`, add a test of `warehouse`")


def _lowered(what: str) -> Callable[[str, str, KnownNames], NameFault | None]:
    """Return the judge of names in lower case, as Trino sends names."""

    def fault(test: str, text: str, known: KnownNames) -> NameFault | None:
        is_sent = text == text.lower()
        return None if is_sent else NameFault(True, f"Trino sends `{text.lower()}`, names of {what} in lower case")

    return fault


def _routine_fault(test: str, text: str, known: KnownNames) -> NameFault | None:
    """Return the fault of a function or procedure: `catalog.schema.name`."""
    if fault := _lowered("functions and procedures")(test, text, known):
        return fault
    if test == "equals" and (len(parts := text.split(".")) < 3 or not all(parts)):
        return NameFault(True, f"`{text}`: write the whole name, as `catalog.schema.name`")
    return _blank_fault(text) if test == "equals" else None


def _blank_fault(text: str) -> NameFault | None:
    is_plain = all(part == part.strip() for part in text.split("."))
    return None if is_plain else NameFault(True, f"`{text}`: a name of Trino's has no blanks around")


def _property_fault(test: str, text: str, known: KnownNames) -> NameFault | None:
    """Return the fault of a session property: `name` of Trino's own, or `catalog.name`."""
    if (fault := _lowered("session properties")(test, text, known)) or test != "equals":
        return fault
    catalog, dot, name = text.rpartition(".")
    if fault := _blank_fault(text):
        return fault
    if not name or (dot and not all(catalog.split("."))):
        return NameFault(True, f"`{text}`: write the `name` of a system property, or `catalog.name`")
    if catalog == "system":
        return NameFault(True, f"`{text}`: a system property has no catalog: write `{name}`")
    first = catalog.partition(".")[0]
    if first != catalog and first in known.catalogs and catalog not in known.catalogs:
        return NameFault(True, f"`{text}` has more than a catalog and a name: write `{first}.{name}`")
    if not re.fullmatch("[a-z0-9_]+", name):
        word = re.sub("[^a-z0-9]+", "_", name).strip("_")
        is_certain = not catalog or not re.fullmatch("[a-z0-9_-]+", name)  # as connectors of others may spell
        write = f": write `{catalog}{dot}{word}`" if word else ""
        return NameFault(is_certain, f"`{text}`: names of properties have letters, digits and `_` alone{write}")
    return _unknown_catalog(catalog, name, known)


def _unknown_catalog(catalog: str, name: str, known: KnownNames) -> NameFault | None:
    if not catalog and name in known.catalogs:
        return NameFault(False, f"`{name}` is a catalog: write `{name}.<name>` of a property")
    may_be_unmanaged = known.unmanaged and catalog not in known.warehouses
    if not catalog or not known.catalogs or catalog in known.catalogs or may_be_unmanaged:
        return None
    return NameFault(False, f"no catalog `{catalog}` is in `trino.catalogs`{suggest(catalog, known.catalogs)}")


def _ref_fault(test: str, text: str, known: KnownNames) -> NameFault | None:
    """Return the fault of a ref, which has no prefix of Git. A branch may have any name, so nothing is certain."""
    prefix = next((one for one in _REF_PREFIXES if text.startswith(one)), "")
    if prefix and text != prefix and test in ("equals", "starts"):
        return NameFault(False, f"`{text}`: a ref has no prefix: write `{text.removeprefix(prefix)}`")
    near = words.case_variant(text, known.refs) if test == "equals" else ""
    return NameFault(False, f"`{text}` and the ref `{near}` differ in case: write `{near}`") if near else None


_REF_PREFIXES: Final = ("refs/heads/", "refs/tags/", "refs/", "heads/", "branch:", "tag:", "ref:", "@")


def _of_words(judge: Callable[[str, str], words.Fault | None]) -> Callable[[str, str, KnownNames], NameFault | None]:
    """Return the judge of words that no configuration changes."""

    def fault(test: str, text: str, known: KnownNames) -> NameFault | None:
        found = judge(test, text)
        return NameFault(*found) if found else None

    return fault


NAME_KINDS: Final[Mapping[str, Callable[[str, str, KnownNames], NameFault | None]]] = {
    "warehouse": _warehouse_fault,
    "project": _project_fault,
    "role": _role_fault,
    "user": _user_fault,
    "subject": _subject_fault,
    "provider": _provider_fault,
    "path": _path_fault,
    "name": _name_fault,
    "place": _place_fault,
    "catalog": _lowered("catalogs"),
    "schema": _lowered("schemas"),
    "table": _lowered("tables"),
    "routine": _routine_fault,
    "property": _property_fault,
    "ref": _ref_fault,
    **{kind: _of_words(judge) for kind, judge in words.JUDGES.items()},
}
"""Kind of names -> the function that returns the fault of a text. A `place` is a path without a test of a warehouse."""


class NameCheck(NamedTuple):
    """Judgement of names: the names of a configuration, and the faults that are errors.

    A name in a wrong form is an error of a forbid, which would bind nobody. With `strict`, every fault is an error.
    """

    known: KnownNames = NO_NAMES
    forbid: bool = False
    strict: bool = False

    def stops(self, *, is_wrong: bool) -> bool:
        """Tell whether a fault is an error."""
        return self.strict or (self.forbid and is_wrong)
