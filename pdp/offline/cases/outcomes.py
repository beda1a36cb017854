"""Comparison of answers and audit records with the expectations of a case.

The answers are JSON values, so that the same comparison works for every surface.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from pdp.audit.records.rows import rows
from pdp.decision.bodies import ResourceBody, make_resource
from pdp.errors import PdpError
from pdp.model.references import format_resource
from pdp.model.vocabulary import RENAMES
from pdp.offline.cases.cases import VIEW_REQUESTS, Case, InvalidCase

_UNKNOWN_ACTION: Final = "unknown_action"


class Problem(msgspec.Struct, frozen=True):
    """Difference from a case, or remark on a case. `check` is the position of a check.

    `why` explains the decision. `wrong_verdict`: the check is allowed and should not be, or the reverse. `raised` are
    ids of rules with an error. `unknown_action`: no engine knows the action.
    """

    text: str
    check: int | None = None
    why: str = ""
    wrong_verdict: bool = False
    raised: tuple[str, ...] = ()
    unknown_action: bool = False


class CaseOutcome(msgspec.Struct, frozen=True):
    """Result of a case. `got` are the decisions or the error at the end.

    `raised` is the text of an error that the case wants. `warnings` fail a strict run.
    """

    note: str
    got: Any
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    raised: str | None = None

    @property
    def passed(self) -> bool:
        """Tell whether the case found all it wants."""
        return not self.problems

    @property
    def error(self) -> str | None:
        """Return the problems as one line; for a case without problems the error that it wants, if any."""
        return "; ".join(map(problem_text, self.problems)) or self.raised

    def strict(self) -> CaseOutcome:
        """Return the outcome with the warnings as problems."""
        return msgspec.structs.replace(self, problems=(*self.problems, *self.warnings), warnings=())


def problem_text(problem: Problem, line: int | None = None) -> str:
    """Return a problem as text, with the position and line of the check and the explanation."""
    check = "" if problem.check is None else f"check {problem.check}{f' (line {line})' if line else ''}: "
    return check + problem.text + (f"; {problem.why}" if problem.why else "")


def compare_checks(case: Case, decisions: Sequence[Mapping[str, Any]], records: Sequence[Any]) -> CaseOutcome:
    """Compare decisions, and audit records if there are any, with the expectations of the case."""
    data = case.data
    if "wantError" in data:
        return _missing_error(case, decisions)
    want = data.get("want", [])
    problems = []
    if not case.wants_something:
        problems.append(Problem("the case wants nothing"))
    elif not decisions and "wantAudit" not in data:
        problems.append(Problem("the case has no check, so it shows nothing"))
    elif "want" in data and len(want) != len(decisions):
        problems.append(Problem(f"{len(decisions)} decisions, wanted {len(want)}"))
    warnings = []
    for at, got in enumerate(decisions):
        wanted = _as_object(want[at]) if at < len(want) else {}
        if at < len(want) and not wanted and not case.wants_more:
            problems.append(Problem("the case wants nothing of it", at))
        problems += [Problem(text, at, wrong_verdict=key == "allowed") for key, text in _differences(wanted, got)]
        problems += [
            Problem(text, at, unknown_action="error" not in got) for text in _void_checks(case, at, wanted, got)
        ]
        if (raised := got.get("errors")) and "errors" not in wanted:
            warnings.append(Problem(_raised_text(raised), at, raised=tuple(raised)))
    if "wantAudit" in data and records:
        problems += map(Problem, _audit_differences(data["wantAudit"], records))
    return CaseOutcome(case.note, decisions, tuple(problems), tuple(warnings))


def compare_view(case: Case, got: Mapping[str, Any], records: Sequence[Any]) -> CaseOutcome:
    """Compare the answer to a load or view commit, and the audit record, with the expectations of the case."""
    data = case.data
    want_key = VIEW_REQUESTS[case.view_key or ""]
    problems = []
    if "wantError" in data:
        problems.append(f"wanted the error {data['wantError']}, nothing raised")
    elif data.get(want_key, {}) == {} and "wantAudit" not in data:
        problems.append("the case wants nothing")
    want = dict(_as_object(data.get(want_key, {})))
    if "steps" in want:
        problems += _row_differences("step", want.pop("steps"), got.get("steps", ()))
    found = [*map(Problem, problems)]
    for key, text in _differences(want, got):
        found.append(Problem(text, why=_denied_step(got) if key == "allowed" else ""))
    if "wantAudit" in data:
        found += map(Problem, _audit_differences(data["wantAudit"], records))
    return CaseOutcome(case.note, got, tuple(found))


def _denied_step(got: Mapping[str, Any]) -> str:
    """Return the first denied check behind a denied load: who lacks which right on which object."""
    for step in () if got.get("allowed") else got.get("steps", ()):
        if not step["allowed"]:
            return f"{step['as']} may not {step['action']} {step['resource']}: {', '.join(step['by'])}"
    return ""


def compare_error(case: Case, error: PdpError, records: Sequence[Any] = ()) -> CaseOutcome:
    """Compare the error of a failed case with the expected error.

    A case about view security can also expect the error as part of an answer.
    """
    if isinstance(error, InvalidCase):
        return CaseOutcome(case.note, {"error": {"code": error.code}}, (Problem(str(error)),))
    wanted = case.data.get("wantError")
    if case.view_key and "error" in _as_object(case.data.get(VIEW_REQUESTS[case.view_key], {})):
        return compare_view(case, {"allowed": False, "error": {"code": error.code, "message": str(error)}}, records)
    if isinstance(wanted, str):
        wanted = {"code": wanted}
    got = {"code": error.code, "rule": getattr(error, "rule", None)}
    passed = isinstance(wanted, dict) and all(got.get(key) == value for key, value in wanted.items())
    shown = {"error": {key: value for key, value in got.items() if value}}
    return CaseOutcome(case.note, shown, () if passed else (Problem(str(error)),), raised=str(error))


def _missing_error(case: Case, got: Any) -> CaseOutcome:
    return CaseOutcome(case.note, got, (Problem(f"wanted the error {case.data['wantError']}, nothing raised"),))


def _void_checks(case: Case, at: int, wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a check proves nothing: nobody could permit the check. A case may want this by `by` or `error`.

    The target of a rename is no misspelt word: a table cannot move to where no engine knows the creation of tables.
    """
    reason, error = got["by"][0], got.get("error")
    if "by" in wanted or "error" in wanted or reason in _audited_reasons(case):
        return
    if error:
        yield f"`{reason}`: {error['message']}: want this by `by` or `error`"
    elif reason == _UNKNOWN_ACTION or (reason.endswith(f": {_UNKNOWN_ACTION}") and not _has_target(case, at)):
        yield f"`{reason}`: no engine knows this action on this type: want this by `by`"


def _has_target(case: Case, at: int) -> bool:
    """Tell whether the check at a position is a rename with a destination."""
    checks = case.data.get("checks", ())
    check = checks[at] if at < len(checks) and "resources" not in checks[at] else {}
    arguments = (check.get("context") or {}).get("arguments") or {}
    return check.get("action") in RENAMES and arguments.get("destination") is not None


def _audited_reasons(case: Case) -> Iterator[str]:
    for row in case.data.get("wantAudit", ()):
        by = row.get("by", [])
        yield from [by] if isinstance(by, str) else by


def _raised_text(rules: Sequence[str]) -> str:
    return f"{', '.join(f'`{rule}`' for rule in rules)} raised: want this by `errors`"


def _as_object(want: bool | Mapping[str, Any]) -> Mapping[str, Any]:
    return {"allowed": want} if isinstance(want, bool) else want


def _differences(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in wanted.items():
        actual = got.get(key)
        if key == "error":
            actual = {name: (actual or {}).get(name) for name in value}
        if actual not in (value, [value]):  # `by: x` means `by: [x]`
            by = f" by {', '.join(got['by'])}" if key == "allowed" and "by" not in wanted and got.get("by") else ""
            yield key, f"`{key}` is {json.dumps(actual)}{by}, wanted {json.dumps(value)}"


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
