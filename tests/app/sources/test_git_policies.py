"""Services with policies from a real git repository: the commit at HEAD counts, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.clients.http_client import fetch
from support.generators.bundles import commit, git, write_policies
from support.oracles.converging import until
from support.service.serving import Process, serve_process

from pdp.app.sources.client import SourceUnreachable
from pdp.app.sources.git import GitSource
from pdp.config.bundles.manifest import BundleRefused

pytestmark = pytest.mark.process

CHECK = {"principal": "user:oidc~alice", "action": "READ_ENTITY_VALUE", "resource": "table:lake/s/t@main"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    write_policies(folder, "alice")
    git(folder, "init", "-q")
    commit(folder)
    return folder


def allowed(process: Process) -> bool:
    answer = fetch(process.url("/v1/check"), json.dumps({"checks": [CHECK]}).encode()).json()
    return bool(answer["decisions"][0]["allowed"])


def test_each_commit_serves_and_edits_without_one_do_not(tmp_path: Path, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD").strip()
    source = {"git": "repository", "path": "policies", "poll_seconds": 0.1}
    config = {"policies": {"rules": ["*.yaml"], "source": source, "refresh_seconds": 0.1}}
    (tmp_path / "pdp.yaml").write_text(json.dumps({**config, "store": {"url": "sqlite:///pdp.db"}}))
    with serve_process(tmp_path) as process:
        assert allowed(process)
        write_policies(repository, "bob")
        until(lambda: process.process.poll() is None, 1)
        assert allowed(process), "an edit without a commit"
        commit(repository)
        until(lambda: not allowed(process))
        git(repository, "reset", "-q", "--hard", first)
        until(lambda: allowed(process))
        (repository / "policies" / "a.yaml").write_text("rules: {a: 'role in ['}")
        commit(repository)
        until(lambda: "a.yaml:1" in fetch(process.url("/health/ready", "diagnostics")).text)
        assert allowed(process)
        write_policies(repository, "bob")
        commit(repository)
        until(lambda: not allowed(process))
        until(lambda: fetch(process.url("/health/ready", "diagnostics")).status == 200)
        assert process.terminate() == 0


def test_objects_are_read_as_they_are(repository: Path) -> None:
    contents = {"a.yaml": b"x\r\n\0y", "deep/er/b c.yaml": b"", "\u00fc.yaml": b"z" * 70_000}
    for path, content in contents.items():
        file = repository / "policies" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (repository / ".gitattributes").write_text("*.yaml export-ignore text eol=crlf filter=nothing\n")
    revision = commit(repository)
    (repository / "policies" / "a.yaml").write_text("edited")
    found = GitSource(repository, "policies", 1 << 20, 10).fetch("")
    assert found is not None
    assert (found.tag, found.files) == (revision, {**contents, "a.yaml": b"x\n\0y"})  # the commit made line feeds
    assert GitSource(repository, "policies", 1 << 20, 10).fetch(revision) is None
    bare = repository.parent / "bare"
    git(repository, "clone", "-q", "--bare", ".", str(bare))
    assert GitSource(bare, "policies", 1 << 20, 10).fetch("") == found


def test_links_submodules_and_large_commits_are_refused(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleRefused, match="MiB"):
        GitSource(repository, None, 5, 10).fetch("")
    (repository / "policies" / "link").symlink_to("/etc/passwd")
    commit(repository)
    with pytest.raises(BundleRefused, match="is a link"):
        GitSource(repository, None, 1 << 20, 10).fetch("")
    with pytest.raises(SourceUnreachable):
        GitSource(repository, "missing", 1 << 20, 10).fetch("")
    with pytest.raises(SourceUnreachable):
        GitSource(tmp_path / "nowhere", None, 1 << 20, 10).fetch("")
