"""Migration of Lakekeeper's grants in OpenFGA: a world file, and policy tests with OpenFGA's own answers.

The expected answers come from OpenFGA's checks, repeated in the plainest way.

A relation that depends on itself is false on the way to itself, as in OpenFGA. A question with another answer here is
no test: the report names such a difference.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, TypeAlias

import yaml

from pdp.engines.grants.model import ACTIONS
from pdp.errors import InvalidArgument
from pdp.facts.snapshot import Facts
from pdp.model import strict
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import BuildPdp, run_case
from pdp.offline.migration.fga_model import AllRules, AnyRule, ButNot, Computed, Direct, FgaModel, FgaRule, FromParent
from pdp.offline.migration.fga_objects import TYPES, type_of
from pdp.offline.migration.fga_store import FgaExport, FgaTuple, read_export
from pdp.offline.migration.fga_world import FgaWorld
from pdp.offline.migration.report import Migration, to_yaml
from pdp.store.world import parse_world
from pdp.store.world_text import world_lines

WORLD_FILE = "world.yaml"
TESTS_FILE = "tests.jsonl"


def migrate_openfga(
    files: Sequence[Path], build_pdp: BuildPdp, names: Path | None = None, idp: str = "oidc", most: int = 300
) -> Migration:
    """Return the migration of an export: tuples, and a model or store file for the tests.

    `names` is a file from ids to names. `idp` is the provider of users without one. `most` limits the generated tests.
    Raise InvalidArgument for a file that is no export.
    """
    migration = Migration()
    export = read_export(files)
    if not export.tuples:
        raise InvalidArgument("no tuples found: export them with `fga tuple read --max-pages 0`")
    for place, message in export.left:
        migration.add("left", place, "the export", message)
    world = FgaWorld(migration, export.tuples, _names(names), idp)
    facts = parse_world(world.data())
    migration.files[WORLD_FILE] = "".join(f"{line}\n" for line in world_lines(facts, yaml=True))
    migration.files["pdp.yaml"] = to_yaml(_settings(world), "Grants of Lakekeeper decide. Add callers and the audit.")
    _add_tests(migration, FgaTests(world, export, FgaChecker(export.model, export.tuples)), facts, build_pdp, most)
    return migration


def _add_tests(migration: Migration, tests: FgaTests, facts: Facts, build_pdp: BuildPdp, most: int) -> None:
    if not tests.has_model:
        message = "no model is given, so the tests hold the assertions of a store file alone: give `fga model get`"
        migration.add("note", "", "the model", message)
    cases = tests.agreeing(migration, "".join(world_lines(facts)), build_pdp, most)
    if cases:
        migration.files[TESTS_FILE] = "".join(f"{json.dumps(case, ensure_ascii=False)}\n" for case in cases)


def _settings(world: FgaWorld) -> dict[str, Any]:
    settings: dict[str, Any] = {"authorities": {"default": {"engines": ["grants"]}}}
    if world.warehouses():
        settings["warehouses"] = world.warehouses()
    return settings | {"store": {"seed": WORLD_FILE}}


def _names(file: Path | None) -> Mapping[str, Any]:
    """Return the names of a file, JSON or YAML, from an id or `type:id` to a name or to the parts of a namespace."""
    if file is None:
        return {}
    try:
        names = strict.load_yaml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InvalidArgument(f"cannot read `{file}`: {' '.join(str(error).split())}") from None
    if not isinstance(names, Mapping):
        raise InvalidArgument(f"`{file}` is no mapping from ids to names")
    return {str(key): value for key, value in names.items()}


_CAN: Final = "can_"
_STRANGER: Final = "user:nobody-in-the-tuples"


class FgaQuestion(NamedTuple):
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
        differing: dict[tuple[str, str, bool], list[FgaQuestion]] = {}
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

    def _asserted(self, migration: Migration) -> Iterator[FgaQuestion]:
        """Yield the assertions of store files; report those that are no check of this service."""
        refused: dict[tuple[str, str], int] = {}
        for one in self._export.assertions:
            reason = self._reason_against(one.user, one.relation, one.object)
            if reason:
                refused[one.place, reason] = refused.get((one.place, reason), 0) + 1
            else:
                yield FgaQuestion(one.place, one.user, one.relation, one.object, one.wanted)
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

    def _generated(self, most: int) -> Iterator[FgaQuestion]:
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
                    yield FgaQuestion(f"{user} on {object}", user, _CAN + action, object, wanted)

    def _case(self, asked: Sequence[FgaQuestion]) -> dict[str, Any]:
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


def _by_note(questions: Sequence[FgaQuestion]) -> Iterator[list[FgaQuestion]]:
    groups: dict[str, list[FgaQuestion]] = {}
    for question in questions:
        groups.setdefault(question.note, []).append(question)
    yield from groups.values()


def _report(migration: Migration, differing: dict[tuple[str, str, bool], list[FgaQuestion]]) -> None:
    for (kind, relation, wanted), questions in sorted(differing.items()):
        first = questions[0]
        answers = ("yes", "no") if wanted else ("no", "yes")
        message = (
            f"OpenFGA says {answers[0]}, pdp {answers[1]}, in {len(questions)} questions, "
            f"such as `{first.user}` on `{first.object}`"
        )
        migration.add("left", "", f"`{relation}` on `{kind}`", message)


ObjectRelation: TypeAlias = tuple[str, str]
"""Relation and object."""


class FgaChecker:
    """Checker of one model and its tuples. Remembers answers for each user."""

    def __init__(self, model: FgaModel, tuples: Iterable[FgaTuple]) -> None:
        self._model = model
        self._users: dict[ObjectRelation, list[str]] = {}
        for one in tuples:
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
