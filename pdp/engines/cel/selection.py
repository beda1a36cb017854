"""Selection of the rules that a check can concern: by op, then by role, listed role, group or ref.

Owns the values that a principal gives to rules, by which they are selected.

A rule is indexed by a necessary condition. Where this condition does not hold, the rule is false and raises
nothing, so leaving the rule out changes no answer and no error. The residue tests the other conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from pdp.engines.cel.conditions import EVERY_ROLE, Condition
from pdp.engines.cel.program import CONTENT, PATH
from pdp.engines.cel.residue import Candidate, CheckValues, Residue, ResidueSet, unread_fields
from pdp.engines.cel.rules import Rule
from pdp.engines.engine import EngineQuestion
from pdp.model.bounded_cache import BoundedCache
from pdp.model.references import policy_name


class SeenValues(NamedTuple):
    """Roles that rules see beside those of a token or request: mapped ones, and stored ones of types of principals.

    `forbids`: the rules forbid, and see all that an action implies.
    """

    mapped: bool = True
    stored: frozenset[str] = frozenset()
    forbids: bool = False


TOKEN_ROLES: Final = SeenValues()
"""Roles of tokens and requests, and of the role map."""


class Subject(NamedTuple):
    """Values of the variables that a principal gives: the user's name, and what the token says.

    `roles` are those of token, request and role map; stored ones, too, if the configuration says so. `every_role` are
    the roles by any evidence.
    """

    role: str
    roles: tuple[str, ...]
    groups: tuple[str, ...]
    attributes: str
    unknown: tuple[str, ...]
    every_role: tuple[str, ...]


def subject_of(group: EngineQuestion, provider: str, seen: SeenValues) -> Subject:
    """Return what rules see of a principal. A role, as principal or acting, has only itself among `roles`."""
    principal, stored, acting = group.principal, group.stored_roles, group.question.acting_role
    is_role = principal.type == "role"
    roles, unknown = principal.roles, principal.unknown
    if is_role:
        roles = (principal.name,)
    elif acting is not None:
        roles = (acting,)
        unknown = tuple(name for name in unknown if name not in ("roles", "member_of"))
    elif seen.mapped:
        roles = _joined(roles, principal.member_of)
    every_role = _joined(_joined(roles, stored or ()), group.person_roles)
    if stored is None or "roles" in unknown:
        unknown = (*unknown, EVERY_ROLE)
    if ("role" if acting is not None else principal.type) in seen.stored:
        roles = _joined(roles, stored or ())
        unknown = (*unknown, "roles") if stored is None else unknown
    if is_role:
        return Subject("", roles, (), "{}", unknown, every_role)
    name = policy_name(principal, provider)
    return Subject(name, roles, principal.groups, principal.attributes, unknown, every_role)


def _joined(roles: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """Return roles as they are, and behind them those of `others` that are new."""
    if not others or others == roles:
        return roles
    known = {*roles}
    return (*roles, *[role for role in others if role not in known])


T = TypeVar("T")
MAX_RESIDUE_SETS: Final = 4096
"""Residue sets that a selector remembers."""
MAX_VALUES_LENGTH: Final = 1024
"""Characters of the values up to which a residue is remembered."""
_MAX_SHARED_RESIDUES: Final = 256
_FEW_SHARED_RULES: Final = 64
"""Up to this many shared rules, one residue of all rules is quicker than two."""
_SHARED_VARIABLES: Final = frozenset({"op", "path", "contentType", "type"})
_UNSAID: Final = (PATH, CONTENT)
"""Shared variables that may lack a value."""
_INDEXED: Final = (
    ("role", "equals"), ("roles", "holds"), (EVERY_ROLE, "holds"), ("groups", "holds"), ("ref", "equals"),
)  # fmt: skip


class Selector:
    """The rules of a set, to be selected by the values of a check. Residues are made on first use and remembered."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._by_op: dict[str, _OperationRules] = {}
        self._residue_sets = BoundedCache[CheckValues, ResidueSet](MAX_RESIDUE_SETS, MAX_VALUES_LENGTH)
        variables = frozenset[str]().union(*{rule.program.variables for rule in rules})
        self._unread = unread_fields(variables)
        self.uses_properties = "properties" in variables
        self.uses_arguments = "arguments" in variables
        self.uses_time = "now" in variables
        self.uses_path = PATH in variables
        self.counts_roles = EVERY_ROLE in variables
        self.reads_roles = "roles" in variables
        self.variables = variables

    def residues(self, values: CheckValues) -> ResidueSet:
        """Return the residues for these values. Values that no rule tells apart have the identical set."""
        if self._unread:
            values = values._replace(**self._unread)
        if values.unknown:
            values = values._replace(unknown=tuple(n for n in values.unknown if n.partition(".")[0] in self.variables))
        residues = self._residue_sets.get(values)
        if residues is None:
            return self._residue_sets.keep(values, self._build(values), values.length())
        self._residue_sets.move_to_end(values)  # so that the least recently used goes first, not the oldest
        return residues

    def prepare_for(self, other: Selector) -> None:
        """Index the rules for all ops that another selector was asked about, so that no check waits for that."""
        for op in tuple(other._by_op):
            if op not in self._by_op:
                self._by_op[op] = _OperationRules(self._rules, op)

    def _build(self, values: CheckValues) -> ResidueSet:
        rules = self._by_op.get(values.op)
        if rules is None:
            rules = self._by_op[values.op] = _OperationRules(self._rules, values.op)
        candidates = rules.candidates(values)
        if len(rules.shared) <= _FEW_SHARED_RULES:
            together = sorted([*candidates, *rules.shared], key=lambda candidate: candidate.rank)
            return ResidueSet((Residue(together, values),))
        return ResidueSet((rules.shared_residue(values), Residue(candidates, values)))


class _OperationRules:
    """The rules that an op can concern.

    `shared` rules use _SHARED_VARIABLES only. Their residue is the same for all principals and refs, so a residue per
    content type and type serves all groups. The other rules are indexed by their first condition of _INDEXED.
    """

    def __init__(self, rules: Sequence[Rule], op: str) -> None:
        self.shared: list[Candidate] = []
        self._shared_residues = BoundedCache[tuple[str, ...], Residue](_MAX_SHARED_RESIDUES, MAX_VALUES_LENGTH)
        self._indexes: dict[str, dict[str, list[Candidate]]] = {variable: {} for variable, _ in _INDEXED}
        self._unindexed: list[Candidate] = []
        for rank, rule in enumerate(rules):
            program = rule.program
            conditions = program.requirements.conditions
            if all(condition.is_met_by(op) for condition in conditions if condition.variable == "op"):
                self._add(Candidate(rank, program), program.variables)

    def shared_residue(self, values: CheckValues) -> Residue:
        """Return the residue of the shared rules."""
        # INVARIANT: shared rules read nothing but the op, the path, and these two values.
        key = (values.content_type, values.type, *[name for name in _UNSAID if name in values.unknown])
        residue = self._shared_residues.get(key)
        if residue is None:
            # The residue refers to all values, also to those that its rules do not use: so all of them count.
            return self._shared_residues.keep(key, Residue(self.shared, values), values.length())
        return residue

    def candidates(self, values: CheckValues) -> list[Candidate]:
        """Return the other rules that these values select, by rank."""
        selected = [
            *self._unindexed,
            *self._indexes["role"].get(values.role, ()),
            *self._indexes["ref"].get(values.ref, ()),
        ]
        lists = ("roles", values.roles), (EVERY_ROLE, values.every_role), ("groups", values.groups)
        for variable, texts in lists:
            index = self._indexes[variable]
            for text in index if variable in values.unknown else set(texts) if index else ():
                selected += index.get(text, ())
        # A rule that needs one of several listed roles or groups is found once for each.
        unique = {candidate.rank: candidate for candidate in selected}
        return [unique[rank] for rank in sorted(unique)]

    def _add(self, candidate: Candidate, variables: frozenset[str]) -> None:
        if variables <= _SHARED_VARIABLES:
            self.shared.append(candidate)
            return
        for variable, kind in _INDEXED:
            condition = _condition(candidate, variable, kind)
            if condition is not None:
                for text in condition.texts:
                    self._indexes[variable].setdefault(text, []).append(candidate)
                return
        self._unindexed.append(candidate)


def _condition(candidate: Candidate, variable: str, kind: str) -> Condition | None:
    conditions = candidate.requirements.conditions
    return next((found for found in conditions if found.variable == variable and found.kind == kind), None)


_EXACT: Final = frozenset({"equals", "holds"})
"""Kinds of conditions that name every text that can meet them."""
_PREFERENCE: Final = ("path", "role", "roles", "groups", "ref", "contentType", "type", "warehouse", "op")
"""Variables by how well their conditions tell rules apart. An item is indexed by the first with a condition."""

Texts: TypeAlias = Mapping[str, Collection[str]]
"""The possible values of each variable, by name. A variable that is missing may have any value."""


class ConditionIndex(Generic[T]):
    """Items with their necessary conditions, in the order of their addition."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._numbers: dict[str, dict[str, list[int]]] = {}
        self._unindexed: list[int] = []

    def add(self, item: T, conditions: Sequence[Condition]) -> None:
        """Add an item. Callers need the item only if all `conditions` hold."""
        exact = {condition.variable: condition.texts for condition in conditions if condition.kind in _EXACT}
        variable = next((name for name in _PREFERENCE if name in exact), "")
        number = len(self._items)
        self._items.append(item)
        for text in exact.get(variable, ()):
            self._numbers.setdefault(variable, {}).setdefault(text, []).append(number)
        if not variable:
            self._unindexed.append(number)

    def find(self, texts: Texts) -> list[T]:
        """Return all items whose conditions can hold for `texts`, and maybe others, in the order of addition.

        A single condition per item is enough: an item is left out only if this condition holds for none of the values.
        """
        numbers = set(self._unindexed)
        for variable, by_text in self._numbers.items():
            for text in texts.get(variable, by_text):
                numbers.update(by_text.get(text, ()))
        return [self._items[number] for number in sorted(numbers)]


def texts_of(values: Mapping[str, Any]) -> Texts:
    """Return the text of each string variable as the only possible value, and all texts of each list variable."""
    known = ((name, values[name]) for name in _PREFERENCE if name in values)
    return {name: (value,) if isinstance(value, str) else value for name, value in known}
