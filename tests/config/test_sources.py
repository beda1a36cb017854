"""Settings of a source of policies: nothing unsigned, unencrypted or ambiguous by accident."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.service.serving import settings_of

from pdp.config.policy_files import policy_files
from pdp.errors import ConfigError

URL = "https://bundles.example/b.tar.gz"


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ({}, "set one of"),
        ({"http": URL, "git": "x", "keys": ["k"]}, "set one of"),
        ({"http": URL}, "set `keys`, or `unsigned: true`"),
        ({"http": URL, "keys": ["k"], "unsigned": True}, "set `keys`, or `unsigned: true`"),
        ({"http": "ftp://bundles.example/b", "keys": ["k"]}, "is a URL with https://"),
        ({"http": "https://user:secret@bundles.example/b", "keys": ["k"]}, "no user or password"),
        ({"http": "https:///b", "keys": ["k"]}, "is a URL with https://"),
        ({"http": "https://a:x/b", "keys": ["k"]}, "is no URL"),
        ({"http": "http://bundles.example/b", "unsigned": True}, "http:// to another machine"),
        ({"http": "http://bundles.example/b", "keys": ["k"], "token_file": "t"}, "http:// to another machine"),
        ({"http": URL, "keys": ["k"], "path": "x"}, "`path` belongs to `git`"),
        ({"oci": "https://registry.example/policies", "keys": ["k"]}, "`oci` is a URL such as"),
        ({"oci": "https://registry.example/Policies:prod", "keys": ["k"]}, "`oci` is a URL such as"),
        ({"oci": "https://registry.example/a/../b:prod", "keys": ["k"]}, "`oci` is a URL such as"),
        ({"oci": "https://registry.example/a@sha256:12", "keys": ["k"]}, "`oci` is a URL such as"),
        ({"oci": "https://registry.example/a:b", "keys": ["k"], "username": "u"}, "`username` needs a `token_file`"),
        ({"git": "x", "keys": ["k"]}, "`git` takes no keys"),
    ],
)
def test_a_source_that_could_open_is_refused(tmp_path: Path, source: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        settings_of({"policies": {"source": source}}, tmp_path)


def test_files_of_a_source_are_never_those_beside_the_configuration(tmp_path: Path) -> None:
    for name in ("rules", "local", "tree/rules"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.yaml").write_text("rules: {}")
    local = str(tmp_path / "local" / "*.yaml")
    policies = {"rules": ["rules/*.yaml"], "forbid": [{"path": local, "allow_empty": True}]}
    settings = settings_of({"policies": {**policies, "source": {"http": URL, "keys": ["k"]}}}, tmp_path)
    with pytest.raises(ConfigError, match="is in the source"):
        policy_files(settings, "rules")
    assert policy_files(settings, "forbid").paths == (tmp_path / "local" / "a.yaml",)
    unpacked = settings.with_policy_folder(tmp_path / "tree")
    assert policy_files(unpacked, "rules").paths == (tmp_path / "tree" / "rules" / "a.yaml",)
    assert policy_files(unpacked, "forbid").paths == (tmp_path / "local" / "a.yaml",)
    moved = settings_of({"policies": {"rules": ["rules/a.yaml"], "folder": "tree"}}, tmp_path)
    assert policy_files(moved, "rules").paths == (tmp_path / "tree" / "rules" / "a.yaml",)
