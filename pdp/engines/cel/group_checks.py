"""Checks of one question of an engine, the values of variables for each, and prepared answers for many resources.

A prepared question answers with fewer calls than the engine, because principal and action are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from pdp.engines.cel.path_tables import NEVER, PathTables, path_of, path_string
from pdp.engines.cel.program import CONTENT, DETAILS, NO_REF, PATH
from pdp.engines.cel.residue import NO_RULES, CheckValues, ResidueSet, json_text
from pdp.engines.cel.selection import SeenValues, Selector, subject_of
from pdp.engines.engine import SILENT, EngineQuestion, FixedAnswer, ResourceCall, Verdicts
from pdp.model.answer import Reason
from pdp.model.arrays import PathArray
from pdp.model.question import NO_ARGUMENTS, VERSIONED_TYPES, Arguments, Principal, Resource, is_missing
from pdp.model.references import policy_name
from pdp.model.trino_operations import OBJECT_KEYS, object_keys
from pdp.model.vocabulary import (
    ARGUMENTS,
    CEL_CHECKS,
    CONTENT_TYPE,
    VIEW_ONLY,
    NessieCheck,
    content_kind,
    forbid_checks,
    is_cluster_action,
    lacks_details,
    rule_checks,
)

_MAX_RESIDUES: Final = 8
_LONGEST_KIND: Final = 64
"""Residues that a group remembers, and characters of the kind of a remembered one. Few resources of a group differ in
more than the path."""

ResidueQuestion: TypeAlias = tuple[NessieCheck, ResidueSet]
"""A check with the residues for its values."""
_Kind: TypeAlias = tuple[str, str, str, str, str]
"""Values of `contentType`, `type`, `properties` and `arguments`, and the variable without a value for lack of an
argument or of a type of content: all that differs in a group, besides the path."""
_MADE: Final = ("new", "destination")
"""Paths of checks about what an action makes or moves."""


class GroupChecks:
    """The checks of a group. `lacks_ref`: a ref is needed, but neither the resource nor the warehouse has one.

    The selector has the residues for the values of a check. The residues of the group are remembered. `seen` tells
    which roles count among `roles`, and whether the rules are forbids.
    """

    def __init__(self, group: EngineQuestion, provider: str, selector: Selector, seen: SeenValues) -> None:
        sent = group.context.actions
        self.checks = (
            forbid_checks(group.type, group.action, sent, selector.variables)
            if seen.forbids
            else rule_checks(group.type, group.action)
        )
        self._is_cluster = is_cluster_action(group.action)
        key = (group.type, group.action)
        if seen.implicit and key in VIEW_ONLY:
            self.checks += (NessieCheck("READ_ENTRIES"),)
        self._names_argument = selector.uses_arguments and key not in CEL_CHECKS
        self._makes = ARGUMENTS.get(key) == "name"
        self._selector = selector
        self._questions: Sequence[ResidueQuestion] | None = None
        """The questions for resources without a type of content and properties of their own."""
        self._residues: dict[tuple[int, _Kind], ResidueSet] = {}
        is_versioned = group.type in VERSIONED_TYPES or group.type == "warehouse"
        self.lacks_ref = group.ref is None and is_versioned and not self._is_cluster
        self.argument = self._needed_argument(group)
        """The argument without which nobody knows a path that rules read; empty for none."""
        self.has_kinds = group.type == "repository_config" or self._names_argument
        """Each resource is of a kind of its own."""
        self._group = group
        self._provider = provider
        self._subject = subject_of(group, provider, seen)
        lacking = (DETAILS,) if seen.forbids and lacks_details(group.type, group.action, sent) else ()
        self.unknown = (*self._subject.unknown, *lacking, *(NO_REF if self.lacks_ref else ()))
        """Unknown evidence of the principal, what nobody knows of an update, and a missing ref."""
        self._may_be_any = seen.forbids and group.type == "content" and CONTENT in selector.variables
        """A resource that names no type of content may have any, and a forbid reads the type."""
        self.every_role = self._subject.every_role if selector.counts_roles else ()
        """Roles by any evidence, if a rule counts them."""

    def has_missing_argument(self, resource: Resource) -> bool:
        """Tell whether the argument is missing that the path of a check needs."""
        return bool(self.argument) and is_missing(self.argument, resource)

    def unknown_of(self, check: NessieCheck, resource: Resource) -> tuple[str, ...]:
        """Return the unknown variables of a check of a resource: evidence, and the unsaid of the resource."""
        unsaid = self._unsaid(check, resource)
        return (*self.unknown, unsaid) if unsaid else self.unknown

    def concerns(self, check: NessieCheck, resource: Resource) -> bool:
        """Tell whether a check is about the type of content of a resource. An unknown type may be any."""
        return check.kind in ("", content_kind(resource.content_type)) or not resource.content_type

    def length(self) -> int:
        """Count the characters of the group's texts."""
        group = self._group
        roles = sum(map(len, group.stored_roles or ())) + sum(map(len, group.person_roles))
        place = len(group.warehouse) + len(group.ref or "")
        return group.principal.length() + group.context.length() + roles + place

    def varies(self, check: NessieCheck) -> bool:
        """Tell whether the check differs from resource to resource."""
        return check.path != "none" or self.has_kinds or self._selector.uses_properties

    def questions(self, resource: Resource) -> Sequence[ResidueQuestion]:
        """Return all checks with their residues for a resource."""
        if self._has_own_kind(resource):
            return [(check, self.residues(number, resource)) for number, check in enumerate(self.checks)]
        return self.plain_questions()

    def plain_questions(self) -> Sequence[ResidueQuestion]:
        """Return the questions for resources without a type of content and properties of their own."""
        if self._questions is None:
            named = Arguments("any", Resource(self._group.type)) if self.argument else NO_ARGUMENTS
            plain = Resource(self._group.type, self._group.warehouse, arguments=named)
            self._questions = tuple((check, self.residues(at, plain)) for at, check in enumerate(self.checks))
        return self._questions

    def share_kind(self, resources: Sequence[Resource]) -> bool:
        """Tell whether resources differ in nothing but the path, for a check with a path."""
        if type(resources) is PathArray:  # a path array has no arguments
            return True
        first, *others = resources
        if self.argument and len({self.has_missing_argument(resource) for resource in resources}) > 1:
            return False
        if self._selector.uses_properties and any(resource.properties != first.properties for resource in others):
            return False
        return all(resource.content_type == first.content_type for resource in others)

    def residues(self, number: int, resource: Resource) -> ResidueSet:
        """Return the residues of the check with this number for a resource."""
        check = self.checks[number]
        # INVARIANT: in one group, the check and the kind determine all values but the path.
        kind = self._kind(check, resource)
        if not self.concerns(check, resource):
            return NO_RULES
        residues = self._residues.get((number, kind))
        if residues is None:
            residues = self._selector.residues(self._values(check, kind))
            if len(self._residues) < _MAX_RESIDUES and sum(map(len, kind)) <= _LONGEST_KIND:
                self._residues[number, kind] = residues
        return residues

    def values(self, check: NessieCheck, resource: Resource) -> CheckValues:
        """Return the values of all variables but `path` for a check of a resource."""
        return self._values(check, self._kind(check, resource))

    def _has_own_kind(self, resource: Resource) -> bool:
        if resource.content_type or self.has_kinds or self.has_missing_argument(resource):
            return True
        return self._selector.uses_properties and bool(resource.properties)

    def _kind(self, check: NessieCheck, resource: Resource) -> _Kind:
        group, content_type, type, properties, arguments = self._group, "", "", "{}", "{}"
        if check.creates:
            content_type = check.content_type
        elif check.path != "none":
            content_type = resource.content_type or CONTENT_TYPE.get(group.type, "")
        elif group.type == "repository_config":
            type = resource.path[0]
        # Nobody knows the properties of an object that does not exist yet.
        if self._selector.uses_properties and check.path != "new":
            properties = json_text(resource.properties)
        if self._names_argument:
            arguments = json_text(self._arguments(resource))
        return content_type, type, properties, arguments, self._unsaid(check, resource)

    def _unsaid(self, check: NessieCheck, resource: Resource) -> str:
        """Return `path` without its argument, or `contentType` where forbids read it of content of any type."""
        if check.path in _MADE and self.has_missing_argument(resource):
            return PATH
        is_content = check.path == "self" and not check.creates
        return CONTENT if self._may_be_any and is_content and not resource.content_type else ""

    def _needed_argument(self, group: EngineQuestion) -> str:
        is_made = any(check.path in _MADE for check in self.checks)
        is_read = is_made and self._selector.uses_path and not group.question.nameless
        return ARGUMENTS[group.type, group.action] if is_read else ""

    def _arguments(self, resource: Resource) -> dict[str, str | None]:
        """Return the names in a question without checks of Nessie's kind. An unknown name is None.

        A function has the full name, a property the name of the configuration, and a user the name of policies. A new
        object in a project, or on the server, is the object of the question: a missing new name is unknown.
        """
        if not self._is_cluster:
            type, new = self._group.type, resource.arguments.name or None
            if type == "server":
                return {"name": new} if self._makes else {}
            own = (resource.warehouse if type == "warehouse" else resource.name or path_string(resource.path)) or None
            return {"name": new, "project": own} if self._makes else {"name": own}
        place = (resource.warehouse, *resource.path)
        if resource.type == "user":
            return {"user": policy_name(Principal("user", resource.name), self._provider)}
        if resource.type == "function":
            return {"catalog": resource.warehouse, "function": ".".join(place)}
        if resource.type == "session_property":
            return {"property": ".".join(resource.path if resource.warehouse == "system" else place)}
        named = zip(OBJECT_KEYS, filter(None, place), strict=False)
        return {**dict.fromkeys(object_keys(self._group.action)), **dict(named)}

    def _values(self, check: NessieCheck, kind: _Kind) -> CheckValues:
        group = self._group
        content_type, type, properties, arguments, missing = kind
        subject = self._subject
        if self._selector.uses_time and not group.context.now:
            raise ValueError("the time of the decision is not set")
        return CheckValues(
            check.op,
            subject.role,
            subject.roles,
            "" if self._is_cluster else group.ref or "",
            content_type,
            type,
            (group.context.api_name, group.context.api_version),
            (*group.context.actions, *check.actions),
            group.delegated,
            "" if self._is_cluster else group.warehouse,
            check.action or group.action,
            subject.groups,
            subject.attributes,
            properties,
            group.context.now,
            arguments,
            (*self.unknown, missing) if missing else self.unknown,
            self.every_role,
        )


FoundRule: TypeAlias = tuple[int, Sequence[int]]
"""The smallest rank of a true rule, and raising rules."""
FoundRules: TypeAlias = Sequence[FoundRule]
"""The same for each check."""
_MOST_RANKS: Final = 64
"""Ranks of one question whose verdicts are remembered."""


def find_rules(questions: Sequence[ResidueQuestion], resource: Resource) -> FoundRules:
    """Return for each check of a resource the smallest rank of a true rule, and raising rules."""
    path = path_string(resource.path)
    found = []
    for check, residues in questions:
        place = check.path
        if place == "none":
            found.append(residues.rank_without_path())
        else:
            found.append(residues.rank(path if place == "self" else path_of(check, resource)))
    return found


class RuleQuestion:
    """Checks of a group, asked about one resource. Questions with the same residues and paths are equal."""

    __slots__ = ("_outcome", "_questions", "_reads_properties")

    def __init__(
        self, questions: Sequence[ResidueQuestion], outcome: Callable[[FoundRules], Verdicts], *, reads_properties: bool
    ) -> None:
        """Keep the questions. `outcome` makes the engine's verdicts from the rules found for each check."""
        self._questions = questions
        self._outcome = outcome
        self._reads_properties = reads_properties

    def __call__(self, resource: Resource) -> Verdicts | None:
        """Return the verdicts on a resource; None for one with a type of content or properties of its own."""
        if resource.content_type or (self._reads_properties and resource.properties):
            return None
        return self._outcome(find_rules(self._questions, resource))

    def __eq__(self, other: object) -> bool:
        """Tell whether the answers are equal for every resource."""
        return isinstance(other, RuleQuestion) and self._meaning() == other._meaning()

    __hash__ = None  # type: ignore[assignment]

    def _meaning(self) -> tuple[object, ...]:
        return self._outcome, tuple((check.path, residues) for check, residues in self._questions)


class RankVerdicts(dict[int, Verdicts]):
    """Verdicts on one resource by the smallest rank of a true rule, where none raises. `effect` is of true rules."""

    def __init__(self, effect: int, reasons: Mapping[int, Reason | None]) -> None:
        super().__init__({NEVER: SILENT})
        self._effect = bytes([effect])
        self._reasons = reasons

    def __missing__(self, rank: int) -> Verdicts:
        verdicts = self[rank] = Verdicts(self._effect, (self._reasons[rank],))
        return verdicts


class _VerdictsByRank(dict[int, Verdicts]):
    """Verdicts by the rank of one check, while all other checks of a group stay as they are."""

    def __init__(self, found: Sequence[FoundRule | None], outcome: Callable[[FoundRules], Verdicts]) -> None:
        """Keep the rules found for each check; None for the one check whose rank varies."""
        super().__init__()
        self.meaning = found, outcome

    def __missing__(self, rank: int) -> Verdicts:
        found, outcome = self.meaning
        verdicts = outcome([(rank, ()) if fixed is None else fixed for fixed in found])
        if len(self) < _MOST_RANKS:
            self[rank] = verdicts
        return verdicts


class TableQuestion:
    """Checks of a group, of which one varies by the path: its rules are entries of tables, and one look decides."""

    __slots__ = ("_reads_properties", "_tables", "_verdicts")

    def __init__(self, tables: PathTables, verdicts: _VerdictsByRank, *, reads_properties: bool) -> None:
        """Keep the tables. `verdicts` has the engine's verdicts by rank."""
        self._tables = tables
        self._verdicts = verdicts
        self._reads_properties = reads_properties

    def __call__(self, resource: Resource) -> Verdicts | None:
        """Return the verdicts on a resource; None for one with a type of content or properties of its own."""
        if resource.content_type or (self._reads_properties and resource.properties):
            return None
        return self._verdicts[self._tables.rank(path_string(resource.path))]

    def __eq__(self, other: object) -> bool:
        """Tell whether the answers are equal for every resource."""
        return (
            isinstance(other, TableQuestion)
            and self._tables is other._tables
            and self._verdicts.meaning == other._verdicts.meaning
        )

    __hash__ = None  # type: ignore[assignment]


class CreationQuestion(RuleQuestion):
    """Checks of a group with a path that an argument names."""

    __slots__ = ("_group_checks",)

    def __init__(
        self, group_checks: GroupChecks, outcome: Callable[[FoundRules], Verdicts], *, reads_properties: bool
    ) -> None:
        """Keep the questions of a group. `outcome` makes the engine's verdicts from the rules found for each check."""
        super().__init__(group_checks.plain_questions(), outcome, reads_properties=reads_properties)
        self._group_checks = group_checks

    def __call__(self, resource: Resource) -> Verdicts | None:
        """Return the verdicts on a resource; None for one without the argument, too."""
        return None if self._group_checks.has_missing_argument(resource) else super().__call__(resource)


def prepare_question(
    group_checks: GroupChecks, outcome: Callable[[FoundRules], Verdicts], *, reads_properties: bool
) -> ResourceCall:
    """Return the call for a group. `outcome` makes the engine's verdicts from the rules found for each check."""
    if group_checks.argument:
        return CreationQuestion(group_checks, outcome, reads_properties=reads_properties)
    questions = group_checks.plain_questions()
    found = [residues.rank("") if residues.is_constant else None for _, residues in questions]
    if None not in found:
        return FixedAnswer(outcome([fixed for fixed in found if fixed]))
    if found.count(None) == 1:
        check, residues = questions[found.index(None)]
        tables = residues.only_tables
        if check.path == "self" and tables is not None:
            return TableQuestion(tables, _VerdictsByRank(found, outcome), reads_properties=reads_properties)
    return RuleQuestion(questions, outcome, reads_properties=reads_properties)
