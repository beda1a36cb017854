"""Plans of a whole batch, within bounds on what plans and traces may cost, and a cache of plans.

Most checks of a running service differ only in the path of the resource. Their plans differ only in the resources of
the leaves, so one plan serves them all under the same policies and facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Final, TypeAlias

from msgspec.structs import replace

from pdp.decision.acting_roles import context_of, has_other_spellings, plan
from pdp.decision.active_policies import ActivePolicies
from pdp.decision.plan import AllOf, AnyOf, FixedDenial, Leaf, Node, Planners, leaves_of
from pdp.decision.prepared_plan import PreparedPlan, prepare_plan
from pdp.decision.turns import Resumable, TurnClock
from pdp.errors import TooManyChecks
from pdp.facts.snapshot import Facts
from pdp.model.arrays import PathArray
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import Batch, Check, Question, Resource, has_missing_argument
from pdp.model.vocabulary import NAMING_ACTIONS, RENAMES

_MAX_PLANS: Final = 4096
_LONGEST_KEY: Final = 1024
"""Plans that are remembered, and characters of the texts of a remembered question."""
_Key: TypeAlias = tuple[Question, str, str, str | None]


class PlanTemplate:
    """Plan that is remembered. Its leaves have no resources: they ask about those of the check."""

    __slots__ = ("is_known", "node", "prepared")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.is_known = False
        """The plan has been asked for again, so that it pays to prepare the plan."""
        self.prepared: PreparedPlan | None = None


class PlanCache:
    """Plans under one bundle and one snapshot of the facts.

    A plan is remembered if all its leaves ask about the very resources of the check. A plan that looks at names, such
    as one with a split, makes new lists of resources, and is made anew for each check. The exception are names with a
    special meaning to a planner: `Planners.own_names` finds these before the memory is asked, and gives objects that
    are named in another way their own names.
    """

    def __init__(self, planners: Planners, bundle: ActivePolicies, facts: Facts, *, stale: bool) -> None:
        self._planners = planners
        self._bundle = bundle
        self._facts = facts
        self._stale = stale
        self._plans: BoundedCache[_Key, PlanTemplate] = BoundedCache(_MAX_PLANS, _LONGEST_KEY)

    def plan(self, check: Check) -> Node:
        """Return the plan of a check."""
        asked, key = self._key(check)
        known = self._plans.get(key) if key else None
        return self._keep(key, asked) if known is None else _with_resources(known.node, asked.resources)

    def template(self, check: Check) -> tuple[PlanTemplate, Check]:
        """Return the plan of a check, prepared from the second use on, and the check under the objects' own names.

        Leaves without resources ask about those of the returned check.
        """
        asked, key = self._key(check)
        known = self._plans.get(key) if key is not None else None
        if known is None:
            return PlanTemplate(self._keep(key, asked)), asked
        if not known.is_known:
            known.is_known = True
            # Nothing permits by stale facts, and plans under them are not used again.
            known.prepared = (
                None if self._stale else prepare_plan(known.node, check.question.action, self._bundle, self._facts)
            )
        return known, asked

    def _key(self, check: Check) -> tuple[Check, _Key | None]:
        """Return the check under own names and the key of a remembered plan; no key if the plan may depend on names."""
        resources, question = check.resources, check.question
        if type(resources) is PathArray:
            if question.action in NAMING_ACTIONS:  # a path array has no arguments
                return check, None
            some: PathArray | Resource = resources
        else:
            if len(resources) != 1:
                return check, None
            some = resources[0]
            if some.arguments.destination is not None or not some.path:
                return check, None
            if question.action in NAMING_ACTIONS and has_missing_argument(some.type, question.action, some):
                return check, None
        if question.view_security is not None or question.rules_follow or question.session is not None:
            return check, None
        if question.unfiltered and self._bundle.has_row_policies(self._facts):  # those of each name count
            return check, None
        if self._bundle.spelled.may_spell and has_other_spellings(check, self._bundle):
            return check, None
        asked = self._planners.own_names(check, self._bundle, self._facts)
        # INVARIANT: plans of one key differ in the names of resources alone. So the whole question is in the key.
        return (check, None) if asked is None else (asked, (question, some.type, some.warehouse, some.ref))

    def _keep(self, key: _Key | None, check: Check) -> Node:
        """Return a new plan; remember the plan if it has a key and asks about the resources of the check alone."""
        node = self._make(check)
        if key and _asks_about(node, check.resources):
            self._plans.keep(key, PlanTemplate(_with_resources(node, ())), _length(check))
        return node

    def _make(self, check: Check) -> Node:
        context = context_of(check, self._bundle, self._facts, stale=self._stale)
        return plan(check, context, self._planners.checks)


def _asks_about(node: Node, resources: Sequence[Resource]) -> bool:
    """Tell whether every leaf of a tree asks an engine about these very resources."""
    if isinstance(node, Leaf):
        return node.resources is resources
    return isinstance(node, AllOf | AnyOf) and all(_asks_about(part, resources) for part in node.parts)


def _with_resources(node: Node, resources: Sequence[Resource]) -> Node:
    """Return the same tree about other resources."""
    if type(node) is Leaf:
        return Leaf(node.group, resources, node.override, node.restrictions)
    parts = tuple([_with_resources(part, resources) for part in node.parts])  # type: ignore[union-attr]
    return replace(node, parts=parts)


def _length(check: Check) -> int:
    """Return the number of characters of the texts of a question."""
    first = check.resources[0]
    return check.question.length() + sum(len(text) for text in (first.type, first.warehouse, first.ref) if text)


MAX_LEAVES: Final = 50_000
"""Concrete checks in the plans of one batch. One operation on a schema has one for each object below."""
MAX_TRACED_PARTS: Final = 20_000
MAX_TRACED_CHARACTERS: Final = 1_000_000
"""Parts of names, and characters of all objects in the traces, in all concrete checks that one request explains."""
_PART: Final = 1000
_COLUMN_PART: Final = 10_000
"""Resources of a check that are planned and folded at once: with a look at each, and in a column of few containers."""
_FEW_NAMESPACES: Final = 10
"""The same for namespaces that move or end with all below."""
_ALONG: Final = frozenset({"delete", *RENAMES})
_CHARACTERS: Final = 1 << 18
"""Characters of the names of these resources, unless one name has more."""
Plans: TypeAlias = tuple[list[Node], list[Leaf | FixedDenial]]
"""Trees of checks, and all leaves of them."""


def in_parts(batch: Batch) -> Resumable[Batch]:
    """Return the batch with each long check as several checks, so that no plan and no fold takes long.

    Parts of short names are of equal size: no rule takes a short rest for a short question.
    """
    parts: list[Check] = []
    pace = TurnClock()
    for check in batch.checks:
        for part in _parts(check):
            parts.append(part)
            if pace.is_over():
                yield
                pace.begin()
    return replace(batch, checks=tuple(parts))


def plan_checks(checks: Sequence[Check], plans: PlanCache) -> Resumable[Plans]:
    """Return the plans of checks; raise TooManyChecks for plans with too many leaves."""
    trees: list[Node] = []
    found: list[Leaf | FixedDenial] = []
    pace = TurnClock()
    for check in checks:
        tree = plans.plan(check)
        trees.append(tree)
        found += leaves_of(tree)
        if len(found) > MAX_LEAVES:
            raise TooManyChecks(
                f"the checks of one request lead to more than {MAX_LEAVES} concrete checks: ask in several requests"
            )
        if pace.is_over():
            yield
            pace.begin()
    return trees, found


def bound_traces(leaves: Sequence[Leaf | FixedDenial]) -> None:
    """Raise TooManyChecks if traces of all leaves would take too long."""
    parts = characters = 0
    for resource in chain.from_iterable(leaf.resources for leaf in leaves):
        levels = _parts_of_name(resource)
        parts += levels
        # a trace shows each object above by its whole path
        characters += levels * (levels + len(resource.warehouse) + sum(map(len, resource.path)))
        if parts > MAX_TRACED_PARTS or characters > MAX_TRACED_CHARACTERS:
            raise TooManyChecks(
                f"`explain` is about more than {MAX_TRACED_PARTS} parts of names, or {MAX_TRACED_CHARACTERS} "
                "characters of objects and all above them: explain fewer checks in one request"
            )


def _parts(check: Check) -> Iterator[Check]:
    resources = check.resources
    size = len(resources)
    count = -(-size // _most(check))
    if count == 1 and size > 1 and _characters(resources) > _CHARACTERS:
        count = 2
    if count <= 1:
        yield check
        return
    for start, end in pairwise([size * number // count for number in range(count + 1)]):
        yield from _parts(replace(check, resources=resources[start:end], at=check.at[start:end]))


def _characters(resources: Sequence[Resource]) -> int:
    """Return the number of characters of all names."""
    if type(resources) is PathArray:
        above = [sum(map(len, parent)) for parent in resources.parents]
        return sum(map(len, resources.names)) + sum(map(above.__getitem__, resources.parent_at))
    return sum([len(part) for resource in resources for part in resource.path])


def takes_along(check: Check) -> bool:
    """Tell whether a check is about many namespaces with all below. Plans have checks of each object below."""
    resources = check.resources
    if check.question.action not in _ALONG or len(resources) <= _FEW_NAMESPACES:
        return False
    return (resources if type(resources) is PathArray else resources[0]).type == "namespace"


def _most(check: Check) -> int:
    """Return how many resources are planned at once. Plans look at each container, and at each namespace."""
    resources = check.resources
    if takes_along(check):
        return _FEW_NAMESPACES
    if type(resources) is not PathArray or resources.type == "namespace" or len(resources.parents) > _PART:
        return _PART
    return _COLUMN_PART


def _parts_of_name(resource: Resource) -> int:
    return len(resource.path) + 1
