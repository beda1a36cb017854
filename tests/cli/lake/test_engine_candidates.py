"""Candidates of Cedar and of LakeQL's permissions for recorded bundles: files in place of a part of an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.generators.generated_pdps import decide
from support.service.command_line import COMPOSITION

from pdp.app.archived_bundle import rebuild_pdp
from pdp.app.facts import build_pdp
from pdp.cli.lake.replay import read_candidate
from pdp.config.load import make_settings
from pdp.engines.cel.rules import inline_rules
from pdp.errors import PolicyError
from pdp.facts.snapshot import Facts

READ = {"principal": "user:oidc~ann", "action": "read_data", "resource": "table:lake/s/t"}
PERMIT = """@id("p") permit (principal == Lakekeeper::User::"oidc~%s", action, resource);"""


def permissions(user: str) -> str:
    query = [{"catalog": "lake", "schema": "s", "tables": ["t"]}]
    return json.dumps([{"name": user, "permissions": {"Query": query}}])


def recorded(folder: Path, engine: str) -> bytes:
    """Text of a bundle that permits nothing to ann."""
    (folder / "old.cedar").write_text(PERMIT % "bob")
    (folder / "old.json").write_text(permissions("bob"))
    policies = {
        "rules": [],
        "cedar": {"policies": ["old.cedar"]},
        "scopes": {"permissions": ["old.json"], "strict": True},
    }
    data = {"authorities": {"default": {"engines": [engine]}}, "policies": policies, "audit": {"sinks": ()}}
    return build_pdp(make_settings(data, folder), Facts.empty(), (inline_rules({}), inline_rules({}))).bundle.text


def decided(text: bytes) -> tuple[bool, Any]:
    answer = decide(rebuild_pdp(text), [READ])
    return bool(answer.allowed[0]), answer.by[0]


@pytest.mark.parametrize(
    ("engine", "file", "text", "by"),
    [("cedar", "new.cedar", PERMIT % "ann", "cedar:p"), ("scopes", "new.json", permissions("ann"), "scopes:ann")],
)
def test_files_replace_their_part_of_the_recorded_engine(
    tmp_path: Path, engine: str, file: str, text: str, by: str
) -> None:
    """Everything else, such as the strict mode, stays as recorded. A bundle without the engine is refused."""
    bundle = recorded(tmp_path, engine)
    assert decided(bundle) == (False, None)
    (tmp_path / file).write_text(text)
    candidate = read_candidate(COMPOSITION, [str(tmp_path / file)], (), {"digest": bundle})
    assert candidate.replaces_policies
    assert decided(candidate.text_from(bundle)) == (True, by)
    other = recorded(tmp_path, "grants")
    with pytest.raises(PolicyError, match=f"no engine `{engine}`"):
        candidate.text_from(other)
    with pytest.raises(PolicyError, match=f"no engine `{engine}`"):
        read_candidate(COMPOSITION, [str(tmp_path / file)], (), {"digest": other})


@pytest.mark.parametrize("engine", ["cedar", "scopes"])
def test_a_configuration_takes_the_files_of_its_side(tmp_path: Path, engine: str) -> None:
    files = {
        "pdp.yaml": json.dumps({"authorities": {"default": {"engines": ["grants"]}}, "policies": {"rules": []}}),
        "new.cedar": PERMIT % "ann",
        "new.json": permissions("ann"),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    chosen = [str(tmp_path / name) for name in ("pdp.yaml", "new.cedar" if engine == "cedar" else "new.json")]
    candidate = read_candidate(COMPOSITION, chosen, (), {})
    assert candidate.bundle
    assert decided(candidate.bundle)[0] is True
