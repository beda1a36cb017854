"""Owners of running queries, for the audit alone. No decision reads this memory."""

from __future__ import annotations

from typing import Final

from pdp.model.memo import Memo

_QUERIES: Final = 10_000
_LONGEST_ID: Final = 256
"""Characters of a principal's id. A longer id is not remembered."""


class QueryOwners:
    """Users by caller and query id: the first principal of a query's requests. Views ask as their owners later."""

    def __init__(self) -> None:
        self._owners: Memo[tuple[str, str], str] = Memo(_QUERIES, _LONGEST_ID)

    def other_user(self, caller: str, query: str, principal: str) -> str:
        """Return the id of the owner of a caller's query; empty if the owner is `principal` or unknown."""
        key = (caller, query)
        owner = self._owners.get(key)
        if owner is None:
            self._owners.keep(key, principal, len(principal))
            return ""
        self._owners.move_to_end(key)
        return "" if owner == principal else owner
