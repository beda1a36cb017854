"""Files of Cedar in the configuration: what stops the start, with which place, and what the bundle keeps."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import pytest
from support.generators.generated_pdps import decide

from pdp.app.archived_bundle import rebuild_pdp
from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.decision.service import Pdp
from pdp.engines.cedar import schema as library
from pdp.engines.cedar.kind import as_sources, build_cedar
from pdp.engines.cedar.model import CedarModel, load_model
from pdp.engines.cedar.policies import CedarPolicies
from pdp.engines.cedar.schema import GENERATIONS, CedarSchema, CedarSources, SourceText, own_text
from pdp.engines.cel.rules import inline_rules
from pdp.errors import ConfigError, EntitiesInvalid, PdpError, PolicyError, PolicyInvalid, SchemaInvalid
from pdp.facts.snapshot import Facts

GOOD = '@id("p")\npermit(principal, action, resource);\n'
PERSON = {"uid": {"type": "Lakekeeper::User", "id": "oidc~a"}, "attrs": {}, "parents": []}
NO_RULES = (inline_rules({}), inline_rules({}))


def pdp_of(folder: Path, **cedar: object) -> Pdp:
    policies = {"rules": (), "cedar": {"policies": ["*.cedar"], **cedar}}
    data = {"authorities": {"default": {"engines": ["cedar"]}}, "policies": policies, "audit": {"sinks": ()}}
    return build_pdp(make_settings(data, folder), Facts.empty(), NO_RULES)


def error_of(folder: Path, kind: type[PdpError], **cedar: object) -> str:
    with pytest.raises(kind) as caught:
        pdp_of(folder, **cedar)
    return str(caught.value).replace(str(folder), "")


@pytest.mark.parametrize(
    ("text", "place", "cause"),
    [
        ("permit(principal, action, resource)\n  when { resource.name = 1 };", "2:24", "'=' is not a valid operator"),
        ("permit(principal, action, resource", "1:1", "does not parse"),
        ("\n permit(principal, action, resource) when { context.nothing };", "2:53", "attribute `nothing`"),
        ('permit(principal,\n  action == Lakekeeper::Action::"Dorp", resource);', "2:33", "unrecognized action"),
        ('permit(principal, action, resource);\n@id("a") forbid(principal == ?principal, action, resource);', "2:30", "a template"),
        ("@id permit(principal, action, resource);", "1:1", "`@id` is empty"),
        ('@id("p")\npermit(principal, action, resource);', "1:1", "policy `p` stands at /a.cedar:1:1 already"),
        ('permit(principal, action, resource);\n@id("policy1") forbid(principal, action, resource);', "2:1", "stands at"),
    ],
)  # fmt: skip
def test_an_invalid_policy_stops_the_start_with_its_place(tmp_path: Path, text: str, place: str, cause: str) -> None:
    (tmp_path / "a.cedar").write_text(GOOD)
    (tmp_path / "b.cedar").write_text(text)
    error = error_of(tmp_path, PolicyInvalid)
    assert error.startswith(f"/b.cedar:{place}: ")
    assert cause in error


@pytest.mark.parametrize(
    ("text", "place", "cause"),
    [
        ('{"uid": 1}', "1:1", "a JSON list"),
        ('[\n {"uid": {"type": "Lakekeeper::User", "id": "x"},,\n}]', "2:50", "not JSON"),
        ('[{"attrs": {}}]', "1:2", "`uid` is missing"),
        ('[\n\n  {"uid": {"type": "Lakekeeper::Robot", "id": "x"}}]', "3:3", "no entity type `Lakekeeper::Robot`"),
        ('[{"uid": {"type": "Lakekeeper::Table", "id": "lake/a/t"}, "attrs": {"protected": 1}}]', "1:2", "attribute `protected`"),
        ('[{"uid": {"type": "Lakekeeper::User", "id": "oidc~a"}, "attrs": {"email": "e"}}]', "1:2", "/a.json:1:2 already, with other content"),
        ('[{"uid": {"type": "Lakekeeper::User", "id": "oidc~b"}, "attrs": {"x": 1, "x": 2}}]', "1:2", "a key twice"),
        ('[{"uid": {"type": "Lakekeeper::User", "id": "oidc~b"}, "atts": {}}]', "1:2", "unknown key `atts`"),
        ('[{"uid": {"type": "Lakekeeper::Namespace", "id": "lake/a"}, "parents": [{"type": "Lakekeeper::Namespace", "id": "lake/a/b"}]}]', "1:2", "inside itself"),
    ],
)  # fmt: skip
def test_an_invalid_entity_stops_the_start_with_its_place(tmp_path: Path, text: str, place: str, cause: str) -> None:
    (tmp_path / "a.cedar").write_text(GOOD)
    (tmp_path / "a.json").write_text(json.dumps([PERSON]))
    (tmp_path / "b.json").write_text(text)
    error = error_of(tmp_path, EntitiesInvalid, entities=["*.json"])
    assert error.startswith(f"/b.json:{place}: ")
    assert cause in error


def test_the_same_entity_may_stand_in_two_files(tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text(GOOD)
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps([PERSON]))
    pdp_of(tmp_path, entities=["*.json"])


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("s.cedarschema", "namespace Lakekeeper { entity }"),
        ({"replace": "s.cedarschema"}, "{"),
        ({"extend": "s.cedarschema"}, "namespace Lakekeeper { entity Table; }"),
        ({"extend": "s.cedarschema"}, "// nothing"),
        ("s.cedarschema", ""),
    ],
)
def test_an_invalid_schema_stops_the_start_with_its_file(tmp_path: Path, schema: object, text: str) -> None:
    (tmp_path / "a.cedar").write_text(GOOD)
    (tmp_path / "s.cedarschema").write_text(text)
    error = error_of(tmp_path, SchemaInvalid, schema=schema)
    assert error.startswith("/s.cedarschema:1:1: n")
    assert "(`policies.cedar.schema" in error


@pytest.mark.parametrize("schema", ["none.cedarschema", {"replace": "none.cedarschema"}])
def test_a_missing_schema_stops_the_start(tmp_path: Path, schema: object) -> None:
    (tmp_path / "a.cedar").write_text(GOOD)
    assert error_of(tmp_path, PolicyError, schema=schema).startswith("/none.cedarschema: cannot be read")


def test_a_fragment_extends_the_namespace_of_lakekeeper_and_others(tmp_path: Path) -> None:
    fragment = (
        "namespace Corp { entity Day { open: Bool }; }\nnamespace Lakekeeper { entity Robot { day: Corp::Day }; }"
    )
    (tmp_path / "a.cedar").write_text('permit(principal, action, resource) when { Lakekeeper::Robot::"r".day.open };')
    (tmp_path / "a.json").write_text('[{"uid": {"type": "Corp::Day", "id": "d"}, "attrs": {"open": true}}]')
    (tmp_path / "s.cedarschema").write_text(fragment)
    pdp_of(tmp_path, schema={"extend": "s.cedarschema"}, entities=["a.json"])
    assert "Lakekeeper::Robot" in error_of(tmp_path, PolicyInvalid)


def test_lakekeepers_own_schema_may_replace(tmp_path: Path) -> None:
    """Replace the schema by one without the additions of pdp."""
    text = own_text().replace("    delegated: Bool,\n", "").replace("    display_name?: String,\n", "")
    (tmp_path / "s.cedarschema").write_text(text)
    (tmp_path / "a.cedar").write_text(GOOD)
    pdp_of(tmp_path, schema="s.cedarschema")


@pytest.mark.parametrize(
    ("files", "cause"),
    [
        ({"policies": []}, "policies.cedar.policies"),
        ({"policies": ["none/*.cedar"]}, "matches no file"),
        ({"entities": ["none.json"]}, "cannot be read"),
        ({"schema": {}}, "`replace` or `extend`"),
    ],
)
def test_missing_files_stop_the_start(tmp_path: Path, files: dict[str, object], cause: str) -> None:
    (tmp_path / "a.cedar").write_text(GOOD)
    assert cause in error_of(tmp_path, PdpError, **files)


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cedarpy", None)
    with pytest.raises(ConfigError, match=r"pip install 'lakehouse-pdp\[cedar\]'"):
        library.load_cedarpy()


def test_the_archived_bundle_decides_alike(tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text(GOOD)
    (tmp_path / "b.cedar").write_text(
        'forbid(principal, action, resource) when { resource has name && resource.name == "t" };'
    )
    robot = {"uid": {"type": "Corp::Day", "id": "d"}, "attrs": {"open": True}, "parents": []}
    (tmp_path / "a.json").write_text(json.dumps([PERSON, robot]))
    (tmp_path / "s.cedarschema").write_text("namespace Corp { entity Day { open: Bool }; }")
    pdp = pdp_of(tmp_path, entities=["a.json"], schema={"extend": "s.cedarschema"})
    again = rebuild_pdp(pdp.bundle.text)
    assert again.bundle.digest == pdp.bundle.digest
    assert again.bundle.default.engines[0].digest == pdp.bundle.default.engines[0].digest
    names = [f"table:lake/a/{name}" for name in ("t", "u")]
    checks = [{"principal": "user:oidc~a", "action": "read_data", "resources": names}]
    decided = [decide(each, checks) for each in (pdp, again)]
    assert [answer.allowed for answer in decided] == [b"\0\1"] * 2
    assert decided[0].by == decided[1].by == ["cedar:policy1", "cedar:p"]


def test_every_policy_and_entity_changes_the_digest(tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text(GOOD)
    (tmp_path / "a.json").write_text("[]")
    plain = pdp_of(tmp_path).bundle.digest
    (tmp_path / "a.json").write_text(json.dumps([PERSON]))
    with_person = pdp_of(tmp_path, entities=["a.json"]).bundle.digest
    (tmp_path / "a.cedar").write_text(GOOD.replace("permit", "forbid"))
    assert len({plain, with_person, pdp_of(tmp_path, entities=["a.json"]).bundle.digest}) == 3


def test_sources_with_another_part_are_validated_again(tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text(GOOD)
    settings = make_settings({}, tmp_path)
    sources = as_sources(load_model(CedarSources((SourceText(GOOD),))))
    assert build_cedar(settings, sources).digest == build_cedar(settings, {**sources, "checked": ""}).digest
    with pytest.raises(PolicyInvalid, match="does not fit the schema"):
        build_cedar(settings, {**sources, "policies": "permit(principal, action, resource) when { context.x };"})
    with pytest.raises(EntitiesInvalid):
        build_cedar(settings, {**sources, "entities": [{"uid": {"type": "Lakekeeper::Robot", "id": "x"}}]})


@pytest.mark.parametrize("lines", [0, 1, 400])
def test_places_are_those_of_plain_counting(lines: int) -> None:
    text = "\n".join("x" * (at % 5) for at in range(lines + 1))
    source = SourceText(text, "f")
    for offset in range(len(text) + 1):
        place, before = source.place(offset), text[:offset]
        assert (place.line, place.column) == (before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1)


def alive(kind: type) -> int:
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


def test_old_generations_take_no_memory(tmp_path: Path) -> None:
    """After many changes of schema, policies and entities, as a reload meets them: in the loader and in a worker."""
    before = {kind: alive(kind) for kind in (CedarSchema, CedarPolicies, CedarModel)}
    files = {"schema": {"extend": "more.cedarschema"}, "entities": ["*.cedarentities.json"]}
    for number in range(4 * GENERATIONS):
        (tmp_path / "more.cedarschema").write_text(f"namespace Lakekeeper {{ entity Team{number}; }}")
        (tmp_path / "a.cedar").write_text(GOOD.replace('"p"', f'"p{number}"'))
        person = {**PERSON, "uid": {"type": f"Lakekeeper::Team{number}", "id": "a"}}
        (tmp_path / "a.cedarentities.json").write_text(json.dumps([person]))
        text = pdp_of(tmp_path, **files).bundle.text
        assert rebuild_pdp(text).bundle.text == text
    # each generation has the model of the files, and that of the text of the bundle
    assert {kind: alive(kind) - count for kind, count in before.items() if alive(kind) - count > 2 * GENERATIONS} == {}
