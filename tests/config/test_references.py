"""Names that settings and worlds share: an unknown one stops the start with its place and the nearest known name."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from pdp.app.facts import WorldEdits, read_facts, read_source
from pdp.app.service import Service
from pdp.config.load import load_settings, make_settings
from pdp.config.origins import known_keys, suggest
from pdp.config.references import idle_names
from pdp.config.settings import Settings
from pdp.errors import ConfigError, PdpError

WAREHOUSES = {"prod": {"project": "p"}, "tpch": {}}


def load(folder: Path, **config: Any) -> Settings:
    data = {"warehouses": WAREHOUSES, "policies": {"rules": []}, **config}
    (folder / "pdp.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    return load_settings(folder / "pdp.yaml", (), {})


def refused(folder: Path, **config: Any) -> str:
    """The error of a start."""
    with pytest.raises(PdpError) as raised:
        Service(load(folder, **config))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def place_of(folder: Path, text: str) -> str:
    lines = (folder / "pdp.yaml").read_text().splitlines()
    line = next(number for number, line in enumerate(lines, 1) if text in line)
    return f"({folder / 'pdp.yaml'}:{line}:"


@pytest.mark.parametrize(
    ("config", "key", "at"),
    [
        ({"authorities": {"default": {"engines": ["cel"]}, "strict": {"engines": ["grants"], "warehouses": ["prd"]}}},
         "authorities.strict.warehouses.0", "- prd"),
        ({"trino": {"catalogs": {"x": {"warehouse": "prd"}}}}, "trino.catalogs.x.warehouse", "warehouse: prd"),
        ({"row_access": {"protected": ["warehouse:prod", "namespace:prd/s"]}}, "row_access.protected.1", "prd/s"),
    ],
)  # fmt: skip
def test_a_warehouse_in_settings(tmp_path: Path, config: Any, key: str, at: str) -> None:
    error = refused(tmp_path, **config)
    assert error.startswith(f"`{key}`: no warehouse `prd` is configured, the nearest known is `prod` ")
    assert place_of(tmp_path, at) in error


def test_without_warehouses_those_of_catalogs_are_known(tmp_path: Path) -> None:
    authorities = {"default": {"engines": ["cel"]}, "strict": {"engines": ["grants"], "warehouses": ["prd"]}}
    assert load(tmp_path, warehouses={}, authorities=authorities)
    catalogs = {"catalogs": {"c": {"warehouse": "prod"}}}
    assert "the nearest known is `prod`" in refused(tmp_path, warehouses={}, trino=catalogs, authorities=authorities)
    (tmp_path / "world.json").write_text('{"objects": ["warehouse:native"]}')
    store = {"url": "file:world.json"}
    assert list(read_facts(load(tmp_path, warehouses={}, trino=catalogs, store=store)).objects())


@pytest.mark.parametrize("key", ["url", "seed"])
@pytest.mark.parametrize(
    ("world", "error"),
    [
        ({"grants": [{"principal": "user:a~b", "privilege": "select", "object": "table:nope/x"}]},
         "grants[0].object: no warehouse `nope` is configured, there are `prod`, `tpch`"),
        ({"objects": ["warehouse:tpch", {"object": "namespace:prodd/s", "managedAccess": True}]},
         "objects[1].object: no warehouse `prodd` is configured, the nearest known is `prod`"),
        ({"objects": ["warehouse:tpc"]}, "objects[0]: no warehouse `tpc` is configured, the nearest known is `tpch`"),
        ({"objects": ["tabel:prod/s/t"]}, "unknown resource type in `tabel:prod/s/t`"),
        ({"objects": ["tabel:prod/s/t"]}, "the nearest known is `table`"),
        ({"grants": [{"principal": "user:a~b", "privilege": "selct", "object": "table:prod/s/t"}]},
         "`selct` cannot be granted on a table, the nearest known is `select`"),
    ],
)  # fmt: skip
def test_a_name_in_a_world(tmp_path: Path, key: str, world: Any, error: str) -> None:
    (tmp_path / "world.json").write_text(json.dumps(world, indent=1))
    store = {"url": "file:world.json"} if key == "url" else {"seed": "world.json"}
    said = refused(tmp_path, store=store)
    assert error in said
    assert re.match(re.escape(str(tmp_path / "world.json")) + r":\d+:\d+: ", said)
    assert f"(`store.{key}` of {tmp_path / 'pdp.yaml'}:" in said


def test_a_world_of_a_configuration_without_names(tmp_path: Path) -> None:
    (tmp_path / "world.json").write_text('{"objects": ["warehouse:any"]}')
    assert list(read_facts(load(tmp_path, warehouses={}, store={"url": "file:world.json"})).objects())


ROLES: dict[str, Any] = {
    "trino": ({"trino": {"groups": {"people": "analist"}}}, "trino.groups.people"),
    "idp": (
        {"identity": {"providers": {"kc": {"issuer": "x", "jwks": "https://x/", "role_map": {"r": "analist"}}}}},
        "identity.providers.kc.role_map.r",
    ),
}


@pytest.mark.parametrize("key", ROLES)
@pytest.mark.parametrize("store", [{"url": "file:world.json"}, {"seed": "world.json"}])
def test_a_role_in_settings(tmp_path: Path, key: str, store: Any) -> None:
    config, name = ROLES[key]
    (tmp_path / "world.json").write_text('{"objects": ["role:analyst"]}')
    said = refused(tmp_path, store=store, **config)
    assert said.startswith(f"`{name}`: no role `analist` is ")
    assert "the nearest known is `analyst`" in said
    assert f"({tmp_path / 'pdp.yaml'}:" in said
    (tmp_path / "r.properties").write_text("nessie.server.authorization.rules.a='analist' in roles")
    policies = {"rules": ["r.properties"]}
    assert read_facts(load(tmp_path, store=store, **config, policies=policies))


def test_names_that_only_a_database_could_know_are_warned_of(tmp_path: Path) -> None:
    """A role or warehouse comes and goes while the service runs: its absence must not stop the next start."""
    (tmp_path / "world.json").write_text('{"objects": ["warehouse:pond"]}')
    read_source(load(tmp_path, warehouses={}, store={"seed": "world.json"})).close()  # type: ignore[union-attr]
    with structlog.testing.capture_logs() as logs:
        read_source(load(tmp_path, trino={"groups": {"people": "analist"}})).close()  # type: ignore[union-attr]
    said = [f"{entry['event']} {entry.get('cause', '')}" for entry in logs]
    assert any("`analist`" in line for line in said)
    assert any("no warehouse `pond` is configured" in line for line in said)


REF_MISTAKES = {
    "refs/heads/main": "leave out `refs/heads/`",
    "refs/tags/v1": "leave out `refs/tags/`",
    "refs/main": "leave out `refs/`",
    "Refs/Heads/main": "leave out `Refs/Heads/`",
    "branch:main": "leave out `branch:`",
    "tag:v1": "leave out `tag:`",
    "ref:main": "leave out `ref:`",
    "@main": "leave out `@`",
    "main@": "without what is behind `@`",
    "main@2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d": "without what is behind `@`",
    "main@2024-01-01T00:00:00Z": "without what is behind `@`",
    "main#hash": "`#`",
    "main~1": "`~`",
    "main^": "`^`",
    "a:b": "`:`",
    "a\\b": "`\\`",
    "my branch": "a blank",
    "feature%2Fx": "`feature/x`",
    "/main": "`/`",
    "main/": "`/`",
    "a//b": "`//`",
    "a..b": "`..`",
    "main.": "`.`",
    "ma\u200bin": "signs that nobody sees",
    "main\n": "leave them out",
    " main": "leave them out",
    " ": "leave them out",
    "": "at least 1 character",
}  # fmt: skip
"""Ref that no request has -> a part of what the error says."""


@pytest.mark.parametrize("ref", REF_MISTAKES)
@pytest.mark.parametrize("key", ["warehouses.prod.default_ref", "trino.catalogs.x.ref"])
def test_a_ref_that_no_request_has_stops_the_start(tmp_path: Path, key: str, ref: str) -> None:
    """A forbid on `ref == 'main'` would not bind where the default is `refs/heads/main`."""
    catalog = {"warehouse": "prod", **({"ref": ref} if key.startswith("trino") else {})}
    warehouse = {"default_ref": ref} if key.startswith("warehouses") else {}
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, warehouses={"prod": warehouse}, trino={"catalogs": {"x": catalog}})
    assert str(raised.value).startswith(f"`{key}`: ")
    assert REF_MISTAKES[ref] in str(raised.value)


@pytest.mark.parametrize("ref", ["main", "Main", "feature/x", "heads/main", "v1.0", "release-1_2", "größe", "2e1cfa82"])
def test_a_ref_that_a_request_may_have(tmp_path: Path, ref: str) -> None:
    settings = load(
        tmp_path,
        warehouses={"prod": {"default_ref": ref}},
        trino={"catalogs": {"x": {"warehouse": "prod", "ref": ref}}},
    )
    assert settings.warehouses["prod"].default_ref == settings.trino.catalogs["x"].ref == ref


def test_a_ref_that_a_branch_may_have_and_is_hardly_meant_is_warned_of(tmp_path: Path) -> None:
    settings = load(tmp_path, warehouses={"prod": {"default_ref": "heads/main"}})
    assert [message for _, message in idle_names(settings)] == [
        "`warehouses.prod.default_ref`: `heads/main`: a ref has no prefix: write `main`"
    ]
    error = refused(tmp_path, warehouses={"prod": {"default_ref": "heads/main"}}, policies={"strict_names": True})
    assert "write `main`" in error


def test_a_protected_container_with_a_ref_is_taken_for_no_other(tmp_path: Path) -> None:
    assert "without a ref" in refused(tmp_path, row_access={"protected": ["namespace:prod/hr@dev"]})


def test_an_unknown_provider_of_a_trusted_engine(tmp_path: Path) -> None:
    engine = {"type": "trino", "owner_property": "o", "identities": {"keycloack": {"subjects": ["s"]}}}
    provider = {"keycloak": {"issuer": "x", "jwks": "https://x/"}}
    said = refused(tmp_path, trusted_engines={"e": engine}, identity={"providers": provider})
    assert said.startswith(
        "`trusted_engines.e.identities.keycloack`: no provider `keycloack` is configured, the nearest"
    )


@pytest.mark.parametrize("admin", ["alice", "role:", "group:x", "user:x", ""])
def test_bootstrap_admins_are_users_or_roles(tmp_path: Path, admin: str) -> None:
    assert refused(tmp_path, store={"bootstrap_admins": [admin]}).startswith("`store.bootstrap_admins.0`: ")
    assert load(tmp_path, store={"bootstrap_admins": ["user:oidc~a", "role:b"]})


def test_all_unknown_names_are_said_at_once(tmp_path: Path) -> None:
    catalogs = {"a": {"warehouse": "x"}, "b": {"warehouse": "y"}}
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, trino={"catalogs": catalogs})
    assert [message.split(":")[0] for _, message in raised.value.problems] == [
        "`trino.catalogs.a.warehouse`",
        "`trino.catalogs.b.warehouse`",
    ]


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("limts", "unknown key `limts`, the nearest known is `limits`"),
        ("server.htp", "unknown key `server.htp`, the nearest known is `http`"),
        ("warehouses.prod.knd", "unknown key `warehouses.prod.knd`, the nearest known is `kind`"),
        ("trino.catalogs.c.reff", "unknown key `trino.catalogs.c.reff`, the nearest known is `ref`"),
        ("identity.providers.kc.isuer", "unknown key `identity.providers.kc.isuer`, the nearest known is `issuer`"),
    ],
)
def test_an_unknown_key_has_its_nearest(key: str, error: str) -> None:
    data: Any = 1
    for name in reversed(key.split(".")):
        data = {name: data}
    with pytest.raises(ConfigError, match=re.escape(error)):
        make_settings(data, Path())


def test_nearest_names() -> None:
    assert suggest("PROD", ["prod", "dev"]) == ", the nearest known is `prod`"
    assert suggest("x", ["b", "a"]) == ", there are `a`, `b`"
    assert suggest("x", []) == ""
    assert suggest("x", [f"name{number}" for number in range(100)]) == ""
    assert known_keys(Settings, ("nowhere", "at", "all")) == frozenset()


# --- files that are newer than what is served ----------------------------------------------------------------------


def test_a_seed_that_is_newer_than_its_database_is_warned_of(tmp_path: Path) -> None:
    seed = tmp_path / "world.json"
    seed.write_text('{"objects": ["warehouse:prod"]}')
    settings = load(tmp_path, store={"seed": "world.json"})

    def warnings() -> list[Any]:
        with structlog.testing.capture_logs() as logs:
            read_source(settings).close()  # type: ignore[union-attr]
        return [entry for entry in logs if "`store.seed` is newer" in entry["event"]]

    later = os.stat(seed).st_mtime + 1000  # noqa: PTH116
    assert warnings() == []
    assert warnings() == []
    os.utime(seed, (later, later))
    assert warnings() == []  # the same content
    seed.write_text('{"objects": ["warehouse:prod", "namespace:prod/s"]}')
    os.utime(seed, (later, later))
    assert [entry["entries_not_in_the_database"] for entry in warnings()] == [1]
    os.utime(seed, (1, 1))
    assert warnings() == []


def test_an_edit_of_the_world_file_is_noticed_once(tmp_path: Path) -> None:
    world = tmp_path / "world.json"
    world.write_text("{}")
    edits = WorldEdits(load(tmp_path, store={"url": "file:world.json"}))
    assert not edits.is_edited()
    world.write_text('{"objects": []}')
    assert [edits.is_edited(), edits.is_edited()] == [True, False]
    world.unlink()
    assert [edits.is_edited(), edits.is_edited()] == [True, False]


async def test_a_running_service_logs_an_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdp.app.facts.LOOK_SECONDS", 0.01)
    (tmp_path / "world.json").write_text("{}")
    edits = WorldEdits(load(tmp_path, store={"url": "file:world.json"}))
    with structlog.testing.capture_logs() as logs:
        (tmp_path / "world.json").write_text('{"objects": []}')
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(edits.watch(), 1)
    assert [(entry["event"], entry["file"]) for entry in logs] == [
        ("the world file has changed since the start: restart to serve it", str(tmp_path / "world.json"))
    ]
