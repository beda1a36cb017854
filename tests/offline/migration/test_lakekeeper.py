"""Migration of Lakekeeper's variables, with the examples of its manual."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pdp.errors import InvalidArgument, PolicyError
from pdp.offline.migration.lakekeeper import migrate_lakekeeper
from pdp.offline.migration.report import Migration

ENGINE = """\
LAKEKEEPER__TRUSTED_ENGINES__TRINO__TYPE=trino
LAKEKEEPER__TRUSTED_ENGINES__TRINO__OWNER_PROPERTY=trino.run-as-owner
"""
AUDIENCE = "LAKEKEEPER__TRUSTED_ENGINES__TRINO__IDENTITIES__OIDC__AUDIENCES=[trino]\n"
PLACEHOLDER = 'LAKEKEEPER__TRUSTED_ENGINES__TRINO__IDENTITIES__OIDC__SUBJECTS=["<trino-service-account-subject>"]\n'
STOCK = {"dev": "development", "prod": "production", "demo": "demo", "lakekeeper": "lakekeeper"}
"""Catalogs and warehouses of the bridge without a variable."""
TRUSTED = {"type": "trino", "owner_property": "trino.run-as-owner", "identities": {"oidc": {"audiences": ["trino"]}}}


def migrated(folder: Path, text: str, name: str = "lakekeeper.env") -> tuple[Migration, dict[str, Any]]:
    (folder / name).write_text(text)
    migration = migrate_lakekeeper([folder / name])
    settings: dict[str, Any] = yaml.safe_load(migration.files["pdp.yaml"])
    return migration, settings


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.env", ENGINE + AUDIENCE),
        ("a.env", "".join(f"export {line}\n" for line in (ENGINE + AUDIENCE).splitlines())),
        ("a.env", (ENGINE + AUDIENCE).replace("=", "='").replace("\n", "'\n")),
        ("a.env", (ENGINE + AUDIENCE).replace("[trino]", '["trino"] # the client of Trino')),
        (
            "compose.yaml",
            "services:\n  lakekeeper:\n    environment:\n"
            + "".join(f"      - {line}\n" for line in (ENGINE + AUDIENCE).splitlines()),
        ),
        (
            "compose.yaml",
            "services:\n  lakekeeper:\n    environment:\n"
            + "".join(f"      {line.replace('=', ': ', 1)}\n" for line in ENGINE.splitlines())
            + '      LAKEKEEPER__TRUSTED_ENGINES__TRINO__IDENTITIES__OIDC__AUDIENCES: "[trino]"\n',
        ),
        (
            "deployment.yaml",
            "kind: Deployment\nspec:\n  containers:\n    - name: lakekeeper\n      env:\n"
            + "".join(
                f"        - name: {line.partition('=')[0]}\n          value: '{line.partition('=')[2]}'\n"
                for line in (ENGINE + AUDIENCE).splitlines()
            ),
        ),
        (
            "values.yaml",
            "catalog:\n  config:\n"
            + "".join(f"    {line.replace('=', ': ', 1)}\n" for line in ENGINE.splitlines())
            + "    LAKEKEEPER__TRUSTED_ENGINES__TRINO__IDENTITIES__OIDC__AUDIENCES: '[trino]'\n",
        ),
    ],
)
def test_the_example_of_the_manual_in_every_form(tmp_path: Path, name: str, text: str) -> None:
    migration, settings = migrated(tmp_path, text, name)
    assert settings["trusted_engines"] == {"trino": TRUSTED}
    assert (migration.counts()["done"], migration.left) == (3, [])


def test_a_placeholder_is_left(tmp_path: Path) -> None:
    migration, settings = migrated(tmp_path, ENGINE + AUDIENCE + PLACEHOLDER)
    assert settings["trusted_engines"] == {"trino": TRUSTED}
    (left,) = migration.left
    assert left.message.startswith("`<trino-service-account-subject>` is a placeholder: write")


def test_an_engine_that_nobody_is_is_left(tmp_path: Path) -> None:
    migration, settings = migrated(tmp_path, ENGINE + PLACEHOLDER)
    assert "trusted_engines" not in settings
    assert [part.subject for part in migration.left][1:] == ["trusted engine `trino`"]
    assert "`identities` is missing, so nobody is trusted" in migration.left[1].message


PROVIDER = "LAKEKEEPER__OPENID_PROVIDER_URI=https://idp.example.com/realms/lake\n"
OPENID = "LAKEKEEPER__OPENID_PROVIDERS__KC__"
UNUSABLE = {
    "engine": (ENGINE.replace("TYPE=trino", "TYPE=spark") + AUDIENCE, ["LAKEKEEPER__TRUSTED_ENGINES__TRINO__TYPE"]),
    "audience": (ENGINE + AUDIENCE.replace("trino]", "'']"), ["LAKEKEEPER__TRUSTED_ENGINES__TRINO__IDENTITIES__OIDC__AUDIENCES"]),
    "depth": ("LAKEKEEPER__REFERENCED_BY__MAX_NESTING_DEPTH=0\n", ["LAKEKEEPER__REFERENCED_BY__MAX_NESTING_DEPTH"]),
    "admins": ("LAKEKEEPER__INSTANCE_ADMINS=[nobody]\n", ["LAKEKEEPER__INSTANCE_ADMINS"]),
    "old name": ("ICEBERG_REST__INSTANCE_ADMINS=[nobody]\n", ["LAKEKEEPER__INSTANCE_ADMINS"]),
    "subject": (f"{PROVIDER}LAKEKEEPER__OPENID_SUBJECT_CLAIM=,\n", ["LAKEKEEPER__OPENID_SUBJECT_CLAIM"]),
    "token audience": (f"{PROVIDER}LAKEKEEPER__OPENID_AUDIENCE=\n", ["LAKEKEEPER__OPENID_AUDIENCE"]),
    "of a provider": (f"{OPENID}URI=https://a/realms/b\n{OPENID}AUDIENCE=\n", [f"{OPENID}AUDIENCE"]),
    "administrators": ("TRINO_ADMIN_USERS=*\n", ["TRINO_ADMIN_USERS"]),
    "warehouse": ("LAKEKEEPER_DEV_WAREHOUSE=x*\n", ["LAKEKEEPER_DEV_WAREHOUSE"]),
    "catalog": ("TRINO_DEV_CATALOG_NAME=a*\n", ["TRINO_DEV_CATALOG_NAME"]),
    "two": (ENGINE.replace("TYPE=trino", "TYPE=x") + AUDIENCE + "LAKEKEEPER__INSTANCE_ADMINS=[nobody]\n",
            ["LAKEKEEPER__TRUSTED_ENGINES__TRINO__TYPE", "LAKEKEEPER__INSTANCE_ADMINS"]),
}  # fmt: skip


@pytest.mark.parametrize("form", UNUSABLE)
def test_an_unusable_value_names_its_variable_and_its_place(tmp_path: Path, form: str) -> None:
    text, names = UNUSABLE[form]
    with pytest.raises(InvalidArgument, match="the variables make no valid configuration") as caught:
        migrated(tmp_path, text)
    lines = [line.partition("=")[0].replace("ICEBERG_REST__", "LAKEKEEPER__") for line in text.splitlines()]
    for name in names:
        place = f"{tmp_path / 'lakekeeper.env'}:{lines.index(name) + 1}:1"
        assert f"`{name}` of {place}" in str(caught.value)


def test_everything_that_has_a_counterpart(tmp_path: Path) -> None:
    text = """
LAKEKEEPER__AUTHZ_BACKEND=openfga
LAKEKEEPER__INSTANCE_ADMINS=["kubernetes~eb95","oidc~alice"]
LAKEKEEPER__REFERENCED_BY__MAX_NESTING_DEPTH=5
LAKEKEEPER__OPENID_PROVIDER_URI=https://idp.example.com/realms/lake
LAKEKEEPER__OPENID_AUDIENCE=lakekeeper,warehouse
LAKEKEEPER__OPENID_SUBJECT_CLAIM=oid,sub
LAKEKEEPER__OPENID_ROLES_CLAIM=resource_access.lakekeeper.roles
LAKEKEEPER__PG_PASSWORD=secret
TRINO_DEV_CATALOG_NAME=dev
LAKEKEEPER_DEV_WAREHOUSE=development
TRINO_ADMIN_USERS=a,b
TRINO_ALLOW_UNMANAGED_CATALOGS=true
LAKEKEEPER_URL=https://lakekeeper.example.com
"""
    migration, settings = migrated(tmp_path, text)
    assert settings == {
        "authorities": {"default": {"engines": ["grants"]}},
        "limits": {"referenced_by_depth": 5},
        "identity": {
            "instance_admins": ["user:kubernetes~eb95", "user:oidc~alice"],
            "providers": {
                "oidc": {
                    "issuer": "https://idp.example.com/realms/lake",
                    "jwks": "https://idp.example.com/realms/lake/protocol/openid-connect/certs",
                    "audiences": ["lakekeeper", "warehouse"],
                    "claims": {"subject": ["oid", "sub"], "roles": "resource_access.lakekeeper.roles"},
                }
            },
        },
        "trino": {
            "admin_users": ["a", "b"],
            "unmanaged_catalogs": "allow",
            "catalogs": {name: {"warehouse": warehouse} for name, warehouse in STOCK.items()},
        },
        "warehouses": {warehouse: {} for warehouse in STOCK.values()},
    }
    assert migration.left == []
    assert "secret" not in str(migration.parts)


KEYCLOAK = "LAKEKEEPER__OPENID_PROVIDER_URI=https://idp.example.com/realms/lake"


@pytest.mark.parametrize("suffix", ["", "/", "/.well-known/openid-configuration", "/.well-known/openid-configuration/"])
def test_the_issuer_is_without_the_address_of_its_metadata(tmp_path: Path, suffix: str) -> None:
    _, settings = migrated(tmp_path, f"{KEYCLOAK}{suffix}\nLAKEKEEPER__OPENID_AUDIENCE=a\n")
    provider = settings["identity"]["providers"]["oidc"]
    assert provider["issuer"] == "https://idp.example.com/realms/lake"
    assert provider["jwks"] == "https://idp.example.com/realms/lake/protocol/openid-connect/certs"


def test_a_provider_without_audiences_is_to_look_at(tmp_path: Path) -> None:
    migration, _ = migrated(tmp_path, f"{KEYCLOAK}\n")
    notes = [part.message for part in migration.parts if part.status == "note"]
    assert any("every token is refused" in note for note in notes)
    migration, _ = migrated(tmp_path, f"{KEYCLOAK}\nLAKEKEEPER__OPENID_AUDIENCE=a\n")
    assert not any("every token is refused" in part.message for part in migration.parts)


@pytest.mark.parametrize(
    ("text", "audiences"), [("a", ["a"]), ("a, b", ["a", "b"]), ('["a","b"]', ["a", "b"]), ("[a, b]", ["a", "b"])]
)
def test_audiences_are_a_text_or_a_list(tmp_path: Path, text: str, audiences: list[str]) -> None:
    _, settings = migrated(tmp_path, f"{KEYCLOAK}\nLAKEKEEPER__OPENID_AUDIENCE={text}\n")
    assert settings["identity"]["providers"]["oidc"]["audiences"] == audiences


@pytest.mark.parametrize("text", ["[a", "[[a]]", "[1]", "[a]b"])
def test_a_list_of_audiences_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(PolicyError, match="no list of audiences"):
        migrated(tmp_path, f"{KEYCLOAK}\nLAKEKEEPER__OPENID_AUDIENCE={text}\n")


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("AUTHZ_BACKEND=allowall", "Lakekeeper allows everything, and pdp denies without grants"),
        ("AUTHZ_BACKEND=cedar", "the engine `cedar` in an authority"),
        ("CEDAR__POLICY_SOURCES__LOCAL_FILES=[a.cedar]", "name policies and entities in `policies.cedar`"),
        ("OPENID_ADDITIONAL_ISSUERS=https://x", "`identity.providers.oidc.issuers`"),
        ("CEDAR__POLICY_SOURCES__LOCAL_FILES=[a.cedar]", "write `policies.cedar.policies: [a.cedar]`"),
        ("CEDAR__POLICY_SOURCES__K8S_CM=[a]", "mount the ConfigMap"),
        ("CEDAR__ENTITY_JSON_SOURCES__LOCAL_FILES=[a.json]", "write `policies.cedar.entities: [a.json]`"),
        ("CEDAR__ENTITY_JSON_SOURCES__K8S_CM=[a]", "name its files in `policies.cedar.entities`"),
        ("CEDAR__REFRESH_INTERVAL_SECS=5", "write `policies.refresh_seconds: 5`"),
        ("CEDAR__REFRESH_DISABLED=true", "every `policies.refresh_seconds`"),
        ("CEDAR__SCHEMA_FILE=a.cedarschema", "write `policies.cedar.schema.replace: a.cedarschema`"),
        ("CEDAR__SCHEMA_FRAGMENT_FILE=a.cedarschema", "write `policies.cedar.schema.extend: a.cedarschema`"),
        ("CEDAR__USER_DERIVATIONS__TEAM__PATTERN=(.*)", "declare the users in `policies.cedar.entities`"),
        ("CEDAR__EXTERNALLY_MANAGED_USER_AND_ROLES=true", "those of the token"),
        ("CEDAR__DEBUG__LOG_ENTITIES=true", "`pdp explain` shows"),
        ("CEDAR__NOT_KNOWN=1", "name policies and entities in `policies.cedar`"),
        ("OPENID_PROVIDER_URI=https://okta.example.com", "write `identity.providers.oidc: {issuer: 'https://okta"),
        ("OPENID_PROVIDER_URI=http://keycloak:8080/realms/x", "keys come over https only"),
        ("OPENID_PROVIDERS__EKS__AUDIENCE=sts", "the provider `eks` has no URI"),
        ("OPENID_PROVIDERS__EKS__NOPE=x", "no such key of a provider"),
        ("ENABLE_KUBERNETES_AUTHENTICATION=true", "add `identity.providers.kubernetes`"),
        ("ROLE_PROVIDER__LDAP__URL=ldap://x", "pdp asks no directory"),
        ("TRUSTED_ENGINES__TRINO__NOPE=x", "no such key of a trusted engine"),
    ],
)
def test_what_has_no_counterpart_is_left(tmp_path: Path, variable: str, message: str) -> None:
    migration, _ = migrated(tmp_path, f"LAKEKEEPER__{variable}\n")
    (left,) = migration.left
    assert message in left.message
    assert left.place == f"{tmp_path}/lakekeeper.env:1:1"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("A=b\n", InvalidArgument, "no variables `LAKEKEEPER__...` found"),
        ("LAKEKEEPER__INSTANCE_ADMINS=oidc~alice\n", PolicyError, "is no list: write `[oidc~alice]`"),
        ("LAKEKEEPER__INSTANCE_ADMINS=[alice]\n", InvalidArgument, "is not `user:<idp>~<subject>`"),
        ("LAKEKEEPER__REFERENCED_BY__MAX_NESTING_DEPTH=x\n", PolicyError, "is no number"),
        (ENGINE + ENGINE.replace("=trino\n", "=spark\n"), PolicyError, "has another value"),
        ("nonsense\n", PolicyError, ":1:1: not `NAME=value`"),
    ],
)
def test_bad_input(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        migrated(tmp_path, text)
    assert message in str(caught.value)


def test_a_value_in_a_secret_is_left_if_it_decides(tmp_path: Path) -> None:
    text = """
env:
  - name: LAKEKEEPER__OPENID_PROVIDER_URI
    valueFrom: {secretKeyRef: {name: a, key: b}}
  - {name: LAKEKEEPER__PG_PASSWORD, valueFrom: {secretKeyRef: {name: a, key: b}}}
  - {name: LAKEKEEPER__AUTHZ_BACKEND, value: openfga}
"""
    migration, _ = migrated(tmp_path, text, "pod.yaml")
    assert [part.subject for part in migration.left] == ["LAKEKEEPER__OPENID_PROVIDER_URI"]


NAMES = (
    *("LAKEKEEPER__PG_HOST", "LAKEKEEPER__LISTEN_PORT", "LAKEKEEPER__OPENFGA__ENDPOINT", "LAKEKEEPER__NEW_THING"),
    *("LAKEKEEPER__CEDAR__REFRESH_INTERVAL_SECS", "LAKEKEEPER__CEDAR__REFRESH_DISABLED", "LAKEKEEPER__OPENID_SCOPE"),
    *("LAKEKEEPER__OPENID_PROVIDERS__X__NOPE", "LAKEKEEPER__TRUSTED_ENGINES__X__NOPE", "LAKEKEEPER__AUTHZ_BACKEND"),
    *("LAKEKEEPER__ENABLE_KUBERNETES_AUTHENTICATION", "LAKEKEEPER_URL", "LAKEKEEPER_CLIENT_SECRET", "LAKEKEEPER_TYPO"),
    *("LAKEKEEPER_DEV_WAREHOUSE", "TRINO_DEV_CATALOG_NAME", "TRINO_ADMIN_USERS", "TRINO_OTHER", "RUST_LOG"),
    *("OPENFGA_DATASTORE_MAX_OPEN_CONNS", "OPENFGA_CHECK_QUERY_CACHE_ENABLED", "QUARKUS_PROFILE", "POSTGRES_PASSWORD"),
)


@given(names=st.lists(st.sampled_from(NAMES), unique=True, max_size=8), form=st.sampled_from(("env", "list", "secret")))
def test_every_variable_is_reported(names: list[str], form: str) -> None:
    names = ["LAKEKEEPER__REFERENCED_BY__MAX_NESTING_DEPTH", *names]
    values = {name: "false" if name == "LAKEKEEPER__ENABLE_KUBERNETES_AUTHENTICATION" else "3" for name in names}
    text = "".join(f"{name}={value}\n" for name, value in values.items())
    if form != "env":
        hidden = "valueFrom: {secretKeyRef: {name: a, key: b}}"
        given = [
            f"value: '{value}'" if form == "list" or name is names[0] else hidden for name, value in values.items()
        ]
        text = "env:\n" + "".join(f"  - {{name: {name}, {one}}}\n" for name, one in zip(names, given, strict=True))
    with TemporaryDirectory() as folder:
        parts = migrated(Path(folder), text, "a.env" if form == "env" else "a.yaml")[0].parts
    for name in names:
        first = name.removeprefix("LAKEKEEPER__").partition("_")[0]
        word = f"LAKEKEEPER__{first}" if name.startswith("LAKEKEEPER__") else first
        assert any(part.subject in (name, word, word.rstrip("_")) for part in parts), (name, parts)
    counted = sum(int(part.message.split()[0]) for part in parts if part.subject in {"OPENFGA", "RUST", "POSTGRES"})
    assert counted == sum(name.startswith(("OPENFGA_", "RUST_", "POSTGRES_")) for name in names)


def test_settings_of_openfga_beside_those_of_lakekeeper_are_counted(tmp_path: Path) -> None:
    text = ENGINE + AUDIENCE + "OPENFGA_DATASTORE_MAX_OPEN_CONNS=200\nOPENFGA_CACHE_CONTROLLER_ENABLED=true\n"
    migration, _ = migrated(tmp_path, text)
    (ignored,) = (part for part in migration.parts if part.status == "ignored")
    assert (ignored.subject, ignored.message) == (
        "OPENFGA",
        "2 variables of OpenFGA, which pdp does not need: `pdp migrate openfga` takes its tuples",
    )


def test_a_rendered_chart_has_its_variables_in_a_secret(tmp_path: Path) -> None:
    data = "".join(
        f"  {name}: {b64encode(value.encode()).decode()}\n"
        for name, _, value in (line.partition("=") for line in (ENGINE + AUDIENCE).splitlines())
    )
    text = "apiVersion: v1\nkind: Secret\ndata:\n" + data + "stringData: {LAKEKEEPER__AUTHZ_BACKEND: openfga}\n"
    migration, settings = migrated(tmp_path, text, "secret.yaml")
    assert (settings["trusted_engines"], migration.left) == ({"trino": TRUSTED}, [])
    assert migration.counts()["done"] == 4
    with pytest.raises(PolicyError, match="is no base64"):
        migrated(tmp_path, text.replace(data, "  LAKEKEEPER__AUTHZ_BACKEND: openfga!\n"), "secret.yaml")


def test_values_of_a_chart_are_left(tmp_path: Path) -> None:
    text = "authz: {backend: openfga}\ncatalog: {config: {LAKEKEEPER__REFERENCED_BY__MAX_NESTING_DEPTH: 3}}\n"
    migration, settings = migrated(tmp_path, text, "values.yaml")
    assert settings["limits"] == {"referenced_by_depth": 3}
    (left,) = migration.left
    assert (left.subject, left.message.endswith("`helm template`")) == ("`authz`", True)


@pytest.mark.parametrize("id", ["DEV", "PROD", "DEMO", "LAKEKEEPER"])
def test_a_half_of_a_pair_has_the_other_half_of_the_bridge(tmp_path: Path, id: str) -> None:
    default = {**STOCK, "lakekeeper": "lakekeeper"}[id.lower()]
    _, settings = migrated(tmp_path, f"TRINO_{id}_CATALOG_NAME=mine\n")
    assert settings["trino"]["catalogs"]["mine"] == {"warehouse": default}
    _, settings = migrated(tmp_path, f"LAKEKEEPER_{id}_WAREHOUSE=mine\n")
    assert settings["trino"]["catalogs"][id.lower()] == {"warehouse": "mine"}


@pytest.mark.parametrize("text", ["TRINO_ADMIN_USERS=a\n", "LAKEKEEPER_TOKEN_ENDPOINT=https://x\n"])
def test_a_bridge_has_its_catalogs_without_variables(tmp_path: Path, text: str) -> None:
    migration, settings = migrated(tmp_path, text)
    assert settings["trino"]["catalogs"] == {name: {"warehouse": one} for name, one in STOCK.items()}
    (note,) = (part.message for part in migration.parts if part.status == "note")
    assert "`prod` with the warehouse `production`" in note


@pytest.mark.parametrize("text", ["true", "TRUE", "True", "1", "yes", "false", ""])
def test_only_true_to_the_letter_opens_other_catalogs(tmp_path: Path, text: str) -> None:
    _, settings = migrated(tmp_path, f"TRINO_ALLOW_UNMANAGED_CATALOGS={text}\n")
    assert settings["trino"]["unmanaged_catalogs"] == ("allow" if text == "true" else "deny")


HIDDEN = "valueFrom: {secretKeyRef: {name: a, key: b}}"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{name: TRINO_PROD_CATALOG_NAME, " + HIDDEN + "}"], "its value stands in a secret"),
        (["{name: TRINO_MORE_CATALOG_NAME, value: more}"], "`LAKEKEEPER_MORE_WAREHOUSE` is missing"),
        (["{name: LAKEKEEPER_MORE_WAREHOUSE, value: more}"], "`TRINO_MORE_CATALOG_NAME` is missing"),
    ],
)
def test_an_unknown_catalog_is_not_open(tmp_path: Path, lines: list[str], message: str) -> None:
    lines.append("{name: TRINO_ALLOW_UNMANAGED_CATALOGS, value: 'true'}")
    migration, settings = migrated(tmp_path, "env:\n" + "".join(f"  - {line}\n" for line in lines), "a.yaml")
    assert settings["trino"]["unmanaged_catalogs"] == "deny"
    assert {"prod", "more"} & set(settings["trino"]["catalogs"]) <= {"prod"}
    first, second = migration.left
    assert message in first.message
    assert "open to everybody" in second.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("TRINO_DEV_CATALOG_NAME=prod\n", "two catalogs of the bridge have the name `prod`"),
        ("TRINO_DEV_CATALOG_NAME=a\nTRINO_PROD_CATALOG_NAME=a\n", "two catalogs of the bridge have the name `a`"),
        ("TRINO_DEV_CATALOG_NAME=\n", "is empty"),
        ("LAKEKEEPER_PROD_WAREHOUSE=\n", "is empty"),
    ],
)
def test_catalogs_that_are_not_known_for_sure_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        migrated(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        (f"{KEYCLOAK}\n", ["oid", "sub"]),
        (f"{KEYCLOAK}\nLAKEKEEPER__OPENID_SUBJECT_CLAIM=sub\n", "sub"),
        (f"{KEYCLOAK}\nLAKEKEEPER__OPENID_SUBJECT_CLAIM=sub, oid\n", ["sub", "oid"]),
        (f"{KEYCLOAK}\nLAKEKEEPER__OPENID_ROLES_CLAIM=roles\n", ["oid", "sub"]),
        (KEYCLOAK.replace("OPENID_PROVIDER_URI", "OPENID_PROVIDERS__OIDC__URI") + "\n", ["oid", "sub"]),
    ],
)
def test_the_subject_is_the_claim_of_lakekeeper(tmp_path: Path, text: str, subject: Any) -> None:
    _, settings = migrated(tmp_path, text + "LAKEKEEPER__OPENID_PROVIDERS__OIDC__AUDIENCE=a\n")
    assert settings["identity"]["providers"]["oidc"]["claims"]["subject"] == subject


@pytest.mark.parametrize("name", ["OPENID_SCOPE", "OPENID_PROVIDERS__OIDC__SCOPE"])
def test_a_provider_with_a_scope_is_not_written(tmp_path: Path, name: str) -> None:
    migration, settings = migrated(tmp_path, f"{KEYCLOAK}\nLAKEKEEPER__{name}=lake\nLAKEKEEPER__OPENID_AUDIENCE=a\n")
    assert "identity" not in settings
    assert [("scope" in part.message, part.status) for part in migration.parts] == [(True, "left")] * 3
    _, settings = migrated(tmp_path, f"{KEYCLOAK}\nLAKEKEEPER__{name}=\n")
    assert "oidc" in settings["identity"]["providers"]


@pytest.mark.parametrize("name", ["SUBJECT_CLAIM", "SCOPE", "AUDIENCE", "ROLES_CLAIM"])
def test_a_provider_with_an_unknown_value_is_not_written(tmp_path: Path, name: str) -> None:
    variable, _, value = KEYCLOAK.partition("=")
    lines = f"  - {{name: {variable}, value: '{value}'}}\n  - {{name: LAKEKEEPER__OPENID_{name}, {HIDDEN}}}\n"
    migration, settings = migrated(tmp_path, f"env:\n{lines}", "a.yaml")
    assert "identity" not in settings
    assert len(migration.left) == 2


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("LAKEKEEPER__TRUSTED_ENGINE__TRINO__TYPE", "LAKEKEEPER__TRUSTED_ENGINES"),
        ("LAKEKEEPER__OPENID_SUBJECT_CLAIMS", "LAKEKEEPER__OPENID_SUBJECT_CLAIM"),
        ("LAKEKEEPER__OPEN_ID_SCOPE", "LAKEKEEPER__OPENID_SCOPE"),
        ("LAKEKEEPER__INSTANCE_ADMIN", "LAKEKEEPER__INSTANCE_ADMINS"),
        ("LAKEKEEPER__AUTHZ_BACKENDS", "LAKEKEEPER__AUTHZ_BACKEND"),
        ("LAKEKEEPER__REFERENCED-BY__MAX_NESTING_DEPTH", "LAKEKEEPER__REFERENCED_BY"),
        ("ICEBERG_REST__OPENID_AUDIENCES", "LAKEKEEPER__OPENID_AUDIENCE"),
        ("LAKEKEEPER__SOMETHING_ELSE_ALTOGETHER_OF_TOMORROW", ""),
        ("LAKEKEPER__OPENID_SCOPE", "LAKEKEEPER__"),
        ("TRINO_PROD_CATALOG_NAMES", "TRINO_PROD_CATALOG_NAME"),
    ],
)
def test_a_name_that_may_be_misspelt_is_left_with_the_nearest(tmp_path: Path, name: str, near: str) -> None:
    migration, _ = migrated(tmp_path, f"{ENGINE}{AUDIENCE}{name}=x\n")
    (left,) = migration.left
    assert f"`{near}`" in left.message if near else "did you mean" not in left.message


def test_the_older_beginning_of_variables_counts(tmp_path: Path) -> None:
    old = "ICEBERG_REST__INSTANCE_ADMINS=[oidc~old]\nICEBERG_REST__REFERENCED_BY__MAX_NESTING_DEPTH=3\n"
    migration, settings = migrated(tmp_path, f"{old}LAKEKEEPER__INSTANCE_ADMINS=[oidc~new]\n")
    assert settings["identity"]["instance_admins"] == ["user:oidc~new"]
    assert settings["limits"] == {"referenced_by_depth": 3}
    assert [part.message for part in migration.parts if part.status == "ignored"] == [
        "Lakekeeper prefers `LAKEKEEPER__INSTANCE_ADMINS`"
    ]


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("services: {b: {environment: {TRINO_PROD_CATALOG_NAME: '${NAME}'}}}\n", "TRINO_PROD_CATALOG_NAME"),
        ("services: {b: {environment: [TRINO_PROD_CATALOG_NAME=$NAME]}}\n", "TRINO_PROD_CATALOG_NAME"),
        ("env: [{name: TRINO_PROD_CATALOG_NAME, value: $(NAME)}]\n", "TRINO_PROD_CATALOG_NAME"),
        ("env: [{name: TRINO_PROD_CATALOG_NAME, value: '{{ .Values.name }}'}]\n", "TRINO_PROD_CATALOG_NAME"),
        ("services: {b: {env_file: more.env}}\n", "`more.env`"),
        ("services: {b: {env_file: [{path: c/more.env}]}}\n", "`c/more.env`"),
        ("envFrom: [{secretRef: {name: more}}]\n", "`more`"),
        ("envFrom: [{configMapRef: {name: more}}]\n", "`more`"),
    ],
)
def test_a_value_that_stands_elsewhere_is_left(tmp_path: Path, text: str, subject: str) -> None:
    (tmp_path / "own.env").write_text(ENGINE + AUDIENCE + "TRINO_ALLOW_UNMANAGED_CATALOGS=true\n")
    (tmp_path / "a.yaml").write_text(text)
    migration = migrate_lakekeeper([tmp_path / "own.env", tmp_path / "a.yaml"])
    assert subject in [part.subject for part in migration.left]
    if subject.startswith("TRINO"):
        assert yaml.safe_load(migration.files["pdp.yaml"])["trino"]["unmanaged_catalogs"] == "deny"


def test_a_value_with_a_dollar_is_that_of_the_container(tmp_path: Path) -> None:
    text = "services: {b: {environment: {LAKEKEEPER__INSTANCE_ADMINS: '[oidc~a$$b]'}}}\n"
    assert migrated(tmp_path, text, "a.yaml")[1]["identity"]["instance_admins"] == ["user:oidc~a$b"]


KC = "LAKEKEEPER__OPENID_PROVIDERS"
PLAIN = f"{KC}__KC__URI=https://kc.example/realms/a\n{KC}__KC__AUDIENCE=lk\n"


@pytest.mark.parametrize("table", [
    '__KC={scope="x"}', '__kc={scope="x"}', '={kc={uri="https://kc.example/realms/a",scope="x"}}', "={}", "=x",
    "__KC__MORE=x", "__KC__SCOPE__MORE=x", "__KC__CLAIMS__SUBJECT=x",
])  # fmt: skip
def test_a_provider_with_a_table_is_left_whole(tmp_path: Path, table: str) -> None:
    """The table may hold a scope, and without it more tokens would count."""
    for text in (f"{PLAIN}{KC}{table}\n", f"{KC}{table}\n{PLAIN}"):
        file = tmp_path / "e.env"
        file.write_text(text)
        migration = migrate_lakekeeper([file])
        assert "kc.example" not in migration.files["pdp.yaml"]
        assert any(f"{KC}{table}".partition("=")[0].upper() == part.subject.upper() for part in migration.left)


@pytest.mark.parametrize(
    "text", ['["preferred_username","sub"]', "[preferred_username, sub]", "preferred_username, sub"]
)
def test_claims_of_the_subject_may_be_a_list(tmp_path: Path, text: str) -> None:
    for name in ("__KC__SUBJECT_CLAIMS",):
        file = tmp_path / "e.env"
        file.write_text(f"{PLAIN}{KC}{name}={text}\n")
        claims = yaml.safe_load(migrate_lakekeeper([file]).files["pdp.yaml"])["identity"]["providers"]["kc"]["claims"]
        assert claims == {"subject": ["preferred_username", "sub"]}


def test_an_empty_scope_has_a_line(tmp_path: Path) -> None:
    file = tmp_path / "e.env"
    file.write_text(f"{PLAIN}{KC}__KC__SCOPE=\n")
    migration = migrate_lakekeeper([file])
    assert [part.status for part in migration.parts if part.subject == f"{KC}__KC__SCOPE"] == ["ignored"]
    assert "kc.example" in migration.files["pdp.yaml"]
