"""Sealed verdicts: bytes that only the holder of a key can make, bound to one key, one field and an expiry.

A sealed verdict is `version | expiry | effect | reason | MAC`. The MAC is BLAKE2b with a key (RFC 7693) over the key,
the field, the expiry and the verdict. Key and field follow their lengths, and the rest has fixed places.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from pdp.cache.cache import KEPT_EFFECTS, CachedVerdict
from pdp.cache.mac_keys import MacKeys

_VERSION: Final = b"\x01"
_TAG_BYTES: Final = 16
_EXPIRY: Final = slice(1, 9)
_EFFECT: Final = 9
_HAS_REASON: Final = 10
_REASON: Final = 11
LONGEST_VALUE: Final = 4096
"""Bytes of the longest sealed verdict. Longer reasons are not cached, and longer values not looked at."""


class ForgedVerdict(ValueError):
    """Value that no holder of a key wrote for this key and field, or that has expired."""


class VerdictSeal:
    """Maker and reader of sealed verdicts. Times are in milliseconds since 1970."""

    def __init__(self, keys: MacKeys) -> None:
        self._keys = keys

    def close(self, key: bytes, field: bytes, verdict: CachedVerdict, expiry: int) -> bytes | None:
        """Return a verdict sealed by the signing key; None for a verdict with a long reason."""
        reason = (verdict.by or "").encode(errors="surrogatepass")
        head = _VERSION + expiry.to_bytes(8, "big") + bytes((verdict.effect, verdict.by is not None))
        if len(head) + len(reason) + _TAG_BYTES > LONGEST_VALUE:
            return None
        text = head + reason
        return text + _tag(self._keys.signing, _place(key, field), text)

    def open(self, key: bytes, field: bytes, value: bytes, now: int) -> CachedVerdict:
        """Return the verdict of a sealed value; raise ForgedVerdict."""
        if not _REASON + _TAG_BYTES <= len(value) <= LONGEST_VALUE:
            raise ForgedVerdict("length")
        text, tag, place = value[:-_TAG_BYTES], value[-_TAG_BYTES:], _place(key, field)
        for secret in self._keys.accepted:
            if compare_digest(tag, _tag(secret, place, text)):
                break
        else:
            raise ForgedVerdict("mac")
        effect, has_reason = text[_EFFECT], text[_HAS_REASON]
        if text[:1] != _VERSION or effect not in KEPT_EFFECTS:
            raise ForgedVerdict("version")
        if int.from_bytes(text[_EXPIRY], "big") <= now:
            raise ForgedVerdict("expired")
        return CachedVerdict(effect, text[_REASON:].decode(errors="surrogatepass") if has_reason else None)


def _place(key: bytes, field: bytes) -> bytes:
    """Return key and field as one text: each follows its length. The verdict comes last."""
    return b"%b%b%b%b" % (len(key).to_bytes(8, "big"), key, len(field).to_bytes(8, "big"), field)


def _tag(secret: bytes, place: bytes, text: bytes) -> bytes:
    return blake2b(place + text, digest_size=_TAG_BYTES, key=secret).digest()
