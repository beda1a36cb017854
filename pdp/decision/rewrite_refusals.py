"""Refusals of the rewriter that tell about policies: the text for everybody, and the cause for the audit.

Policies are for principals with `read_assignments`. Knows no rights.
"""

from __future__ import annotations

from typing import Final

from pdp.rewrite.errors import (
    COPY_NEEDS_FULL_ACCESS,
    FILTER_INVALID,
    MATERIALIZE,
    NOT_COVERED,
    WRITE_NEEDS_FULL_ACCESS,
)
from pdp.rewrite.process.messages import Reply

_GENERAL: Final = {
    FILTER_INVALID: "a filter or mask cannot be used in `{dialect}`",
    WRITE_NEEDS_FULL_ACCESS: "a change here needs policies that show every row",
    NOT_COVERED: "the result cannot be checked",
}
"""Code -> message without policies. Messages of the other codes name relations of the statement and no policy."""
_RECORDED: Final = frozenset({*_GENERAL, COPY_NEEDS_FULL_ACCESS, MATERIALIZE})
"""Codes whose messages hold names of relations and parts of policies, and nothing else of a statement."""


def tells_policies(reply: Reply) -> bool:
    """Tell whether the message of a refusal can hold parts of policies."""
    return reply.error in _GENERAL


def shows_own_policies(reply: Reply) -> bool:
    """Tell whether the policies in a message are those of the used relations: a change can meet filters of others."""
    return reply.error != WRITE_NEEDS_FULL_ACCESS


def general_message(reply: Reply, dialect: str) -> str:
    """Return the message of a refusal without policies."""
    return _GENERAL[reply.error].format(dialect=dialect)


def recorded_cause(reply: Reply) -> str:
    """Return the cause of a refusal for a record; empty for a message that can quote the statement."""
    return reply.message if reply.uses and reply.error in _RECORDED else ""
