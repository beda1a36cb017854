"""JSON text of plain records: one check of one resource, decided as it was asked.

Most records are plain, and most differ in few texts: the path, the reason and the query. The other texts are kept.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pdp.audit.entry_encoding import outcome_text, shared_text
from pdp.audit.inputs import InputsEncoder, around_path, is_bare, path_text, query_text
from pdp.audit.json_text import quote
from pdp.audit.record import DecidedCheck, DecisionRecord
from pdp.engines.engine import PERMIT, Verdicts
from pdp.model.memo import Memo
from pdp.model.question import Reason

_KEPT: Final = 4096
_LONGEST_KEPT: Final = 2000
"""Frames and outcomes whose text is kept, and the most characters of such a text."""


_END: Final = "}]}"


class _Frame(NamedTuple):
    """Texts that records of one question share: before the query, from there to the path, and behind the path."""

    before_query: str
    before_path: str
    behind_path: str


class PlainEncoder:
    """Encoder of the bodies of plain records. The result is the same as that of the general encoder."""

    def __init__(self, inputs: InputsEncoder) -> None:
        self._inputs = inputs
        self._frames: Memo[tuple[Any, ...], _Frame] = Memo(_KEPT, _LONGEST_KEPT)
        self._outcomes: Memo[tuple[bool, Reason | None], str] = Memo(_KEPT, _LONGEST_KEPT)

    def body(self, record: DecisionRecord) -> str | None:
        """Return the body of a record, from `surface` to the end; None for a record that is not plain."""
        batch, checks = record.batch, record.checks
        if batch.size != 1 or len(checks) != 1 or record.masks is not None:
            return None
        check, plain, concrete = checks[0].check, checks[0].plain, checks[0].concrete
        if not plain or len(concrete) != 1 or not is_bare(resource := concrete[0].resources[0]):
            return None
        leaf = concrete[0]
        key = (
            leaf.group, check.principal, check.acting_role, check.env, check.inspected,
            batch.surface, batch.caller.name, record.answer.revision, resource.ref,
        )  # fmt: skip
        frame = self._frames.get(key) or self._make_frame(record, key)
        if frame is None:
            return None
        query = query_text(check) if check.query_id or check.query_user else ""
        return f"{frame[0]}{query}{frame[1]}{path_text(resource)}{frame[2]}{self._outcome(leaf.verdicts)}"

    def _make_frame(self, record: DecisionRecord, key: tuple[Any, ...]) -> _Frame | None:
        """Return the frame of a record; None if the reference of the resource is more than a path."""
        decided: DecidedCheck = record.checks[0]
        leaf = decided.concrete[0]
        group = leaf.group
        around = around_path(group.type, leaf.resources[0].ref or group.ref or "")
        if around is None:
            return None
        shared = shared_text(group.action, quote(group.principal.id), delegated=group.delegated)
        frame = _Frame(
            f'"surface":{quote(record.batch.surface)},"caller":{quote(record.batch.caller.name)},'
            f'"inputs":{self._inputs.before_query(decided.check)}',
            f'}}}},"revision":{quote(record.answer.revision)},"checks":[{{{shared},"at":0,"resource":{around[0]}',
            around[1] + ",",
        )
        return self._frames.keep(key, frame, sum(map(len, frame)))

    def _outcome(self, verdicts: Verdicts) -> str:
        """Return the fields of a decision, and the end of the record."""
        allowed, reason = verdicts.effects[0] == PERMIT, verdicts.by[0]
        if verdicts.errors and not allowed:
            return outcome_text(allowed, reason, verdicts.errors.get(0, ())) + _END
        text = self._outcomes.get((allowed, reason))
        if text is None:
            text = outcome_text(allowed, reason, ()) + _END
            self._outcomes.keep((allowed, reason), text, len(text))
        return text
