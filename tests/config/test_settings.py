"""Settings: what cannot be meant is refused, and who wins where a key is said twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from support.generators.setting_keys import NAME, SettingKey, setting_keys
from support.service.serving import settings_of

from pdp.app.assembly import build_bundle, read_rules
from pdp.app.service import Service
from pdp.config.load import UNSUPPORTED, load_settings, make_settings
from pdp.config.section import Section
from pdp.config.settings import Settings
from pdp.errors import ConfigError


def load(text: str, folder: Path, *overrides: str, **environ: str) -> Settings:
    (folder / "pdp.yaml").write_text(text)
    return load_settings(folder / "pdp.yaml", overrides, environ)


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ({"sever": {}}, "sever"),
        ({"server": {"htp": "127.0.0.1:1"}}, "server.htp"),
        ({"limits": {"max-checks": 1}}, "limits.max-checks"),
        ({"limits": {"MAX_CHECKS": 1}}, "limits.MAX_CHECKS"),
        ({"authorities": {"default": {"engines": ["cel"], "combin": "all"}}}, "authorities.default.combin"),
        ({"warehouses": {"lake": {"defaultRef": "main"}}}, "warehouses.lake.defaultRef"),
        ({"policies": {"rule": []}}, "policies.rule"),
        ({"store": {"uri": "file:x"}}, "store.uri"),
        ({"audit": {"sinks": [{"file": "audit", "mask": []}]}}, "audit.sinks.0.mask"),
        ({"identity": {"provider": {}}}, "identity.provider"),
        ({"identity": {"callers": {"a": {"loopback": True, "may_asert": []}}}}, "identity.callers.a.may_asert"),
        ({"trino": {"catalog": {}}}, "trino.catalog"),
        ({"trino": {"catalogs": {"a": {"warehouse": "lake", "reference": "main"}}}}, "trino.catalogs.a.reference"),
        ({"trino": {"functions": {"deny": []}}}, "trino.functions.deny"),
        ({"": 1}, ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_unknown_key_is_named_at_every_level(tmp_path: Path, data: Any, key: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown key `{re.escape(key)}`"):
        make_settings(data, tmp_path)


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ({"server": None}, "server"),
        ({"server": []}, "server"),
        ({"server": {"http": "nowhere"}}, "server.http"),
        ({"server": {"http": None}}, "server.http"),
        ({"server": {"diagnostics": "127.0.0.1:99999"}}, "server.diagnostics"),
        ({"server": {"drain_seconds": -1}}, "server.drain_seconds"),
        ({"server": {"drain_seconds": float("inf")}}, "server.drain_seconds"),
        ({"server": {"drain_seconds": float("nan")}}, "server.drain_seconds"),
        *[
            ({"row_access": {"member": {"template": template}}}, "row_access.member.template")
            for template in ("", "user:me", "{subject}{x}", "{subject", "{idp}", "{idp}{subject}", "{idp}-{subject}")
        ],
        *[({"server": {"workers": count}}, "server.workers") for count in (0, 257, -1, 1.5, True, "2", "many", None)],
        ({"limits": {"max_checks": 0}}, "limits.max_checks"),
        ({"limits": {"max_checks": -5}}, "limits.max_checks"),
        ({"limits": {"max_checks": 1.5}}, "limits.max_checks"),
        ({"limits": {"max_checks": "many"}}, "limits.max_checks"),
        ({"limits": {"max_checks": None}}, "limits.max_checks"),
        ({"limits": {"max_in_flight": 0}}, "limits.max_in_flight"),
        ({"limits": {"max_body_bytes": 1}}, "limits.max_body_bytes"),
        ({"limits": {"max_body_bytes": 2**31}}, "limits.max_body_bytes"),
        ({"limits": {"request_timeout_seconds": 0}}, "limits.request_timeout_seconds"),
        ({"limits": {"request_timeout_seconds": float("nan")}}, "limits.request_timeout_seconds"),
        ({"limits": {"request_timeout_seconds": float("inf")}}, "limits.request_timeout_seconds"),
        ({"limits": {"idle_timeout_seconds": float("inf")}}, "limits.idle_timeout_seconds"),
        ({"authorities": {"default": {"engines": []}}}, "authorities.default.engines"),
        ({"authorities": {"default": {"engines": "cel"}}}, "authorities.default.engines"),
        ({"authorities": {"default": {}}}, "authorities.default.engines"),
        ({"authorities": {"default": {"engines": ["cel"], "combine": "most"}}}, "authorities.default.combine"),
        ({"warehouses": {"lake": {"kind": "delta"}}}, "warehouses.lake.kind"),
        ({"policies": {"rules": "rules/*.properties"}}, "policies.rules"),
        ({"policies": {"cel_extensions": ["all"]}}, "policies.cel_extensions.0"),
        ({"store": {"url": "world.yaml"}}, "store.url"),
        ({"store": {"url": "file:"}}, "store.url"),
        ({"store": {"url": "mysql://db"}}, "store.url"),
        ({"audit": {"sinks": [{}]}}, "audit.sinks.0.file"),
        ({"audit": {"sinks": [{"file": "a"}, {"file": "b"}]}}, "audit.sinks"),
        ({"identity": {"cel_provider": "OIDC"}}, "identity.cel_provider"),
        ({"identity": {"cel_provider": ""}}, "identity.cel_provider"),
        ({"trino": {"catalogs": {"a": {}}}}, "trino.catalogs.a.warehouse"),
        ({"trino": {"user_prefix": "oidc"}}, "trino.user_prefix"),
        ({"trino": {"unmanaged_catalogs": "maybe"}}, "trino.unmanaged_catalogs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_value_names_its_key(tmp_path: Path, data: Any, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^`{re.escape(key)}`: ") as caught:
        make_settings(data, tmp_path)
    assert "\n" not in str(caught.value)


def nested(key: str, value: Any) -> dict[str, Any]:
    section, _, name = key.partition(".")
    return {section: {name: value} if name else value}


@pytest.mark.parametrize(("key", "default"), UNSUPPORTED.items(), ids=UNSUPPORTED)
def test_a_key_that_cannot_be_obeyed_yet_is_taken_at_its_default_alone(tmp_path: Path, key: str, default: Any) -> None:
    assert make_settings(nested(key, default), tmp_path).model_dump() == Settings().model_dump()
    others = ["other", 4711, ["other"], {"other": 1}, None if default is not None else True]
    for other in others:
        with pytest.raises(ConfigError, match=re.escape(f"`{key}`")):
            make_settings(nested(key, other), tmp_path)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        make_settings({"sever": {}, "limits": {"max_checks": 0, "nope": 1}}, tmp_path)
    for key in ("`sever`", "`limits.max_checks`", "`limits.nope`"):
        assert key in str(caught.value)


@pytest.mark.parametrize(
    "text", ["[1, 2]", "text", "5", "a: [", "a: b: c", "\tserver: {}", "!!python/object:os.system {}", "a: \x00"]
)
def test_a_file_that_holds_no_sections_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"pdp\.yaml"):
        load(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "limits: {max_checks: 5}\nlimits: {max_in_flight: 5}",
        "limits: {max_checks: 5, max_checks: 6}",
        "identity: {callers: {a: {loopback: true}, a: {loopback: true, may_assert: [principals]}}}",
    ],
)
def test_a_key_that_stands_twice_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="twice"):
        load(text, tmp_path)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null", "~\n", "\n \n", "\ufeff"])
def test_a_file_without_content_stops_the_start(tmp_path: Path, text: str) -> None:
    """With the defaults, every process of the machine may assert everything."""
    with pytest.raises(ConfigError, match=r"has no content: write `\{\}` for"):
        load(text, tmp_path)


def test_an_empty_section_means_the_defaults(tmp_path: Path) -> None:
    assert load("{}", tmp_path).model_dump() == Settings().model_dump()


@pytest.mark.parametrize("address", ["[::1]:8181", "[::1]:0", "[0:0:0:0:0:0:0:1]:1"])
def test_an_address_of_ipv6_needs_no_quotes_in_options_and_variables(tmp_path: Path, address: str) -> None:
    assert load("{}", tmp_path, f"server.http={address}").server.http == address
    assert load("{}", tmp_path, PDP__SERVER__HTTP=address).server.http == address


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = Settings()
    assert settings.server.model_dump() == {
        "http": "127.0.0.1:8181",
        "grpc": "127.0.0.1:8081",
        "diagnostics": "127.0.0.1:8282",
        "unix": None,
        "unix_access": "owner",
        "workers": 1,
        "tls": {"cert": None, "key": None, "client_ca": None},
        "lame_duck_seconds": 2,
        "drain_seconds": 5,
    }
    limits = settings.limits
    assert (limits.max_checks, limits.max_body_bytes, limits.max_in_flight, limits.request_timeout_seconds) == (
        10_000,
        8 << 20,
        1024,
        10,
    )
    assert (limits.trino_max_resources, limits.trino_max_body_bytes) == (100_000, 64 << 20)
    assert settings.authorities["default"].model_dump() == {
        "engines": ("cel", "grants"),
        "combine": "any",
        "warehouses": (),
        "mode": "enforce",
    }
    assert settings.policies.rules == ("rules/*.properties",)
    assert settings.policies.forbid == ()
    assert [sink.file for sink in settings.audit.sinks] == ["audit/"]
    assert settings.identity.cel_provider == "oidc"
    assert settings.trino.user_prefix == "oidc~"
    assert settings.trino.unmanaged_catalogs == "deny"
    assert settings.trino.execute_query.allow == ("*",)
    for empty in (
        settings.warehouses,
        settings.identity.callers,
        settings.identity.providers,
        settings.trusted_engines,
        settings.trino.catalogs,
        settings.trino.groups,
        settings.trino.impersonation,
    ):
        assert dict(empty) == {}


def test_settings_are_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.limits.max_checks = 1  # type: ignore[misc]


# --- the environment ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value", "read"),
    [
        ("PDP__LIMITS__MAX_CHECKS", "50", lambda settings: settings.limits.max_checks == 50),
        ("PDP__SERVER__WORKERS", "4", lambda settings: settings.server.workers == 4),
        ("PDP__SERVER__WORKERS", "auto", lambda settings: settings.server.workers == "auto"),
        ("PDP__SERVER__DRAIN_SECONDS", "0.5", lambda settings: settings.server.drain_seconds == 0.5),
        ("PDP__SERVER__HTTP", "127.0.0.1:1", lambda settings: settings.server.http == "127.0.0.1:1"),
        ("PDP__POLICIES__RULES", "[a, b]", lambda settings: settings.policies.rules == ("a", "b")),
        ("PDP__POLICIES__RULES", "[]", lambda settings: settings.policies.rules == ()),
        ("PDP__TRINO__ADMIN_USERS", "[trino]", lambda settings: settings.trino.admin_users == ("trino",)),
        ("PDP__STORE__SEED", "null", lambda settings: settings.store.seed is None),
        ("PDP__LIMITS", "{max_checks: 7}", lambda settings: settings.limits.max_checks == 7),
        ("PDP__WAREHOUSES__LAKE__KIND", "nessie", lambda settings: settings.warehouses["lake"].kind == "nessie"),
        (
            "PDP__AUTHORITIES__DEFAULT",
            "{engines: [grants], combine: all}",
            lambda settings: settings.authorities["default"].combine == "all",
        ),
    ],
)
def test_values_of_the_environment_parse_as_yaml(tmp_path: Path, variable: str, value: str, read: Any) -> None:
    assert read(load("{}", tmp_path, **{variable: value}))


def test_map_keys_are_found_by_their_capitals(tmp_path: Path) -> None:
    text = "warehouses: {my-lake: {default_ref: main}, Other: {}}\ntrino: {catalogs: {my-cat: {warehouse: my-lake}}}"
    environ = {
        "PDP__WAREHOUSES__MY_LAKE__DEFAULT_REF": "prod",
        "PDP__WAREHOUSES__OTHER__KIND": "hive",
        "PDP__WAREHOUSES__NEW_LAKE__KIND": "nessie",
        "PDP__TRINO__CATALOGS__MY_CAT__REF": "dev",
    }
    settings = load(text, tmp_path, **environ)
    assert sorted(settings.warehouses) == ["Other", "my-lake", "new_lake"]
    assert settings.warehouses["my-lake"].default_ref == "prod"
    assert settings.warehouses["Other"].kind == "hive"
    catalog = {"warehouse": "my-lake", "ref": "dev", "materialized_views": "unrestricted"}
    assert settings.trino.catalogs["my-cat"].model_dump() == catalog


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("PDP__LIMTS__MAX_CHECKS", "5", "unknown key `limts`"),
        ("PDP__LIMITS__MAX_CHEKS", "5", "unknown key `limits.max_cheks`"),
        ("PDP__LIMITS__MAX_CHECKS", "many", "`limits.max_checks`"),
        ("PDP__LIMITS__MAX_CHECKS", "", "`limits.max_checks`"),
        ("PDP__LIMITS__MAX_CHECKS", "[", "PDP__LIMITS__MAX_CHECKS"),
        ("PDP__LIMITS__MAX_CHECKS__DEEP", "1", "MAX_CHECKS"),
        ("PDP__", "1", "unknown key"),
        ("PDP__LIMITS__", "1", "unknown key `limits.`"),
    ],
)
def test_the_environment_is_read_as_strictly_as_the_file(tmp_path: Path, variable: str, value: str, named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        load("limits: {max_checks: 1}" if "DEEP" in variable else "{}", tmp_path, **{variable: value})


@pytest.mark.parametrize(
    "variable",
    ["XPDP__LIMITS__MAX_CHECKS", "PDP", "PDP_", "PDP_DEVELOPMENT", "PDP_LOG_LEVEL", "PDP_EXAMPLES", "PDP_JUDGE_SECONDS",
     "PDP_TRINO_BODIES", "PDP_SERVICE_HOST", "PDP_PORT_8181_TCP_ADDR", "PDPX__LIMITS__MAX_CHECKS", "PDPSTORE_URL"],
)  # fmt: skip
def test_other_variables_mean_nothing(tmp_path: Path, variable: str) -> None:
    assert load("{}", tmp_path, **{variable: "garbage"}).model_dump() == Settings().model_dump()


@pytest.mark.parametrize("service", ["pdp", *(f"pdp-{name.replace('_', '-')}" for name in Settings.model_fields)])
def test_variables_of_kubernetes_mean_nothing(tmp_path: Path, service: str) -> None:
    """Kubernetes sets these in each container for a service of the namespace."""
    name = service.upper().replace("-", "_")
    port = [f"{name}_PORT_8181_TCP{end}" for end in ("", "_PROTO", "_PORT", "_ADDR")]
    names = [f"{name}_SERVICE_HOST", f"{name}_SERVICE_PORT", f"{name}_SERVICE_PORT_HTTP", f"{name}_PORT", *port]
    environ = dict.fromkeys(names, "tcp://10.0.0.7:8181")
    assert load("{}", tmp_path, **environ).model_dump() == Settings().model_dump()


def written_by(key: SettingKey) -> list[str]:
    """Return the names of a key, up to the first list: no variable sets an entry of a list."""
    steps = key.path[: key.path.index(0)] if 0 in key.path else key.path
    return ["my_lake" if step == NAME else str(step) for step in steps]


FILES_OF_SECRETS = [
    [*names[:-1], f"{names[-1]}_file"]
    for names in (["store", "url"], ["cache", "mac_key"], ["lakes", "my_lake", "token"])
]
NAMES_OF_KEYS = [
    *(written_by(key) for key in setting_keys()),
    *FILES_OF_SECRETS,
    *(key.split(".") for key in UNSUPPORTED),
]


@pytest.mark.parametrize(
    "spell",
    [
        lambda names: f"PDP_{'_'.join(names).upper()}",
        lambda names: f"pdp_{'_'.join(names)}",
        lambda names: f"PDP_{'_'.join(names)}",
        lambda names: f"PDP-{'-'.join(names).upper()}",
        lambda names: f"pdp.{'.'.join(names)}",
        lambda names: f"PDP_{'_'.join(name if name == 'my_lake' else name.replace('_', '') for name in names).upper()}",
    ],
)
def test_a_variable_with_single_signs_names_the_one_to_write(tmp_path: Path, spell: Any) -> None:
    """It was ignored without a word, and nobody was an administrator of Trino."""
    for names in NAMES_OF_KEYS:
        with pytest.raises(ConfigError) as caught:
            load("{}", tmp_path, **{spell(names): "hunter2"})
        assert f"`{spell(names)}`, which sets nothing: write `PDP__" in str(caught.value), names
        assert f"write `PDP__{'__'.join(names).upper()}`" in str(caught.value), (names, str(caught.value))
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "write"),
    [
        ("PDP_AUDIT_SINKS_0_HTTP_URL", "PDP__AUDIT__SINKS"),
        ("PDP_POLICIES_RULES_0", "PDP__POLICIES__RULES"),
        ("PDP_TRINO_adminUsers", "PDP__TRINO__ADMIN_USERS"),
        ("PDP_TRINO_ADMIN__USERS", "PDP__TRINO__ADMIN_USERS"),
        ("PDP__TRINO_ADMIN_USERS", "PDP__TRINO__ADMIN_USERS"),
        ("PDP__TRINO_CATALOGS_A_REF", "PDP__TRINO__CATALOGS__A__REF"),
        ("PDP_LAKES_L_PROPERTIES_S3_ENDPOINT", "PDP__LAKES__L__PROPERTIES__S3_ENDPOINT"),
        ("PDP_WAREHOUSES_MY_LAKE_2_DEFAULT_REF", "PDP__WAREHOUSES__MY_LAKE_2__DEFAULT_REF"),
    ],
)
def test_a_variable_with_a_name_or_a_place_in_it_names_the_one_to_write(
    tmp_path: Path, variable: str, write: str
) -> None:
    with pytest.raises(ConfigError, match=f"`{variable}`, which sets nothing: write `{write}`, or unset it"):
        load("{}", tmp_path, **{variable: "x"})


@pytest.mark.parametrize(
    ("variable", "write"),
    [
        ("PDP_LIMITS__MAX_CHECKS", "PDP__LIMITS__MAX_CHECKS"),
        ("pdp__limits__max_checks", "PDP__LIMITS__MAX_CHECKS"),
        ("Pdp__LIMITS__MAX_CHECKS", "PDP__LIMITS__MAX_CHECKS"),
        ("pdp_limits__max_checks", "PDP__LIMITS__MAX_CHECKS"),
        ("pdp_limits___max_checks", "PDP__LIMITS__MAX_CHECKS"),
        ("PDP_TRINO_CATALOGS__MY_LAKE__REF", "PDP__TRINO__CATALOGS__MY_LAKE__REF"),
        ("PDP_ROW_ACCESS__PROTECTED", "PDP__ROW_ACCESS__PROTECTED"),
        ("PDP-STORE__url", "PDP__STORE__URL"),
        (" PDP__STORE__URL", "PDP__STORE__URL"),
        ("PDP_NOPE__X", "PDP__NOPE__X"),
    ],
)
def test_a_variable_that_looks_like_an_override_stops_the_start(tmp_path: Path, variable: str, write: str) -> None:
    """It was ignored without a word. No message shows a value, which may be a secret."""
    with pytest.raises(ConfigError) as caught:
        load("{}", tmp_path, **{variable: "hunter2", "PDP_X__Y": "hunter2"})
    assert f"the environment has `{variable}`, which sets nothing: write `{write}`, or unset it" in str(caught.value)
    assert "`PDP__X__Y`" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert {place for place, _ in caught.value.problems} == {variable, "PDP_X__Y"}


@pytest.mark.parametrize(
    ("text", "variables", "named"),
    [
        ("warehouses: {my-lake: {}, my_lake: {}}", ["WAREHOUSES__MY_LAKE__KIND"], "`warehouses.my-lake` and `warehouses.my_lake`"),
        ("warehouses: {Lake: {}, lake: {}}", ["WAREHOUSES__LAKE__KIND"], "`warehouses.Lake` and `warehouses.lake`"),
        ("warehouses: {my-lake: {}, my_lake: {}}", ["WAREHOUSES__my_lake__KIND"], "`warehouses.my_lake`"),
        ("{}", ["LIMITS__MAX_CHECKS", "limits__max_checks"], "both set `limits.max_checks`"),
        ("warehouses: {my-lake: {}}", ["WAREHOUSES__MY_LAKE__KIND", "WAREHOUSES__MY-LAKE__KIND"], "`warehouses.my-lake.kind`"),
    ],
)  # fmt: skip
def test_names_that_are_one_in_variables_are_refused(
    tmp_path: Path, text: str, variables: list[str], named: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        load(text, tmp_path, **{f"PDP__{variable}": "hive" for variable in variables})


def test_names_that_are_one_in_variables_may_stand_side_by_side_in_the_file(tmp_path: Path) -> None:
    text = "warehouses: {my-lake: {kind: nessie}, my_lake: {kind: hive}}"
    settings = load(text, tmp_path, "warehouses.my_lake.kind=iceberg", PDP__LIMITS__MAX_CHECKS="5")
    assert [one.kind for one in settings.warehouses.values()] == ["nessie", "iceberg"]
    assert load(
        "warehouses: {my-lake: {}}", tmp_path, **{"PDP__WAREHOUSES__my-lake__KIND": "hive"}
    ).warehouses.keys() == {"my-lake"}


PLACES = {
    "warehouses": "KIND",
    "trino.catalogs": "REF",
    "authorities": "COMBINE",
    "identity.providers": "ISSUER",
    "identity.callers": "LOOPBACK",
    "trusted_engines": "OWNER_PROPERTY",
    "lakes": "URI",
    "lakes.l.properties": "",
    "trino.groups": "",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["lake.eu", "lake eu", "lake/eu", "Lake.EU", "lake+eu", "lake.-eu", "lake:eu"])
def test_a_variable_makes_no_second_key_beside_one_that_it_seems_to_name(tmp_path: Path, place: str, name: str) -> None:
    """A second warehouse came to be, and the first stayed as it was."""
    text = name
    for step in reversed(place.split(".")):
        text = f"{step}: {{{f'{text!r}: {{}}' if text is name else text}}}"
    variable = "__".join(["PDP", *place.upper().split("."), "LAKE_EU", *filter(None, [PLACES[place]])])
    with pytest.raises(ConfigError) as caught:
        load(text, tmp_path, **{variable: "x"})
    assert f"`{variable}` would set `{place}.lake_eu` beside `{place}.{name}`" in str(caught.value)
    assert str(caught.value).endswith("write the value in the file")


def test_a_variable_reaches_a_name_with_dots_to_the_letter(tmp_path: Path) -> None:
    settings = load("warehouses: {lake.eu: {}}", tmp_path, **{"PDP__WAREHOUSES__LAKE.EU__KIND": "hive"})
    assert {name: one.kind for name, one in settings.warehouses.items()} == {"lake.eu": "hive"}


def test_two_variables_make_no_two_keys_that_seem_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`warehouses.lake.eu` beside `warehouses.lake_eu`"):
        load("{}", tmp_path, **{"PDP__WAREHOUSES__LAKE_EU__KIND": "hive", "PDP__WAREHOUSES__lake.eu__KIND": "hive"})


def test_two_ids_of_providers_that_become_one_are_refused(tmp_path: Path) -> None:
    """The last of the two counted, without a word."""
    text = "identity: {providers: {my-idp: {issuer: 'https://a', jwks: a}, my_idp: {issuer: 'https://b', jwks: b}}}"
    with pytest.raises(ConfigError, match=r"`identity.providers`: .*`my-idp` stands twice"):
        load(text, tmp_path)


# --- numbers ------------------------------------------------------------------------------------------------------

NUMBERS = [key for key in setting_keys() if key.annotation in (int, float) or key.path == ("server", "workers")]
ODD = [
    "010",
    "08",
    "1_000",
    "0x10",
    "0o10",
    "0b11",
    "1:30",
    "1:30.5",
    "1e3",
    "1E+3",
    "00",
    "0_1.5",
    "+012",
    "10s",
    "5m",
    "64MiB",
]
"""Spellings that readers of YAML take for other numbers or for texts, and numbers with a unit."""


def spelt(key: SettingKey, number: str) -> str:
    """Return YAML with a number at a key."""
    text = number
    for step in reversed(key.path):
        text = f"[{text}]" if step == 0 else f"{{{'x' if step == NAME else step}: {text}}}"
    return text


@pytest.mark.parametrize("key", NUMBERS, ids=SettingKey.text)
def test_a_number_that_readers_read_differently_is_refused(tmp_path: Path, key: SettingKey) -> None:
    name = key.text().replace(NAME, "x")
    always = ["010", "1_000", "1:30", "1e3"]
    for number in (
        always if key.path[0] != "limits" else [*ODD, *(f"'{odd}'" for odd in ODD), "'\uff11\uff10'", "' 10 '"]
    ):
        with pytest.raises(ConfigError) as caught:
            load(spelt(key, number), tmp_path)
        assert f"`{name}`: " in str(caught.value), number
        is_known = key.path == ("server", "workers") or "plain decimal digits" in str(caught.value)
        assert is_known, (number, str(caught.value))


def test_numbers_of_the_environment_and_of_options_are_plain(tmp_path: Path) -> None:
    for number in ODD:
        with pytest.raises(
            ConfigError, match=r"^(PDP__LIMITS__MAX_CHECKS: )?`limits.max_checks`: .*plain decimal digits"
        ):
            load("{}", tmp_path, PDP__LIMITS__MAX_CHECKS=number)
        with pytest.raises(
            ConfigError, match=r"^(--set limits.max_checks: )?`limits.max_checks`: .*plain decimal digits"
        ):
            load("{}", tmp_path, f"limits.max_checks={number}")


def test_a_number_in_place_of_a_secret_is_not_shown(tmp_path: Path) -> None:
    for text in ("audit: {hmac_key: 0123456}", "lakes: {l: {uri: 'https://x', properties: {password: 0x123456}}}"):
        with pytest.raises(ConfigError, match="needs quotes") as caught:
            load(text, tmp_path)
        assert "123456" not in str(caught.value)


@pytest.mark.parametrize(
    ("number", "read"), [("10", 10), ("0.5", 0.5), (".5", 0.5), ("5.", 5), ("+5", 5), ("'10'", 10), ("1.5e+1", 15)]
)
def test_plain_numbers_are_read(tmp_path: Path, number: str, read: float) -> None:
    assert load(f"server: {{drain_seconds: {number}}}", tmp_path).server.drain_seconds == read


@pytest.mark.parametrize("port", ["08181", "0x1F", "\uff18\uff10", "1_0", "+80", "65536", "-1", ""])
def test_a_port_is_in_plain_digits(tmp_path: Path, port: str) -> None:
    with pytest.raises(ConfigError, match="plain digits"):
        load(f"server: {{http: '127.0.0.1:{port}'}}", tmp_path)


# --- who wins -----------------------------------------------------------------------------------------------------


def test_an_override_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    text = "limits: {max_checks: 1, max_in_flight: 1, trino_max_resources: 1}"
    environ = {"PDP__LIMITS__MAX_CHECKS": "2", "PDP__LIMITS__MAX_IN_FLIGHT": "2"}
    limits = load(text, tmp_path, "limits.max_checks=3", **environ).limits
    assert (limits.max_checks, limits.max_in_flight, limits.trino_max_resources) == (3, 2, 1)


def test_the_last_override_wins(tmp_path: Path) -> None:
    assert load("{}", tmp_path, "limits.max_checks=3", "limits.max_checks=4").limits.max_checks == 4


def test_an_override_leaves_its_neighbours_alone(tmp_path: Path) -> None:
    settings = load("warehouses: {a: {project: p}, b: {project: q}}", tmp_path, "warehouses.a.kind=hive")
    changed = {
        "project": "p",
        "default_ref": None,
        "refs": None,
        "kind": "hive",
        "namespace_separator": "\x1f",
        "through_views": None,
        "catalog": None,
    }
    assert settings.warehouses["a"].model_dump() == changed
    assert settings.warehouses["b"].project == "q"


def test_an_override_keeps_the_spelling_of_a_new_map_key(tmp_path: Path) -> None:
    settings = load("{}", tmp_path, "warehouses.Lake-1.kind=nessie", "lakes.Cat.uri=https://lake.example")
    assert list(settings.warehouses) == ["Lake-1"]
    assert list(settings.lakes) == ["Cat"]


def test_an_override_changes_no_key_but_the_one_it_spells(tmp_path: Path) -> None:
    settings = load("warehouses: {my-lake: {kind: hive}}", tmp_path, "warehouses.my_lake.kind=nessie")
    assert {name: warehouse.kind for name, warehouse in settings.warehouses.items()} == {
        "my-lake": "hive",
        "my_lake": "nessie",
    }


@pytest.mark.parametrize(
    "override",
    ["", "limits", "limits.max_checks", "=5", ".=5", "limits.max_checks=[", "limits.nope=1", "server.http.port=1"],
)
def test_an_override_that_cannot_be_meant_is_refused(tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError):
        load("server: {http: '127.0.0.1:1'}", tmp_path, override)


# --- paths --------------------------------------------------------------------------------------------------------


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("conf", "elsewhere"):
        (tmp_path / name / "rules").mkdir(parents=True)
    for name in ("b", "a"):
        (tmp_path / "conf" / "rules" / f"{name}.properties").write_text("")
    (tmp_path / "elsewhere" / "rules" / "c.properties").write_text("")
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "conf" / "pdp.yaml").write_text("store: {url: 'file:world.yaml'}")
    settings = load_settings(Path("../conf/pdp.yaml"), (), {})
    assert settings.paths(settings.policies.rules) == tuple(
        tmp_path / "conf" / "rules" / f"{name}.properties" for name in "ab"
    )
    assert settings.path("world.yaml") == tmp_path / "conf" / "world.yaml"
    assert settings.path("/srv/world.yaml") == Path("/srv/world.yaml")


def test_absolute_globs_and_plain_names_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "x.properties").write_text("")
    settings = make_settings({}, tmp_path / "nowhere")
    found = settings.paths([f"{tmp_path}/**/*.properties", f"{tmp_path}/deep/*/x.properties", "missing.properties"])
    assert found == (tmp_path / "deep" / "er" / "x.properties", tmp_path / "nowhere" / "missing.properties")


def test_a_glob_that_finds_nothing_is_an_empty_rule_set(tmp_path: Path) -> None:
    pattern = {"path": "none/*.properties", "allow_empty": True}
    settings = make_settings({"policies": {"rules": [pattern]}}, tmp_path)
    rules = read_rules(settings)
    assert rules[0].rules == ()
    assert any("no rules are loaded" in warning for warning in build_bundle(settings, *rules).warnings)


@pytest.mark.parametrize("pattern", ["**.properties", "a**/*.properties"])
def test_a_glob_that_is_none_is_named(tmp_path: Path, pattern: str) -> None:
    settings = make_settings({"policies": {"rules": [pattern]}}, tmp_path)
    with pytest.raises(ConfigError, match=re.escape(pattern)):
        read_rules(settings)


# --- what only the whole can tell ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("authorities", "named"),
    [
        ({"default": {"engines": ["opa"]}}, "authorities.default.engines"),
        ({"default": {"engines": ["cel", "CEL"]}}, "authorities.default.engines"),
        ({"other": {"engines": ["cel"]}}, "authorities.default"),
        ({}, "authorities.default"),
        (
            {
                "default": {"engines": ["cel"]},
                "a": {"engines": ["cel"], "warehouses": ["w"]},
                "b": {"engines": ["cel"], "warehouses": ["w"]},
            },
            "`w`",
        ),
    ],
)
def test_authorities_that_cannot_decide_stop_the_start(tmp_path: Path, authorities: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        Service(settings_of({"authorities": authorities}, tmp_path))


def test_the_address_of_the_store_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://pdp:canary@db/pdp\n")
    assert load("store: {url_file: url}", tmp_path).store.url == "postgresql://pdp:canary@db/pdp"
    with pytest.raises(ConfigError, match="cannot both be set"):
        load("store: {url_file: url, url: 'sqlite:///x.db'}", tmp_path)
    (tmp_path / "url").write_text("mysql://pdp:canary@db")
    with pytest.raises(ConfigError, match=r"store\.url") as raised:
        load("store: {url_file: url}", tmp_path)
    assert "canary" not in str(raised.value)
    with pytest.raises(ConfigError, match="FileNotFoundError"):
        load("store: {url_file: none}", tmp_path)


def sections(section: type[Section]) -> Iterator[Section]:
    """Yield the sections that are defaults of a section's keys, and those below them."""
    for field in section.model_fields.values():
        default = field.get_default(call_default_factory=True, validated_data={})
        for one in (
            *(default.values() if isinstance(default, dict) else ()),
            *(default if isinstance(default, tuple) else (default,)),
        ):
            if isinstance(one, Section):
                yield one
                yield from sections(type(one))


def test_defaults_are_as_checked_values() -> None:
    found = list(sections(Settings))
    assert len(found) >= 20
    for default in found:
        given = {name: getattr(default, name) for name in default.model_fields_set}
        checked = type(default)(**given)
        assert checked == default
        assert checked.model_dump_json() == default.model_dump_json()


@pytest.mark.parametrize("text", ["{rules: [r.yaml]}", "{}", "null", "{forbid: []}"])
@pytest.mark.parametrize("by", ["variable", "option"])
def test_no_section_as_a_whole_takes_away_a_key_of_the_file(tmp_path: Path, text: str, by: str) -> None:
    file = tmp_path / "pdp.yaml"
    file.write_text("policies: {rules: [], forbid: [f.yaml], folder: x}\n")
    given = ((f"policies={text}",), {}) if by == "option" else ((), {"PDP__POLICIES": text})
    with pytest.raises(ConfigError, match=r"replaces the section `policies`, and so takes away .*`policies\.f"):
        load_settings(file, *given)
    whole = ((), {"PDP__POLICIES": "{rules: [a.yaml], forbid: [g.yaml], folder: y}"})
    assert load_settings(file, *whole).policies.forbid == ("g.yaml",)
    assert load_settings(file, (), {"PDP__POLICIES__RULES": "[a.yaml]"}).policies.forbid == ("f.yaml",)


@pytest.mark.parametrize(
    ("text", "is_meant"), [("null", True), (" null ", True), ("", False), ("~", False), ("{}", False)]
)
def test_null_alone_takes_a_section_away(tmp_path: Path, text: str, is_meant: bool) -> None:
    """An empty variable is often one that nobody filled."""
    file = tmp_path / "pdp.yaml"
    file.write_text("policies: {source: {http: 'https://h/b.tar', keys: [k.pem]}, folder: x}\n")
    if is_meant:
        assert load_settings(file, [f"policies.source={text}"]).policies.source is None
        assert load_settings(file, (), {"PDP__POLICIES__SOURCE": text}).policies.source is None
        return
    with pytest.raises(ConfigError, match=r"takes away `policies\.source\.http`"):
        load_settings(file, [f"policies.source={text}"])
    with pytest.raises(ConfigError, match=r"takes away `policies\.source\.http`"):
        load_settings(file, (), {"PDP__POLICIES__SOURCE": text})


NESTED = """
authorities: {default: {engines: [cel, grants], combine: all}}
policies: {rules: [], strict_names: true}
identity:
  providers:
    kc: {issuer: https://kc, audiences: [a], claims: {required: [x], roles: r}}
  callers: {trino: {token: {idp: kc, subjects: [t]}, limits: {per_second: 5}}}
"""
LOSING = {
    "authorities": ("{default: {engines: [cel, grants]}}", "authorities.default.combine"),
    "authorities.default": ("{engines: [cel, grants]}", "authorities.default.combine"),
    "policies": ("{rules: []}", "policies.strict_names"),
    "identity": ("{providers: {kc: {issuer: https://kc, claims: {roles: r}}}}", "identity.providers.kc.claims.required"),
    "identity.providers": ("{kc: {issuer: https://kc, audiences: [a], claims: {roles: r}}}",
                           "identity.providers.kc.claims.required"),
    "identity.providers.kc": ("{issuer: https://kc, audiences: [a], claims: }", "identity.providers.kc.claims.required"),
    "identity.providers.kc.claims": ("{roles: r}", "identity.providers.kc.claims.required"),
    "identity.callers": ("{trino: {token: {idp: kc, subjects: [t]}, limits: {}}}", "identity.callers.trino.limits.per_second"),
    "identity.callers.trino": ("{limits: {per_second: 5}}", "identity.callers.trino.token"),
}  # fmt: skip
"""Section -> a value that leaves out a key of the file, and that key."""


@pytest.mark.parametrize("section", LOSING)
@pytest.mark.parametrize("by", ["variable", "option", "option over a variable"])
def test_a_section_given_whole_names_each_key_that_it_takes_away(tmp_path: Path, section: str, by: str) -> None:
    text, lost = LOSING[section]
    file = tmp_path / "pdp.yaml"
    file.write_text(NESTED)
    variable = f"PDP__{section.upper().replace('.', '__')}"
    given: tuple[tuple[str, ...], dict[str, str]] = ((f"{section}={text}",), {})
    given = ((), {variable: text}) if by == "variable" else given
    if by == "option over a variable":
        name, _, key = lost.rpartition(".")
        leaf = yaml.safe_load(NESTED)
        for step in (*name.split("."), key):
            leaf = leaf[step]
        given = (given[0], {f"PDP__{lost.upper().replace('.', '__')}": yaml.safe_dump(leaf, default_flow_style=True)})
    with pytest.raises(ConfigError) as error:
        load_settings(file, *given)
    message = str(error.value)
    assert f"replaces the section `{section}`" in message
    assert message.count(f"`{lost}`") == 1


@pytest.mark.parametrize("by", ["variable", "option"])
def test_a_section_given_whole_with_every_key_replaces_values_and_lists(tmp_path: Path, by: str) -> None:
    file = tmp_path / "pdp.yaml"
    file.write_text(
        "authorities: {default: {engines: [cel, grants], combine: all}}\npolicies: {rules: [a.yaml, b.yaml]}\n"
    )
    text = "{default: {engines: [grants], combine: any, mode: enforce}, other: {engines: [cel]}}"
    given = ((), {"PDP__AUTHORITIES": text}) if by == "variable" else ((f"authorities={text}",), {})
    found = load_settings(file, *given).authorities
    assert (found["default"].engines, found["default"].combine, set(found)) == (
        ("grants",),
        "any",
        {"default", "other"},
    )
