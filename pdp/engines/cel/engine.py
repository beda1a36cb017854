"""CEL rules as an engine: an action becomes checks of Nessie's kind, each of which some rule must permit.

`CelEngine` permits, `CelForbid` forbids; both read the same rule language and the same vocabulary. Rules are
evaluated in the order of their ids, so that the determining rule does not depend on files or luck.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from pdp.engines.cel.program import RuleError
from pdp.engines.cel.rules import Rule, RuleSet, inline_rules
from pdp.engines.engine import FORBID, PERMIT, Group, Verdicts
from pdp.facts import Facts
from pdp.model import VERSIONED_TYPES, Reason, Resource, Trace
from pdp.vocabulary import CEL_CHECKS, CONTENT_TYPE, VIEW_ONLY, CelCheck

IMPLICIT_RULE = "__ALLOW_VIEWING_REF_ID"
"""Nessie's rule that references are viewable, added unless some rule's text contains VIEW_REFERENCE."""

Evaluate = Callable[..., bool]


class Answer(NamedTuple):
    """What a rule set says to one check: the rule that is true, if any, and the rules that raised."""

    rule: str | None
    errors: tuple[str, ...]


class Question(NamedTuple):
    """The variables of a check that differ inside a group."""

    op: str
    path: str
    content_type: str
    type: str
    actions: tuple[str, ...]


class CelEngine:
    """Permits what the rule set permits; silent, with the ids of rules that raised, otherwise."""

    name = "cel"

    def __init__(self, rules: RuleSet, provider: str) -> None:
        self.implicit = not any("VIEW_REFERENCE" in text for text in rules.texts.values())
        self.rules = _with_implicit_rule(rules.rules) if self.implicit else rules.rules
        self.digest = _digest(rules, provider)
        self._provider = provider

    def applies(self, action: str, type: str) -> bool:
        key = (type, action)
        return key in CEL_CHECKS and not (self.implicit and key in VIEW_ONLY)

    def decide(self, group: Group, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        if _lacks_ref(group):
            count = len(resources)
            return Verdicts(bytes(count), [None] * count, dict.fromkeys(range(count), ("missing_reference",)))
        asked = _Asked(self.rules, group, self._provider)
        effects = bytearray(len(resources))
        by: list[Reason | None] = [None] * len(resources)
        errors: dict[int, tuple[str, ...]] = {}
        for at, resource in enumerate(resources):
            answers = asked.answers(resource)
            if all(answer.rule is not None for answer in answers):
                effects[at] = PERMIT
                by[at] = f"cel:{answers[-1].rule}"
            elif raised := sorted({rule for answer in answers if answer.rule is None for rule in answer.errors}):
                errors[at] = tuple(raised)
        return Verdicts(bytes(effects), by, errors)

    def explain(self, group: Group, resource: Resource, facts: Facts) -> Trace:
        if _lacks_ref(group):
            return Trace("cel", "silent", why="missing_reference: no ref given and the warehouse has no default_ref")
        checks = _Asked(self.rules, group, self._provider).traces(resource)
        permitted = all(check.outcome == "permit" for check in checks)
        return Trace("cel", "permit" if permitted else "silent", parts=checks)


class CelForbid:
    """Forbids where a rule is true, and where a rule raised: a forbid that cannot be judged denies."""

    name = "cel"

    def __init__(self, rules: RuleSet, provider: str) -> None:
        self.rules = rules.rules
        self.digest = _digest(rules, provider)
        self._provider = provider

    def applies(self, action: str, type: str) -> bool:
        return (type, action) in CEL_CHECKS

    def decide(self, group: Group, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        asked = _Asked(self.rules, group, self._provider)
        effects = bytearray(len(resources))
        by: list[Reason | None] = [None] * len(resources)
        errors: dict[int, tuple[str, ...]] = {}
        for at, resource in enumerate(resources):
            answers = asked.answers(resource)
            rules = [answer.rule for answer in answers if answer.rule is not None]
            raised = sorted({rule for answer in answers for rule in answer.errors})
            if rules or raised:
                effects[at] = FORBID
                by[at] = f"cel:{min(rules or raised)}"
            if raised:
                errors[at] = tuple(raised)
        return Verdicts(bytes(effects), by, errors)

    def explain(self, group: Group, resource: Resource, facts: Facts) -> Trace:
        checks = _Asked(self.rules, group, self._provider).traces(resource)
        silent = all(check.outcome == "silent" and not check.why for check in checks)
        return Trace("cel forbid", "silent" if silent else "forbid", parts=checks)


class _Asked:
    """A rule set asked about one group; answers about the ref alone are evaluated once."""

    def __init__(self, rules: Sequence[Rule], group: Group, provider: str) -> None:
        unbound = _lacks_ref(group)
        self._rules = [(rule.id, rule.program.without_ref() if unbound else rule.program.evaluate) for rule in rules]
        self._group = group
        self._role, self._roles = _identity(group, provider)
        self._api = {"apiName": group.env.api_name, "apiVersion": group.env.api_version}
        self._checks = CEL_CHECKS[group.type, group.action]
        self._memo: dict[Question, Answer] = {}

    def answers(self, resource: Resource) -> list[Answer]:
        return [self._answer(self._question(check, resource)) for check in self._checks]

    def traces(self, resource: Resource) -> tuple[Trace, ...]:
        return tuple(self._trace(self._question(check, resource)) for check in self._checks)

    def _answer(self, question: Question) -> Answer:
        known = self._memo.get(question)
        if known is None:
            known = self._memo[question] = self._ask(question)
        return known

    def _ask(self, question: Question) -> Answer:
        raised: list[str] = []
        for rule, evaluate in self._rules:
            try:
                if self._evaluate(evaluate, question):
                    return Answer(rule, tuple(raised))
            except RuleError:
                raised.append(rule)
        return Answer(None, tuple(raised))

    def _evaluate(self, evaluate: Evaluate, question: Question) -> bool:
        op, path, content_type, type, actions = question
        group = self._group
        ref = group.ref or ""
        return evaluate(
            op, self._role, self._roles, ref, path, content_type, type, self._api, actions, group.delegated,
            group.warehouse,
        )  # fmt: skip

    def _question(self, check: CelCheck, resource: Resource) -> Question:
        actions = (*self._group.env.actions, *check.actions)
        if check.path == "none":
            return Question(check.op, "", "", _config_type(self._group, resource), actions)
        content_type = check.content_type or resource.content_type or CONTENT_TYPE.get(self._group.type, "")
        return Question(check.op, path_string(_path(check, resource)), content_type, "", actions)

    def _trace(self, question: Question) -> Trace:
        parts = []
        for rule, evaluate in self._rules:
            try:
                parts.append(Trace(f"rule {rule}", str(self._evaluate(evaluate, question)).lower()))
            except RuleError as error:
                parts.append(Trace(f"rule {rule}", "error", why=str(error)))
        what = " ".join(filter(None, (question.op, question.path)))
        permitted = any(part.outcome == "true" for part in parts)
        raised = any(part.outcome == "error" for part in parts)
        return Trace(what, "permit" if permitted else "silent", "a rule raised" if raised else "", tuple(parts))


def path_string(path: Sequence[str]) -> str:
    """Nessie's ContentKey.toPathString: joined by dots, a dot or NUL inside an element becomes U+001D."""
    return ".".join([part.replace(".", "\x1d").replace("\0", "\x1d") for part in path])


def _path(check: CelCheck, resource: Resource) -> tuple[str, ...]:
    arguments = resource.arguments
    if check.path == "new":
        return (*resource.path, arguments.name) if arguments.name else resource.path
    if check.path == "destination":
        return arguments.destination.path if arguments.destination else resource.path[:-1]
    return resource.path


def _identity(group: Group, provider: str) -> tuple[str, tuple[str, ...]]:
    principal = group.principal
    if principal.type == "role":
        return "", (principal.name,)
    idp, _, subject = principal.name.partition("~")
    return (subject if idp == provider else principal.name), principal.roles


def _config_type(group: Group, resource: Resource) -> str:
    return resource.path[0] if group.type == "repository_config" else ""


def _lacks_ref(group: Group) -> bool:
    return group.ref is None and (group.type in VERSIONED_TYPES or group.type == "warehouse")


def _with_implicit_rule(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Nessie overwrites an own rule of that id."""
    implicit = inline_rules({IMPLICIT_RULE: "op=='VIEW_REFERENCE' && ref.matches('.*')"}).rules
    kept = [rule for rule in rules if rule.id != IMPLICIT_RULE]
    return tuple(sorted([*kept, *implicit], key=lambda rule: rule.id))


def _digest(rules: RuleSet, provider: str) -> str:
    return sha256(msgspec.json.encode([dict(rules.texts), provider], order="sorted")).hexdigest()
