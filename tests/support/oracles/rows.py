"""Row policies and masks of a test, from a file or from data, and what somebody sees through them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from support.paths import RECORDED as RECORDED_FOLDER

from pdp.app.assembly import build_bundle, read_rules
from pdp.config.load import make_settings
from pdp.decision.active_policies import ActivePolicies
from pdp.engines.row_access.engine import Restriction
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal, Resource

RECORDED = RECORDED_FOLDER / "rowaccess"
POLICY: dict[str, Any] = {"id": "p", "table": "lake.s.t", "grantees": ["allUsers"], "filter": "x = 1"}
MASK: dict[str, Any] = {"id": "m", "table": "lake.s.t", "column": "c", "grantees": ["allUsers"], "kind": "null"}


def bundle_of(folder: Path, *patterns: Any, **config: Any) -> ActivePolicies:
    settings = make_settings({"policies": {"rules": [], "row_access": list(patterns)}, **config}, folder)
    return build_bundle(settings, *read_rules(settings))


def load(folder: Path, data: Any, **config: Any) -> ActivePolicies:
    (folder / "rows.yaml").write_text(yaml.safe_dump(data))
    return bundle_of(folder, {"path": "rows.yaml", "allow_empty": True}, **config)


def seen(
    bundle: ActivePolicies, table: str = "t", who: str = "user:alice@example.com", schema: str = "s"
) -> Restriction:
    principal = Principal("user", f"oidc~{who.removeprefix('user:')}")
    resource = Resource("table_or_view", "lake", (*schema.split("."), table))
    return bundle.row_access.restrict(principal, resource, Facts.empty())
