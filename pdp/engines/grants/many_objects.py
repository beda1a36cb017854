"""Decision of many objects: one answer for each container, and the few objects with grants of their own again.

Costs a look-up for each container, and for each object little more than its place in the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Final, NamedTuple

from pdp.engines.engine import ABSTAIN, PERMIT, Verdicts
from pdp.engines.grants.edits import RelationQuestion
from pdp.engines.grants.effective_access import EffectiveAccess, grant_reason_around
from pdp.engines.grants.principal_grants import NO_NAMES, ContainerAccess, GranteeNodes, OwnNames
from pdp.engines.grants.rules import PRECEDENCE, evaluate
from pdp.facts.objects import ContainerPath
from pdp.model.answer import Reason
from pdp.model.arrays import Path, PathArray
from pdp.model.question import Resource
from pdp.model.references import encode_part

_PLACES_IN_A_BYTE: Final = 256


def decide_column(access: EffectiveAccess, question: RelationQuestion, column: PathArray) -> Verdicts:
    """Decide objects of one type in containers of one warehouse."""
    at, parents = column.parent_at, column.parents
    by_place, own_names = access.answers(question, column.warehouse, parents)
    first = by_place[0] if by_place else None
    if by_place.count(first) == len(by_place):
        by = [first] * len(at)
        effects = bytearray([ABSTAIN if first is None else PERMIT]) * len(at)
    else:
        by = list(map(by_place.__getitem__, at))
        effects = _spread([ABSTAIN if reason is None else PERMIT for reason in by_place], at)
    uneven = UnevenContainers(access, question)
    places: dict[int, int] = {}
    # INVARIANT: a row that `_own_rows` leaves out has the answer of its container.
    for row in _own_rows(access, question, column, own_names):
        place = at[row]
        if place not in places:
            places[place] = uneven.add((column.warehouse, *parents[place]))[2]
        by[row] = reason = uneven.reason(places[place], column.names[row])
        effects[row] = ABSTAIN if reason is None else PERMIT
    return Verdicts(bytes(effects), by)


def decide_tables(access: EffectiveAccess, question: RelationQuestion, tables: Sequence[Resource]) -> Verdicts:
    """Decide tabular objects of one type in one warehouse.

    A single pass: a second pass over new objects costs more than its steps.
    """
    warehouse, type = tables[0].warehouse, question.type
    uneven = UnevenContainers(access, question)
    answers: dict[Path, tuple[tuple[GranteeNodes, ...], Reason | None, int]] = {}
    by: list[Reason | None] = []
    for table in tables:
        path = table.path
        above = path[:-1]
        answer = answers.get(above)
        if answer is None:
            answer = answers[above] = uneven.add((warehouse, *above))
        nodes, reason, place = answer
        if nodes:
            key = (type, path[-1])
            for _, names in nodes:
                if key in names:
                    reason = uneven.reason(place, path[-1], table.id)
                    break
        by.append(reason)
    return Verdicts(bytes([ABSTAIN if reason is None else PERMIT for reason in by]), by)


def _spread(by_place: Sequence[int], at: Sequence[int]) -> bytearray:
    """Return the value of each row from the value at its place. Values fit into a byte."""
    if len(by_place) > _PLACES_IN_A_BYTE:
        return bytearray(map(by_place.__getitem__, at))
    return bytearray(at).translate(bytes(by_place).ljust(_PLACES_IN_A_BYTE, b"\0"))


def _own_rows(
    access: EffectiveAccess, question: RelationQuestion, column: PathArray, uneven: Mapping[Path, OwnNames]
) -> Iterable[int]:
    """Return the rows that may have another reason than their container."""
    at, names, rows = column.parent_at, column.names, range(len(column.names))
    # Of the objects in a container, namespaces alone have a circumstance of their own.
    if question.type == "namespace" and access.grants.has_managed:
        return rows
    if not uneven:
        return ()
    own = [uneven.get(above, NO_NAMES) for above in column.parents]
    if None in own:
        places = [names is None or bool(names) for names in own]
        return compress(rows, _spread(places, at))
    some = frozenset[str]().union(*filter(None, own))
    # Names first: mostly they exclude more rows than containers do.
    found = compress(rows, map(some.__contains__, names)) if some else ()
    return [row for row in found if names[row] in own[at[row]]]  # type: ignore[operator]


class ReasonTemplate(NamedTuple):
    """Reason of all objects with the same privileges of one grantee. An object's name goes before `end`, if any."""

    start: Reason | None
    end: str = ""


class UnevenContainers:
    """Containers of one question, by their places.

    Keeps a template of the reason for each set of privileges in a container. So a principal with a grant on each of a
    thousand tables costs little more than a look-up for each. Grants of several grantees on one object, and grants
    with an id, are left to `EffectiveAccess`.
    """

    __slots__ = ("_access", "_containers", "_paths", "_question", "_templates")

    def __init__(self, access: EffectiveAccess, question: RelationQuestion) -> None:
        self._access = access
        self._question = question
        self._paths: list[ContainerPath] = []
        self._containers: list[ContainerAccess] = []
        self._templates: dict[tuple[int, str, int], ReasonTemplate] = {}

    def add(self, path: ContainerPath) -> tuple[tuple[GranteeNodes, ...], Reason | None, int]:
        """Add a container; return its nodes, the reason that permits its objects without a node, and its place."""
        container = self._access.container(path)
        self._paths.append(path)
        self._containers.append(container)
        reason = self._access.default_reason(container, path, self._question)
        return container.nodes, reason, len(self._paths) - 1

    def reason(self, place: int, name: str, id: str = "") -> Reason | None:
        """Return the reason that permits the object of a name in a container; None for no permit."""
        type = self._question.type
        key = (type, name)
        container = self._containers[place]
        found = [(grantee, node) for grantee, nodes in container.nodes if (node := nodes.get(key)) is not None]
        if type == "namespace" or len(found) > 1 or (found and found[0][1].stored.ids):
            return self._access.reason_inside(self._question, (*self._paths[place], name), id)
        if not found:
            return self._access.default_reason(container, self._paths[place], self._question)
        # INVARIANT: one grantee, no ids. So the place, the grantee and the mask determine the reason but for the name.
        grantee, node = found[0]
        mask = node.stored.mask
        template = self._templates.get((place, grantee, mask))
        if template is None:
            template = self._templates[place, grantee, mask] = self._template(place, grantee, mask)
        start, end = template
        return f"{start}{encode_part(name)}{end}" if end else start

    def _template(self, place: int, grantee: str, mask: int) -> ReasonTemplate:
        type, path, access = self._question.type, self._paths[place], self._access
        relations = evaluate(type, access.grants.base_mask | mask, self._containers[place].relations, False)
        witness = relations.witness(self._question.relation)
        if witness is None:
            return ReasonTemplate(None)
        if witness.distance:
            return ReasonTemplate(access.reason((type, (*path, "")), "", witness))
        return ReasonTemplate(*grant_reason_around(type, path, PRECEDENCE[witness.rank], grantee))
