"""Tokens of the senders of a demonstration, from an identity provider that exists in its folder alone."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec

_ISSUER: Final = "https://login.fernhill.example"
_KEY: Final = "demo"
_SECONDS: Final = 86_400
"""Life of a token in real seconds: libraries that check tokens do not follow the clock of the demonstration."""


def write_tokens(folder: Path, subjects: Iterable[str]) -> dict[str, str]:
    """Write the public key of the provider into a folder; return a token for each subject. The private key is lost."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": _KEY, "use": "sig"}
    (folder / "keys.json").write_bytes(msgspec.json.encode({"keys": [public]}))
    now = int(time.time())
    claims = {"iss": _ISSUER, "aud": "pdp", "iat": now - 60, "exp": now + _SECONDS}
    return {subject: jwt.encode({**claims, "sub": subject}, key, "ES256", {"kid": _KEY}) for subject in subjects}
