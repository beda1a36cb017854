"""Refusals of the rewriter, with codes of the public contract."""

from __future__ import annotations

from typing import Final

from pdp.errors import InvalidArgument
from pdp.rewrite.process.messages import RelationUse

PARSE_ERROR: Final = "RAP_PARSE_ERROR"
MULTI_STATEMENT: Final = "RAP_MULTI_STATEMENT"
UNSUPPORTED_STATEMENT: Final = "RAP_UNSUPPORTED_STATEMENT"
UNSUPPORTED_SOURCE: Final = "RAP_UNSUPPORTED_SOURCE"
UNSUPPORTED_FUNCTION: Final = "RAP_UNSUPPORTED_FUNCTION"
UNKNOWN_RELATION: Final = "RAP_UNKNOWN_RELATION"
AMBIGUOUS_NAME: Final = "RAP_AMBIGUOUS_NAME"
METADATA_TABLE: Final = "RAP_METADATA_TABLE"
WILDCARD_TABLE: Final = "RAP_WILDCARD_TABLE"
HIDDEN_COLUMN: Final = "RAP_HIDDEN_COLUMN"
VIEW_DEPTH: Final = "RAP_VIEW_DEPTH"
VIEW_CYCLE: Final = "RAP_VIEW_CYCLE"
FILTER_INVALID: Final = "RAP_FILTER_INVALID"
WRITE_NEEDS_FULL_ACCESS: Final = "RAP_WRITE_NEEDS_FULL_ACCESS"
COPY_NEEDS_FULL_ACCESS: Final = "RAP_COPY_NEEDS_FULL_ACCESS"
MATERIALIZE: Final = "RAP_MATERIALIZE"
NOT_COVERED: Final = "RAP_NOT_COVERED"
NO_STORE: Final = "RAP_NO_POLICY_STORE"


class RewriteRefused(InvalidArgument):
    """Text that the rewriter does not pass on. `rap` is the code of the contract, the text says why.

    `uses` are the uses of relations that were found before the refusal: without a right to one of these, the refusal
    tells nothing.
    """

    def __init__(self, rap: str, message: str, uses: tuple[RelationUse, ...] = ()) -> None:
        super().__init__(message)
        self.rap = self.code = rap
        self.uses = uses


class PoliciesNeeded(RewriteRefused):
    """Statement that reads row access policies, without the policies that the caller may see."""


def unusable_filter(cause: str) -> RewriteRefused:
    """Return the refusal of a filter or mask that cannot be used."""
    return RewriteRefused(FILTER_INVALID, cause)
