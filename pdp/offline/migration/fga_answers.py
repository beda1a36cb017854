"""OpenFGA's answers, repeated in the plainest way, and relations of the grants engine beyond these answers.

A relation in a ring is false on the way back, as in OpenFGA. Rules differ between the versions of Lakekeeper's model:
the given model counts, or without a model the version among the tuples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.model import ACTIONS, STORED
from pdp.facts.snapshot import Facts
from pdp.model.references import parse_principal
from pdp.offline.migration.fga_objects import DOWN, TYPES, UP, FgaTuple, parent_types, type_of
from pdp.offline.migration.fga_store import (
    AllRules,
    AnyRule,
    ButNot,
    Computed,
    Direct,
    FgaExport,
    FgaModel,
    FgaRule,
    FromParent,
)
from pdp.offline.migration.fga_world import FgaWorld
from pdp.offline.migration.report import Migration
from pdp.store.world import parse_world, read_key

CAN: Final = "can_"
STRANGER: Final = "user:nobody-in-the-tuples"
ObjectRelation: TypeAlias = tuple[str, str]
"""Relation and object."""


def takes(model: FgaModel, one: FgaTuple) -> bool:
    """Tell whether a model takes a tuple. OpenFGA drops other tuples."""
    rule = model.get(type_of(one.object), {}).get(one.relation)
    object, hash, relation = one.user.partition("#")
    form = f"{type_of(object)}:*" if one.user.endswith(":*") else f"{type_of(object)}{hash}{relation}"
    return rule is not None and form in _direct_users(rule)


class FgaChecker:
    """Checker of a model with tuples. Remembers answers for each user."""

    def __init__(self, model: FgaModel, tuples: Iterable[FgaTuple]) -> None:
        self._model = model
        self._users: dict[ObjectRelation, list[str]] = {}
        for one in tuples:
            if takes(model, one):
                self._users.setdefault((one.relation, one.object), []).append(one.user)
        self._answers: dict[str, dict[ObjectRelation, bool]] = {}

    def knows(self, relation: str, object: str) -> bool:
        """Tell whether the model defines a relation for the type of an object."""
        return relation in self._model.get(object.partition(":")[0], {})

    def check(self, user: str, relation: str, object: str) -> bool:
        """Return the answer for a user or a userset."""
        return self._check(user, (relation, object), set())

    def _check(self, user: str, question: ObjectRelation, path: set[ObjectRelation]) -> bool:
        answers = self._answers.setdefault(user, {})
        if question in answers:
            return answers[question]
        if question in path:
            return False
        relation, object = question
        if user == f"{object}#{relation}":
            return True
        rule = self._model.get(object.partition(":")[0], {}).get(relation)
        if rule is None:
            return False
        path.add(question)
        answer = self._holds(user, rule, question, path)
        path.remove(question)
        if answer or not path:  # a false answer inside a cycle is not final
            answers[question] = answer
        return answer

    def _holds(self, user: str, rule: FgaRule, question: ObjectRelation, path: set[ObjectRelation]) -> bool:
        match rule:
            case Direct():
                return any(self._is_member(user, member, path) for member in self._users.get(question, ()))
            case Computed(relation):
                return self._check(user, (relation, question[1]), path)
            case FromParent(tupleset, relation):
                parents = self._users.get((tupleset, question[1]), ())
                return any(self._check(user, (relation, parent), path) for parent in parents)
            case AnyRule(rules):
                return any(self._holds(user, one, question, path) for one in rules)
            case AllRules(rules):
                return all(self._holds(user, one, question, path) for one in rules)
            case ButNot(base, subtracted):
                return self._holds(user, base, question, path) and not self._holds(user, subtracted, question, path)

    def _is_member(self, user: str, member: str, path: set[ObjectRelation]) -> bool:
        if member == user or (member.endswith(":*") and "#" not in user and user.startswith(member[:-1])):
            return True
        object, hash, relation = member.partition("#")
        return bool(hash) and self._check(user, (relation, object), path)


class WiderRelation(NamedTuple):
    """Relation that users have here and not in OpenFGA: how often, with the first user and object.

    `before` is the version with the changed rule, if no model is given. `is_unknown`: the model lacks the relation.
    """

    type: str
    relation: str
    times: int
    user: str
    object: str
    before: str = ""
    is_unknown: bool = False


class FgaAccessQuestion(NamedTuple):
    """Question about a user, with the same question to this service."""

    user: str
    relation: str
    object: str
    access: EffectiveAccess
    reference: str

    def is_granted(self, relation: str) -> bool:
        """Tell whether this service grants a relation or an action to the user."""
        return self.access.relations_on(read_key(self.reference, ())).witness(relation) is not None


_OLDER: Final[Sequence[tuple[tuple[int, int], Mapping[tuple[str, str], Sequence[str]]]]] = (
    (
        (4, 13),
        dict.fromkeys(
            (("warehouse", "can_accept_moved_namespace"), ("namespace", "can_accept_moved_namespace")),
            ("manage_grants", "create"),
        ),
    ),
    (
        (4, 7),
        {("project", "can_grant_data_admin"): ("data_admin",), ("role", "can_read_assignments"): ("grant_assignee",)},
    ),
)
"""Version of the model -> relations for which older models need all named relations of the type."""
_VERSION: Final = re.compile(r"model_version:(?:.*?-)?(?P<major>\d+)(?:\.(?P<minor>\d+))?")


def wider_relations(world: FgaWorld, facts: Facts, export: FgaExport) -> Iterator[WiderRelation]:
    """Yield the relations of users and roles of the export beyond OpenFGA's answers.

    Every user is asked about every object, but only for relations with a rule that is wider here.
    """
    if export.model:
        checker = FgaChecker(export.model, export.tuples)
        suspects = _wider_rules(export.model)
        permits: Permits = lambda one: checker.check(one.user, one.relation, one.object)  # noqa: E731
    else:
        older = _older_rules(export.tuples)
        suspects = frozenset(older)
        permits = lambda one: all(map(one.is_granted, older[type_of(one.object), one.relation]))  # noqa: E731
    found: dict[tuple[str, str], list[FgaAccessQuestion]] = {}
    for one in _questions(world, facts, export.tuples, suspects):
        if one.is_granted(one.relation.removeprefix(CAN)) and not permits(one):
            found.setdefault((type_of(one.object), one.relation), []).append(one)
    for (type, relation), questions in sorted(found.items()):
        before = "" if export.model else _changed_in(type, relation)
        is_unknown = bool(export.model) and relation not in export.model.get(type, {})
        yield WiderRelation(type, relation, len(questions), questions[0].user, questions[0].object, before, is_unknown)


Permits: TypeAlias = Callable[[FgaAccessQuestion], bool]
Suspects: TypeAlias = frozenset[tuple[str, str]]
"""Types in OpenFGA with relations."""


def _questions(
    world: FgaWorld, facts: Facts, tuples: Sequence[FgaTuple], suspects: Suspects
) -> Iterator[FgaAccessQuestion]:
    objects = [(object, reference) for object in world.objects.known if (reference := world.objects.reference(object))]
    asked = [(*one, relation) for one in objects for type, relation in sorted(suspects) if type == type_of(one[0])]
    for user in sorted({one.user for one in tuples} | {STRANGER}) if asked else ():
        principal = world.principal(user)
        if principal is not None:
            access = EffectiveAccess(facts, parse_principal(principal), {})
            for object, reference, relation in asked:
                yield FgaAccessQuestion(user, relation, object, access, reference)


def _older_rules(tuples: Iterable[FgaTuple]) -> Mapping[tuple[str, str], Sequence[str]]:
    """Return the narrower rules of the version among the tuples; without a version, of all versions."""
    named = [match for one in tuples if (match := _VERSION.fullmatch(one.object))]
    version = max(((int(match["major"]), int(match["minor"] or 0)) for match in named), default=(0, 0))
    return {key: needed for since, rules in _OLDER if version < since for key, needed in rules.items()}


def _changed_in(type: str, relation: str) -> str:
    return next(f"{since[0]}.{since[1]}" for since, rules in _OLDER if (type, relation) in rules)


def _wider_rules(model: FgaModel) -> Suspects:
    """Return the relations with a wider rule here than in a model, found on a probe.

    The probe has one object of each type, and for each privilege a user with it, alone and beside `pass_grants`, with
    and without managed access above. A role has every privilege, and for each privilege on the role a user with it.
    """
    found = set()
    for managed in ("", "warehouse:o", "namespace:o"):
        tuples = [
            *_probe(model),
            *(FgaTuple(f"{who}:*", "managed_access", managed) for who in ("user", "role") if managed),
        ]
        world, checker = FgaWorld(Migration(), tuples, {}, "oidc"), FgaChecker(model, tuples)
        all_relations = {(type, relation) for type in TYPES if type in model for relation in _can(type)}
        for one in _questions(world, parse_world(world.data()), tuples, frozenset(all_relations)):
            key = type_of(one.object), one.relation
            granted = key not in found and one.is_granted(one.relation.removeprefix(CAN))
            if granted and not checker.check(one.user, one.relation, one.object):
                found.add(key)
    return frozenset(found)


def _can(type: str) -> frozenset[str]:
    return frozenset(f"{CAN}{action}" for action in ACTIONS[TYPES[type]])


def _probe(model: FgaModel) -> Iterator[FgaTuple]:
    """Yield the tuples of a tree with one object of each type of a model, and of users with one privilege each."""
    for type in (one for one in TYPES if one in model):
        for parent in sorted(parent_types(type) & model.keys())[-1:]:
            yield FgaTuple(f"{parent}:o", UP[type], f"{type}:o")
            listing = next((name for of, name in DOWN if of == parent and name in (type, "child")), "")
            if listing:
                yield FgaTuple(f"{type}:o", listing, f"{parent}:o")
        direct = {name: _direct_users(rule) for name, rule in model[type].items() if name in STORED[TYPES[type]]}
        privileges = [name for name, users in direct.items() if "user" in users]
        yield from (FgaTuple("role:m#assignee", name, f"{type}:o") for name, users in direct.items()
                    if "role#assignee" in users)  # fmt: skip
        for name in privileges:
            users = [f"user:oidc~{type}-{name}", f"user:oidc~{type}-{name}-passing"]
            for user in users:
                yield FgaTuple(user, name, f"{type}:o")
            if "pass_grants" in privileges:
                yield FgaTuple(users[1], "pass_grants", f"{type}:o")
            if type == "role":
                yield FgaTuple(f"user:oidc~m-{name}", name, "role:m")


def _direct_users(rule: FgaRule) -> frozenset[str]:
    """Return the forms of users that tuples of a relation with this rule may have."""
    match rule:
        case Direct(users):
            return users
        case AnyRule(rules) | AllRules(rules):
            return frozenset().union(*map(_direct_users, rules))
        case ButNot(base, subtracted):
            return _direct_users(base) | _direct_users(subtracted)
    return frozenset()
