"""Comparison of answers and audit records with the expectations of a case.

The answers are JSON values, so that the same comparison works for every surface.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pdp.audit.rows import rows
from pdp.decision.bodies import ResourceBody, make_resource
from pdp.errors import PdpError
from pdp.model.references import format_resource
from pdp.offline.cases import VIEW_REQUESTS, Case


class CaseOutcome(msgspec.Struct, frozen=True):
    """Result of a case. `got` are the decisions or the error at the end; `error` explains a failure."""

    note: str
    passed: bool
    got: Any
    error: str | None = None


def compare_checks(case: Case, decisions: Sequence[Mapping[str, Any]], records: Sequence[Any]) -> CaseOutcome:
    """Compare decisions, and audit records if there are any, with the expectations of the case."""
    data = case.data
    if "wantError" in data:
        return CaseOutcome(case.note, False, decisions, f"wanted the error {data['wantError']}, nothing raised")
    want = data.get("want", [])
    problems = []
    if "want" not in data and "wantAudit" not in data:
        problems.append("the case wants nothing")
    elif "want" in data and len(want) != len(decisions):
        problems.append(f"{len(decisions)} decisions, wanted {len(want)}")
    problems += [
        f"check {at}: {problem}"
        for at, (wanted, got) in enumerate(zip(want, decisions, strict=False))
        for problem in _differences(_as_object(wanted), got)
    ]
    if "wantAudit" in data and records:
        problems += _audit_differences(data["wantAudit"], records)
    return CaseOutcome(case.note, not problems, decisions, "; ".join(problems) or None)


def compare_view(case: Case, got: Mapping[str, Any], records: Sequence[Any]) -> CaseOutcome:
    """Compare the answer to a load or view commit, and the audit record, with the expectations of the case."""
    data = case.data
    want_key = VIEW_REQUESTS[case.view_key or ""]
    problems = []
    if "wantError" in data:
        problems.append(f"wanted the error {data['wantError']}, nothing raised")
    elif want_key not in data and "wantAudit" not in data:
        problems.append("the case wants nothing")
    want = dict(_as_object(data.get(want_key, {})))
    if "steps" in want:
        problems += _row_differences("step", want.pop("steps"), got.get("steps", ()))
    problems += _differences(want, got)
    if "wantAudit" in data:
        problems += _audit_differences(data["wantAudit"], records)
    return CaseOutcome(case.note, not problems, got, "; ".join(problems) or None)


def compare_error(case: Case, error: PdpError, records: Sequence[Any] = ()) -> CaseOutcome:
    """Compare the error of a failed case with the expected error.

    A case about view security can also expect the error as part of an answer.
    """
    wanted = case.data.get("wantError")
    if case.view_key and "error" in _as_object(case.data.get(VIEW_REQUESTS[case.view_key], {})):
        return compare_view(case, {"allowed": False, "error": {"code": error.code, "message": str(error)}}, records)
    if isinstance(wanted, str):
        wanted = {"code": wanted}
    got = {"code": error.code, "rule": getattr(error, "rule", None)}
    passed = isinstance(wanted, dict) and all(got.get(key) == value for key, value in wanted.items())
    return CaseOutcome(case.note, passed, {"error": {key: value for key, value in got.items() if value}}, str(error))


def _as_object(want: bool | Mapping[str, Any]) -> Mapping[str, Any]:
    return {"allowed": want} if isinstance(want, bool) else want


def _differences(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    for key, value in wanted.items():
        actual = got.get(key)
        if key == "error":
            actual = {name: (actual or {}).get(name) for name in value}
        if actual not in (value, [value]):  # `by: x` means `by: [x]`
            yield f"`{key}` is {json.dumps(actual)}, wanted {json.dumps(value)}"


def _audit_differences(wanted: Sequence[Mapping[str, Any]], records: Sequence[Any]) -> Iterator[str]:
    return _row_differences("audit row", wanted, [row for record in records for row in rows(record)])


def _row_differences(noun: str, wanted: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if len(wanted) != len(got):
        yield f"{len(got)} {noun}s, wanted {len(wanted)}: {json.dumps([_brief(row) for row in got])}"
    for at, (wanted_row, row) in enumerate(zip(wanted, got, strict=False)):
        for key, value in wanted_row.items():
            actual = row.get(key)
            if not (_same_resource(value, actual) if key == "resource" else actual in (value, [value])):
                yield f"{noun} {at}: `{key}` is {json.dumps(actual)}, wanted {json.dumps(value)}"


def _brief(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row.get(key) for key in ("resource", "as", "delegated", "action", "allowed", "by")}


def _same_resource(wanted: Any, got: Any) -> bool:
    """Tell whether two resources are the same object. A wanted resource without a ref matches every ref."""
    if got is None:
        return False
    resource = make_resource(msgspec.convert(wanted, str | ResourceBody))
    actual = make_resource(got["reference"] if isinstance(got, dict) else got)
    if resource.ref is None:
        actual = msgspec.structs.replace(actual, ref=None)
    return format_resource(resource) == format_resource(actual)
