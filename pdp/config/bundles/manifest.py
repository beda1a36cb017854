"""Manifest of a bundle: the number of the bundle, the digest of each file, and the signatures of both.

Signatures are Ed25519, or ECDSA on P-256 with SHA-256. Keys are PEM files. Only a key loads the library of ciphers.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from unicodedata import normalize

import msgspec

from pdp.config.regular_files import read_regular
from pdp.errors import ConfigError, InvalidArgument, PdpError
from pdp.model.strict import refuse_duplicates

if TYPE_CHECKING:  # cryptography takes 9 MB
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    PrivateKey: TypeAlias = Ed25519PrivateKey | EllipticCurvePrivateKey
    PublicKey: TypeAlias = Ed25519PublicKey | EllipticCurvePublicKey

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


_SIGNED_PREFIX: Final = b"pdp-bundle/1 manifest\n"
"""Beginning of the signed text: a signature for another purpose never fits."""
_MOST_SIGNATURES: Final = 32
MAX_SIGNATURES_BYTES: Final = 64 << 10


class BundleSignature(msgspec.Struct, frozen=True):
    """Signature in base64, and the beginning of the SHA-256 of the public key that verifies."""

    key: str
    value: str


def sign(manifest: bytes, key: PrivateKey) -> BundleSignature:
    """Return the signature of a manifest."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # noqa: PLC0415  takes 9 MB
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415

    text = _SIGNED_PREFIX + manifest
    value = key.sign(text) if isinstance(key, ed25519.Ed25519PrivateKey) else key.sign(text, ec.ECDSA(SHA256()))
    return BundleSignature(key_id(key.public_key()), base64.b64encode(value).decode())


def encode_signatures(signatures: Sequence[BundleSignature]) -> bytes:
    """Return signatures as JSON."""
    return msgspec.json.encode({"signatures": signatures})


def parse_signatures(text: bytes) -> list[BundleSignature]:
    """Return the signatures of a bundle; raise BundleRefused."""
    try:
        found = msgspec.json.decode(text, type=dict[str, list[BundleSignature]]).get("signatures", [])
        refuse_duplicates(text)
    except (msgspec.MsgspecError, RecursionError, InvalidArgument) as error:
        raise BundleRefused(f"the signatures are not valid: {error}") from None
    if len(found) > _MOST_SIGNATURES:
        raise BundleRefused(f"the bundle has more than {_MOST_SIGNATURES} signatures")
    return found


def verify(manifest: bytes, signatures: Sequence[BundleSignature], keys: Sequence[PublicKey]) -> str:
    """Return the id of the key that has signed a manifest; raise BundleRefused if none of the keys has."""
    if not signatures:
        raise BundleRefused("the bundle has no signature")
    known = {key_id(key): key for key in keys}
    for signature in signatures:
        key = known.get(signature.key)
        if key is not None and _verifies(key, manifest, signature):
            return signature.key
    raise BundleRefused("no signature of the bundle belongs to a configured key")


def key_id(key: PublicKey) -> str:
    """Return the first 16 hex digits of the SHA-256 of a public key."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

    return sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()[:16]


def read_public_key(path: Path) -> PublicKey:
    """Return the public key of a PEM file; raise ConfigError."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    key: PublicKey = _read_key(path, load_pem_public_key, read_regular)
    return key


def read_private_key(path: Path) -> PrivateKey:
    """Return the private key of a PEM file without a password; raise ConfigError."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    key: PrivateKey = _read_key(path, lambda text: load_pem_private_key(text, None))
    return key


def _read_key(path: Path, load: Any, read: Callable[[Path], bytes] = Path.read_bytes) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # noqa: PLC0415

    try:
        key = load(read(path))
    except OSError as error:
        raise ConfigError(f"cannot read the key `{path}`: {error.strerror or error}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"`{path}` is no usable key in PEM: give an Ed25519 or ECDSA P-256 key") from None
    is_curve = isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey)
    is_known = isinstance(key, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey)
    if not is_known and not (is_curve and isinstance(key.curve, ec.SECP256R1)):
        raise ConfigError(f"`{path}` is a key of another kind: give an Ed25519 or ECDSA P-256 key")
    return key


def _verifies(key: PublicKey, manifest: bytes, signature: BundleSignature) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415

    try:
        value = base64.b64decode(signature.value, validate=True)
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(value, _SIGNED_PREFIX + manifest)
        else:
            key.verify(value, _SIGNED_PREFIX + manifest, ec.ECDSA(SHA256()))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True
