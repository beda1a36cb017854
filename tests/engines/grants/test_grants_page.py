"""docs/grants.md: its tables are the model's, and its examples run."""

from __future__ import annotations

import json
import re
import shlex
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clients.http_client import fetch
from support.paths import ROOT
from support.service.command_line import grants
from support.service.commands import NOTES
from support.service.serving import serve_process

from pdp.engines.grants.edits import ACCEPT, CREATE, DELETE, RENAME, right_to_add, right_to_remove
from pdp.engines.grants.model import MODEL, STORED
from pdp.facts.objects import Grant
from pdp.model.vocabulary import PRIVILEGES

PAGE = (ROOT / "docs" / "grants.md").read_text()
EPOCH = re.compile(r"\b[0-9a-f]{12}(?=\.\d)|(?<=\.t)[0-9a-f]{16}\b")


def relations() -> Iterator[str]:
    """Return the rows of the privileges in the notation of the model; types with the same rules share a row."""
    yield "| on | privilege | held by |"
    yield "|---|---|---|"
    rows: dict[tuple[str, str], list[str]] = {}
    for privilege in PRIVILEGES:
        for type, rules in MODEL.items():
            if privilege in STORED[type]:
                rows.setdefault((privilege, rules.relations[privilege]), []).append(type)
    for (privilege, rule), types in sorted(rows.items(), key=lambda row: list(MODEL).index(row[1][0])):
        yield f"| {', '.join(types)} | `{privilege}` | {code(rule)} |"


def rights_on_objects() -> Iterator[str]:
    yield "| type | register: on the parent | delete | new name in the same container: on it; on the container | move elsewhere: on it; on the new container |"
    yield "|---|---|---|---|---|"
    for type, create in CREATE.items():
        rename = code(RENAME[type]) if type in RENAME else ""
        rename += f"; {code(create)}" if type in ACCEPT else ""
        elsewhere = f"`move`; {code(create)}, {code(ACCEPT[type])}" if type in ACCEPT else ""
        yield f"| {type} | {code(create)} | {code(DELETE[type])} | {rename} | {elsewhere} |"


def rights_on_grants() -> Iterator[str]:
    yield "| on | privilege | may grant it, who holds | may take it away, who holds |"
    yield "|---|---|---|---|"
    types_of: dict[tuple[str, str, str], list[str]] = {}
    for type, stored in STORED.items():
        for privilege in PRIVILEGES:
            if privilege in stored:
                grant = Grant((type, ("x",)), privilege, "")
                rules = (rule_of(type, right_to_add(grant)), rule_of(type, right_to_remove(grant)))
                types_of.setdefault((privilege, *rules), []).append(type)
    rows: dict[tuple[str, ...], list[str]] = {}
    for (privilege, *held), types in types_of.items():
        rows.setdefault((", ".join(types), *held), []).append(privilege)
    for (where, *held), privileges in rows.items():
        yield f"| {where} | {', '.join(map(code, privileges))} | {' | '.join(map(code, held))} |"


def rule_of(type: str, action: str) -> str:
    return next(rule for names, rule in MODEL[type].actions.items() if action in names.split())


def code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


@pytest.mark.parametrize("table", [relations, rights_on_objects, rights_on_grants])
def test_a_table_is_the_models(table: object) -> None:
    assert callable(table)
    assert "\n\n" + "\n".join(table()) + "\n\n" in PAGE, "\n" + "\n".join(table())


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.process
def test_every_example_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, world = blocks("yaml")[:2]
    (tmp_path / "pdp.yaml").write_text(settings)
    (tmp_path / "world.yaml").write_text(world)
    monkeypatch.chdir(tmp_path)
    commands = 0
    for block in blocks("console"):
        for command, printed in re.findall(r"^\$ pdp grants (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            ended = grants(*shlex.split(command))
            output = "".join(
                line
                for line in (ended.stdout + ended.stderr).splitlines(keepends=True)
                if not NOTES.fullmatch(line.rstrip("\n"))
            )
            assert EPOCH.sub("E", output) == EPOCH.sub("E", printed), command
            commands += 1
    assert commands > 8
    requests = blocks("http")
    with serve_process(tmp_path, "-c", "pdp.yaml") as service:
        for block in requests:
            line, _, body = block.partition("\n")
            method, path = line.split()
            url = service.url(urllib.parse.quote(path, safe="/?=&:~"))
            assert fetch(url, json.loads(body) if body else None, method).status == 200, block
        assert service.terminate() == 0
    assert len(requests) > 4
