"""Checks of OpenFGA in the plainest way, for the expected answers of policy tests.

A relation that depends on itself is false on the way to itself, as in OpenFGA.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from pdp.offline.migration.fga_model import AllRules, AnyRule, ButNot, Computed, Direct, FgaModel, FgaRule, FromParent
from pdp.offline.migration.fga_store import FgaTuple

Question: TypeAlias = tuple[str, str]
"""Relation and object."""


class FgaChecker:
    """Checker of one model and its tuples. Remembers answers for each user."""

    def __init__(self, model: FgaModel, tuples: Iterable[FgaTuple]) -> None:
        self._model = model
        self._users: dict[Question, list[str]] = {}
        for one in tuples:
            self._users.setdefault((one.relation, one.object), []).append(one.user)
        self._answers: dict[str, dict[Question, bool]] = {}

    def knows(self, relation: str, object: str) -> bool:
        """Tell whether the model defines a relation for the type of an object."""
        return relation in self._model.get(object.partition(":")[0], {})

    def check(self, user: str, relation: str, object: str) -> bool:
        """Return the answer for a user or a userset."""
        return self._check(user, (relation, object), set())

    def _check(self, user: str, question: Question, path: set[Question]) -> bool:
        answers = self._answers.setdefault(user, {})
        if question in answers:
            return answers[question]
        if question in path:
            return False
        relation, object = question
        rule = self._model.get(object.partition(":")[0], {}).get(relation)
        if rule is None:
            return False
        path.add(question)
        answer = self._holds(user, rule, question, path)
        path.remove(question)
        if answer or not path:  # a false answer inside a cycle is not final
            answers[question] = answer
        return answer

    def _holds(self, user: str, rule: FgaRule, question: Question, path: set[Question]) -> bool:
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

    def _is_member(self, user: str, member: str, path: set[Question]) -> bool:
        if member == user or (member.endswith(":*") and "#" not in user and user.startswith(member[:-1])):
            return True
        object, hash, relation = member.partition("#")
        return bool(hash) and self._check(user, (relation, object), path)
