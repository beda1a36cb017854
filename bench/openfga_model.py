"""Relationship model of the grants engine as OpenFGA's JSON model (schema 1.1), and worlds as OpenFGA tuples.

A relation that is both stored and computed becomes two relations: `select` holds the tuples, `select_effective` is the
computed relation. The relation `visible` is computed from stored privileges, not from effective ones: otherwise OpenFGA
would walk up again from every object below. Lakekeeper's model has had both since v4.13, for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from pdp.engines.grants.model import MODEL

Userset: TypeAlias = dict[str, Any]
Tuple: TypeAlias = tuple[str, str, str]
"""User, relation, object."""

TABULARS: Final = ("table", "view", "generic_table", "dataset")
PARENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "project": ("server",),
    "warehouse": ("project",),
    "namespace": ("warehouse", "namespace"),
    "role": ("project",),
    "tag": ("project",),
    **dict.fromkeys(TABULARS, ("namespace",)),
}
CHILDREN: Final[Mapping[str, tuple[str, ...]]] = {
    "project": ("warehouse",),
    "warehouse": ("namespace",),
    "namespace": ("namespace", *TABULARS),
}
_PRINCIPALS: Final = [{"type": "user"}, {"type": "role", "relation": "assignee"}]
_EVERYBODY: Final = [{"type": "user", "wildcard": {}}, {"type": "role", "wildcard": {}}]
_BEYOND: Final = frozenset({"self", "authenticated"})
"""Conditions without a form in OpenFGA. A role is always its own assignee there."""
_TOKENS: Final = re.compile(r"[\w.]+|\S")


def authorization_model() -> dict[str, Any]:
    """Return the body of `POST /stores/{id}/authorization-models`. Users have no relations."""
    types = [_type(name) for name in MODEL if name != "user"]
    return {"schema_version": "1.1", "type_definitions": [{"type": "user"}, *types]}


def relation_of(action: str) -> str:
    """Return the relation to check for an action."""
    return f"can_{action}"


def tuples_of(world: Mapping[str, Any]) -> list[Tuple]:
    """Return the data of a world file as tuples: parents and children, grants, and flags. Ids of grants are ignored."""
    found: dict[Tuple, None] = {}
    parents = {entry["object"]: entry.get("parent", "") for entry in world["objects"] if not isinstance(entry, str)}
    named = [*parents, *(entry for entry in world["objects"] if isinstance(entry, str)), *world.get("seen", ())]
    for text in (*named, *(grant["object"] for grant in world["grants"])):
        found.update(dict.fromkeys(_edges(text, parents)))
    for entry in world["objects"]:
        if not isinstance(entry, str) and entry.get("managedAccess"):
            found.update(dict.fromkeys((who, "managed_access", entry["object"]) for who in ("user:*", "role:*")))
    for grant in world["grants"]:
        found[subject(grant["principal"]), grant["privilege"], _object(grant["object"])] = None
    return list(found)


def subject(principal: str) -> str:
    """Return a principal as OpenFGA's user."""
    return f"{principal}#assignee" if principal.startswith("role:") else principal


def question(principal: str, action: str, object: str) -> dict[str, str]:
    """Return the tuple key of a check."""
    return {"user": subject(principal), "relation": relation_of(action), "object": _object(object)}


def _object(text: str) -> str:
    return "server:server" if text == "server" else text


def _edges(text: str, parents: Mapping[str, str]) -> Iterator[Tuple]:
    """Yield the tuples from an object up to the server: `parent` always, `child` for types in CHILDREN."""
    while above := _above(text, parents):
        yield _object(above), "parent", text
        if text.partition(":")[0] in CHILDREN.get(above.partition(":")[0], ()):
            yield text, "child", above
        text = above


def _above(text: str, parents: Mapping[str, str]) -> str:
    type, _, name = text.partition(":")
    if type in ("namespace", *TABULARS):
        above = name.rpartition("/")[0]
        return f"namespace:{above}" if "/" in above else f"warehouse:{above}"
    return "server" if type == "project" else parents.get(text, "")


# --- the model ----------------------------------------------------------------------------------------------------


def _type(name: str) -> dict[str, Any]:
    """Return the definition of one type."""
    rules = MODEL[name]
    relations: dict[str, Userset] = {}
    stored: dict[str, Any] = {}
    for privilege in rules.stored.split():
        relations[privilege], stored[privilege] = {"this": {}}, _PRINCIPALS
    for relation, text in rules.relations.items():
        effective = _effective(name, relation)
        relations[effective] = _Rule(name, relation, text).userset() or relations[effective]
    for names, text in rules.actions.items():
        for action in names.split():
            if userset := _Rule(name, action, text).userset():
                relations[relation_of(action)] = userset
    if name in ("warehouse", "namespace"):
        relations["managed_access"], stored["managed_access"] = {"this": {}}, _EVERYBODY
    for edge, kinds in (("parent", PARENTS.get(name)), ("child", CHILDREN.get(name))):
        if kinds:
            relations[edge], stored[edge] = {"this": {}}, [{"type": kind} for kind in kinds]
    below = [_over("child", "visible")] if name in CHILDREN else []
    if any(name in kinds for kinds in CHILDREN.values()):
        relations["visible"] = _union([*map(_computed, _showing(name)), *below])
    metadata = {relation: {"directly_related_user_types": stored.get(relation, [])} for relation in relations}
    return {"type": name, "relations": relations, "metadata": {"relations": metadata}}


def _effective(type: str, name: str) -> str:
    """Return the effective relation for a name in a rule: a relation, an action, or the flag `managed_access`.

    A role keeps one relation for its members, because tuples name this relation as their user.
    """
    rule = MODEL[type].relations.get(name)
    if rule is None:
        return name if name == "managed_access" else relation_of(name)
    return f"{name}_effective" if rule.startswith("+ |") and type != "role" else name


def _showing(type: str) -> Iterable[str]:
    """Return the stored privileges that make an object visible: `describe`, and those of the same object that imply it."""
    rules = MODEL[type].relations
    found: dict[str, None] = {}
    fringe = ["describe"] if "describe" in rules else []
    while fringe:
        relation = fringe.pop()
        found[relation] = None
        fringe += [part for part in rules[relation].split(" | ") if part in rules and part not in found]
    return found


def _computed(relation: str) -> Userset:
    return {"computedUserset": {"relation": relation}}


def _over(edge: str, relation: str) -> Userset:
    return {"tupleToUserset": {"tupleset": {"relation": edge}, "computedUserset": {"relation": relation}}}


def _union(parts: list[Userset]) -> Userset:
    return parts[0] if len(parts) == 1 else {"union": {"child": parts}}


class _Rule:
    """Parser of one rule. `|` binds loosest; `&` and `-` bind equally, to the left."""

    def __init__(self, type: str, name: str, text: str) -> None:
        self._type = type
        self._name = name
        self._tokens = _TOKENS.findall(text)

    def userset(self) -> Userset | None:
        """Return the rule as a userset; None if the rule needs a condition without a form in OpenFGA."""
        parts = [self._term()]
        while self._tokens[:1] == ["|"]:
            self._tokens.pop(0)
            parts.append(self._term())
        known = [part for part in parts if part]
        return _union(known) if known else None

    def _term(self) -> Userset | None:
        found = self._leaf()
        while found and self._tokens[:1] in (["&"], ["-"]):
            sign, right = self._tokens.pop(0), self._leaf()
            assert right
            if sign == "&":
                found = {"intersection": {"child": [found, right]}}
            else:
                found = {"difference": {"base": found, "subtract": right}}
        return found

    def _leaf(self) -> Userset | None:
        word = self._tokens.pop(0)
        if word == "(":
            found = self.userset()
            self._tokens.pop(0)
            return found
        if word in _BEYOND:
            return None
        if word == "+":
            return {"this": {}} if _effective(self._type, self._name) == self._name else _computed(self._name)
        where, _, name = word.rpartition(".")
        if where == "up":
            return _over("parent", _effective(PARENTS[self._type][0], name))
        if where == "down":
            return _over("child", "visible")
        return _computed(_effective(self._type, name))
