"""Events of the file system: each way to change a file is seen long before the next regular look."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.clients.http_client import fetch
from support.oracles.converging import until
from support.service.serving import Process, serve_process

pytestmark = [pytest.mark.process, pytest.mark.waits]

CHECK = {"principal": "user:oidc~alice", "action": "READ_ENTITY_VALUE", "resource": "table:lake/s/t@main"}
SECONDS_BETWEEN_LOOKS = 3600


def rules(user: str) -> str:
    return json.dumps({"rules": {user: f"role=='{user}'"}})


def in_place(folder: Path, user: str) -> None:
    (folder / "a.yaml").write_text(rules(user))


def renamed(folder: Path, user: str) -> None:
    (folder / ".a.new").write_text(rules(user))
    (folder / ".a.new").replace(folder / "a.yaml")


def with_backup(folder: Path, user: str) -> None:
    (folder / "a.yaml").replace(folder / "a.yaml~")
    (folder / "a.yaml").write_text(rules(user))


def other_file(folder: Path, user: str) -> None:
    (folder / f"{user}.yaml").write_text(rules(user))
    for old in folder.glob("*.yaml"):
        if old.name != f"{user}.yaml":
            old.unlink()


def swapped(folder: Path, user: str) -> None:
    """Swap as a ConfigMap does, or mount one in place of the plain file."""
    target = folder / f"..{user}"
    target.mkdir(exist_ok=True)
    (target / "a.yaml").write_text(rules(user))
    (folder / "..new").symlink_to(target.name)
    (folder / "..new").replace(folder / "..data")
    if not (folder / "a.yaml").is_symlink():
        (folder / "link").symlink_to("..data/a.yaml")
        (folder / "link").replace(folder / "a.yaml")


def allowed(process: Process) -> bool:
    answer = fetch(process.url("/v1/check"), json.dumps({"checks": [CHECK]}).encode()).json()
    return bool(answer["decisions"][0]["allowed"])


@pytest.mark.parametrize("pattern", ["rules/*.yaml", "current/*.yaml"])
def test_each_way_to_change_a_file_is_seen(tmp_path: Path, pattern: str) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    (tmp_path / "current").symlink_to("rules")
    in_place(folder, "alice")
    policies = {"rules": [pattern], "refresh_seconds": SECONDS_BETWEEN_LOOKS, "watch": True}
    (tmp_path / "pdp.yaml").write_text(json.dumps({"policies": policies, "store": {"url": "sqlite:///pdp.db"}}))
    ways: list[Callable[[Path, str], None]] = [in_place, renamed, with_backup, other_file, swapped, swapped]
    with serve_process(tmp_path) as process:
        for way in ways:
            for user in ("bob", "alice"):
                assert allowed(process) is (user == "bob")
                way(folder, user)
                until(lambda user=user: allowed(process) is (user == "alice"))  # type: ignore[misc]
            for rest in folder.glob("*.yaml"):
                if way is other_file and rest.name != "a.yaml":
                    rest.rename(folder / "a.yaml")
        if pattern.startswith("current"):  # as git-sync does: the link to the whole folder is another one
            (tmp_path / "next").mkdir()
            in_place(tmp_path / "next", "bob")
            (tmp_path / "new").symlink_to("next")
            (tmp_path / "new").replace(tmp_path / "current")
            until(lambda: not allowed(process))
            in_place(tmp_path / "next", "alice")
            until(lambda: allowed(process))
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr()


def test_the_package_is_not_loaded_without_the_setting(tmp_path: Path) -> None:
    in_place(tmp_path, "alice")
    (tmp_path / "pdp.yaml").write_text(
        json.dumps({"policies": {"rules": ["a.yaml"]}, "store": {"url": "sqlite:///pdp.db"}})
    )
    with serve_process(tmp_path) as process:
        assert "watchfiles" not in Path(f"/proc/{process.process.pid}/maps").read_text()
        assert process.terminate() == 0
