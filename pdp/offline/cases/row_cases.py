"""Policy tests of rows and columns: the row filter and the masks that a principal gets, as Trino would get them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from pdp.audit.records.record import DecisionRecord
from pdp.decision.service import Pdp
from pdp.engines.row_access.dialects import same_sql
from pdp.engines.row_access.engine import NO_ROWS, REASON_PREFIX, UNRESTRICTED, RowAccessEngine
from pdp.engines.row_access.policies import KINDS
from pdp.engines.row_access.policy_set import Mask, Policy
from pdp.engines.row_access.trino import mark_caller
from pdp.facts.objects import fold_column
from pdp.model.answer import Predicate, Reason, TableAccess, TypedColumn
from pdp.model.question import Batch, Check, Resource
from pdp.offline.cases.cases import Case, InvalidCase
from pdp.offline.cases.outcomes import Problem

_DEFAULT_TYPE: Final = "varchar"
_TABLE_TYPES: Final = frozenset({"table", "view", "table_or_view", "metadata_table"})
_NULL: Final = "CAST(NULL AS "


class WantedPredicate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Wanted filter or mask. `expression` is SQL; true and false stand for every row and no row, or mask and no mask.

    `type` is the type of a column.
    """

    expression: str | bool | msgspec.UnsetType | None = msgspec.UNSET
    identity: str | msgspec.UnsetType = msgspec.UNSET
    by: str | msgspec.UnsetType = msgspec.UNSET
    type: str = _DEFAULT_TYPE

    @property
    def wants_something(self) -> bool:
        """Tell whether anything is expected beside the type of the column."""
        return any(value is not msgspec.UNSET for value in (self.expression, self.identity, self.by))


class WantedRows(msgspec.Struct, frozen=True):
    """Wanted filter, None if the case wants none, and wanted masks by column."""

    filter: WantedPredicate | None
    masks: Mapping[str, WantedPredicate]


class RowAnswer(msgspec.Struct, frozen=True):
    """View of a table by one principal, with the reason of the filter, and the reason and kind of each mask."""

    view: TableAccess
    by: Reason
    masks: Mapping[str, Reason | None]
    kinds: Mapping[str, str] = {}


class RowOutcome(msgspec.Struct, frozen=True):
    """Result of the row access part of a case: an object for each check, problems and warnings."""

    got: tuple[dict[str, Any], ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


class RowCases:
    """Questions about rows and columns to one service. `decided` receives the records of the service."""

    def __init__(self, pdp: Pdp, decided: Sequence[DecisionRecord]) -> None:
        self._pdp = pdp
        self._decided = decided
        self._access = pdp.bundle.row_access

    def ask(self, case: Case, batch: Batch) -> RowOutcome:
        """Ask for the filter and masks of each check, and compare them with `wantFilter` and `wantMask`.

        Raise InvalidCase for expectations of the wrong form.
        """
        filters = _per_check(case, "wantFilter", batch.size)
        masks = _per_check(case, "wantMask", batch.size)
        outcomes = []
        for at, check in enumerate(_single_checks(batch)):
            wanted = WantedRows(
                None if filters is None else _wanted(filters[at], "wantFilter"),
                {} if masks is None else _wanted_masks(masks[at]),
            )
            outcomes.append(self._ask_one(_batch_of(batch, at, check), at, self._bound(wanted, check)))
        return RowOutcome(
            tuple(got for outcome in outcomes for got in outcome.got),
            tuple(problem for outcome in outcomes for problem in outcome.problems),
            tuple(warning for outcome in outcomes for warning in outcome.warnings),
        )

    def _bound(self, wanted: WantedRows, check: Check | None) -> WantedRows:
        """Return expectations with the principal of a check in place of `current_user`, as answers hold it."""
        if check is None:
            return wanted
        members, principal, facts = self._access.members, check.question.principal, self._pdp.source.facts

        def bound(one: WantedPredicate) -> WantedPredicate:
            text = one.expression
            value = members.bind(mark_caller(text), principal, facts) if isinstance(text, str) else None
            return one if value is None else msgspec.structs.replace(one, expression=value)

        return WantedRows(
            wanted.filter and bound(wanted.filter), {name: bound(one) for name, one in wanted.masks.items()}
        )

    def _ask_one(self, batch: Batch, at: int, wanted: WantedRows) -> RowOutcome:
        """Ask about the table of a batch of one check, at position `at` of the case."""
        columns = [TypedColumn(name, column.type) for name, column in wanted.masks.items()]
        view = self._pdp.restrict(batch, columns).view
        record = self._decided[-1]
        masks = record.masks or {}
        answer, why, remarks = RowAnswer(view, record.answer.by[0] or "", masks), "", [*_ambiguous_nulls(wanted.masks)]
        if not batch.checks:
            why = batch.rejected[0].message
        else:
            table = batch.checks[0].resources[0]
            why = _policies_text(self._access, table)
            answer = msgspec.structs.replace(answer, kinds=_kinds(self._access, table, masks))
            remarks += _unknown_columns(self._access, table, wanted.masks)
        texts = [*self._void(batch, answer, wanted), *_differences(answer, wanted.filter, wanted.masks)]
        problems = tuple(Problem(text, at, why) for text in texts)
        warnings = tuple(Problem(text, at) for text in remarks)
        return RowOutcome((_shown(answer, wanted.masks),), problems, warnings)

    def _void(self, batch: Batch, answer: RowAnswer, wanted: WantedRows) -> Iterator[str]:
        """Yield why the answer proves nothing. A case may want this by the `by` of its filter and of all its masks."""
        entries = [*wanted.masks.values(), *([wanted.filter] if wanted.filter else [])]
        if not any(entry.wants_something for entry in entries):
            yield "the case wants nothing of its rows and columns"
        if entries and all(entry.by is not msgspec.UNSET for entry in entries):
            return
        if not batch.checks:
            yield f"`{answer.by}`: want this by `by`"
            return
        check = batch.checks[0]
        table = check.resources[0]
        if check.question.acting_role is not None:
            yield "row access is asked for a principal, not for an acting role"
        elif table.type not in _TABLE_TYPES:
            yield f"a {table.type} has no rows: ask about a table or view"
        elif not self._access.covers(table) and answer.by == UNRESTRICTED.by:
            yield f"no row policy and no mask names this table: want this by `by: {UNRESTRICTED.by}`"


def _per_check(case: Case, key: str, size: int) -> Sequence[Any] | None:
    """Return the expectations under a key, one for each check; None without the key."""
    if key not in case.data:
        return None
    value = case.data[key]
    values = value if isinstance(value, list) else [value]
    if not values and size == 1:
        values = [True if key == "wantFilter" else {}]  # as Trino gets no filter and no mask
    if len(values) != size:
        raise InvalidCase(f"`{key}` has {len(values)} entries for {size} checks")
    return values


def _single_checks(batch: Batch) -> list[Check | None]:
    """Return a check of one resource for each position; None where the check is rejected."""
    checks: list[Check | None] = [None] * batch.size
    for check in batch.checks:
        for at, resource in zip(check.at, check.resources, strict=True):
            if at not in batch.rejected:
                checks[at] = msgspec.structs.replace(check, resources=[resource], at=range(1))
    return checks


def _batch_of(batch: Batch, at: int, check: Check | None) -> Batch:
    rejected = {} if check else {0: batch.rejected[at]}
    return msgspec.structs.replace(batch, size=1, checks=(check,) if check else (), rejected=rejected)


def _wanted(value: Any, key: str) -> WantedPredicate:
    try:
        body = value if isinstance(value, Mapping) else {"expression": value}
        return msgspec.convert(body, WantedPredicate)
    except msgspec.ValidationError as error:
        raise InvalidCase(f"`{key}`: {str(error)[:1].lower()}{str(error)[1:]}") from None


def _wanted_masks(value: Any) -> dict[str, WantedPredicate]:
    if not isinstance(value, Mapping):
        raise InvalidCase("`wantMask` is an object: column -> expression, true, false, or an object")
    return {str(column): _wanted(wanted, "wantMask") for column, wanted in value.items()}


def _differences(
    answer: RowAnswer, filter: WantedPredicate | None, masks: Mapping[str, WantedPredicate]
) -> Iterator[str]:
    if filter:
        value = _filter_value(answer.view.rows)
        if filter.expression is not msgspec.UNSET and not _is_wanted_filter(filter.expression, value):
            yield f"the filter is {_text(value)} by {answer.by}, wanted {_text(filter.expression)}"
        yield from _origin_differences("filter", filter, answer.view.rows, answer.by)
    for (column, wanted), mask in zip(masks.items(), answer.view.masks, strict=True):
        noun, by = f"mask of `{column}`", answer.masks.get(column) or UNRESTRICTED.by
        value = mask.expression if mask else False
        if wanted.expression is not msgspec.UNSET and not _is_wanted_mask(
            wanted.expression, value, answer.kinds.get(column)
        ):
            yield f"the {noun} is {_text(value)} by {by}, wanted {_text(wanted.expression)}"
        yield from _origin_differences(noun, wanted, mask, by)


def _origin_differences(noun: str, wanted: WantedPredicate, predicate: Predicate | None, by: Reason) -> Iterator[str]:
    identity = predicate.identity if predicate else ""
    if wanted.identity is not msgspec.UNSET and wanted.identity != identity:
        yield f"the identity of the {noun} is `{identity}`, wanted `{wanted.identity}`"
    if wanted.by is not msgspec.UNSET and wanted.by != by:
        yield f"the {noun} is by {by}, wanted {wanted.by}"


def _filter_value(rows: Predicate | None) -> str | bool:
    """Return a filter as SQL; true for every row, false for no row."""
    return True if rows is None else False if rows == NO_ROWS else rows.expression


def _is_wanted_filter(wanted: str | bool | None, value: str | bool) -> bool:
    if isinstance(wanted, str):
        wanted = {"TRUE": True, "FALSE": False}.get(wanted.strip().upper(), wanted)
    if isinstance(wanted, str) and isinstance(value, str):
        return same_sql(wanted, value)
    return value is (wanted is None or wanted)


def _is_wanted_mask(wanted: str | bool | None, value: str | bool, kind: str | None) -> bool:
    if not isinstance(wanted, str):
        return bool(wanted) == bool(value)
    if not isinstance(value, str):
        return False
    if wanted in KINDS and wanted == kind:
        return True
    if wanted.strip().upper() == "NULL":
        return value == "NULL" or value.startswith(_NULL)
    return same_sql(wanted, value)


def _text(value: str | bool | msgspec.UnsetType | None) -> str:
    return f"`{value}`" if isinstance(value, str) else "null" if value is None else str(value).lower()


def _unknown_columns(
    row_access: RowAccessEngine, table: Resource, masks: Mapping[str, WantedPredicate]
) -> Iterator[str]:
    """Yield a warning for each unmasked column that no mask names: the name may be misspelt."""
    named = row_access.policies_of(table).masks
    for column, wanted in masks.items():
        is_denial = wanted.expression in (None, False)
        if is_denial and wanted.by is msgspec.UNSET and fold_column(column) not in named:
            yield f"no mask names the column `{column}`: want this by `by: {UNRESTRICTED.by}`"


def _ambiguous_nulls(masks: Mapping[str, WantedPredicate]) -> Iterator[str]:
    """Yield a warning for each null in place of a mask: the author may mean a mask that is NULL."""
    for column, wanted in masks.items():
        if wanted.expression is None:
            yield f'null means no mask of `{column}`: write false, or `"NULL"` for a mask that is NULL'


def _kinds(row_access: RowAccessEngine, table: Resource, masks: Mapping[str, Reason | None]) -> dict[str, str]:
    """Return the kind of the mask that holds, by column."""
    found = {}
    for column, reason in masks.items():
        for mask in row_access.policies_of(table).masks.get(fold_column(column), ()):
            if reason == REASON_PREFIX + mask.id:
                found[column] = mask.kind
    return found


def _policies_text(row_access: RowAccessEngine, table: Resource) -> str:
    """Return the row policies and masks of a table with their grantees."""
    found = row_access.policies_of(table)
    entries: list[tuple[str, Policy | Mask]] = [("row policy", policy) for policy in found.policies]
    entries += [(f"mask of {column}", mask) for column, masks in found.masks.items() for mask in masks]
    return ", ".join(f"{noun} {entry.id} of {grantees_text(entry.grantees)}" for noun, entry in entries)


def grantees_text(grantees: Sequence[Any]) -> str:
    """Return a list of grantees as in a policy file."""
    return " and ".join(f"{one.kind}:{one.name}" if one.name else one.kind for one in grantees) or "nobody"


def _shown(answer: RowAnswer, masks: Mapping[str, WantedPredicate]) -> dict[str, Any]:
    values = [mask.expression if mask else None for mask in answer.view.masks]
    return {
        "filter": _filter_value(answer.view.rows),
        "filterBy": answer.by,
        "masks": dict(zip(masks, values, strict=True)),
    }
