"""Keys of cached verdicts: digests of all input of an engine.

An engine's verdict on a resource is a function of its policies, the group, the resource and the facts. So the key has
the engine with its bundle, the revision of the facts if the engine reads them, and every field of the group; the field
has every field of the resource. Structs are encoded as a whole, so new fields enter without a change here. No key has
a query id, because neither a group nor a resource has.

The facts know one revision, of the whole store. Engines that read facts therefore miss after every write. A finer
revision, such as that of one warehouse, could not be compared between services: a service that loads a snapshot does
not know which write was the last one inside a warehouse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b, sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from pdp import __version__
from pdp.engines.engine import Dependency, Engine, EngineQuestion
from pdp.facts.snapshot import Facts
from pdp.model.question import Resource

FORMAT: Final = b"3"
"""Version of keys and values. Another form gets another number."""
KEY_BYTES: Final = 32
FIELD_BYTES: Final = 24
_UNENCODABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
"""Errors of values that MessagePack has no form for, such as integers of more than 64 bits."""
_encode: Final = msgspec.msgpack.Encoder().encode


def join_parts(parts: Iterable[bytes]) -> bytes:
    """Return parts as one text that no other parts have: each part follows its length."""
    return b"".join([piece for part in parts for piece in (len(part).to_bytes(8, "big"), part)])


def policies_digest(text: bytes) -> bytes:
    """Return the digest of the text of a bundle. The 16 digits of a revision are too few where others write."""
    return sha256(text).digest()


def is_cacheable(engine: Engine) -> bool:
    """Tell whether verdicts of an engine may be cached: it declares what it reads, and does not read the time."""
    return bool(engine.reads) and Dependency.TIME not in engine.reads


class KeyMaker:
    """Maker of the keys of one engine under one bundle and one snapshot of the facts."""

    def __init__(self, engine: Engine, policies: bytes, facts: Facts, *, forbids: bool) -> None:
        """Prepare the common part. `policies` is the digest of the bundle; `forbids`: the engine can only deny."""
        # the token tells apart two histories with one epoch: the key outlives this process
        revision = facts.revision() if Dependency.FACTS in engine.reads else None
        self._common = join_parts(
            (
                FORMAT,
                __version__.encode(),
                policies,
                engine.name.encode(),
                engine.digest.encode(),
                b"forbid" if forbids else b"permit",
                _encode(revision),
            )
        )

    def key(self, group: EngineQuestion) -> bytes | None:
        """Return the key of a group; None for a group that cannot be cached.

        The time is left out: it is set for all engines if one reads it, and such an engine is not cached.
        """
        if group.context.now:
            question = replace(group.question, context=replace(group.context, now=0))
            group = replace(group, question=question)
        try:
            fields = [_encode(getattr(group, name)) for name in group.__struct_fields__]
        except _UNENCODABLE:
            return None
        return blake2b(self._common + join_parts(fields), digest_size=KEY_BYTES).digest()


def resource_fields(resources: Sequence[Resource]) -> list[bytes] | None:
    """Return the digest of every resource; None if one of them cannot be cached."""
    try:
        return [blake2b(_encode(resource), digest_size=FIELD_BYTES).digest() for resource in resources]
    except _UNENCODABLE:
        return None
