"""Archive of a bundle: tar.gz with the manifest, the signatures and the files, in this order.

Archives come from strangers until the signature of the manifest is verified. So a read decodes in a stream, counts
every byte, and takes plain files alone.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple, cast

from pdp.config.bundles.manifest import (
    MANIFEST,
    MAX_FILES,
    MAX_MANIFEST_BYTES,
    MAX_SIGNATURES_BYTES,
    SIGNATURES,
    BundleManifest,
    BundleRefused,
    BundleSignature,
    check_file,
    check_path,
    encode_signatures,
    make_manifest,
    parse_manifest,
    parse_signatures,
    shown,
    sign,
    verify,
)
from pdp.errors import ConfigError

if TYPE_CHECKING:
    from pdp.config.bundles.manifest import PrivateKey, PublicKey

_OVERHEAD: Final = 2_048
"""Bytes of an archive for each file, beside the content."""


class UnpackedBundle(NamedTuple):
    """Verified content of an archive. `signer` is the id of the key; empty if no signature was demanded."""

    manifest: BundleManifest
    digest: str
    """SHA-256 of the manifest, so of the whole content."""
    files: Mapping[str, bytes]
    signer: str


class BundleParts(NamedTuple):
    """Content of an archive before any check of the signature."""

    manifest: bytes
    signatures: Sequence[BundleSignature]
    files: Mapping[str, bytes]


def pack(parts: BundleParts) -> bytes:
    """Return the archive of a bundle. The same content makes the same bytes."""
    target = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=target, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        entries = {MANIFEST: parts.manifest, SIGNATURES: encode_signatures(parts.signatures), **parts.files}
        for path, content in entries.items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(content), 0o644
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def build(files: Mapping[str, bytes], sequence: int, revision: str = "", key: PrivateKey | None = None) -> bytes:
    """Return the archive of files, signed if a key is given; raise BundleRefused for an unfit path."""
    manifest = make_manifest(files, sequence, revision)
    signatures = [sign(manifest, key)] if key else []
    return pack(BundleParts(manifest, signatures, dict(sorted(files.items()))))


def add_signature(content: bytes, key: PrivateKey, most_bytes: int) -> bytes:
    """Return an archive with one more signature, in place of an older one of the same key; raise BundleRefused."""
    parts = split(content, most_bytes)
    new = sign(parts.manifest, key)
    others = [each for each in parts.signatures if each.key != new.key]
    return pack(parts._replace(signatures=[*others, new]))


def unpack(content: bytes, keys: Sequence[PublicKey], most_bytes: int) -> UnpackedBundle:
    """Return the verified content of an archive; raise BundleRefused. Without keys, no signature is demanded."""
    entries = _entries(content, most_bytes)
    text, signatures = _head(entries)
    signer = verify(text, signatures, keys) if keys else ""
    manifest = parse_manifest(text)
    if sum(file.size for file in manifest.files.values()) > most_bytes:
        raise BundleRefused(f"the files of the bundle have more than {most_bytes >> 20} MiB")
    files: dict[str, bytes] = {}
    for path, file in entries:
        if path in files:
            raise BundleRefused(f"`{shown(path)}` stands twice in the bundle")
        check_file(manifest, path, file)
        files[path] = file
    if missing := sorted(manifest.files.keys() - files.keys()):
        raise BundleRefused(f"`{shown(missing[0])}` of the manifest is missing")
    return UnpackedBundle(manifest, sha256(text).hexdigest(), files, signer)


def split(content: bytes, most_bytes: int) -> BundleParts:
    """Return the parts of an archive whose signatures nobody has checked; raise BundleRefused if damaged."""
    entries = _entries(content, most_bytes)
    text, signatures = _head(entries)
    return BundleParts(text, signatures, unpack(content, (), most_bytes).files)


def read_files(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder by path, without hidden ones; raise ConfigError for a link or another thing."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if any(part.startswith(".") for part in name.split("/")):
            continue
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise ConfigError(f"`{path}` is a link or no plain file: a bundle has plain files alone")
        if path.is_file():
            found[name] = path.read_bytes()
    if not found:
        raise ConfigError(f"`{folder}` has no files")
    return found


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write verified files below an empty folder; raise BundleRefused for a path outside, OSError for a full disk."""
    for path, content in files.items():
        check_path(path)
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.write(content)


def _head(entries: Iterator[tuple[str, bytes]]) -> tuple[bytes, list[BundleSignature]]:
    """Return manifest and signatures, which must be the first two entries."""
    found = []
    for name in (MANIFEST, SIGNATURES):
        path, content = next(entries, ("", b""))
        if path != name:
            raise BundleRefused(f"no bundle of policies: `{name}` is missing")
        found.append(content)
    return found[0], parse_signatures(found[1])


def _entries(content: bytes, most_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield the plain files of an archive by path; raise BundleRefused for anything else, or too many bytes."""
    limit = most_bytes + MAX_MANIFEST_BYTES + MAX_SIGNATURES_BYTES + MAX_FILES * _OVERHEAD
    try:
        with (
            gzip.GzipFile(fileobj=io.BytesIO(content)) as packed,
            tarfile.open(
                fileobj=cast("IO[bytes]", _BoundedReader(packed, limit)), mode="r|", encoding="utf-8"
            ) as archive,
        ):
            for number, info in enumerate(archive):
                archive.members = []  # type: ignore[attr-defined]  # a stream keeps all of them otherwise
                if number >= MAX_FILES + 2:
                    raise BundleRefused(f"the bundle has more than {MAX_FILES} files")
                yield info.name, _content(archive, info, most_bytes)
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, OverflowError, RecursionError) as error:
        raise BundleRefused(f"the archive is damaged: {type(error).__name__}") from None


def _content(archive: tarfile.TarFile, info: tarfile.TarInfo, most_bytes: int) -> bytes:
    limit = {MANIFEST: MAX_MANIFEST_BYTES, SIGNATURES: MAX_SIGNATURES_BYTES}.get(info.name, most_bytes)
    if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.issparse():
        raise BundleRefused(f"`{shown(info.name)}` is a link, a folder or a device: a bundle has plain files alone")
    if info.size > limit:
        raise BundleRefused(f"`{shown(info.name)}` has more bytes than a bundle may have")
    file = archive.extractfile(info)
    content = file.read() if file else b""
    if len(content) != info.size:
        raise BundleRefused(f"`{shown(info.name)}` is cut off")
    return content


def _bounded(source: gzip.GzipFile, limit: int) -> IO[bytes]:
    return cast("IO[bytes]", _BoundedReader(source, limit))


class _BoundedReader:
    """Stream that ends with BundleRefused after a number of bytes."""

    def __init__(self, source: gzip.GzipFile, limit: int) -> None:
        self._source = source
        self._left = limit

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; raise BundleRefused beyond the limit."""
        if size < 0 or size > 1 << 20:
            size = 1 << 20
        content = self._source.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise BundleRefused("the bundle unpacks to more bytes than a bundle may have")
        return content
