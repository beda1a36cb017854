"""Settings count only where they are known to reach the server; settings of two releases are not joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdp.offline.migration.lakekeeper import migrate_lakekeeper
from pdp.offline.migration.nessie import migrate_nessie
from pdp.offline.migration.report import Migration

NESSIE = "ghcr.io/projectnessie/nessie:0.104.0"
LAKEKEEPER = "quay.io/lakekeeper/catalog:v0.11.0"
NARROW = "op=='VIEW_REFERENCE' && role=='x'"
RULE = "nessie.server.authorization.rules."
ADMINS = "LAKEKEEPER__INSTANCE_ADMINS"
BACKEND = {"LAKEKEEPER__AUTHZ_BACKEND": "openfga"}
MALLORY = '["oidc~mallory"]'

CHART = {"authorization": {"enabled": True, "rules": {"a": "true"}}}
FLAT = {"advancedConfig": {f"{RULE}a": "true"}}
NESTED = {"advancedConfig": {"nessie": {"server": {"authorization": {"rules": {"a": "true"}}}}}}
OF_PROFILE = {"advancedConfig": {f"%prod.{RULE}a": "true"}}
HELD = {"application.properties": f"{RULE}a=true\n"}
HELD_YAML = {"application.yaml": yaml.safe_dump(NESTED["advancedConfig"])}
VARIABLE = {"extraEnv": [{"name": "NESSIE_SERVER_AUTHORIZATION_RULES_A", "value": "true"}]}
SETTINGS = (CHART, FLAT, NESTED, OF_PROFILE, HELD, HELD_YAML, VARIABLE)


def compose(service: Mapping[str, Any], **root: Any) -> dict[str, Any]:
    env = {"NESSIE_SERVER_AUTHORIZATION_RULES_V": NARROW}
    other = root.pop("other", {})
    services = {"nessie": {"image": NESSIE, "environment": env, **service}, "other": {"image": "busybox", **other}}
    return {"services": services, **root}


def deployment(meta: Any = None, template: Any = None, image: str = NESSIE) -> dict[str, Any]:
    env = [{"name": "NESSIE_SERVER_AUTHORIZATION_RULES_V", "value": NARROW}] if image == NESSIE else []
    spec = {"containers": [{"name": "n", "image": image, "env": env}]}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": image[:7].strip("."), **(meta or {})},
        "spec": {"template": {"metadata": template or {}, "spec": spec}},
    }  # fmt: skip


def custom(spec: Any, kind: str = "Widget", **metadata: str) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "w", **metadata}, "spec": spec}


def flux(values: Any, name: str = "staging", chart: str = "nessie", **metadata: str) -> dict[str, Any]:
    return {
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": name, **metadata},
        "spec": {"chart": {"spec": {"chart": chart}}, "values": values},
    }  # fmt: skip


def argo(values: Any, name: str = "staging", chart: str = "nessie") -> dict[str, Any]:
    source = {"repoURL": "x", "chart": chart, "helm": {"valuesObject": values}}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": name},
        "spec": {"source": source},
    }


VALUES = {"authorization": {"enabled": True, "rules": {"v": NARROW}}}
PLACES: Mapping[str, Callable[[Any], list[Any]]] = {
    "labels of a service": lambda one: [compose({"labels": one})],
    "labels of another service": lambda one: [compose({}, other={"labels": one})],
    "environment of another service": lambda one: [compose({}, other={"environment": one})],
    "labels of a deploy": lambda one: [compose({"deploy": {"labels": one}})],
    "annotations of a service": lambda one: [compose({"annotations": one})],
    "options of logging": lambda one: [compose({"logging": {"driver": "x", "options": one}})],
    "extension": lambda one: [compose({}, **{"x-old": one})],
    "annotations of the server": lambda one: [deployment({"annotations": one})],
    "annotations of the pod": lambda one: [deployment(template={"annotations": one})],
    "annotations of another program": lambda one: [deployment(), deployment({"annotations": one}, image="busybox")],
    "custom resource": lambda one: [deployment(), custom(one)],
    "custom resource, below": lambda one: [deployment(), custom({"config": one, "values": one})],
    "external secret": lambda one: [deployment(), custom({"target": {"template": {"data": one}}}, "ExternalSecret")],
    "another namespace": lambda one: [deployment(), custom({"template": {"data": one}}, "SealedSecret", namespace="b")],
    "object in a custom resource": lambda one: [deployment(), custom({"resources": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": one}]})],
    "container of a custom resource": lambda one: [deployment(), custom({"template": {"spec": {"containers": [
        {"name": "n", "image": NESSIE, **one}]}}})],
    "substitution of Flux": lambda one: [deployment(), custom({"postBuild": {"substitute": one}}, "Kustomization")],
    "release of another chart": lambda one: [deployment(), flux(one, chart="grafana")],
    "application of another chart": lambda one: [deployment(), argo(one, chart="grafana")],
    "another release": lambda one: [deployment(), flux(one)],
    "another application": lambda one: [deployment(), argo(one)],
    "two releases": lambda one: [flux(VALUES, "prod"), flux(one)],
    "two namespaces": lambda one: [flux(VALUES, "nessie", namespace="prod"), flux(one, "nessie", namespace="dev")],
    "two applications": lambda one: [argo(VALUES, "prod"), argo(one)],
    "two charts of an application": lambda one: [{**argo(one), "spec": {"sources": [
        argo(each)["spec"]["source"] for each in (VALUES, one)]}}],
    "two charts of a kustomization": lambda one: [{"kind": "Kustomization", "helmCharts": [
        {"name": "nessie", "valuesInline": each} for each in (VALUES, one)]}],
    "resource of another maker": lambda one: [deployment(), custom(one, "Nessie")],
    "release and application": lambda one: [argo(VALUES, "prod"), flux(one)],
    "release of another chart beside": lambda one: [flux(VALUES, "prod"), flux(one, chart="grafana")],
    "another key of values": lambda one: [{**VALUES, "backup": one}],
    "labels in values": lambda one: [{**VALUES, "podAnnotations": one, "configMapLabels": one}],
    "list in values": lambda one: [{**VALUES, "serviceMonitor": {"x": [one]}}],
    "two parts of a chart": lambda one: [{"nessie": VALUES, "nessie-old": {"enabled": False, **one}}],
    "values beside a service": lambda one: [compose({}), one],
}  # fmt: skip


def written(folder: Path, documents: list[Any], *, is_one: bool) -> list[Path]:
    texts = [yaml.safe_dump(one, sort_keys=False) for one in documents]
    texts = ["---\n".join(texts)] if is_one else texts
    files = [folder / f"values{number}.yaml" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return files


@pytest.mark.parametrize("at", range(len(SETTINGS)))
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("is_one", [True, False])
def test_rules_of_another_place_permit_nothing(tmp_path: Path, place: str, at: int, is_one: bool) -> None:
    migration = migrate_nessie(written(tmp_path, PLACES[place](SETTINGS[at]), is_one=is_one))
    rules = yaml.safe_load(migration.files["rules.yaml"])["rules"]
    assert rules.get("a", "false").startswith("false"), migration.parts
    assert {text for text in rules.values() if not text.startswith("false")} <= {NARROW}
    assert migration.left or SETTINGS[at] in (HELD_YAML, VARIABLE)


READ: Mapping[str, Callable[[Any], list[Any]]] = {
    "values": lambda one: [one],
    "values of a part": lambda one: [{"my-nessie": one}],
    "release": lambda one: [flux(one)],
    "release of a chart in a folder": lambda one: [flux(one, chart="./charts/my-nessie")],
    "part of another chart": lambda one: [flux({"nessie": one}, chart="platform")],
    "application": lambda one: [argo(one)],
    "list": lambda one: [{"apiVersion": "v1", "kind": "List", "items": [argo(one)]}],
    "set of applications": lambda one: [{
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": {"name": "n"},
        "spec": {"template": {"spec": {"sources": argo(one)["spec"]["source"]}}}}],
    "kustomization": lambda one: [{"kind": "Kustomization", "helmCharts": [{"name": "nessie", "valuesInline": one}]}],
    "release and its values": lambda one: [flux({"image": {"tag": "1"}}), one],
}  # fmt: skip


@pytest.mark.parametrize("given", [CHART, FLAT, NESTED, VARIABLE], ids=str)
@pytest.mark.parametrize("place", READ)
def test_rules_in_a_known_place_are_read(tmp_path: Path, place: str, given: Any) -> None:
    migration = migrate_nessie(written(tmp_path, READ[place](given), is_one=False))
    assert yaml.safe_load(migration.files["rules.yaml"])["rules"] == {"a": "true"}
    assert migration.left == []


def of_lakekeeper(**variables: str) -> dict[str, Any]:
    return {"catalog": {"config": variables}}


WIDE = of_lakekeeper(**{ADMINS: MALLORY, "TRINO_ADMIN_USERS": "mallory", "TRINO_ALLOW_UNMANAGED_CATALOGS": "true"})
ADMIN = of_lakekeeper(**{ADMINS: MALLORY})
SERVICE = {"image": LAKEKEEPER, "environment": BACKEND}
WIDE_ENV = WIDE["catalog"]["config"]
OF_OTHERS = {
    "two releases": [flux(of_lakekeeper(**BACKEND), "prod", "lakekeeper"), flux(ADMIN, "staging", "lakekeeper")],
    "two namespaces": [flux(of_lakekeeper(**BACKEND), "l", "lakekeeper", namespace="prod"),
                       flux(ADMIN, "l", "lakekeeper", namespace="dev")],
    "two applications": [argo(of_lakekeeper(**BACKEND), "prod", "lakekeeper"), argo(ADMIN, "staging", "lakekeeper")],
    "values beside a service": [{"services": {"lakekeeper": SERVICE}}, ADMIN],
    "release of another chart": [flux(WIDE, "g", "grafana")],
    "custom resource": [custom(WIDE, "Lakekeeper")],
    "another image": [{"services": {"lakekeeper": SERVICE, "boot": {"image": "curlimages/curl", "environment": WIDE_ENV}}}],
    "container of another image": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "l", "image": LAKEKEEPER}, {"name": "b", "image": "alpine/k8s:1", "env": [
            {"name": name, "value": text} for name, text in WIDE_ENV.items()]}]}}],
    "another key of values": [{**of_lakekeeper(**BACKEND), "old": WIDE}],
}  # fmt: skip


@pytest.mark.parametrize("form", OF_OTHERS)
@pytest.mark.parametrize("is_one", [True, False])
def test_variables_of_another_place_open_nothing(tmp_path: Path, form: str, is_one: bool) -> None:
    migration = migrate_lakekeeper(written(tmp_path, OF_OTHERS[form], is_one=is_one))
    assert_closed(migration)


def assert_closed(migration: Migration) -> None:
    settings = yaml.safe_load(migration.files["pdp.yaml"])
    assert "mallory" not in migration.files["pdp.yaml"]
    assert settings.get("trino", {}).get("unmanaged_catalogs", "deny") == "deny"
    assert migration.left
