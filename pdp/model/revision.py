"""Revisions, the names of the facts and policies behind a decision, and new ids of records."""

from __future__ import annotations

from typing import NamedTuple

from uuid_utils import uuid7

from pdp.errors import InvalidArgument

_LONGEST_SEQUENCE = 19


class Revision(NamedTuple):
    """A state of the service: store epoch, sequence within the epoch, and bundle digest.

    `digest` is empty in revisions of the store alone. The text is `<epoch>.<sequence>[.<digest>]`.
    """

    epoch: str
    sequence: int
    digest: str = ""

    def __str__(self) -> str:
        store = f"{self.epoch}.{self.sequence}"
        return f"{store}.{self.digest}" if self.digest else store

    @classmethod
    def parse(cls, text: str) -> Revision:
        """Return the revision that a text names; raise InvalidArgument for any other text."""
        epoch, _, rest = text.partition(".")
        sequence, _, digest = rest.partition(".")
        if not (epoch and sequence.isascii() and sequence.isdecimal() and len(sequence) <= _LONGEST_SEQUENCE):
            raise InvalidArgument(f"revision `{text}` is not `<epoch>.<sequence>.<digest>`")
        return cls(epoch, int(sequence), digest)


def new_id() -> str:
    """Return a new id."""
    return str(uuid7())
