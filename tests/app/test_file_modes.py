"""Files of a running service: nobody but their owner can read them, whatever the umask."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import fetch
from support.service.commands import run_pdp
from support.service.serving import serve_process, serving, settings_of

pytestmark = pytest.mark.process

CHECK = json.dumps({"checks": [{"principal": "user:oidc~a", "action": "read_data", "resource": "table:lake/t"}]})


@pytest.fixture
def open_umask() -> Iterator[None]:
    """The umask that takes nothing from anybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> dict[str, str]:
    """Return the files and folders inside a folder that others have rights on, with their modes."""
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*") if not path.name.startswith("std")}
    return {str(path.relative_to(folder)): f"{mode:03o}" for path, mode in modes.items() if mode & 0o077}


@pytest.mark.usefixtures("open_umask")
def test_a_service_leaves_nothing_open(tmp_path: Path) -> None:
    with serve_process(tmp_path, "--set", f"server.unix={tmp_path}/pdp.sock", fresh=True) as process:
        fetch(process.url("/v1/check"), CHECK.encode())
        grant = {"principal": "user:oidc~b", "privilege": "select", "object": "table:lake/t"}
        fetch(process.url("/v1/grants"), json.dumps({"add": [grant]}).encode())
        assert open_to_others(tmp_path) == {}
        assert process.terminate() == 0
    assert (tmp_path / "pdp.db").exists()
    assert list((tmp_path / "audit" / "bundles").iterdir())
    assert open_to_others(tmp_path) == {}


@pytest.mark.usefixtures("open_umask")
def test_an_export_is_closed_to_others(tmp_path: Path) -> None:
    config = tmp_path / "pdp.yaml"
    config.write_text("policies: {rules: []}\nstore: {url: 'sqlite:///pdp.db'}\n")
    assert run_pdp("grants", "export", "-c", str(config), str(tmp_path / "world.yaml"), fresh=True).returncode == 0
    assert "world.yaml" not in open_to_others(tmp_path)


async def test_existing_files_are_closed(tmp_path: Path) -> None:
    (tmp_path / "audit" / "bundles").mkdir(parents=True)
    left = [tmp_path / "audit" / "decisions-old.jsonl", tmp_path / "audit" / "bundles" / "ab", tmp_path / "pdp.db"]
    for file in left:
        file.touch(mode=0o664)
        file.chmod(0o664)
    async with serving(settings_of({"store": {"url": "sqlite:///pdp.db"}}, tmp_path)):
        assert [stat.S_IMODE(file.stat().st_mode) for file in left] == [0o600] * 3


async def test_the_group_may_connect_if_the_configuration_says_so(tmp_path: Path) -> None:
    config: dict[str, Any] = {"server": {"unix": "pdp.sock", "unix_access": "group"}}
    async with serving(settings_of(config, tmp_path)):
        assert stat.S_IMODE((tmp_path / "pdp.sock").stat().st_mode) == 0o660
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "pdp.sock"))
