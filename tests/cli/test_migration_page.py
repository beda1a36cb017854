"""docs/migration.md: every command of the page prints what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.paths import ROOT
from support.service.commands import run_pdp

pytestmark = pytest.mark.process

PAGE = (ROOT / "docs" / "migration.md").read_text()
FILE = re.compile(r"^```(?:properties|sh|yaml)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ pdp (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_every_command_prints_what_the_page_says(tmp_path: Path) -> None:
    for name, text in FILE.findall(PAGE):
        (tmp_path / name).write_text(f"# {name}\n{text}")
    commands = [found for block in CONSOLE.findall(PAGE) for found in COMMAND.findall(block)]
    for command, printed in commands:
        ended = run_pdp(*shlex.split(command), cwd=tmp_path)
        assert ended.stdout + ended.stderr == printed, f"{command}\n{ended.stdout}{ended.stderr}"
    assert len(commands) == 4
