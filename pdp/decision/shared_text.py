"""Bound on text that many resources of one request share.

A list of resources needs the arguments of its check only once in a body. But rules, errors and the audit see the
arguments with each resource. So the product of both is bounded before any work on it.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from pdp.decision.bodies import CheckBody
from pdp.errors import TooMuchRepeated

MOST_REPEATED: Final = 4 << 20
"""Most bytes of shared text in one request: the bytes of a text, for each resource but the first."""
_LONGEST_MESSAGE: Final = 500
"""Most characters of an error that many positions share."""


class SharedText:
    """Count of the shared text of one request."""

    __slots__ = ("_size",)

    def __init__(self) -> None:
        self._size = 0

    def add(self, body: CheckBody, count: int) -> None:
        """Count the text of a body that `count` resources share; raise TooMuchRepeated beyond the limit."""
        if count > 1:
            self._size += bound_repeated(_length(body), count)
            if self._size > MOST_REPEATED:
                raise _too_much(_length(body), count)


def bound_repeated(length: int, count: int) -> int:
    """Return the bytes that repeat if `count` resources share a text; raise TooMuchRepeated beyond the limit."""
    repeated = length * max(0, count - 1)
    if repeated > MOST_REPEATED:
        raise _too_much(length, count)
    return repeated


def shared_message(error: Exception) -> str:
    """Return the message of an error that many positions share, cut if long."""
    return str(error)[:_LONGEST_MESSAGE]


def _too_much(length: int, count: int) -> TooMuchRepeated:
    return TooMuchRepeated(
        f"{count} resources share {length} bytes of arguments, names and action, and the limit of a request is "
        f"{MOST_REPEATED} bytes for all resources together: split the list of resources or shorten the arguments"
    )


def _length(body: CheckBody) -> int:
    """Return the bytes of a body that count for each resource: the arguments, and texts that errors repeat."""
    principal, context = body.principal, body.context
    length = len(body.action)
    if principal is not UNSET:
        length += len(principal if isinstance(principal, str) else principal.id)
    if body.acting_role is not UNSET:
        length += len(body.acting_role)
    if context is not UNSET and context.arguments:
        length += len(msgspec.json.encode(context.arguments))
    return length
