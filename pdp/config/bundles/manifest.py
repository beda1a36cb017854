"""Manifest of a bundle: the number of the bundle, and the digest of each file. The signature covers the manifest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, Literal
from unicodedata import normalize

import msgspec

from pdp.errors import InvalidArgument, PdpError
from pdp.model.strict import refuse_duplicates

MANIFEST: Final = ".pdp/manifest.json"
SIGNATURES: Final = ".pdp/signatures.json"
"""First two entries of an archive."""
MAX_MANIFEST_BYTES: Final = 4 << 20
MAX_SEQUENCE: Final = 1 << 53
"""Largest number of a bundle, exact in every reader of JSON. A number without a bound would leave none after itself."""
MAX_FILES: Final = 10_000
_MAX_PART: Final = 255
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\\]")


class BundleRefused(PdpError):
    """Bundle that must not be used: damaged, unsigned, signed by others, too large, or older than a known one."""

    code = "bundle_refused"

    @property
    def shown(self) -> str:
        """Return the whole text, which quotes no policy."""
        return str(self)


class BundleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size of a file in bytes, and the SHA-256 of the content in hex."""

    size: int
    sha256: str


class BundleManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of a bundle. A newer bundle has a larger `sequence`; `revision` is a name for readers."""

    format: Literal["pdp-bundle/1"]
    sequence: int
    files: Mapping[str, BundleFile]
    revision: str = ""


def make_manifest(files: Mapping[str, bytes], sequence: int, revision: str = "") -> bytes:
    """Return the manifest of files as canonical JSON; raise BundleRefused for a path that no bundle may have."""
    listed = {path: BundleFile(len(content), sha256(content).hexdigest()) for path, content in sorted(files.items())}
    text = msgspec.json.encode(BundleManifest("pdp-bundle/1", sequence, listed, revision), order="sorted")
    parse_manifest(text)
    return text


def parse_manifest(text: bytes) -> BundleManifest:
    """Return a manifest; raise BundleRefused for an invalid one, or one with a path that leaves its folder."""
    if len(text) > MAX_MANIFEST_BYTES:
        raise BundleRefused("the manifest is too large")
    try:
        manifest = msgspec.json.decode(text, type=BundleManifest)
        refuse_duplicates(text)  # another reader may take the first of two entries for one path
    except (msgspec.MsgspecError, RecursionError, InvalidArgument) as error:
        raise BundleRefused(f"the manifest is not valid: {error}") from None
    if len(manifest.files) > MAX_FILES:
        raise BundleRefused(f"the bundle has more than {MAX_FILES} files")
    if not 0 <= manifest.sequence <= MAX_SEQUENCE:
        raise BundleRefused(f"the manifest has a `sequence` below 0 or above {MAX_SEQUENCE}")
    _check_paths(manifest.files)
    return manifest


def check_file(manifest: BundleManifest, path: str, content: bytes) -> None:
    """Raise BundleRefused if a file is not the one of the manifest."""
    listed = manifest.files.get(path)
    if listed is None:
        raise BundleRefused(f"`{shown(path)}` is not in the manifest")
    if listed.size != len(content) or listed.sha256 != sha256(content).hexdigest():
        raise BundleRefused(f"`{shown(path)}` is not the file of the manifest")


def shown(path: Any) -> str:
    """Return a path of a stranger for a message: short, and without control characters."""
    return _CONTROL.sub("?", str(path))[:200]


def check_path(path: str) -> None:
    """Raise BundleRefused unless a path is relative, plain and below its folder."""
    parts = path.split("/")
    is_plain = not _CONTROL.search(path) and all(0 < len(part.encode()) <= _MAX_PART for part in parts)
    if not is_plain or ".." in parts or "." in parts or parts[0] in (".pdp", ".git"):
        raise BundleRefused(f"`{shown(path)}` is no path of a bundle")


def check_names(paths: Iterable[str]) -> None:
    """Raise BundleRefused for a path that stands twice, and for two names that some file systems take for one.

    Such systems ignore the case of letters, or the Unicode form. A checkout or a copy there has one of the two files: a
    reader of it sees other policies than a service that reads both.
    """
    seen: set[str] = set()
    spellings: dict[str, str] = {}
    for path in paths:
        if path in seen:
            raise BundleRefused(f"`{shown(path)}` stands twice")
        seen.add(path)
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            name = "/".join(parts[:end])
            other = spellings.setdefault(_folded(name), name)
            if other != name:
                cause = "differ by case or Unicode form alone: rename one"
                raise BundleRefused(f"`{shown(other)}` and `{shown(name)}` {cause}")


def _folded(name: str) -> str:
    return name if name.isascii() and name.islower() else normalize("NFC", normalize("NFD", name).casefold())


def _check_paths(files: Mapping[str, BundleFile]) -> None:
    """Raise BundleRefused for a path outside of the folder, or a file in place of another file's folder."""
    folders: set[str] = set()
    for path in files:
        try:
            check_path(path)
        except UnicodeEncodeError:
            raise BundleRefused("a path of the bundle is no text") from None
        parts = path.split("/")
        folders.update("/".join(parts[:end]) for end in range(1, len(parts)))
    if both := sorted(folders & files.keys()):
        raise BundleRefused(f"`{shown(both[0])}` is a file and a folder")
    check_names(files)
