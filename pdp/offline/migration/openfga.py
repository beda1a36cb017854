"""Migration of Lakekeeper's grants in OpenFGA: a world file, and policy tests with OpenFGA's own answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pdp.errors import InvalidArgument
from pdp.facts.snapshot import Facts
from pdp.model import strict
from pdp.offline.case_runner import BuildPdp
from pdp.offline.migration.fga_check import FgaChecker
from pdp.offline.migration.fga_store import read_export
from pdp.offline.migration.fga_tests import FgaTests
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
