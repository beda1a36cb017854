"""Questions to OpenFGA about random tuples, and the answers of this service with the migrated files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from support.generators.fga_tuples import USERS, FgaKey, principal_of, references_of
from support.paths import TESTS

from pdp.app.facts import build_pdp
from pdp.engines.grants.model import ACTIONS
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import forget_files, run_case
from pdp.offline.migration.fga_answers import FgaChecker
from pdp.offline.migration.fga_objects import FgaTuple
from pdp.offline.migration.fga_store import read_model
from pdp.offline.migration.openfga import migrate_openfga
from pdp.offline.migration.report import Migration

SCHEMA = TESTS / "offline" / "migration" / "lakekeeper-4.9" / "schema.json"
MODEL = read_model(SCHEMA, SCHEMA.read_text())
STRANGER = "user:oidc~nobody"
NEWER = "can_accept_moved_namespace"
"""Relation with another rule in model 4.9: the files are written only if it is accepted."""


OTHER_SPELLINGS = {"user:c": "user:oidc~c", "user:oidc~a@x": "user:oidc~a%40x"}
"""User -> the user that Lakekeeper writes in place of it. Here both have one name."""


class FgaAsked(NamedTuple):
    """Question to OpenFGA, and the same question to this service."""

    user: str
    relation: str
    object: str
    principal: str
    reference: str


def questions(tuples: Sequence[FgaKey]) -> Iterator[FgaAsked]:
    """Yield every question about the users, roles and objects of some tuples."""
    roles = sorted({f"{end.partition('#')[0]}#assignee" for one in tuples for end in one if end.startswith("role:")})
    roles = [role for role in roles if "*" not in role]
    named = {user for user, _, _ in tuples}
    users = [*(user for user in USERS if user == _spelling(user, named)), STRANGER, *roles]
    for object, references in references_of(tuples).items():
        type = object.partition(":")[0]
        for reference in references:
            kind = reference.partition(":")[0]
            for action in sorted(ACTIONS[kind]):
                if f"can_{action}" in MODEL[type]:
                    for user in users:
                        yield FgaAsked(user, f"can_{action}", object, principal_of(user), reference)


def _spelling(user: str, named: Collection[str]) -> str:
    """Return the spelling of a user that counts: Lakekeeper's own, unless only the other one is named."""
    own = OTHER_SPELLINGS.get(user, user)
    other = next((one for one, of in OTHER_SPELLINGS.items() if of == own), own)
    return other if other in named and own not in named else own


def migrated(
    folder: Path,
    tuples: Sequence[Sequence[str]],
    *accepted: str,
    names: Path | None = None,
    model: Path | None = None,
    most: int = 0,
) -> Migration:
    """Return the migration of tuples. A tuple may have the name of a condition behind its three parts."""
    keys: list[dict[str, Any]] = []
    for user, relation, object, *conditions in tuples:
        keys.append({"user": user, "relation": relation, "object": object})
        if conditions:
            keys[-1]["condition"] = {"name": conditions[0]}
    (folder / "tuples.json").write_text(json.dumps(keys))
    files = [folder / "tuples.json", *([model] if model else ())]
    return migrate_openfga(files, build_pdp, names, most=most, accepted=accepted)


def version(text: str) -> FgaKey:
    """Return the tuple by which Lakekeeper stores the version of its model."""
    return ("auth_model_id:m", "openfga_id", f"model_version:{text}")


def answers(folder: Path, migration: Migration, asked: Sequence[FgaAsked]) -> list[bool]:
    """Return the answers of this service with the migrated files."""
    (folder / "world.yaml").write_text(migration.files["world.yaml"])
    forget_files()
    config: dict[str, Any] = yaml.safe_load(migration.files["pdp.yaml"])
    del config["store"]
    case: dict[str, Any] = {
        "config": config,
        "world": "world.yaml",
        "checks": [
            {"principal": one.principal, "action": one.relation.removeprefix("can_"), "resource": one.reference}
            for one in asked
        ],
        "want": [False] * len(asked),
    }
    case["config"].setdefault("limits", {})["max_checks"] = len(asked)
    with asyncio.Runner() as runner:
        outcome = run_case(Case("", folder, case), build_pdp, runner)
    assert outcome.got, outcome.error
    return [one["allowed"] for one in outcome.got]


def checker_of(tuples: Sequence[FgaKey]) -> Callable[[FgaAsked], bool]:
    checker = FgaChecker(MODEL, [FgaTuple(*one) for one in tuples])
    return lambda one: checker.check(one.user, one.relation, one.object)
