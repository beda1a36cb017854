"""Files of values of a chart that Helm joins, and names with values that are no variables of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pdp.offline.migration.lakekeeper import migrate_lakekeeper
from pdp.offline.migration.nessie import migrate_nessie

NAME = "NESSIE_SERVER_AUTHORIZATION_RULES_"
WIDE = "op in ['VIEW_REFERENCE','READ_ENTITY_VALUE']"
NARROW = f"{WIDE} && role=='admin'"
CHART = {"authorization": {"enabled": True, "rules": {"a": NARROW}}}
ADMIN = [{"name": "LAKEKEEPER__INSTANCE_ADMINS", "value": "[oidc~eve]"}]
FROM = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {f"{NAME}B": WIDE}}


def variable(id: str, text: str = WIDE) -> dict[str, str]:
    return {"name": f"{NAME}{id}", "value": text}


def written(folder: Path, given: list[Any]) -> list[Path]:
    files = [folder / f"v{number}.yaml" for number in range(len(given))]
    for file, data in zip(files, given, strict=True):
        file.write_text(yaml.safe_dump(data, sort_keys=False))
    return files


def rules(folder: Path, given: list[Any]) -> tuple[list[str], bool]:
    """Return the texts of the rules, and whether a part is left."""
    migration = migrate_nessie(written(folder, given))
    return list(yaml.safe_load(migration.files["rules.yaml"])["rules"].values()), bool(migration.left)


def argo(values: Any) -> dict[str, Any]:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "spec": {"source": {"helm": {"valuesObject": values}}},
    }


B = {"extraEnv": [variable("B")]}
ADVANCED = {"advancedConfig": {"nessie": {"server": {"authorization": {"rules": {"b": WIDE}}}}}}
REPLACED: list[tuple[Any, Any]] = [
    (B, {"extraEnv": []}), (B, {"extraEnv": None}), (B, {"extraEnv": [{"name": "X", "value": "y"}]}), (B, argo({"extraEnv": []})),
    (ADVANCED, {"advancedConfig": None}), (ADVANCED, {"advancedConfig": {"nessie": {"server": None}}}),
    ({"nessie": B}, {"nessie": {"extraEnv": []}}), ({"nessie": B}, {"nessie": None}), (argo(B), argo({"extraEnv": None})),
]  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("pair", REPLACED)
def test_a_value_that_another_file_replaces_permits_nothing(
    tmp_path: Path, pair: tuple[Any, Any], turned: bool
) -> None:
    found, is_left = rules(
        tmp_path, [{**pair[0], **CHART} if "kind" not in pair[0] else pair[0], pair[1]][:: -1 if turned else 1]
    )
    assert (WIDE in found, is_left) == (False, True)


@pytest.mark.parametrize("other", [[], None, [{"secretRef": {"name": "t"}}]])
def test_an_object_that_another_file_takes_away_permits_nothing(tmp_path: Path, other: Any) -> None:
    given = [{**CHART, "extraEnvFrom": [{"secretRef": {"name": "s"}}]}, {"extraEnvFrom": other}, FROM]
    found, is_left = rules(tmp_path, given)
    assert (WIDE in found, is_left) == (False, True)


@pytest.mark.parametrize(
    "other", [{}, {"replicaCount": 2}, {"image": {"tag": "2"}}, {"resources": {"limits": {"cpu": 2}}}, B]
)
def test_values_that_join_count(tmp_path: Path, other: Any) -> None:
    first = {**CHART, **B, "replicaCount": 1, "image": {"tag": "1"}, "resources": {"limits": {"cpu": 1}}}
    assert rules(tmp_path, [first, other]) == ([WIDE, NARROW], False) or rules(tmp_path, [first, other]) == (
        [NARROW, WIDE],
        False,
    )


OTHERS: list[dict[str, Any]] = [
    {"postgresql": {"extraEnv": [variable("A")]}}, {"podEnv": [variable("A")]}, {"foo": {"bar": [variable("A")]}},
    {"foo": {f"{NAME}A": WIDE}}, {"gc": {"extraEnv": [variable("A")]}}, {"foo": {"nessie.server.authorization.rules.a": WIDE}},
    {"foo": {"extraEnv": {f"{NAME}A": WIDE}}}, {"foo": [f"{NAME}A={WIDE}"]}, {"spec": {"params": [variable("A")]}},
    {"parameters": [variable("A")]}, {"redis": {"env": [variable("A")]}},
]  # fmt: skip


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("kind", [{}, {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun"}])
def test_a_name_with_a_value_elsewhere_is_left(tmp_path: Path, other: dict[str, Any], kind: dict[str, str]) -> None:
    found, is_left = rules(tmp_path, [{**CHART, **other}] if not kind else [CHART, {**kind, **other}])
    assert (WIDE in found, is_left) == (False, True)


@pytest.mark.parametrize("given", [
    [{"catalog": {"extraEnv": ADMIN}}, {"catalog": {"extraEnv": []}}], [{"catalog": {"extraEnv": ADMIN}}, {"catalog": None}],
    [{"catalog": {"extraEnv": ADMIN}}, {"catalog": {"extraEnv": None}}], [{"postgresql": {"extraEnv": ADMIN}}],
    [{"foo": {"LAKEKEEPER__INSTANCE_ADMINS": "[oidc~eve]"}}], [{"podEnv": ADMIN}],
])  # fmt: skip
def test_an_admin_of_values_that_do_not_count_is_left(tmp_path: Path, given: list[Any]) -> None:
    migration = migrate_lakekeeper(written(tmp_path, given))
    assert "eve" not in migration.files["pdp.yaml"]
    assert migration.left
