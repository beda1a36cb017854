"""Users of running queries, by the ExecuteQuery of each query: whose row policies hold behind views.

Trino asks for the rows behind a view as the owner of the view, and names the query, not the user. A query is known to
the process that decided its ExecuteQuery. Two users of one query make the query unknown.
"""

from __future__ import annotations

from typing import Final

from pdp.model.memo import Memo
from pdp.model.question import Principal, QuerySession

_QUERIES: Final = 10_000
_LONGEST: Final = 4096
"""Characters of a principal with groups. A longer principal is not remembered."""
_EXECUTE: Final = "ExecuteQuery"
_UNKNOWN: Final = QuerySession(None)


class QuerySessions:
    """Users by caller and query id."""

    def __init__(self) -> None:
        self._sessions: Memo[tuple[str, str], QuerySession] = Memo(_QUERIES, _LONGEST)

    def session(self, caller: str, query: str, operation: str, principal: Principal) -> QuerySession:
        """Return the session of a query, and remember the user who executes the query."""
        if not query:
            return _UNKNOWN
        key = (caller, query)
        known = self._sessions.get(key)
        if operation == _EXECUTE:
            if known is None:
                return self._sessions.keep(key, QuerySession(principal), principal.length())
            if known.user != principal:
                return self._sessions.keep(key, _UNKNOWN)
        elif known is not None:
            self._sessions.move_to_end(key)
        return known or _UNKNOWN
