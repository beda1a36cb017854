"""Signatures of bundles by Ed25519, or by ECDSA on P-256 with SHA-256. Keys are PEM files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from pdp.config.bundles.manifest import BundleRefused
from pdp.config.regular_files import read_regular
from pdp.errors import ConfigError, InvalidArgument
from pdp.model.strict import refuse_duplicates

if TYPE_CHECKING:  # cryptography takes 9 MB
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    PrivateKey: TypeAlias = Ed25519PrivateKey | EllipticCurvePrivateKey
    PublicKey: TypeAlias = Ed25519PublicKey | EllipticCurvePublicKey

_PREFIX: Final = b"pdp-bundle/1 manifest\n"
"""Beginning of the signed text: a signature for another purpose never fits."""
_MOST: Final = 32
"""Signatures of one bundle."""
MAX_SIGNATURES_BYTES: Final = 64 << 10


class BundleSignature(msgspec.Struct, frozen=True):
    """Signature in base64, and the beginning of the SHA-256 of the public key that verifies."""

    key: str
    value: str


def sign(manifest: bytes, key: PrivateKey) -> BundleSignature:
    """Return the signature of a manifest."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # noqa: PLC0415  takes 9 MB
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415

    text = _PREFIX + manifest
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
    if len(found) > _MOST:
        raise BundleRefused(f"the bundle has more than {_MOST} signatures")
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
            key.verify(value, _PREFIX + manifest)
        else:
            key.verify(value, _PREFIX + manifest, ec.ECDSA(SHA256()))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True
