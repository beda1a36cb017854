"""A configuration with names of all kinds, for policies that name something: written, started, and given to commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from support.service.command_line import COMPOSITION

from pdp.cli.main import cli
from pdp.config.load import load_settings
from pdp.errors import PdpError
from pdp.facts.snapshot import Facts

CONFIG: dict[str, Any] = {
    "warehouses": {"lake": {"project": "p1", "default_ref": "main"}},
    "authorities": {"default": {"engines": ["cel", "scopes"]}},
    "policies": {
        "rules": [],
        "forbid": [{"path": "forbid.yaml", "allow_empty": True}],
        "row_access": [{"path": "rows.yaml", "allow_empty": True}],
        "scopes": {"permissions": [{"path": "scopes.yaml", "allow_empty": True}]},
    },
    "trino": {"catalogs": {"lk": {"warehouse": "lake"}}, "groups": {"staff": "contractor"}},
    "identity": {
        "providers": {
            "oidc": {"issuer": "https://one", "jwks": "keys.json", "role_map": {"EXT": "external"}, "users": ["bob"]},
            "okta": {"issuer": "https://two", "jwks": "keys.json"},
        }
    },
    "store": {"url": "file:world.yaml"},
}
KEYS = {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}


def write(folder: Path, config: dict[str, Any], **texts: str) -> Path:
    """Write a configuration whose files have no problem but those of `texts`."""
    files = {
        "forbid.yaml": "rules: {}\n",
        "rows.yaml": "",
        "scopes.yaml": "",
        "world.yaml": "objects: [warehouse:lake, role:contractor, role:external]\n",
    }
    files["keys.jwks"] = json.dumps(KEYS)
    for name, text in {**files, **{name.replace("_", "."): text for name, text in texts.items()}}.items():
        (folder / name).write_text(text)
    text = yaml.safe_dump(config, sort_keys=False).replace("keys.json", "keys.jwks")
    (folder / "pdp.yaml").write_text(text)
    return folder / "pdp.yaml"


def starts(config: Path) -> str:
    """Return the error of a start; empty for a start without one."""
    try:
        settings = load_settings(config, (), {})
        COMPOSITION.build_pdp(settings, Facts.empty(), COMPOSITION.read_rules(settings))
    except PdpError as error:
        return str(error)
    return ""


def command(*arguments: str | Path) -> tuple[int, str]:
    ended = CliRunner().invoke(cli, [*map(str, arguments)], obj=COMPOSITION)
    return ended.exit_code, ended.output


def strict() -> dict[str, Any]:
    return {**CONFIG, "policies": {**CONFIG["policies"], "strict_names": True}}


def with_rules(folder: Path, rules: dict[str, str], *, forbid: bool = True, **policies: Any) -> Path:
    """Write a configuration with rules that forbid or permit."""
    files = {"rules": [] if forbid else ["forbid.yaml"], "forbid": ["forbid.yaml"] if forbid else []}
    authorities = {"default": {"engines": ["cel", "grants"]}}
    given = {**CONFIG["policies"], "scopes": {}, "cel_extensions": ["strings"], **files, **policies}
    config = {**CONFIG, "authorities": authorities, "policies": given}
    return write(folder, config, forbid_yaml=json.dumps({"rules": rules}))
