"""Policy tests: cases as data, run on a service in this process; the same files run over every surface.

Owns the file forms (YAML with shared keys above `cases:`, JSON, JSONL) and the comparison. Paths in a case are
relative to its file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from pdp import strict
from pdp.audit.encoding import build_json
from pdp.audit.record import DecisionRecord
from pdp.audit.rows import rows
from pdp.config.settings import Settings, make_settings
from pdp.decision.codec import ResourceBody, decode_batch, encode_answer, make_resource
from pdp.decision.service import Pdp
from pdp.engines.cel.rules import RuleSet, inline_rules, load_rules
from pdp.engines.rowaccess.document import NamedDocument, parse_document, read_documents
from pdp.errors import InvalidArgument, PdpError, Unauthenticated
from pdp.facts.snapshot import Facts
from pdp.identity.callers import local_caller
from pdp.identity.evidence import admit
from pdp.model.checks import Batch, Caller
from pdp.model.references import format_resource
from pdp.store.world import load_world, parse_world
from pdp.strict import sentence
from pdp.views.codec import decode_change, decode_load, encode_change, encode_load
from pdp.views.loads import ViewSecurity

SUFFIXES = (".yaml", ".yml", ".json", ".jsonl")


class CaseBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The keys of a case and their forms."""

    checks: list[Any] | None = None
    load: dict[str, Any] | None = None
    commit_view: dict[str, Any] | None = None
    note: Any = None
    engines: list[str] = []
    rules: str | list[str] | dict[str, str] = ""
    forbid: str | list[str] | dict[str, str] = ""
    policies: str | list[str] | dict[str, Any] = ""
    world: str | dict[str, Any] | None = None
    config: dict[str, Any] = {}
    caller: dict[str, Any] | None = None
    consistency: str | dict[str, str] = ""
    want: list[bool | dict[str, Any]] = []
    want_load: bool | dict[str, Any] = {}
    want_commit: bool | dict[str, Any] = {}
    want_audit: list[dict[str, Any]] = []
    want_error: str | dict[str, str] = ""


Build = Callable[..., Pdp]
"""(settings, facts, (rules, forbid), audit, documents of row access) to a service."""
VIEW_REQUESTS: Final = {"load": "wantLoad", "commitView": "wantCommit"}
"""Keys of a case about view security: the body that is asked, what is wanted of its answer."""


class Case(msgspec.Struct, frozen=True):
    """One policy test. `data` is as written, with the shared keys of its file; `folder` is where its paths start."""

    note: str
    folder: Path
    data: Mapping[str, Any]


class CaseOutcome(msgspec.Struct, frozen=True):
    """What came of a case: the decisions, or the code of the error that ended it."""

    note: str
    passed: bool
    got: Any
    error: str | None = None


class Recorder:
    """An audit that keeps its records in memory, for `wantAudit`."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def admit(self) -> None:
        """Always open."""

    def append(self, record: DecisionRecord) -> None:
        """Keep the record."""
        self.records.append(build_json(record, "case", len(self.records)))


def find_cases(paths: Sequence[Path]) -> Iterator[Case]:
    """The cases of files and folders, in order; InvalidArgument names a file that cannot be read."""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if path.is_dir() and file.suffix not in SUFFIXES:
                continue
            yield from _read(file)


def run_case(case: Case, build: Build, runner: asyncio.Runner) -> CaseOutcome:
    """Run one case in this process and compare."""
    recorder = Recorder()
    try:
        pdp, settings = prepare(case, build, recorder)
        kind = view_request(case)
        if kind:
            answered = runner.run(_view_answer(kind, request_body(case), pdp, settings))
            return compare_view(case, json.loads(answered), recorder.records)
        answer = runner.run(pdp.check(batch_of(case, settings)))
    except PdpError as error:
        return compare_error(case, error, recorder.records)
    return compare(case, msgspec.json.decode(encode_answer(answer))["decisions"], recorder.records)


def prepare(case: Case, build: Build, recorder: Recorder) -> tuple[Pdp, Settings]:
    """The service that a case describes; raises what its files deserve."""
    try:
        msgspec.convert(case.data, CaseBody)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"the case: {sentence(str(error))}") from None
    data = case.data
    config = dict(data.get("config", {}))
    if "engines" in data:
        config.setdefault("authorities", {"default": {"engines": data["engines"]}})
    settings = make_settings(config, case.folder)
    extensions = tuple(settings.policies.cel_extensions)
    rules = tuple(_rules(case, data.get(key, {}), extensions) for key in ("rules", "forbid"))
    return build(settings, _facts(case, data.get("world")), rules, recorder, _policies(case)), settings


def view_request(case: Case) -> str | None:
    """Which of VIEW_REQUESTS a case asks; None where it asks checks."""
    return next((kind for kind in VIEW_REQUESTS if kind in case.data), None)


def request_body(case: Case) -> bytes:
    """The body of a case: POST /v1/load, /v1/commit-view or /v1/check; its `caller` stands for that of a load."""
    kind = view_request(case)
    if kind:
        caller = {"caller": case.data["caller"]} if "caller" in case.data else {}
        return msgspec.json.encode({**caller, **case.data[kind]})
    request = {"checks": case.data["checks"], "consistency": case.data.get("consistency", "minimize_latency")}
    return msgspec.json.encode(request)


async def _view_answer(kind: str, body: bytes, pdp: Pdp, settings: Settings) -> bytes:
    views = ViewSecurity(pdp, settings)
    caller = _caller(settings)
    if kind == "load":
        return encode_load(await views.load(decode_load(body), caller, "case"))
    return encode_change(await views.change(decode_change(body), caller, "case"))


def batch_of(case: Case, settings: Settings) -> Batch:
    """The batch of a case, from the caller that its configuration makes of a loopback peer."""
    if "checks" not in case.data:
        raise InvalidArgument("the case has no `checks`")
    caller = _caller(settings)
    return admit(decode_batch(request_body(case), settings.limits.max_checks, "case"), caller)


def _caller(settings: Settings) -> Caller:
    caller = local_caller(settings)
    if caller is None:
        raise Unauthenticated("the configuration of the case makes no caller of a loopback peer")
    return caller


def compare_error(case: Case, error: PdpError, records: Sequence[Mapping[str, Any]] = ()) -> CaseOutcome:
    """The outcome of a case that ended in an error; a case about view security may want it as an answer's error."""
    wanted = case.data.get("wantError")
    kind = view_request(case)
    if kind and "error" in _as_object(case.data.get(VIEW_REQUESTS[kind], {})):
        return compare_view(case, {"allowed": False, "error": {"code": error.code, "message": str(error)}}, records)
    if isinstance(wanted, str):
        wanted = {"code": wanted}
    got = {"code": error.code, "rule": getattr(error, "rule", None)}
    passed = isinstance(wanted, dict) and all(got.get(key) == value for key, value in wanted.items())
    return CaseOutcome(case.note, passed, {"error": {key: value for key, value in got.items() if value}}, str(error))


def compare_view(case: Case, got: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> CaseOutcome:
    """The outcome of an answer about view security, and of its audit record, against what the case wants."""
    data = case.data
    wanted = next(name for kind, name in VIEW_REQUESTS.items() if kind in data)
    problems = []
    if "wantError" in data:
        problems.append(f"wanted the error {data['wantError']}, nothing raised")
    elif wanted not in data and "wantAudit" not in data:
        problems.append("the case wants nothing")
    want = dict(_as_object(data.get(wanted, {})))
    if "steps" in want:
        problems += _row_differences("step", want.pop("steps"), got.get("steps", ()))
    problems += _differences(want, got)
    if "wantAudit" in data:
        audited = [row for record in records for row in rows(record)]
        problems += _row_differences("audit row", data["wantAudit"], audited)
    return CaseOutcome(case.note, not problems, got, "; ".join(problems) or None)


def _as_object(want: bool | Mapping[str, Any]) -> Mapping[str, Any]:
    return {"allowed": want} if isinstance(want, bool) else want


def compare(case: Case, decisions: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]]) -> CaseOutcome:
    """The outcome of decisions, and of audit records where there are some, against what the case wants."""
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
        audited = [row for record in records for row in rows(record)]
        problems += _row_differences("audit row", data["wantAudit"], audited)
    return CaseOutcome(case.note, not problems, decisions, "; ".join(problems) or None)


def _differences(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    for key, value in wanted.items():
        found = got.get(key)
        if key == "error":
            found = {name: (found or {}).get(name) for name in value}
        if found not in (value, [value]):
            yield f"`{key}` is {json.dumps(found)}, wanted {json.dumps(value)}"


def _row_differences(what: str, wanted: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if len(wanted) != len(got):
        yield f"{len(got)} {what}s, wanted {len(wanted)}: {json.dumps([_brief(row) for row in got])}"
    for at, (row, found) in enumerate(zip(wanted, got, strict=False)):
        for key, value in row.items():
            there = found.get(key)
            if not (_same_resource(value, there) if key == "resource" else there in (value, [value])):
                yield f"{what} {at}: `{key}` is {json.dumps(found.get(key))}, wanted {json.dumps(value)}"


def _brief(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row.get(key) for key in ("resource", "as", "delegated", "action", "allowed", "by")}


def _same_resource(wanted: Any, got: Any) -> bool:
    """Equal as objects; a wanted resource that names no ref takes any."""
    if got is None:
        return False
    reference = got["reference"] if isinstance(got, dict) else got
    resource = make_resource(msgspec.convert(wanted, str | ResourceBody))
    found = make_resource(reference)
    if resource.ref is None:
        found = msgspec.structs.replace(found, ref=None)
    return format_resource(resource) == format_resource(found)


def _rules(case: Case, given: Any, extensions: tuple[str, ...]) -> RuleSet:
    if isinstance(given, Mapping):
        return inline_rules(given, frozenset(extensions))
    files = [given] if isinstance(given, str) else given
    return _rule_files(tuple(case.folder / file for file in files), extensions)


def _policies(case: Case) -> Sequence[NamedDocument]:
    given = case.data.get("policies", [])
    if isinstance(given, Mapping):
        return [parse_document(given)]
    return list(read_documents([case.folder / file for file in ([given] if isinstance(given, str) else given)]))


@lru_cache(maxsize=256)
def _rule_files(files: tuple[Path, ...], extensions: tuple[str, ...]) -> RuleSet:
    return load_rules(files, frozenset(extensions))


def _facts(case: Case, given: Any) -> Facts:
    if given is None:
        return Facts.empty()
    return _world_file(case.folder / given) if isinstance(given, str) else parse_world(given)


@lru_cache(maxsize=64)
def _world_file(file: Path) -> Facts:
    return load_world(file)


def _read(file: Path) -> Iterator[Case]:
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".jsonl":
            yield from _read_lines(file, text)
            return
        data = json.loads(text) if file.suffix == ".json" else strict.load_yaml(text)
    except OSError as error:
        raise InvalidArgument(f"cannot read `{file}`: {error.strerror}") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise InvalidArgument(f"`{file}` does not parse: {' '.join(str(error).split())}") from None
    shared = {key: value for key, value in data.items() if key != "cases"} if isinstance(data, dict) else {}
    for number, case in enumerate(_list_of_cases(file, data), 1):
        yield _case(file, case, shared if case is not data else {}, f"case {number}")


def _read_lines(file: Path, text: str) -> Iterator[Case]:
    """One case a line. Only a line feed ends one: what else ends lines of a text may stand in a JSON string."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            why = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
            raise InvalidArgument(f"`{file}:{number}` does not parse: {sentence(why)}") from None
        yield _case(file, data, {}, f"line {number}")


def _list_of_cases(file: Path, data: Any) -> Sequence[Any]:
    if isinstance(data, list):
        return data
    if isinstance(data, dict):
        cases: Sequence[Any] = data.get("cases", [data])
        return cases
    raise InvalidArgument(f"`{file}` holds no cases")


def _case(file: Path, data: Any, shared: Mapping[str, Any], fallback: str) -> Case:
    if not isinstance(data, dict):
        raise InvalidArgument(f"`{file}`, {fallback}: a case is an object")
    merged = {**shared, **data}
    return Case(str(merged.get("note", f"{file.name} {fallback}")), file.parent, merged)
