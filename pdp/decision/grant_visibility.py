"""Visibility of single grants in reasons and traces: a caller sees those that it may list.

The rule is that of `GET /v1/grants`: the grants on an object need `read_assignments` on that object, and one's own need
nothing. The right to see the reasons of a check covers its own object alone, while grants stand on all objects above.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from pdp.errors import InvalidReference
from pdp.facts.objects import ObjectKey, key_of
from pdp.model.question import Answer, Reason, Trace
from pdp.model.references import parse_resource

_GRANT: Final = re.compile(
    r"grants:[a-z_]+ on (?P<object>.+) via (?P<grantee>.+?)(?P<end> \((any|all) of authority .*\))?"
)
_MENTION: Final = re.compile(r"\bgrants:[a-z_]+ on ")
_GRANTS_TRACE: Final = "grants: "
_HIDDEN: Final = Trace("an object above", "not shown", "its grants need `read_assignments` on it")


class GrantVisibility:
    """Visibility of grants for the caller with the principal `own`. `may_list` tells it for the grants on an object."""

    def __init__(self, own: str, may_list: Callable[[ObjectKey], bool]) -> None:
        self._own = own
        self._may_list = may_list

    def answer(self, answer: Answer) -> Answer:
        """Return an answer without the grants that the caller may not list."""
        by = [None if reason is None else self.reason(reason) for reason in answer.by]
        traces = {at: self.trace(trace) for at, trace in answer.traces.items()}
        return msgspec.structs.replace(answer, by=by, traces=traces)

    def reason(self, reason: Reason) -> Reason:
        """Return a reason, or the engine alone if the reason names a grant that the caller may not list."""
        if not _MENTION.search(reason):
            return reason
        found = _GRANT.fullmatch(reason)
        # a name may contain ` via `: then the reason has more than one meaning
        if found and reason.count(" via ") == 1:
            if found["grantee"] == self._own or self._is_listable(found["object"]):
                return reason
            return f"grants{found['end'] or ''}"
        return "grants"

    def trace(self, trace: Trace) -> Trace:
        """Return a trace without the grants that the caller may not list."""
        if not trace.what.startswith(_GRANTS_TRACE):
            parts = tuple(map(self.trace, trace.parts))
            return msgspec.structs.replace(trace, why=self.reason(trace.why), parts=parts)
        shown = [part for part in trace.parts if self._is_listable(part.what)]
        if len(shown) == len(trace.parts):
            return trace
        why = self.reason(trace.why) if _MENTION.search(trace.why) else ""
        return msgspec.structs.replace(trace, why=why, parts=(*shown, _HIDDEN))

    def _is_listable(self, reference: str) -> bool:
        try:
            return self._may_list(key_of(parse_resource(reference)))
        except InvalidReference:
            return False
