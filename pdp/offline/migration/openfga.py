"""Migration of Lakekeeper's grants in OpenFGA: a world file, and policy tests with OpenFGA's own answers.

The expected answers come from OpenFGA's checks, repeated in the plainest way.

A question with another answer here is no test: the report names such a difference. If this service would allow more
than OpenFGA, no file is written, unless `--accept-wider` names the relation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import yaml

from pdp.engines.grants.model import ACTIONS
from pdp.errors import InvalidArgument
from pdp.model import strict
from pdp.model.references import encode_part
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import BuildPdp, run_case
from pdp.offline.migration.fga_answers import CAN, STRANGER, FgaChecker, WiderRelation, takes, wider_relations
from pdp.offline.migration.fga_objects import TYPES, FgaObjects, type_of
from pdp.offline.migration.fga_store import FgaExport, read_export
from pdp.offline.migration.fga_world import WIDENINGS, FgaWorld, is_bookkeeping
from pdp.offline.migration.report import Migration, accepting, to_yaml
from pdp.store.world import parse_world
from pdp.store.world_text import world_lines

WORLD_FILE = "world.yaml"
TESTS_FILE = "tests.jsonl"


def migrate_openfga(
    files: Sequence[Path],
    build_pdp: BuildPdp,
    names: Path | None = None,
    idp: str = "oidc",
    most: int = 300,
    accepted: Collection[str] = (),
) -> Migration:
    """Return the migration of an export: tuples, and a model or store file for the tests.

    `names` is a file from ids to names. `idp` is the provider of users without one. `most` limits the generated tests.
    Raise InvalidArgument for a file that is no export.
    """
    migration = Migration(accepted=frozenset(accepted))
    export = read_export(files)
    if not export.tuples:
        raise InvalidArgument("no tuples found: export them with `fga tuple read --max-pages 0`")
    try:
        return _migrated(migration, export, (names, idp, most), build_pdp)
    except RecursionError:
        raise InvalidArgument("roles or objects are nested too deeply: OpenFGA resolves 25 levels") from None


def _migrated(
    migration: Migration, export: FgaExport, options: tuple[Path | None, str, int], build_pdp: BuildPdp
) -> Migration:
    names, idp, most = options
    whole, export = export, _without_dropped(migration, export)
    for place, message in export.left:
        migration.add("left", place, "the export", message)
    given = _names(names)
    world = FgaWorld(migration, export.tuples, given, idp)
    _check_names(given, world.objects, {end for one in whole.tuples for end in (one.user, one.object)})
    facts = parse_world(world.data())
    migration.files[WORLD_FILE] = "".join(f"{line}\n" for line in world_lines(facts, yaml=True))
    migration.files["pdp.yaml"] = to_yaml(_settings(world), "Grants of Lakekeeper decide. Add callers and the audit.")
    tests = FgaTests(world, export, FgaChecker(export.model, export.tuples))
    if not tests.has_model:
        message = "no model is given, so the tests hold the assertions of a store file alone: give `fga model get`"
        migration.add("note", "", "the model", message)
    cases, reported = tests.agreeing(migration, "".join(world_lines(facts)), build_pdp, most)
    for one in wider_relations(world, facts, export):
        if (one.type, one.relation) not in reported:
            _report_wider(migration, one)
    if cases:
        migration.files[TESTS_FILE] = "".join(f"{json.dumps(case, ensure_ascii=False)}\n" for case in cases)
    if migration.accepted:
        strict = Migration()
        FgaWorld(strict, export.tuples, given, idp)
        _report_accepted(migration, strict)
    return migration


def _without_dropped(migration: Migration, export: FgaExport) -> FgaExport:
    """Return an export without the tuples dropped by OpenFGA, and report each.

    Managed access stays, because fewer rights are safe.
    """
    kept = []
    for one in export.tuples:
        is_read = not export.model or bool(one.condition) or takes(export.model, one)
        if is_read or one.relation == "managed_access" or is_bookkeeping(one):
            kept.append(one)
        else:
            migration.add("left", one.place, f"`{one.user}` `{one.relation}` `{one.object}`", _DROPPED)
    return export._replace(tuples=kept)


_DROPPED: Final = "the given model takes no such tuple, and OpenFGA drops it when it reads"
NEWER_ACTIONS: Final = "newer-actions"
"""Name of the widening by actions without a relation in the given model."""
_NO_RELATION: Final = "the given model has no such relation, pdp says yes, "


def _report_accepted(migration: Migration, strict: Migration) -> None:
    """Report the effect of each accepted name. `strict` has the report without accepted names."""
    for name in sorted(migration.accepted):
        parts = [part for part in strict.parts if accepting(name) in part.message]
        option = f"`--accept-wider {name}`"
        if parts:
            message = f"allows more than OpenFGA: without it, {len(parts):,} parts are left, such as {parts[0].subject}"
            migration.add("note", "", option, message)
        elif not any(
            part.subject.startswith(f"`{name}` on ")
            or (name == NEWER_ACTIONS and part.message.startswith(_NO_RELATION))
            for part in migration.parts
        ):
            migration.add("ignored", "", option, "nothing in this export needs it")


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
    for key, name in names.items():
        parts = name if isinstance(name, list) else [name]
        if not isinstance(key, str) or not parts or not all(isinstance(one, str) and one for one in parts):
            raise InvalidArgument(f"`{file}`, `{key}`: a name is a text, or a list of texts: write quotes")
    return names


def _check_names(names: Mapping[str, Any], objects: FgaObjects, ends: Collection[str]) -> None:
    """Raise InvalidArgument for a name without an object, two names of an object, and parts outside the tree.

    `ends`: users and objects of all tuples, also of those that the model does not take.
    """
    used = {key for end in ends for key in objects.keys_of(end) if end not in objects.mentioned}
    for object in objects.mentioned:
        keys = [key for key in objects.keys_of(object) if key in names]
        if len(keys) > 1:
            raise InvalidArgument(f"`--names`: `{keys[0]}` and `{keys[1]}` both name `{object}`: keep one of them")
        for key in keys:
            _check_parts(key, names[key], object, objects)
        used.update(keys)
    if unknown := [key for key in names if key not in used]:
        raise InvalidArgument(f"`--names`, `{unknown[0]}`: no object of the export has this id")


def _check_parts(key: str, name: str | Sequence[str], object: str, objects: FgaObjects) -> None:
    """Raise InvalidArgument for a list of parts that is no path of a namespace."""
    if isinstance(name, str):
        return
    if type_of(object) != "namespace":
        raise InvalidArgument(f"`--names`, `{key}`: a list of parts is for a namespace: write the name")
    reference = objects.reference(object)
    if reference is not None and reference.split("/")[1:] != [encode_part(part) for part in name]:
        raise InvalidArgument(f"`--names`, `{key}`: the tree has it at `{reference}`: write the last part alone")


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

    def agreeing(
        self, migration: Migration, world: str, build_pdp: BuildPdp, most: int
    ) -> tuple[list[dict[str, Any]], Collection[tuple[str, str]]]:
        """Return the cases without questions of different answers, and report the differences.

        The second value has type and relation of questions that this service permits and OpenFGA denies.
        """
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
        return agreeing, {(type, relation) for type, relation, wanted in differing if not wanted}

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
        if not relation.startswith(CAN) or relation.removeprefix(CAN) not in ACTIONS[kind]:
            return f"`{relation}` is no action on a {kind}"
        if self._principal(user) is None:
            return f"nobody asks as `{user}`: a test needs a user, or a role with a member"
        return ""

    def _principal(self, user: str) -> dict[str, str] | None:
        """Return the asking user; for the members of a role, the first member with this acting role."""
        if user.startswith("user:") and user[-1] != "*":
            principal = self._world.principal(user)
            return {"principal": principal} if principal else None
        member = next((one.user for one in self._export.tuples if f"{one.object}#{one.relation}" == user), "")
        if not member.startswith("user:") or member[-1] == "*":
            return None
        principal, role = self._world.principal(member), self._world.principal(user)
        return {"principal": principal, "actingRole": role} if principal and role else None

    def _generated(self, most: int) -> Iterator[FgaQuestion]:
        """Yield all actions of users on objects, for at most `most` pairs of user and object."""
        if not self.has_model:
            return
        users = sorted(
            {one.user for one in self._export.tuples if one.user.startswith("user:") and one.user[-1] != "*"}
        )
        askers = [user for user in (*users, STRANGER) if self._world.principal(user)]
        pairs = [(user, object) for user in askers for object in self._world.objects.known]
        step = max(1, -(-len(pairs) // most)) if most else len(pairs) + 1
        for user, object in pairs[::step] if most else ():
            for action in sorted(ACTIONS[TYPES[type_of(object)]]):
                if self._checker.knows(CAN + action, object):
                    wanted = self._checker.check(user, CAN + action, object)
                    yield FgaQuestion(f"{user} on {object}", user, CAN + action, object, wanted)

    def _case(self, asked: Sequence[FgaQuestion]) -> dict[str, Any]:
        return {
            "note": asked[0].note,
            "engines": ["grants"],
            "world": "world.yaml",
            "checks": [
                {
                    **(self._principal(one.user) or {}),
                    "action": one.relation.removeprefix(CAN),
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
    for (type, relation, wanted), questions in sorted(differing.items()):
        first = WiderRelation(type, relation, len(questions), questions[0].user, questions[0].object)
        if wanted:
            message = f"OpenFGA says yes, pdp no, {_example(first)}"
            migration.add("left", "", f"`{relation}` on `{type}`", message)
        elif migration.accepted & WIDENINGS:
            migration.add("note", "", f"`{relation}` on `{type}`", f"OpenFGA says no, pdp yes, {_example(first)}")
        else:
            _report_wider(migration, first)


def _report_wider(migration: Migration, one: WiderRelation) -> None:
    message = f"OpenFGA says no, pdp yes, {_example(one)}"
    if one.before:
        message = f"models before {one.before} say no, pdp yes, {_example(one)}: give the model (`fga model get`)"
    if one.is_unknown:
        message = f"{_NO_RELATION}{_example(one)}"
    migration.add_wider(NEWER_ACTIONS if one.is_unknown else one.relation, f"`{one.relation}` on `{one.type}`", message)


def _example(one: WiderRelation) -> str:
    questions = "1 question" if one.times == 1 else f"{one.times:,} questions"
    return f"in {questions}, such as `{one.user}` on `{one.object}`"
