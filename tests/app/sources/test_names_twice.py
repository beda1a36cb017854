"""One name twice, in git's trees, in archives and in manifests: readers differ in which one they take, so none is taken.

Names that some file systems fold are one name as well.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generators.bundles import ROOT, TAG, bundle_server, digest_of, git, layer_of, private_key, push

from pdp.app.sources.git import GitSource
from pdp.app.sources.http import HttpFetcher, OciSource
from pdp.config.bundles.archive import BundleParts, build, pack, unpack
from pdp.config.bundles.manifest import BundleRefused, check_names, make_manifest, sign

from support.service.serving import settings_of  # isort: skip

MIB = 1 << 20
Tree = Sequence[tuple[str, "bytes | Tree"]]
"""Entries of a tree of git as they are written: names may stand twice, in any order."""


def object_of(repository: Path, kind: str, content: bytes) -> str:
    command = ["git", "hash-object", "-w", "--literally", "-t", kind, "--stdin"]
    return (
        subprocess.run(command, cwd=repository, input=content, capture_output=True, check=True).stdout.decode().strip()
    )


def write_tree(repository: Path, tree: Tree) -> str:
    entries = b""
    for name, content in tree:
        is_file = isinstance(content, bytes)
        found = (
            object_of(repository, "blob", content) if isinstance(content, bytes) else write_tree(repository, content)
        )
        entries += (b"100644 " if is_file else b"40000 ") + name.encode() + b"\0" + bytes.fromhex(found)
    return object_of(repository, "tree", entries)


def head_at(repository: Path, tree: Tree) -> None:
    found = git(repository, "commit-tree", write_tree(repository, tree), "-m", "x").strip()
    git(repository, "update-ref", "HEAD", found)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


RULES: Tree = [("a.yaml", b"one")]
COMPOSED, DECOMPOSED = unicodedata.normalize("NFC", "\u00fc.yaml"), unicodedata.normalize("NFD", "\u00fc.yaml")
TWICE: Mapping[str, tuple[Tree, str]] = {
    "files": ([("a.yaml", b"one"), ("a.yaml", b"two")], "`a.yaml` stands twice"),
    "equal files": ([("a.yaml", b"one"), ("a.yaml", b"one")], "`a.yaml` stands twice"),
    "files apart": ([("a.yaml", b"one"), ("b.yaml", b""), ("a.yaml", b"two")], "`a.yaml` stands twice"),
    "folders": ([("r", RULES), ("r", [("b.yaml", b"two")])], "`r` stands twice"),
    "equal folders": ([("r", RULES), ("r", RULES)], "`r` stands twice"),
    "file and folder": ([("r", b"one"), ("r", RULES)], "`r` stands twice"),
    "empty folder and file": ([("r", []), ("r", b"one")], "`r` stands twice"),
    "deep": ([("r", [("s", [("a.yaml", b"1"), ("a.yaml", b"2")])])], "`r/s/a.yaml` stands twice"),
    "slash": ([("r", RULES), ("r/a.yaml", b"two")], "`r/a.yaml` stands twice"),
    "case": ([("A.yaml", b"one"), ("a.yaml", b"two")], "`A.yaml` and `a.yaml` differ by case"),
    "case of folders": ([("R", RULES), ("r", [("b.yaml", b"2")])], "`R` and `r` differ by case"),
    "case of file and folder": ([("R", b"one"), ("r", RULES)], "`R` and `r` differ by case"),
    "sharp s": ([("stra\u00dfe", b"1"), ("strasse", b"2")], "differ by case"),
    "form": ([(DECOMPOSED, b"one"), (COMPOSED, b"two")], "differ by case or Unicode form"),
}


@pytest.mark.process
@pytest.mark.parametrize(("tree", "cause"), TWICE.values(), ids=TWICE)
@pytest.mark.parametrize("path", [None, "policies"])
def test_no_tree_of_git_has_a_name_twice(repository: Path, tree: Tree, cause: str, path: str | None) -> None:
    head_at(repository, [("policies", tree)] if path else tree)
    with pytest.raises(BundleRefused) as refused:
        GitSource(repository, path, MIB, 10).fetch("")
    assert cause in str(refused.value)


@pytest.mark.process
def test_the_folder_of_the_policies_stands_once(repository: Path) -> None:
    trees: list[tuple[Tree, str]] = [
        ([("policies", RULES), ("policies", [("a.yaml", b"two")])], "policies"),
        ([("p", [("q", RULES), ("q", [("b.yaml", b"")])])], "p/q"),
        ([("p", [("q", RULES)]), ("p", [("q", [])])], "p/q"),
    ]
    for tree, path in trees:
        head_at(repository, tree)
        with pytest.raises(BundleRefused, match="stands twice"):
            GitSource(repository, path, MIB, 10).fetch("")
    head_at(repository, [("p", [("q", RULES), ("r", RULES)]), ("q", RULES)])
    found = GitSource(repository, "p/q", MIB, 10).fetch("")
    assert found is not None
    assert found.files == {"a.yaml": b"one"}


def archive_of(manifest: bytes, members: Sequence[tuple[str, bytes]]) -> bytes:
    """Return an archive with a signed manifest and any members behind."""
    key = private_key()
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        head = pack(BundleParts(manifest, [sign(manifest, key)], {}))
        with tarfile.open(fileobj=io.BytesIO(head)) as parts:
            first = [(info.name, parts.extractfile(info).read()) for info in parts]  # type: ignore[union-attr]
        for name, content in [*first, *members]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def opened(archive: bytes) -> Mapping[str, bytes]:
    return unpack(archive, [private_key().public_key()], MIB).files


def test_no_archive_has_a_member_twice() -> None:
    files = {"r/a.yaml": b"one", "b.yaml": b""}
    manifest, members = make_manifest(files, 1), list(files.items())
    assert opened(archive_of(manifest, members)) == files
    for more in [("r/a.yaml", b"one"), ("r/a.yaml", b"two"), ("b.yaml", b"")]:
        for at in range(1, 3):
            with pytest.raises(BundleRefused, match=more[0]):
                opened(archive_of(manifest, [*members[:at], more, *members[at:]]))
    for name in (".pdp/manifest.json", ".pdp/signatures.json", "./b.yaml", "r/../b.yaml"):
        with pytest.raises(BundleRefused, match=r"is not in the manifest|is a link"):
            opened(archive_of(manifest, [*members, (name, b"")]))


def test_no_manifest_names_a_path_twice() -> None:
    text = make_manifest({"a.yaml": b"one"}, 1).decode()
    entry = json.dumps(json.loads(text)["files"]["a.yaml"])
    other = json.dumps(json.loads(make_manifest({"a.yaml": b"two"}, 1))["files"]["a.yaml"])
    for twice in (
        text.replace('"files":{', f'"files":{{"a.yaml":{other},'),
        text.replace('"files":{', f'"files":{{"a.yaml":{entry},'),
        text.replace('"files":{', f'"files":{{"\\u0061.yaml":{other},'),
        text.replace('"sequence":1', '"sequence":9,"sequence":1'),
    ):
        assert twice != text
        with pytest.raises(BundleRefused, match="duplicate key"):
            opened(archive_of(twice.encode(), [("a.yaml", b"one")]))


@pytest.mark.parametrize(("one", "two"), [("A.yaml", "a.yaml"), ("R/a", "r/b"), ("r", "R/a"), (COMPOSED, DECOMPOSED)])
def test_no_bundle_is_built_with_names_that_fold(one: str, two: str) -> None:
    with pytest.raises(BundleRefused, match="differ by case or Unicode form alone: rename one"):
        build({one: b"", two: b""}, 1)


def test_no_artefact_names_its_layers_twice(tmp_path: Path) -> None:
    with bundle_server() as server:
        push(server, b"one")
        place = server.url("/team/policies:prod")
        settings = settings_of({"policies": {"source": {"oci": place, "keys": ["one.pub"]}}}, tmp_path)
        assert settings.policies.source
        source = OciSource(HttpFetcher(settings, settings.policies.source), place, MIB)
        assert source.fetch("")
        server.bodies[f"{ROOT}/blobs/{digest_of(b'two')}"] = b"two"
        one, two = (json.dumps([layer_of(content)]) for content in (b"one", b"two"))
        server.bodies[TAG] = f'{{"schemaVersion":2,"layers":{two},"layers":{one}}}'.encode()
        with pytest.raises(BundleRefused, match="manifest"):
            source.fetch("")
        push(server, b"one", layer_of(b"one"))
        with pytest.raises(BundleRefused, match="not one layer"):
            source.fetch("")


NAMES = st.sampled_from(["a", "A", "b", "\u00e9", "e\u0301", "E\u0301", "\u00c9", "s\u00df", "sSS"])
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), max_size=5)


@given(PATHS)
def test_names_are_refused_exactly_if_a_folding_file_system_merges_them(paths: list[str]) -> None:
    """The model is a file system: folders as maps whose keys are folded names, with the spelling of the first."""

    def merges() -> bool:
        spelled: dict[tuple[str, ...], str] = {}
        for path in paths:
            at: tuple[str, ...] = ()
            for part in path.split("/"):
                at = (*at, unicodedata.normalize("NFC", unicodedata.normalize("NFD", part).casefold()))
                if spelled.setdefault(at, part) != part:
                    return True
        return False

    expected = len(set(paths)) < len(paths) or merges()
    try:
        check_names(paths)
    except BundleRefused:
        assert expected
    else:
        assert not expected
