"""Policies under unknown values: the evidence and names that a policy reads, and a forbid without the parts on these.

Cedar cannot raise for an unknown membership, name or place. So a forbid is asked without the parts on unknown values,
by Cedar's JSON of single policies. The roles of a token only add to the stored memberships, so what more roles cannot
take back is asked as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pdp.engines.cedar.actions import NAME_ATTRIBUTES, NAMESPACE_TYPE, PROJECT, ROLE, SERVER, WAREHOUSE
from pdp.engines.engine import EngineQuestion
from pdp.model.question import Resource, is_missing
from pdp.model.vocabulary import ARGUMENTS

_ATTRIBUTES: Final = {
    "roles": frozenset({"member_of"}),
    "project_roles": frozenset({"member_of", "roles"}),
    "email": frozenset({"attributes.email"}),
    **dict.fromkeys(NAME_ATTRIBUTES, frozenset({"name"})),
}
"""Attribute of a user or a context -> the evidence behind the attribute."""
MAY_READ: Final = re.compile(
    r"\\|\b(?:roles|project_roles|email)\b|Role|(?<!\baction )(?<!\bresource )\bin\b"
    rf"|\b(?:{'|'.join(sorted(NAME_ATTRIBUTES))})\b|\bcontext\b(?!\.|\s+has\b)"
)
"""Signs of a policy on evidence. A backslash may write any word in a string."""
_WIDE: Final = frozenset({WAREHOUSE, PROJECT, SERVER[0]})
"""Types of the containers of all places in a warehouse."""
UNKNOWN_EVIDENCE: Final = "the evidence of the principal is unknown"
"""Error of a forbid on unknown evidence."""
MISSING_NAME: Final = "nobody knows the name or the place of what is made"
"""Error of a forbid on a path that the check does not name."""
_ROLE_OR_VARIABLE: Final = re.compile(r"Role'|'Var': '(?!resource')")
"""Mention of a role, or of another variable than the resource, in an expression as Python prints it."""
_NAME: Final = frozenset({"name"})
_NAME_AND_PLACE: Final = frozenset({"name", "place"})
_NOTHING: Final = frozenset[str]()
_NEVER: Final = [{"kind": "when", "body": {"Value": False}}]
_ROLES: Final = frozenset({"member_of", "roles"})
STORED: Final = "stored"
"""Name among unknown evidence where the stored memberships are unknown, too."""


def values_read_by(form: Mapping[str, Any]) -> frozenset[str]:
    """Return the evidence that a policy reads, as in `Principal.unknown`, and `name` for the name of a new object."""
    scope = _scope_reads(form["principal"])
    return frozenset(scope.union(*(_reads(each["body"]) for each in form["conditions"]))) - {"place"}


def reads_place(form: Mapping[str, Any]) -> bool:
    """Tell whether a policy depends on the place of a resource in its warehouse."""
    scope = form["resource"]
    return _place_in(scope) != scope or any("place" in _reads(each["body"]) for each in form["conditions"])


def never(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy that never holds."""
    return {**form, "conditions": _NEVER}


def holds_by_known_roles(form: Mapping[str, Any], unknown: frozenset[str]) -> bool:
    """Tell whether a permit that holds by the known roles holds whatever the unknown evidence is."""
    conditions = ((each["body"], each["kind"] == "when") for each in form["conditions"])
    scope_is_known = unknown.isdisjoint(_scope_reads(form["principal"])) or STORED not in unknown
    return scope_is_known and all(_is_certain(body, unknown, rises=rises) for body, rises in conditions)


def relax(form: dict[str, Any], unknown: frozenset[str]) -> dict[str, Any]:
    """Return a forbid without the conditions on unknown values.

    INVARIANT: the result holds wherever the forbid could hold. `when { a && b }` needs both, so without a part
    it holds more often, and `unless { a || b }` is `when { !a && !b }`. A part that more roles can only make false
    stays: by fewer roles it holds more often.
    """
    scope = form["principal"]
    if not unknown.isdisjoint(_scope_reads(scope)):
        scope = {"op": "is", "entity_type": scope["entity_type"]} if scope["op"] == "is" else {"op": "All"}
    conditions = []
    for each in form["conditions"]:
        is_when = each["kind"] == "when"
        sign = "&&" if is_when else "||"
        parts = [part for part in _parts(each["body"], sign) if _is_certain(part, unknown, rises=not is_when)]
        if parts:
            body = parts[0]
            for part in parts[1:]:
                body = {sign: {"left": body, "right": part}}
            conditions.append({"kind": each["kind"], "body": body})
    resource = _place_in(form["resource"]) if "place" in unknown else form["resource"]
    return {**form, "principal": scope, "resource": resource, "conditions": conditions}


def _place_in(scope: dict[str, Any]) -> dict[str, Any]:
    """Return the scope of a resource for any place in a warehouse: the warehouse stands for each namespace inside."""
    around = scope["in"] if scope["op"] == "is" and "in" in scope else scope
    uid = around.get("entity", {})
    if uid.get("type") != NAMESPACE_TYPE:
        return scope
    warehouse = {"entity": {"type": WAREHOUSE, "id": uid["id"].partition("/")[0]}}
    return {**scope, "in": warehouse} if scope["op"] == "is" else {"op": "in", **warehouse}


def _parts(body: Any, sign: str) -> Iterator[Any]:
    """Yield the operands of `&&` or `||` around an expression, in order."""
    pending = [body]
    while pending:
        part = pending.pop()
        if sign in part:
            pending += [part[sign]["right"], part[sign]["left"]]
        else:
            yield part


def _scope_reads(scope: Mapping[str, Any]) -> frozenset[str]:
    """Return the evidence read by the scope of a policy. An unknown role may be in anything."""
    return frozenset({"member_of"}) if scope["op"] == "in" or "in" in scope else frozenset()


def _reads(body: Any) -> frozenset[str]:
    """Return the evidence read by an expression. In doubt, an expression reads."""
    found: set[str] = set()
    pending = [body]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, Mapping):
            pending += () if _is_sure(part) else part.values()
            found |= _VARIABLES.get(str(part.get("Var")), frozenset())
            for sign in (".", "has"):
                attribute = part.get(sign)
                if isinstance(attribute, Mapping):
                    found |= _ATTRIBUTES.get(attribute.get("attr", ""), frozenset())
            if _is_membership(part):
                found.add("member_of")
    return frozenset(found)


_ROLE_SETS: Final = ("roles", "project_roles")
"""Attributes of a user with all roles."""
_VARIABLES: Final = {"context": frozenset({"name"}), "resource": frozenset({"place"})}
"""Variable -> what an expression on the whole variable reads."""


def _is_certain(body: Any, unknown: frozenset[str], *, rises: bool) -> bool:
    """Tell whether an expression reads nothing unknown but roles, and more roles only make it true, or only false.

    `rises`: only true.
    """
    found = _reads(body) & unknown
    return not found or (found <= _ROLES and STORED not in unknown and _is_monotone(body, rises=rises))


def _is_monotone(body: Mapping[str, Any], *, rises: bool) -> bool:
    """Tell whether more roles only make an expression true (`rises`), or only false. In doubt, they do not."""
    pending = [(body, rises)]
    while pending:
        part, up = pending.pop()
        both = part.get("&&") or part.get("||")
        if both:
            pending += [(both["left"], up), (both["right"], up)]
        elif "!" in part:
            pending.append((part["!"]["arg"], not up))
        elif not _ROLES.isdisjoint(_reads(part)) and not (up and _is_plain_membership(part)):
            return False
    return True


def _is_plain_membership(part: Mapping[str, Any]) -> bool:
    """Tell whether an expression is `principal in ...` or `principal.roles.contains(...)`, of fixed values."""
    if "in" in part or "is" in part:
        tested = part.get("in") or part["is"]
        others = tested["right"] if "in" in part else tested.get("in", {})
        return tested["left"] == {"Var": "principal"} and _is_fixed(others)
    (sign, tested), *_ = part.items()
    if sign not in ("contains", "containsAll", "containsAny"):
        return False
    held = tested["left"].get(".", {})
    return held.get("left") == {"Var": "principal"} and held.get("attr") in _ROLE_SETS and _is_fixed(tested["right"])


def _is_fixed(body: Mapping[str, Any]) -> bool:
    """Tell whether an expression has literals alone."""
    if "Set" in body:
        return all(map(_is_fixed, body["Set"]))
    if "Record" in body:
        return all(map(_is_fixed, body["Record"].values()))
    return body.keys() == {"Value"}


def _is_sure(part: Mapping[str, Any]) -> bool:
    """Tell whether an expression on the context or the resource reads no name and no place in the warehouse.

    Such are single attributes of a context (`_ATTRIBUTES` has the names), the type of a resource, and the containers
    around the whole warehouse.
    """
    for sign in (".", "has"):
        if (access := part.get(sign)) and isinstance(access, Mapping) and "attr" in access:
            variable, attribute = access["left"].get("Var"), access["attr"]
            return variable == "context" or (variable == "resource" and attribute in ("warehouse", "project"))
    tested = part.get("in") or part.get("is")
    if not isinstance(tested, Mapping) or tested.get("left") != {"Var": "resource"}:
        return False
    around = tested.get("right") if "in" in part else tested.get("in")
    if around is None:
        return "is" in part
    uid = around.get("Value", {})
    return isinstance(uid, Mapping) and uid.get("__entity", {}).get("type") in _WIDE


def spared_roles(form: Mapping[str, Any]) -> frozenset[str]:
    """Return the roles whose members a forbid may spare: those in a part that keeps the forbid from holding if true."""
    found: set[str] = set()
    pending: list[tuple[Any, bool, bool]] = [
        (each["body"], each["kind"] == "when", each["kind"] == "unless") for each in form["conditions"]
    ]
    while pending:
        part, holds, spares = pending.pop()
        if "!" in part:
            pending.append((part["!"]["arg"], spares, holds))
        elif "&&" in part or "||" in part:
            both = part.get("&&") or part["||"]
            pending += [(both["left"], holds, spares), (both["right"], holds, spares)]
        elif "if-then-else" in part:
            branches = part["if-then-else"]
            pending += [
                (branches["if"], True, True),
                (branches["then"], holds, spares),
                (branches["else"], holds, spares),
            ]
        elif spares or "==" in part or "!=" in part:  # a comparison may turn a test around
            found |= _roles_in(part)
    return frozenset(found)


def _roles_in(part: Any) -> set[str]:
    """Return the roles that an expression names."""
    found: set[str] = set()
    pending = [part]
    while pending:
        one = pending.pop()
        if isinstance(one, Mapping):
            uid = one.get("__entity")
            if isinstance(uid, Mapping) and uid.get("type") == ROLE:
                found.add(uid["id"])
            pending += one.values()
        elif isinstance(one, list):
            pending += one
    return found


def _is_membership(part: Mapping[str, Any]) -> bool:
    """Tell whether an expression may ask for a role of the principal: `principal in ...`, also by other words."""
    tested = part.get("in") or part.get("is")
    if not isinstance(tested, Mapping) or "left" not in tested or ("is" in part and "in" not in tested):
        return False
    variable = tested["left"].get("Var")
    return variable != "action" and (variable != "resource" or bool(_ROLE_OR_VARIABLE.search(str(tested))))


def takes_name(group: EngineQuestion) -> bool:
    """Tell whether the name of a new object may be missing in checks of a group."""
    return not group.question.nameless and ARGUMENTS.get((group.type, group.action)) == "name"


def missing_parts(resource: Resource) -> frozenset[str]:
    """Return the unknown parts of an object to be made in a container: `name`, and `place` without a container."""
    if resource.arguments.missing_place:
        return _NAME_AND_PLACE
    return _NAME if is_missing("name", resource) else _NOTHING
