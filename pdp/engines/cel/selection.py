"""Which rules of a set a check can concern: shelves by op, on each an index by role, listed role and ref.

A group's residues come from the candidates its values select; what depends on nothing but the path is shared by all
groups, and so built once however many principals ask.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pdp.engines.cel.conditions import Condition
from pdp.engines.cel.residue import Candidate, Residue
from pdp.engines.cel.rules import Rule
from pdp.engines.cel.tables import NEVER, merged

KEPT: Final = 4096
"""Residues of groups that are kept, least recently used first out."""
LONGEST_KEPT: Final = 1024
"""Characters of the values of a group whose residue is kept."""
_KEPT_SHARED: Final = 256
_FEW_SHARED: Final = 64
"""Up to so many shared rules, one residue for a group is quicker than two."""
_SHARED: Final = frozenset({"op", "path", "contentType", "type"})
_INDEXED: Final = (("role", "equals"), ("roles", "holds"), ("ref", "equals"))


class CheckValues(NamedTuple):
    """All that a rule may look at but the path; hashable."""

    op: str
    role: str
    roles: tuple[str, ...]
    ref: str
    content_type: str
    type: str
    api: tuple[str, int]
    actions: tuple[str, ...]
    delegated: bool
    warehouse: str

    def arguments(self) -> tuple[Any, ...]:
        """The arguments of a rule, with a hole where the path goes."""
        api = {"apiName": self.api[0], "apiVersion": self.api[1]}
        return (
            self.op, self.role, self.roles, self.ref, "", self.content_type, self.type, api, self.actions,
            self.delegated, self.warehouse,
        )  # fmt: skip

    def size(self) -> int:
        """The characters of all values together."""
        texts = (
            self.role,
            *self.roles,
            self.ref,
            self.content_type,
            self.type,
            self.api[0],
            *self.actions,
            self.warehouse,
        )
        return sum(map(len, texts))

    def values(self) -> dict[str, Any]:
        """The values of the variables that conditions are about."""
        return {
            "op": self.op, "role": self.role, "roles": self.roles, "ref": self.ref, "contentType": self.content_type,
            "type": self.type, "actions": self.actions, "warehouse": self.warehouse,
        }  # fmt: skip


class ResidueSet:
    """The residues for one `CheckValues`: the smallest rank that is true for a path, and what raises where none is."""

    __slots__ = ("_residues", "fixed", "may_raise")

    def __init__(self, residues: Sequence[Residue]) -> None:
        self._residues = tuple(residue for residue in residues if not residue.empty)
        self.fixed = all(residue.fixed for residue in self._residues)
        self.may_raise = any(residue.may_raise for residue in self._residues)

    def ranks(self, paths: Sequence[str]) -> list[int]:
        """For each path the smallest rank of a rule that is true, or NEVER."""
        columns = [residue.ranks(paths) for residue in self._residues]
        if not columns:
            return [NEVER] * len(paths)
        return columns[0] if len(columns) == 1 else list(map(min, *columns))

    def ranks_in(self, folder: str, names: Sequence[str]) -> list[int]:
        """The same for the paths that begin with `folder` and end in names."""
        tables = [residue.tables_in(folder) for residue in self._residues]
        known = [table for table in tables if table is not None]
        if len(known) < len(tables):
            return self.ranks([folder + name for name in names])
        return merged(known).ranks(names)

    def raised(self, path: str) -> list[int]:
        """The ranks of the rules that raise for a path that none is true for."""
        return sorted(rank for residue in self._residues for rank in residue.raised(path))


class Selector:
    """The rules of one set, ready to be asked; bounded in what it remembers."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._shelves: dict[str, _OperationRules] = {}
        self._judges: OrderedDict[CheckValues, ResidueSet] = OrderedDict()
        self._tells_types_apart = any(rule.program.variables & {"contentType", "type"} for rule in rules)

    def judge(self, known: CheckValues) -> ResidueSet:
        """The judge for these values; the same one for all that no rule tells apart."""
        if not self._tells_types_apart:
            known = known._replace(content_type="", type="")
        found = self._judges.get(known)
        if found is None:
            found = self._make(known)
            if known.size() > LONGEST_KEPT:
                return found
            self._judges[known] = found
            if len(self._judges) > KEPT:
                self._judges.popitem(last=False)
        else:
            self._judges.move_to_end(known)
        return found

    def _make(self, known: CheckValues) -> ResidueSet:
        shelf = self._shelves.get(known.op)
        if shelf is None:
            shelf = self._shelves[known.op] = _OperationRules(self._rules, known.op)
        candidates = shelf.candidates(known)
        if len(shelf.shared_rules) <= _FEW_SHARED:
            merged = sorted([*candidates, *shelf.shared_rules], key=lambda candidate: candidate.rank)
            return ResidueSet((Residue(merged, known.values(), known.arguments()),))
        return ResidueSet((shelf.shared(known), Residue(candidates, known.values(), known.arguments())))


class _OperationRules:
    """The rules that an op can concern."""

    def __init__(self, rules: Sequence[Rule], op: str) -> None:
        self.shared_rules: list[Candidate] = []
        self._indexes: dict[str, dict[str, list[Candidate]]] = {variable: {} for variable, _ in _INDEXED}
        self._loose: list[Candidate] = []
        self._shared: dict[tuple[str, str], Residue] = {}
        for rank, rule in enumerate(rules):
            program = rule.program
            if all(condition.met(op) for condition in program.needs.conditions if condition.variable == "op"):
                candidate = Candidate(rank, program.needs, "path" in program.variables, program.evaluate)
                self._place(candidate, program.variables)

    def shared(self, known: CheckValues) -> Residue:
        """The residue of the rules that look at nothing a group brings along."""
        key = (known.content_type, known.type)
        found = self._shared.get(key)
        if found is None:
            found = Residue(self.shared_rules, known.values(), known.arguments())
            if known.size() > LONGEST_KEPT:
                return found
            if len(self._shared) >= _KEPT_SHARED:
                self._shared.clear()
            self._shared[key] = found
        return found

    def candidates(self, known: CheckValues) -> list[Candidate]:
        """The other rules that these values select, by rank."""
        found = [*self._loose, *self._indexes["role"].get(known.role, ()), *self._indexes["ref"].get(known.ref, ())]
        for role in set(known.roles):
            found += self._indexes["roles"].get(role, ())
        return sorted({candidate.rank: candidate for candidate in found}.values(), key=lambda found: found.rank)

    def _place(self, candidate: Candidate, variables: frozenset[str]) -> None:
        if variables <= _SHARED:
            self.shared_rules.append(candidate)
            return
        for variable, kind in _INDEXED:
            condition = _find(candidate, variable, kind)
            if condition is not None:
                for text in condition.texts:
                    self._indexes[variable].setdefault(text, []).append(candidate)
                return
        self._loose.append(candidate)


def _find(candidate: Candidate, variable: str, kind: str) -> Condition | None:
    conditions = candidate.needs.conditions
    return next((found for found in conditions if found.variable == variable and found.kind == kind), None)
