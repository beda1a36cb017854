"""Policy tests with the answers of OpenFGA: the assertions of a store file, and questions about the tuples.

The answers come from the exported model (`fga_check`), not from the engine of this service. A question with another
answer here is no test: the report names such a difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from pdp.engines.grants.model import ACTIONS
from pdp.offline.case_runner import BuildPdp, run_case
from pdp.offline.cases import Case
from pdp.offline.migration.fga_check import FgaChecker
from pdp.offline.migration.fga_objects import TYPES, type_of
from pdp.offline.migration.fga_store import FgaExport
from pdp.offline.migration.fga_world import FgaWorld
from pdp.offline.migration.report import Migration

_CAN: Final = "can_"
_STRANGER: Final = "user:nobody-in-the-tuples"


class Question(NamedTuple):
    """Question to OpenFGA with its answer. `note` names the source."""

    note: str
    user: str
    relation: str
    object: str
    wanted: bool


class FgaTests:
    """Tests for one export."""

    def __init__(self, world: FgaWorld, export: FgaExport, checker: FgaChecker) -> None:
        self._world = world
        self._export = export
        self._checker = checker
        self.has_model = bool(export.model)

    def agreeing(self, migration: Migration, world: str, build_pdp: BuildPdp, most: int) -> list[dict[str, Any]]:
        """Return the cases without the questions that this service answers in another way, and report these."""
        questions = [*self._asserted(migration), *self._generated(most)]
        cases = [(case, asked) for asked in _by_note(questions) if (case := self._case(asked))]
        differing: dict[tuple[str, str, bool], list[Question]] = {}
        agreeing = []
        with TemporaryDirectory() as folder, asyncio.Runner() as runner:
            (Path(folder) / "world.json").write_text(world, encoding="utf-8")
            for case, asked in cases:
                outcome = run_case(Case("", Path(folder), {**case, "world": "world.json"}), build_pdp, runner)
                wrong = {problem.check for problem in outcome.problems}
                for number in sorted(one for one in wrong if one is not None):
                    question = asked[number]
                    key = (type_of(question.object), question.relation, question.wanted)
                    differing.setdefault(key, []).append(question)
                kept = [number for number in range(len(asked)) if number not in wrong]
                if kept and None not in wrong:
                    agreeing.append({
                        **case,
                        "checks": [case["checks"][number] for number in kept],
                        "want": [case["want"][number] for number in kept],
                    })  # fmt: skip
        _report(migration, differing)
        return agreeing

    def _asserted(self, migration: Migration) -> Iterator[Question]:
        """Yield the assertions of store files; report those that are no check of this service."""
        refused: dict[tuple[str, str], int] = {}
        for one in self._export.assertions:
            reason = self._reason_against(one.user, one.relation, one.object)
            if reason:
                refused[one.place, reason] = refused.get((one.place, reason), 0) + 1
            else:
                yield Question(one.place, one.user, one.relation, one.object, one.wanted)
        for (place, reason), count in refused.items():
            migration.add("left", place, f"assertions: {count}", reason)

    def _reason_against(self, user: str, relation: str, object: str) -> str:
        kind = TYPES.get(type_of(object))
        if kind is None or self._world.objects.reference(object) is None:
            return f"`{object}` has no place: {self._world.objects.problem(object)}"
        if not relation.startswith(_CAN) or relation.removeprefix(_CAN) not in ACTIONS[kind]:
            return f"`{relation}` is no action on a {kind}"
        if self._principal(user) is None:
            return f"nobody asks as `{user}`: a test needs a user, or a role with a member"
        return ""

    def _principal(self, user: str) -> dict[str, str] | None:
        """Return the asking user; for the members of a role, the first member with this acting role."""
        if user.startswith("user:") and user[-1] != "*":
            return {"principal": self._world.principal(user) or ""}
        member = next((one.user for one in self._export.tuples if f"{one.object}#{one.relation}" == user), "")
        if not member.startswith("user:") or member[-1] == "*":
            return None
        return {"principal": self._world.principal(member) or "", "actingRole": self._world.principal(user) or ""}

    def _generated(self, most: int) -> Iterator[Question]:
        """Yield all actions of users on objects, for at most `most` pairs of user and object."""
        if not self.has_model:
            return
        users = sorted(
            {one.user for one in self._export.tuples if one.user.startswith("user:") and one.user[-1] != "*"}
        )
        pairs = [(user, object) for user in (*users, _STRANGER) for object in self._world.objects.known]
        step = max(1, -(-len(pairs) // most)) if most else len(pairs) + 1
        for user, object in pairs[::step] if most else ():
            for action in sorted(ACTIONS[TYPES[type_of(object)]]):
                if self._checker.knows(_CAN + action, object):
                    wanted = self._checker.check(user, _CAN + action, object)
                    yield Question(f"{user} on {object}", user, _CAN + action, object, wanted)

    def _case(self, asked: Sequence[Question]) -> dict[str, Any]:
        return {
            "note": asked[0].note,
            "engines": ["grants"],
            "world": "world.yaml",
            "checks": [
                {
                    **(self._principal(one.user) or {}),
                    "action": one.relation.removeprefix(_CAN),
                    "resource": self._world.objects.reference(one.object),
                }
                for one in asked
            ],
            "want": [one.wanted for one in asked],
        }


def _by_note(questions: Sequence[Question]) -> Iterator[list[Question]]:
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(question.note, []).append(question)
    yield from groups.values()


def _report(migration: Migration, differing: dict[tuple[str, str, bool], list[Question]]) -> None:
    for (kind, relation, wanted), questions in sorted(differing.items()):
        first = questions[0]
        answers = ("yes", "no") if wanted else ("no", "yes")
        message = (
            f"OpenFGA says {answers[0]}, pdp {answers[1]}, in {len(questions)} questions, "
            f"such as `{first.user}` on `{first.object}`"
        )
        migration.add("left", "", f"`{relation}` on `{kind}`", message)
