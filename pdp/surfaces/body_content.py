"""Bounds on the content of JSON bodies and of messages, kept before a parser sees them.

A parser makes an object of each value, also in unknown fields, and each part of a name costs a look. Both are counted
by signs, which takes a nanosecond for each byte. Signs inside of strings count, too.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from pdp.config.server import LimitSettings
from pdp.errors import PayloadTooLarge

_SIGNS: Final = b",{[/."
"""Each value follows one of the first three, or is the only one. Each part of a name follows one of the others."""
_TAGS: Final = b"\x0a\x1a\x8a\x9a/."
"""The same for protobuf: tags of fields 1 and 3, in short and long form. Each value of a list or map has such a tag."""
_SLICE: Final = 4 << 20
"""Bytes of a body that are counted before the event loop gets a turn."""
_TRINO_VALUES: Final = 10
"""Values of one resource in a body of Trino."""


class BodyLimits(NamedTuple):
    """Most bytes of a body, and most values and parts of names in a JSON body."""

    size: int
    values: int

    @classmethod
    def of_native(cls, limits: LimitSettings) -> BodyLimits:
        """Return the limits of the native bodies."""
        return cls(limits.max_body_bytes, limits.max_values)

    @classmethod
    def of_trino(cls, limits: LimitSettings) -> BodyLimits:
        """Return the limits of Trino's bodies, which have room for all resources of the largest batch."""
        values = max(limits.max_values, limits.trino_max_resources * _TRINO_VALUES)
        return cls(limits.trino_max_body_bytes, values)

    def is_below(self, body: bytes) -> bool:
        """Tell whether a body is too short for too many values."""
        return len(body) <= self.values

    async def check(self, body: bytes) -> None:
        """Raise PayloadTooLarge for a JSON body with too many values. Give the event loop turns."""
        if not self.is_below(body):
            await self._count(body, _SIGNS)

    async def check_message(self, body: bytes) -> None:
        """Raise PayloadTooLarge for a protobuf message with too many values. Give the event loop turns."""
        if not self.is_below(body):
            await self._count(body, _TAGS)

    async def _count(self, body: bytes, signs: bytes) -> None:
        count = 0
        for start in range(0, len(body), _SLICE):
            part = body[start : start + _SLICE]
            count += len(part) - len(part.translate(None, signs))
            if count > self.values:
                raise PayloadTooLarge(
                    f"the body has more than {self.values} values and parts of names, see `limits.max_values`"
                )
            await asyncio.sleep(0)
