"""Fast way to the JSON text of records of one check of one resource: 1.8 us a record, 4 us by `writing.py`.

Most records are of this form, and most differ in few texts: the path, the reason and the query. The other texts are
kept by question. `SplitEncoder` does the same for a check that the plan split, such as a table or a view of one name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from pdp.audit.records.entries import outcome_text, roles_text, shared_text
from pdp.audit.records.inputs import (
    InputsEncoder,
    around_path,
    is_bare,
    more_than_reference,
    path_text,
    query_text,
    quote,
)
from pdp.audit.records.record import DecidedCheck, DecisionRecord
from pdp.engines.engine import PERMIT, Verdicts
from pdp.model.answer import Reason
from pdp.model.bounded_cache import BoundedCache
from pdp.model.vocabulary import NAMING_ACTIONS

_KEPT: Final = 4096
_LONGEST_KEPT: Final = 2000
_LONGEST_SPLIT_KEPT: Final = 4000
"""Frames and outcomes whose text is kept, and the most characters of such a text: of one entry, of several."""
_MOST_ROWS: Final = 8
"""Concrete checks of one record."""
_END: Final = "}]}"
_Row: TypeAlias = tuple[str, str]
"""Texts of an entry before the path, and from the path to the end of the reference."""


class _Frame(NamedTuple):
    """Texts that records of one question share: before the query, from there to the path, and behind the path."""

    before_query: str
    before_path: str
    behind_path: str


class OneCheckEncoder:
    """Encoder of the bodies of plain records. The result is the same as that of the general encoder."""

    def __init__(self, inputs: InputsEncoder) -> None:
        self._inputs = inputs
        self._frames: BoundedCache[tuple[Any, ...], _Frame] = BoundedCache(_KEPT, _LONGEST_KEPT)
        self._outcomes: BoundedCache[tuple[bool, Reason | None], str] = BoundedCache(_KEPT, _LONGEST_KEPT)

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
            leaf.group, check.question, batch.surface, batch.caller.name, record.answer.revision, resource.ref,
        )  # fmt: skip
        frame = self._frames.get(key) or self._make_frame(record, key)
        if frame is None:
            return None
        query = query_text(check) if check.query_id or check.query_user else ""
        return f"{frame[0]}{query}{frame[1]}{path_text(resource)}{frame[2]}{self._outcome(leaf.verdicts)}"

    def _make_frame(self, record: DecisionRecord, key: tuple[Any, ...]) -> _Frame | None:
        """Return the frame of a record; None for a reference with more than a path, and for an action on a new name."""
        decided: DecidedCheck = record.checks[0]
        leaf = decided.concrete[0]
        group = leaf.group
        around = around_path(group.type, leaf.resources[0].ref or group.ref or "")
        if around is None or group.action in NAMING_ACTIONS:
            return None
        subject, roles = quote(group.principal.id), roles_text(group)
        shared = shared_text(group.action, subject, delegated=group.delegated, roles=roles)
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


class _SplitFrame(NamedTuple):
    """Texts that records of one question share: before the query, and the entries of concrete checks and request."""

    before_query: str
    rows: tuple[_Row, ...]
    request: _Row


class SplitEncoder:
    """Encoder of the bodies of split records of one resource. The result is the same as that of the general encoder."""

    def __init__(self, inputs: InputsEncoder) -> None:
        self._inputs = inputs
        self._frames: BoundedCache[tuple[Any, ...], _SplitFrame] = BoundedCache(_KEPT, _LONGEST_SPLIT_KEPT)
        self._outcomes: BoundedCache[tuple[int, Reason | None], str] = BoundedCache(_KEPT, _LONGEST_SPLIT_KEPT)

    def body(self, record: DecisionRecord) -> str | None:
        """Return the body of a record, from `surface` to the end; None for any other record."""
        batch = record.batch
        if batch.size != 1 or len(record.checks) != 1 or record.masks is not None or batch.rejected:
            return None
        if record.listing is not None:
            return None
        decided = record.checks[0]
        check, concrete = decided.check, decided.concrete
        if decided.plain or check.question.view_security is not None or not 0 < len(concrete) <= _MOST_ROWS:
            return None
        for leaf in concrete:
            if leaf.resources is not check.resources:
                return None
        resource = check.resources[0]
        bare = is_bare(resource)
        key = (
            tuple([leaf.group for leaf in concrete]), check.question,
            batch.surface, batch.caller.name, record.answer.revision, resource.type, resource.ref, bare,
        )  # fmt: skip
        frame = self._frames.get(key) or self._make_frame(record, key, bare=bare)
        if frame is None:
            return None
        return self._filled(frame, record, "," if bare else more_than_reference(resource, self._inputs.masker) + "},")

    def _filled(self, frame: _SplitFrame, record: DecisionRecord, more: str) -> str:
        """Return a frame with the path, the outcomes and the query. `more` follows each reference."""
        decided, answer = record.checks[0], record.answer
        path = path_text(decided.check.resources[0])
        parts = [frame.before_query, query_text(decided.check)]
        last = None
        outcome = ""
        for (before, behind), leaf in zip(frame.rows, decided.concrete, strict=True):
            found = leaf.verdicts
            if found is not last:  # leaves that ask an engine the same have one verdict
                last, errors = found, found.errors
                outcome = self._outcome(found.effects[0] == PERMIT, found.by[0], errors.get(0, ()) if errors else ())
            parts += (before, path, behind, more, outcome)
        before, behind = frame.request
        outcome = self._outcome(answer.allowed[0], answer.by[0], answer.errors.get(0, ()) if answer.errors else ())
        parts += (before, path, behind, more, outcome, _END)
        return "".join(parts)

    def _make_frame(self, record: DecisionRecord, key: tuple[Any, ...], *, bare: bool) -> _SplitFrame | None:
        """Return the frame of a record; None for a reference with more than a path, and for an action on a new name."""
        batch, decided = record.batch, record.checks[0]
        check, groups = decided.check, [leaf.group for leaf in decided.concrete]
        question = check.question
        if not NAMING_ACTIONS.isdisjoint([question.action, *(group.action for group in groups)]):
            return None
        resource = check.resources[0]
        around = [around_path(group.type, resource.ref or group.ref or "") for group in groups]
        around.append(around_path(resource.type, resource.ref or ""))
        shared = [
            shared_text(each.action, quote(each.principal.id), delegated=each.delegated, roles=roles_text(each))
            for each in groups
        ]
        shared.append(shared_text(question.action, quote(question.principal.id), delegated=question.delegated))
        starts = [
            f'}}}},"revision":{quote(record.answer.revision)},"checks":[{{',
            *["},{"] * (len(groups) - 1),
            '}],"requests":[{',
        ]
        opened = "" if bare else '{"reference":'
        rows: list[_Row] = []
        for start, fields, texts in zip(starts, shared, around, strict=True):
            if texts is None:
                return None
            rows.append((f'{start}{fields},"at":0,"resource":{opened}{texts[0]}', texts[1]))
        before_query = (
            f'"surface":{quote(batch.surface)},"caller":{quote(batch.caller.name)},'
            f'"inputs":{self._inputs.before_query(check)}'
        )
        length = len(before_query) + sum(len(before) + len(behind) for before, behind in rows)
        return self._frames.keep(key, _SplitFrame(before_query, tuple(rows[:-1]), rows[-1]), length)

    def _outcome(self, allowed: int, reason: Reason | None, errors: Sequence[str]) -> str:
        """Return the fields of a decision."""
        if errors:
            return outcome_text(allowed, reason, errors)
        text = self._outcomes.get((allowed, reason))
        if text is None:
            text = outcome_text(allowed, reason, ())
            self._outcomes.keep((allowed, reason), text, len(text))
        return text
