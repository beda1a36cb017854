"""Revisions, the names of the facts and policies behind a decision, and new ids of records."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from uuid_utils import uuid7

from pdp.errors import InvalidArgument

_LONGEST_SEQUENCE: Final = 19
_TOKEN: Final = re.compile(r"t([0-9a-f]{16})(?:\.|\Z)")


class Revision(NamedTuple):
    """A state of the service: store epoch, sequence within the epoch, bundle digest, and the token of the log entry.

    `digest` is empty in revisions of the store alone. `token` is random: it tells the entry from one of that number in
    a lost history. It is empty before the first entry, and in revisions of older versions. The text is
    `<epoch>.<sequence>[.t<token>][.<digest>]`: the first two parts and the last one stay where they were.
    """

    epoch: str
    sequence: int
    digest: str = ""
    token: str = ""

    def __str__(self) -> str:
        parts = [self.epoch, str(self.sequence)]
        parts += [f"t{self.token}"] if self.token else []
        return ".".join([*parts, self.digest] if self.digest else parts)

    @classmethod
    def parse(cls, text: str) -> Revision:
        """Return the revision that a text names; raise InvalidArgument for any other text."""
        epoch, _, rest = text.partition(".")
        sequence, _, digest = rest.partition(".")
        if not (epoch and sequence.isascii() and sequence.isdecimal() and len(sequence) <= _LONGEST_SEQUENCE):
            raise InvalidArgument(f"revision `{text}` is not `<epoch>.<sequence>.<token>.<digest>`")
        token = _TOKEN.match(digest)
        return cls(epoch, int(sequence), digest[token.end() :] if token else digest, token[1] if token else "")


def new_id() -> str:
    """Return a new id."""
    return str(uuid7())
