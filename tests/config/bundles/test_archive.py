"""Archives of bundles: what was packed comes back, and every attack is refused before a file is written."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generators.bundles import private_key

from pdp.config.bundles.archive import BundleParts, add_signature, build, pack, read_files, split, unpack, write_files
from pdp.config.bundles.manifest import (
    MANIFEST,
    SIGNATURES,
    BundleRefused,
    encode_signatures,
    key_id,
    make_manifest,
    sign,
)
from pdp.errors import ConfigError

MIB = 1 << 20
FILES = {"rules/a.yaml": b"rules: {}", "forbid/b.yaml": b"x" * 1000, "c.cedar": b""}
PARTS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=3)


def keys(*names: str, kind: str = "ed25519") -> list[Any]:
    return [private_key(name, kind).public_key() for name in names]


@given(
    files=st.dictionaries(st.lists(PARTS, min_size=1, max_size=3).map("/".join), st.binary(max_size=50)),
    number=st.integers(0, 2**53),
)
def test_files_come_back_as_they_were(files: dict[str, bytes], number: int) -> None:
    folders = {"/".join(path.split("/")[:end]) for path in files for end in range(1, path.count("/") + 1)}
    if folders & files.keys():
        with pytest.raises(BundleRefused, match="a file and a folder"):
            build(files, number, "r")
        return
    if len({name.lower() for name in folders | files.keys()}) < len(folders | files.keys()):
        with pytest.raises(BundleRefused, match="differ by case"):
            build(files, number, "r")
        return
    content = build(files, number, "r", private_key())
    assert content == build(dict(reversed(files.items())), number, "r", private_key())
    found = unpack(content, keys("two", "one"), MIB)
    assert (dict(found.files), found.manifest.sequence, found.manifest.revision) == (files, number, "r")
    assert found.signer == key_id(private_key().public_key())


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
def test_a_signature_of_one_known_key_is_enough(kind: str) -> None:
    content = add_signature(build(FILES, 1, key=private_key("one", kind)), private_key("two", kind), MIB)
    assert unpack(content, keys("two", kind=kind), MIB).files == FILES
    assert unpack(content, keys("one", "three", kind=kind), MIB).files == FILES
    again = add_signature(content, private_key("two", kind), MIB)
    assert len(split(again, MIB).signatures) == 2
    with pytest.raises(BundleRefused, match="no signature of the bundle belongs to a configured key"):
        unpack(content, keys("three", kind=kind), MIB)
    with pytest.raises(BundleRefused, match="has no signature"):
        unpack(build(FILES, 1), keys("one", kind=kind), MIB)


def signed(files: Mapping[str, bytes], manifest: bytes | None = None) -> bytes:
    """An archive with these files, whose manifest is signed, and is of other files if `manifest` says so."""
    text = manifest or make_manifest(files, 1)
    return pack(BundleParts(text, [sign(text, private_key())], files))


def manifest_with(path: str, content: bytes = b"x") -> bytes:
    """A manifest that a signer without checks would sign."""
    entry = {"size": len(content), "sha256": sha256(content).hexdigest()}
    return json.dumps({"format": "pdp-bundle/1", "sequence": 1, "files": {path: entry}}).encode()


BAD_PATHS = ["/etc/passwd", "../a", "a/../../b", "a//b", "./a", "a/.", "", "a\\b", "a\nb", "a\x00b", "a\u2028b",
             ".pdp/manifest.json", ".git/config", "x" * 256, "a/" + "é" * 200, "/"]  # fmt: skip


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_outside_of_the_folder_is_refused_even_if_signed(path: str, tmp_path: Path) -> None:
    with pytest.raises(BundleRefused):
        unpack(signed({path: b"x"}, manifest_with(path)), keys("one"), MIB)
    with pytest.raises(BundleRefused):
        make_manifest({path: b"x"}, 1)
    with pytest.raises(BundleRefused):
        write_files({path: b"x"}, tmp_path)
    assert list(tmp_path.rglob("*")) == []


def with_entry(change: Callable[[tarfile.TarInfo], None]) -> bytes:
    """A signed bundle of `a`, whose entry `a` is something else."""
    manifest = make_manifest({"a": b"x"}, 1)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        heads = {MANIFEST: manifest, SIGNATURES: encode_signatures([sign(manifest, private_key())])}
        for name, text in heads.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
        info = tarfile.TarInfo("a")
        change(info)
        archive.addfile(info)
    return target.getvalue()


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE,
     tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE],
)  # fmt: skip
def test_links_folders_and_devices_are_refused(kind: bytes) -> None:
    def change(info: tarfile.TarInfo) -> None:
        info.type, info.linkname = kind, "/etc/passwd"

    with pytest.raises(BundleRefused):
        unpack(with_entry(change), keys("one"), MIB)


@pytest.mark.parametrize(
    ("files", "cause"),
    [
        ({**FILES, "extra.yaml": b"x"}, "not in the manifest"),
        ({path: content for path, content in FILES.items() if path != "forbid/b.yaml"}, "is missing"),
        ({**FILES, "rules/a.yaml": b"rules: []"}, "not the file of the manifest"),
        ({**FILES, "rules/a.yaml": b"rules: {}\n"}, "not the file of the manifest"),
    ],
)
def test_other_files_than_the_signed_ones_are_refused(files: dict[str, bytes], cause: str) -> None:
    with pytest.raises(BundleRefused, match=cause):
        unpack(signed(files, make_manifest(FILES, 1)), keys("one"), MIB)


def test_a_changed_manifest_is_refused() -> None:
    parts = split(build(FILES, 1, key=private_key()), MIB)
    with pytest.raises(BundleRefused, match="no signature"):
        unpack(pack(parts._replace(manifest=make_manifest(FILES, 2))), keys("one"), MIB)


def test_bombs_end_early() -> None:
    zeros = {"a": bytes(3 * MIB)}
    for content, known in ((signed(zeros), keys("one")), (build(zeros, 1), [])):
        assert len(content) < 20_000
        with pytest.raises(BundleRefused, match=r"bytes|MiB"):
            unpack(content, known, MIB)
    endless = gzip.compress(bytes(60 * MIB))
    for content in (endless, build({}, 1) + endless, with_entry(lambda info: setattr(info, "size", 1 << 40))):
        with pytest.raises(BundleRefused):
            unpack(content, keys("one"), MIB)
    with pytest.raises(BundleRefused, match="files"):
        make_manifest({str(number): b"" for number in range(10_001)}, 1)


@given(at=st.integers(0, 5000), byte=st.integers(0, 255), cut=st.booleans())
def test_damaged_bytes_are_refused_or_change_nothing(at: int, byte: int, cut: bool) -> None:
    content = build(FILES, 1, key=private_key())
    place = at % len(content)
    damaged = content[:place] if cut else content[:place] + bytes([byte]) + content[place + 1 :]
    try:
        found = unpack(damaged, keys("one"), MIB)
    except BundleRefused:
        return
    assert (found.files, found.manifest.sequence) == (FILES, 1)


@pytest.mark.parametrize(
    "content", [b"", b"x", gzip.compress(b"", mtime=0), gzip.compress(b"x" * 5000, mtime=0), b"\x1f\x8b"]
)
def test_no_archive_is_refused(content: bytes) -> None:
    with pytest.raises(BundleRefused):
        unpack(content, (), MIB)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b"[" * 100_000, b'{"format":"pdp-bundle/2","sequence":1,"files":{}}',
     b'{"format":"pdp-bundle/1","sequence":-1,"files":{}}', b'{"format":"pdp-bundle/1","sequence":9007199254740993,"files":{}}',
     b'{"format":"pdp-bundle/1","sequence":1,"files":{},"x":1}'],
)  # fmt: skip
def test_other_manifests_are_refused(text: bytes) -> None:
    with pytest.raises(BundleRefused):
        unpack(pack(BundleParts(text, [sign(text, private_key())], {})), keys("one"), MIB)


def test_folders_are_read_without_links_and_hidden_files(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.yaml").write_bytes(b"x")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_bytes(b"x")
    assert read_files(tmp_path) == {"rules/a.yaml": b"x"}
    (tmp_path / "link").symlink_to("rules")
    with pytest.raises(ConfigError, match="is a link"):
        read_files(tmp_path)
