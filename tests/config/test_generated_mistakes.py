"""Every key, every kind of file and every name in a configuration, each with a mistake: the start stops in one line.

The line names the key, and the file if the key names one. The exceptions stand in short lists with their reasons. A new
key with texts belongs to one of the lists.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from support.generators.setting_keys import NAME, SettingKey, holds_text, setting_keys
from support.servers.idp import Authority, jwk
from support.service.command_line import COMPOSITION

from pdp.app.facts import build_catalogs, inspect_facts
from pdp.app.service import Service
from pdp.cli.config.problems import find_problems, problems_of
from pdp.config.load import load_settings, make_settings
from pdp.config.references import _BLANKS, STARRED
from pdp.errors import ConfigError, PdpError

BASE: Final[dict[str, Any]] = {
    "server": {
        "http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "diagnostics": "127.0.0.1:0", "unix": "pdp.sock",
        "lame_duck_seconds": 0, "drain_seconds": 0,
        "tls": {"cert": "cert.pem", "key": "key.pem", "client_ca": "ca.pem"},
    },
    "authorities": {"default": {"engines": ["cel", "grants"]}, "strict": {"engines": ["grants", "scopes", "cedar"], "warehouses": ["prod"]}},
    "warehouses": {
        "prod": {"project": "p", "default_ref": "main"},
        "lake": {
            "catalog": {
                "uri": "http://127.0.0.1:1", "warehouse": "w", "token_file": "token.txt", "ca_file": "catalog.pem",
            },
        },
    },
    "policies": {
        "rules": [{"path": "rules.properties"}], "profiles": ["prod"],
        "forbid": [{"path": "forbid.yaml", "allow_empty": False}], "row_access": [{"path": "rows.yaml"}],
        "scopes": {"permissions": [{"path": "permissions.yaml"}]},
        "cedar": {
            "policies": [{"path": "policies.cedar"}], "entities": [{"path": "entities.json"}],
            "schema": {"extend": "fragment.cedarschema"},
        },
    },
    "row_access": {"protected": ["namespace:lake/s"]},
    "store": {"url": "sqlite:///pdp.db", "seed": "world.yaml", "bootstrap_admins": ["user:oidc~root"]},
    "audit": {"sinks": [{"file": "audit"}], "hmac_key_file": "chain.key"},
    "cache": {"redis_file": "redis.txt", "tls_ca": "redis.pem", "mac_key_file": "seal.key"},
    "identity": {
        "providers": {"kc": {"issuer": "https://kc", "jwks": "keys.json", "role_map": {"r": "analyst"}}},
        "cel_provider": "kc",
        "callers": {
            "a": {"bearer": {"idp": "kc", "subjects": ["s"]}, "may_assert": ["principals"]},
            "b": {"mtls": {"subjects": ["CN=trino"]}},
        },
        "instance_admins": ["user:oidc~root"],
    },
    "trusted_engines": {
        "e": {"type": "trino", "owner_property": "o", "identities": {"kc": {"subjects": ["s"]}}},
    },
    "trino": {"catalogs": {"c": {"warehouse": "lake"}}, "groups": {"g": "analyst"}},
    "lakes": {"l": {"uri": "http://127.0.0.1:1", "token_file": "lake.txt", "credential_file": "credential.txt"}},
}  # fmt: skip
TEXTS: Final = {
    "rules.properties": "nessie.server.authorization.rules.a=true\n",
    "forbid.yaml": "rules: {f: \"role=='x'\"}\n",
    "rows.yaml": "policies: [{id: p, table: lake.s.t, grantees: [allUsers], filter: x = 1}]\n",
    "permissions.yaml": "[{name: svc, permissions: {Query: [{catalog: prod, schema: s, tables: [t]}]}}]\n",
    "policies.cedar": "permit(principal, action, resource);",
    "entities.json": '[{"uid": {"type": "Lakekeeper::User", "id": "oidc~a"}}]',
    "fragment.cedarschema": "namespace Corp { entity Day; }",
    "world.yaml": "objects: [{object: warehouse:prod, parent: project:p}, role:analyst]\n",
    "token.txt": "abc\n",
    "credential.txt": "client:secret\n",
    "lake.txt": "abc\n",
    "url.txt": "sqlite:///pdp.db\n",
    "chain.key": "a key of the hash chain\n",
    "redis.txt": "rediss://127.0.0.1:1\n",
    "seal.key": "a key of the seal on cached verdicts\n",
}

FILES: Final = {
    "policies.rules": "rules.properties",
    "policies.forbid": "forbid.yaml",
    "policies.row_access": "rows.yaml",
    "policies.scopes.permissions": "permissions.yaml",
    "policies.cedar.policies": "policies.cedar",
    "policies.cedar.entities": "entities.json",
    "policies.cedar.schema.extend": "fragment.cedarschema",
    "store.seed": "world.yaml",
    "store.url": "world.yaml",
    "store.url sqlite": "pdp.db",
    "store.url_file": "url.txt",
    "server.tls.cert": "cert.pem",
    "server.tls.key": "key.pem",
    "server.tls.client_ca": "ca.pem",
    "identity.providers.kc.jwks": "keys.json",
    "warehouses.lake.catalog.token_file": "token.txt",
    "warehouses.lake.catalog.ca_file": "catalog.pem",
    "audit.sinks": "audit",
    "audit.hmac_key_file": "chain.key",
    "cache.tls_ca": "redis.pem",
    "cache.redis_file": "redis.txt",
    "cache.mac_key_file": "seal.key",
    "server.unix": "pdp.sock",
    "lakes.l.token_file": "lake.txt",
    "lakes.l.credential_file": "credential.txt",
}
"""Key that names a file -> the file of the base configuration. `store.url` names a world file or a database."""
OF_SECRETS: Final = {
    "store.url_file", "warehouses.lake.catalog.token_file", "audit.hmac_key_file", "cache.redis_file",
    "cache.mac_key_file", "lakes.l.token_file", "lakes.l.credential_file",
}  # fmt: skip
"""Keys whose errors may not show the name of the file: it may be the secret itself, in the wrong key."""
MISTAKES: Final = ("missing", "empty", "folder", "binary", "other")
OTHER: Final = "[[1, 2"
"""Content of no kind of file."""
STARTS: Final = {
    ("store.url sqlite", "missing"): "the start makes the database",
    ("store.url sqlite", "empty"): "an empty file is a new database",
    ("audit.sinks", "missing"): "the start makes the folder",
    ("audit.sinks", "folder"): "it is a folder",
    ("server.unix", "missing"): "the start makes the socket",
    ("lakes.l.token_file", "other"): "any text may be a token; only the catalog knows it",
    ("lakes.l.credential_file", "other"): "any text may be a credential; only the catalog knows it",
}
"""Mistakes with which the service starts, and why."""

REFERENCES: Final = {
    "authorities.strict.engines": (["grnts"], "`grnts`"),
    "authorities.strict.warehouses": (["prd"], "`prod`"),
    "trino.catalogs.c.warehouse": ("lak", "`lake`"),
    "trino.groups": ({"g": "analist"}, "`analyst`"),
    "lakekeeper.warehouses": ({"demo": "lak"}, "`lake`"),
    "polaris.catalogs": ({"prod": "lak"}, "`lake`"),
    "ranger.services": ({"cl1_hive": "lak"}, "`lake`"),
    "starrocks.catalogs": ({"prod": "lak"}, "`lake`"),
    "starrocks.groups": ({"g": "analist"}, "`analyst`"),
    "authzen.resources": ({"r": "table:lak/s/{id}"}, "`lake`"),
    "authzen.actions": ({"look": "reed_data"}, "`read_data`"),
    "polaris.roles": ({"engineer": "analist"}, "`analyst`"),
    "identity.providers.kc.role_map": ({"r": "analist"}, "`analyst`"),
    "identity.callers.a.bearer.idp": ("kcc", "`kcc`"),
    "trusted_engines.e.identities": ({"kcc": {"subjects": ["s"]}}, "`kc`"),
    "row_access.protected": (["namespace:lak/s"], "`lake`"),
}
"""Key that names what another part of the configuration holds -> a misspelt name, and words of the error."""
FORMS: Final = {
    "server.http": "nowhere",
    "server.grpc": "nowhere",
    "server.diagnostics": "nowhere",
    "warehouses.lake.catalog.uri": "ftp://x",
    "warehouses.lake.catalog.prefix": "../x",
    "warehouses.lake.catalog.token": "two words",
    "row_access.member.template": "{subjct}",
    "store.bootstrap_admins": ["root"],
    "identity.instance_admins": ["root"],
    "trino.user_prefix": "oidc",
    "polaris.user_prefix": "oidc",
    "starrocks.user_prefix": "oidc",
    "ranger.user_prefix": "oidc",
    "cache.redis": "http://127.0.0.1",
    "cache.mac_key": "short",
    "lakes.l.uri": "ftp://x",
    "lakes.l.namespace": "a.b",
}
"""Key whose texts have a form -> a text without it."""
FREE: Final = {
    "warehouses.<name>.project": "projects are known from nowhere else; a contradiction to the store is an error",
    "warehouses.<name>.default_ref": "only the catalog knows its refs",
    "warehouses.<name>.catalog.warehouse": "only the catalog knows its names",
    "policies.folder": "a wrong folder is a pattern without a file",
    **dict.fromkeys(
        (
            f"policies.source.{key}"
            for key in ("http", "oci", "git", "path", "keys", "token_file", "username", "ca", "folder")
        ),
        "judged in test_sources.py and tests/app/sources",
    ),
    "policies.source.redirect_hosts": "only the server knows other hosts",
    "policies.profiles": "Quarkus has no list of profiles: rules of others are left out, as there",
    "policies.scopes.read_resolver": "judged in test_resolvers.py",
    "policies.scopes.write_resolver": "judged in test_resolvers.py",
    "policies.cedar.schema": "judged in test_cedar_files.py",
    "policies.cedar.schema.replace": "judged in test_cedar_files.py",
    "row_access.member.claim": "callers may assert attributes of any name",
    "row_access.member.service_accounts": "patterns of addresses that tokens bring",
    "audit.mask": "words of keys that requests bring",
    "audit.sample_allows.<name>.surfaces": "patterns of what requests bring",
    "audit.sample_allows.<name>.actions": "patterns of what requests bring",
    "audit.sample_allows.<name>.principals": "patterns of what requests bring",
    **{
        f"audit.sinks.0.{kind}.{key}": "judged in test_sink_settings.py"
        for kind, place in (("http", "url"), ("otlp", "endpoint"))
        for key in ("headers_file", "ca", "spool", place)
    },
    **dict.fromkeys(
        ("outgoing.ca_file", "outgoing.proxy", "outgoing.no_proxy", "identity.providers.<name>.ca_file"),
        "judged in test_outgoing.py",
    ),
    **dict.fromkeys(
        ("identity.providers.<name>.jwks_token_file", "identity.providers.<name>.jwks_hosts"),
        "judged in test_discovery.py",
    ),
    "audit.sinks.0.otlp.service": "a name of the operator's choice",
    "audit.hmac_key": "any long text is a key",
    "cache.password": "only Redis knows it; another is a failure of the cache",
    "identity.providers.<name>.issuer": "any issuer may come; tokens of others are refused",
    "identity.providers.<name>.audiences": "tokens bring them; others are refused",
    "identity.providers.<name>.users": "only the provider knows its users",
    "identity.providers.<name>.claims.subject": "tokens bring claims; without a subject a token is refused",
    "identity.providers.<name>.claims.roles": "tokens bring claims, and need not have roles",
    "identity.providers.<name>.claims.groups": "tokens bring claims, and need not have groups",
    "identity.providers.<name>.claims.audience": "tokens bring claims; without an audience a token is refused",
    "identity.providers.<name>.claims.attributes": "tokens bring claims",
    **dict.fromkeys(
        (
            f"identity.providers.<name>.{key}"
            for key in ("issuers.0.issuer", "issuers.0.jwks", "claims.required", "claims.optional")
        ),
        "judged in test_unknown_evidence.py",
    ),
    "identity.providers.<name>.claims.separator": "tokens bring texts of any form",
    "warehouses.<name>.namespace_separator": "only the catalog knows what divides its namespaces",
    "identity.cel_provider": "callers may assert principals of any provider; an unknown one is a warning",
    "identity.callers.<name>.bearer.subjects": "tokens bring them; others are refused",
    "identity.callers.<name>.bearer.audiences": "tokens bring them; others are refused",
    "identity.callers.<name>.mtls.subjects": "certificates bring them; others are refused",
    "trusted_engines.<name>.owner_property": "the engine's own name of a property",
    "trusted_engines.<name>.identities.<name>.audiences": "tokens bring them",
    "trusted_engines.<name>.identities.<name>.subjects": "tokens bring them",
    "trino.catalogs.<name>.ref": "only the catalog knows its refs",
    "trino.admin_users": "users are known from nowhere",
    "trino.impersonation": "users are known from nowhere",
    "trino.functions.allow": "only Trino knows its functions, and catalogs without a warehouse have some, too",
    "trino.functions.builtin_catalogs": "only Trino knows its catalogs",
    "trino.procedures.allow": "only Trino knows its procedures",
    "trino.session_properties.deny": "only Trino knows its properties",
    "trino.execute_query.allow": "users are known from nowhere",
    "polaris.realms": "only Polaris knows its realms",
    **dict.fromkeys(
        (f"authzen.{key}" for key in ("actions", "base_url", "resources", "subjects")),
        "judged in tests/dialects/authzen",
    ),
    "polaris.admins": "users are known from nowhere",
    "lakes.<name>.warehouse": "only the catalog knows its names",
    "lakes.<name>.token": "only the catalog knows it",
    "lakes.<name>.credential": "only the catalog knows it",
    "lakes.<name>.properties": "only Iceberg knows its properties",
    "lakes.<name>.spark": "only Spark knows its properties",
}
"""Key with texts that nothing can judge -> why."""
NAMES: Final = {
    "warehouses": "lake", "providers": "kc", "catalogs": "c", "trusted_engines": "e", "identities": "kc",
    "authorities": "strict", "sample_allows": "r", "lakes": "l", "engines": "acme",
}  # fmt: skip
"""Map -> its name in the base configuration."""
KEYS: Final = list(setting_keys())
PARTLY: Final = frozenset({"trino.execute_query.allow", "identity.callers.<name>.mtls.subjects"})
"""Key that takes a `*` in one form alone."""
BY_FORM: Final = frozenset(
    {
        "identity.cel_provider", "identity.callers.<name>.bearer.idp", "store.bootstrap_admins", "trino.user_prefix",
        "polaris.user_prefix", "starrocks.user_prefix", "ranger.user_prefix", "identity.providers.<name>.jwks_hosts", "authzen.base_url", "authzen.subjects", "authzen.resources",
        "identity.instance_admins", "lakes.<name>.namespace", "row_access.member.template", "authorities.<name>.engines",
        "identity.providers.<name>.claims.required", "identity.providers.<name>.claims.optional",
    }
)  # fmt: skip
"""Key whose texts have a form that has no `*`."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files of the base configuration."""
    folder = tmp_path_factory.mktemp("base")
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    cert, key = Authority(folder).issue("pdp")
    shutil.copy(cert, folder / "cert.pem")
    shutil.copy(key, folder / "key.pem")
    for name in ("redis.pem", "catalog.pem"):
        shutil.copy(folder / "ca.pem", folder / name)
    (folder / "keys.json").write_text(json.dumps({"keys": [jwk()]}))
    return folder


@pytest.fixture
def folder(files: Path, tmp_path: Path) -> Path:
    shutil.copytree(files, tmp_path / "c")
    return tmp_path / "c"


@pytest.fixture(scope="module")
def one_folder(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files, for all tests that change `pdp.yaml` alone."""
    return Path(shutil.copytree(files, tmp_path_factory.mktemp("shared") / "c"))


@pytest.fixture
def unspoilt(one_folder: Path) -> Iterator[Path]:
    """The shared folder; a test that changes another file than `pdp.yaml` fails."""
    before = states(one_folder)
    yield one_folder
    assert states(one_folder) == before


def states(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the sizes and times of all files but `pdp.yaml`."""
    with os.scandir(folder) as entries:
        found = {entry.name: entry.stat() for entry in entries if entry.name != "pdp.yaml"}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


def write(folder: Path, config: dict[str, Any]) -> Path:
    """Write a configuration; return its file."""
    text: str = yaml.dump(config, Dumper=yaml.CSafeDumper, sort_keys=False)  # a fifth of the time of `safe_dump`
    (folder / "pdp.yaml").write_text(text)
    return folder / "pdp.yaml"


async def start(folder: Path, config: dict[str, Any]) -> None:
    """Start and stop a service; raise the error of the start."""
    service = Service(load_settings(write(folder, config), (), {}))
    try:
        await service.start()
    finally:
        await service.stop()


def checked(folder: Path, config: dict[str, Any]) -> list[str]:
    """Return the errors that `pdp config check` prints."""
    try:
        settings = load_settings(write(folder, config), (), {})
    except PdpError as error:
        return [problem.text() for problem in problems_of(error)]
    composition = dataclasses.replace(COMPOSITION, build_catalogs=build_catalogs, inspect_facts=inspect_facts)
    return [problem.text() for problem in find_problems(composition, settings) if problem.severity == "error"]


def put(config: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """Return a configuration with another value at a path."""
    config = copy.deepcopy(config)
    place: Any = config
    for number, step in enumerate(path[:-1], 1):
        empty: Any = [] if isinstance(path[number], int) else {}
        if isinstance(step, int):
            while len(place) <= step:
                place.append({})
            place = place[step]
        else:
            place = (
                place.setdefault(step, empty)
                if place.get(step) is not None
                else place.__setitem__(step, empty) or place[step]
            )
    if isinstance(path[-1], int):
        place[path[-1] :] = [value]
    else:
        place[path[-1]] = value
    return config


def concrete(key: SettingKey) -> tuple[str | int, ...]:
    """Return the path of a key in the base configuration."""
    path: list[str | int] = []
    for step in key.path:
        caller = "b" if "mtls" in key.path else "a"
        path.append({"callers": caller, **NAMES}[str(path[-1])] if step == NAME else step)
    return tuple(path)


async def test_the_base_configuration_starts(folder: Path) -> None:
    await start(folder, BASE)
    assert checked(folder, BASE) == []


def test_every_key_with_texts_is_in_a_list() -> None:
    texts = {key.text() for key in KEYS if holds_text(key.annotation)}
    of_files = {
        "policies.rules.0.path",
        "policies.forbid.0.path",
        "policies.row_access.0.path",
        "policies.scopes.permissions.0.path",
        "policies.cedar.policies.0.path",
        "policies.cedar.entities.0.path",
        "audit.sinks.0.file",
    }
    judged = {key.split(" ")[0] for key in (*FILES, *REFERENCES, *FORMS)}
    base = {key.text(): ".".join(map(str, concrete(key))) for key in KEYS if holds_text(key.annotation)}
    unlisted = {key for key, text in base.items() if text not in judged and key not in FREE and key not in of_files}
    assert unlisted == set()
    assert set(FREE) <= texts


@pytest.mark.parametrize("key", KEYS, ids=SettingKey.text)
def test_a_misspelt_key(unspoilt: Path, key: SettingKey) -> None:
    *outer, last = concrete(key)
    if isinstance(last, int):
        return
    misspelt = f"{last[:-1]}{last[-1]}{last[-1]}"
    config = put(BASE, (*outer, misspelt), 1)
    errors = checked(unspoilt, config)
    name = ".".join(map(str, (*outer, misspelt)))
    assert any(f"unknown key `{name}`, the nearest known is `{last}`" in error for error in errors), errors
    assert all(error.startswith(f"{unspoilt / 'pdp.yaml'}:") for error in errors)


@pytest.mark.parametrize("key", KEYS, ids=SettingKey.text)
@pytest.mark.parametrize(
    "value", [{"other": [1]}, [["other"]], 3.25, "", True], ids=["map", "list", "number", "empty", "yes"]
)
def test_a_value_of_another_type(unspoilt: Path, key: SettingKey, value: Any) -> None:
    path = concrete(key)
    if is_of_type(key, value):
        return
    errors = checked(unspoilt, put(BASE, path, value))
    assert errors, "a wrong type was taken"
    assert any(".".join(map(str, path)) in error for error in errors), errors
    assert all("\n" not in error for error in errors)


def is_of_type(key: SettingKey, value: Any) -> bool:
    """Tell whether the value can be meant: a number for seconds, `yes` for a switch, a map of names."""
    text, annotation = key.text(), str(key.annotation)
    if value is True:
        return "bool" in annotation or text.endswith((".loopback", ".unix_socket", ".ignore_tokens"))
    if value == 3.25:
        return key.annotation is float
    if isinstance(value, dict):
        return text.endswith(".options")  # of an engine of another package, which alone knows them
    return value == "" and text == "policies.profiles"


def file_mistakes() -> Iterator[tuple[str, str]]:
    for key in FILES:
        for mistake in MISTAKES:
            yield key, mistake


def spoil(file: Path, mistake: str) -> None:
    if file.is_dir():
        shutil.rmtree(file)
    file.unlink(missing_ok=True)
    if mistake == "folder":
        file.mkdir()
    elif mistake != "missing":
        file.write_bytes({"empty": b"", "binary": b"\xff\xfe\x00\x01", "other": OTHER.encode()}[mistake])


@pytest.mark.parametrize(("key", "mistake"), list(file_mistakes()))
async def test_a_file_with_a_mistake(folder: Path, key: str, mistake: str) -> None:
    config = copy.deepcopy(BASE)
    if key == "store.url":
        config["store"] = {"url": "file:world.yaml"}
    elif key == "store.url_file":
        config["store"] = {"url_file": "url.txt"}
    spoil(folder / FILES[key], mistake)
    if (key, mistake) in STARTS:
        await start(folder, config)
        return
    name = key.split(" ", maxsplit=1)[0]
    errors = checked(folder, config)
    file = "" if key in OF_SECRETS else FILES[key]
    assert any(name in error and file in error for error in errors), errors
    with pytest.raises(PdpError) as raised:
        await start(folder, config)
    said = str(raised.value)
    assert name in said
    assert file in said
    assert said.isprintable()


@pytest.mark.parametrize("key", REFERENCES)
async def test_a_misspelt_name(folder: Path, key: str) -> None:
    value, words = REFERENCES[key]
    config = put(BASE, tuple(key.split(".")), value)
    printed = " ".join(checked(folder, config))
    with pytest.raises(PdpError) as raised:
        await start(folder, config)
    for said in (str(raised.value), printed):
        assert f"`{key.removeprefix('identity.') if 'bearer' in key else key}" in said
        assert words in said


@pytest.mark.parametrize("key", FORMS)
def test_a_text_without_its_form(folder: Path, key: str) -> None:
    errors = checked(folder, put(BASE, tuple(key.split(".")), FORMS[key]))
    assert [error for error in errors if f"`{key}" in error], errors


STAR_KEYS: Final = [key for key in KEYS if holds_text(key.annotation)]


def refusal(folder: Path, config: dict[str, Any]) -> str:
    """Return the error of a configuration; empty without one."""
    try:
        make_settings(config, folder)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("key", STAR_KEYS, ids=SettingKey.text)
def test_a_star_in_a_name_is_an_error_or_means_something(files: Path, key: SettingKey) -> None:
    """The list of exceptions says what a `*` means in each; every other key refuses, and names the key."""
    annotation, kind = str(key.annotation), ".".join(str(step) for step in key.path if step != 0)
    texts: Any = ["a*"] if "tuple[" in annotation else "a*"
    error = refusal(files, put(BASE, concrete(key), {"a": texts} if "Mapping" in annotation else texts))
    if kind.startswith("identity.providers.<name>.issuers"):
        # an issuer alone is refused before its texts are looked at
        assert "field required" in error or "no https URL" in error
    elif kind not in PARTLY and any(kind == free or kind.startswith(f"{free}.") for free in STARRED):
        assert "is no wildcard" not in error
    elif kind in BY_FORM:
        assert error
    else:
        assert "`*` is no wildcard here: write each name" in error


MAPS: Final[dict[tuple[str, ...], Any]] = {
    ("authorities",): {"engines": ["cel"]},
    ("warehouses",): {"project": "p"},
    ("policies", "engines"): {},
    ("audit", "sample_allows"): {"rate": 1},
    ("identity", "providers"): {"issuer": "https://a", "jwks": "keys.json"},
    ("identity", "providers", "kc", "role_map"): "r",
    ("identity", "providers", "kc", "claims", "attributes"): "r",
    ("identity", "providers", "kc", "claims", "types"): "text",
    ("identity", "callers"): {"loopback": True},
    ("trusted_engines",): {"type": "trino", "owner_property": "o", "identities": {"kc": {"subjects": ["s"]}}},
    ("trusted_engines", "e", "identities"): {"subjects": ["s"]},
    ("trino", "catalogs"): {"warehouse": "lake"},
    ("trino", "impersonation"): ["ann"],
    ("trino", "groups"): "analyst",
    ("lakekeeper", "warehouses"): "lake",
    ("polaris", "catalogs"): "lake",
    ("authzen", "subjects"): "user:kc~{id}",
    ("authzen", "resources"): "table:lake/r/{id}",
    ("authzen", "actions"): "read_data",
    ("polaris", "roles"): "analyst",
    ("starrocks", "catalogs"): "lake",
    ("starrocks", "groups"): "analyst",
    ("ranger", "services"): "lake",
    ("lakes",): {"uri": "http://127.0.0.1:1"},
}


def test_every_map_of_names_is_there() -> None:
    """A map whose keys only another program knows takes a `*`."""
    maps = {key.path for key in KEYS if "Mapping[" in str(key.annotation)}
    free = {path for path in maps if any(".".join(map(str, path)).startswith(kind) for kind in STARRED)}
    named = {tuple(NAME if step in NAMES.values() else step for step in path) for path in MAPS}
    assert maps - free == named - free


@pytest.mark.parametrize("key", STAR_KEYS, ids=SettingKey.text)
def test_blanks_around_a_name_are_an_error(files: Path, key: SettingKey) -> None:
    """A name with a blank would match nothing: a forbid, a right or a catalog of nobody."""
    annotation, kind = str(key.annotation), ".".join(str(step) for step in key.path if step != 0)
    is_free = any(kind == free or kind.startswith(f"{free}.") for free in STARRED)
    if (is_free and kind != "trino.execute_query.allow") or kind in _BLANKS or kind in BY_FORM:
        return
    for text in ("a ", "\u00a0a", "a\t"):
        texts: Any = [text] if "tuple[" in annotation else text
        error = refusal(files, put(BASE, concrete(key), {"a": texts} if "Mapping" in annotation else texts))
        assert "no blanks around it" in error or "pattern" in error, (key.path, text)


@pytest.mark.parametrize("path", MAPS, ids=".".join)
def test_blanks_around_a_key_of_a_map_are_an_error(files: Path, path: tuple[str, ...]) -> None:
    error = refusal(files, put(BASE, (*path, " a"), MAPS[path]))
    if path != ("audit", "sample_allows"):
        assert "blank" in error or "pattern" in error or "none of" in error, error


@pytest.mark.parametrize("path", MAPS, ids=".".join)
def test_a_star_in_a_key_of_a_map_is_an_error(files: Path, path: tuple[str, ...]) -> None:
    error = refusal(files, put(BASE, (*path, "a*"), MAPS[path]))
    if path == ("audit", "sample_allows"):
        assert error == ""  # the name of a rule, which names nothing
    else:
        assert "`*` is no wildcard here: write each name" in error or "pattern" in error or "none of" in error


@pytest.mark.parametrize(
    ("path", "value", "taken"),
    [
        (("trino", "execute_query", "allow"), ["*"], True),
        (("trino", "execute_query", "allow"), ["svc-*"], False),
        (("trino", "impersonation"), {"superset": ["*"]}, False),
        (("trino", "impersonation"), {"*": ["ann"]}, False),
        (("identity", "callers", "b", "mtls", "subjects"), ["DNS:*.acme.com"], True),
        (("identity", "callers", "b", "mtls", "subjects"), ["CN=*"], False),
        (("policies", "engines"), {"acme": {"options": {"paths": ["a*"]}}}, True),
    ],
)
def test_a_star_counts_where_it_is_documented(path: tuple[str, ...], value: Any, taken: bool) -> None:
    tls = {"tls": {"cert": "c", "key": "k", "client_ca": "a"}}
    callers = {"b": {"mtls": {"subjects": ["CN=trino"]}}}
    config = put({"server": tls, "identity": {"callers": callers}}, path, value)
    if taken:
        make_settings(config, Path())
    else:
        with pytest.raises(ConfigError, match="is no wildcard here: write each name") as caught:
            make_settings(config, Path())
        assert "superset" not in str(caught.value).replace("trino.impersonation.superset", "")
