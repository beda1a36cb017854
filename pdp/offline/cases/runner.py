"""Runner of policy tests in this process: builds the service that a case describes, and decides the case."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from pdp.audit.records.record import AnyRecord, DecisionRecord
from pdp.audit.records.writing import RecordEncoder
from pdp.config.load import make_settings
from pdp.config.names import NameCheck
from pdp.config.policy_files import FileKey, policy_files
from pdp.config.settings import Settings
from pdp.decision.codec import decision_body, decode_batch, encode_answer
from pdp.decision.scopes import ScopeService, decode_scopes
from pdp.decision.service import Pdp
from pdp.engines.cel.rules import RuleSet, configured_check, inline_rules, join_rules, load_rules
from pdp.engines.engine_types import PolicySources
from pdp.engines.row_access.policies import NamedDocument, parse_document, read_documents
from pdp.engines.scopes.explain import load_entries
from pdp.engines.scopes.kind import sources_of
from pdp.engines.scopes.permissions import parse_entries
from pdp.errors import PdpError, Unauthenticated
from pdp.facts.snapshot import Facts
from pdp.identity.callers import EMBEDDED_CALLER, local_caller
from pdp.identity.evidence import admit
from pdp.model.events import OPEN_GATE, AnswerHold, Event
from pdp.model.question import Batch, Caller
from pdp.offline.cases.cases import ROW_WANTS, Case, CedarCase, InvalidCase, cedar_policies, forget_places
from pdp.offline.cases.deployment import Deployment, case_facts, case_files, forget_worlds, remarks_on_names, set_clock
from pdp.offline.cases.outcomes import CaseOutcome, compare_checks, compare_error, compare_view
from pdp.offline.cases.reasons import explain_outcome
from pdp.offline.coverage.cases import CaseCoverage
from pdp.views.codec import decode_change, decode_load, encode_change, encode_load
from pdp.views.loads import ViewSecurity

_RULE_KEYS: Final[tuple[FileKey, ...]] = ("rules", "forbid")
BuildPdp = Callable[..., Pdp]
"""Constructor of a service.

(settings, facts, (permitting rules, forbidding rules), audit, row-access documents, policies of engines)
"""


class MemoryAudit:
    """Audit in memory, with records in their JSON form."""

    gate: AnswerHold = OPEN_GATE

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.decided: list[DecisionRecord] = []
        """The same records, not encoded."""
        self._encoder = RecordEncoder("case")

    def admit(self) -> None:
        """Accept every request."""

    def append(self, record: AnyRecord) -> None:
        """Keep a record."""
        whole = record.whole()
        self.decided.append(whole)
        self.records.append(msgspec.json.decode(self._encoder.encode(whole, len(self.records))))

    def note(self, event: Event) -> bool:
        """Drop an event: no case is about events."""
        return True


class CaseRunner:
    """Runner of cases in this process.

    With a `deployment`, its policies decide instead of those of a case. A `coverage` notes what the cases show.
    """

    def __init__(
        self,
        build_pdp: BuildPdp,
        runner: asyncio.Runner,
        deployment: Deployment | None = None,
        coverage: CaseCoverage | None = None,
    ) -> None:
        self._build_pdp = build_pdp
        self._runner = runner
        self._deployment = deployment
        self._coverage = coverage

    def run(self, case: Case) -> CaseOutcome:
        """Decide a case and compare the result with the expected one."""
        audit = MemoryAudit()
        try:
            pdp, settings, caller = self._service(case, audit)
            with self._watched(case, pdp, audit) as watched:
                if case.view_key:
                    answer = self._runner.run(_decide_view(case, watched, settings, caller))
                    return compare_view(case, msgspec.json.decode(answer), audit.records)
                if "scopeChecks" in case.data:
                    decisions = self._runner.run(_decide_scopes(case, watched, settings, caller))
                    return compare_checks(case, decisions, audit.records)
                batch = _admitted(case, settings, caller)
                outcome = self._decide(case, watched, batch, audit)
                remarks = remarks_on_names(case, batch, settings)
                return msgspec.structs.replace(outcome, warnings=(*outcome.warnings, *remarks))
        except PdpError as error:
            return compare_error(case, error, audit.records)

    @contextmanager
    def _watched(self, case: Case, pdp: Pdp, audit: MemoryAudit) -> Iterator[Pdp]:
        """Yield the service, and note at the end what its decisions show."""
        if self._coverage is None:
            yield pdp
            return
        watched = self._coverage.watch(case, pdp)
        yield watched.pdp
        watched.finish(audit.decided)

    def _service(self, case: Case, audit: MemoryAudit) -> tuple[Pdp, Settings, Caller]:
        """Return the service that decides a case, its settings and the caller; raise a PdpError."""
        if self._deployment:
            case.validate()
            return self._deployment.pdp_for(case, audit), self._deployment.settings, EMBEDDED_CALLER
        pdp, settings = build_case_pdp(case, self._build_pdp, audit)
        return pdp, settings, _caller(settings)

    def _decide(self, case: Case, pdp: Pdp, batch: Batch, audit: MemoryAudit) -> CaseOutcome:
        """Ask for the decisions if the case wants any, then for rows and columns if the case wants them."""
        outcome = CaseOutcome(case.note, [])
        wants_rows = any(key in case.data for key in ROW_WANTS)
        if "want" in case.data or "wantAudit" in case.data or not wants_rows:
            answer = encode_answer(self._runner.run(pdp.check(batch)))
            outcome = compare_checks(case, msgspec.json.decode(answer)["decisions"], audit.records)
            outcome = explain_outcome(outcome, pdp, batch, self._runner)
        if not wants_rows:
            return outcome
        from pdp.offline.cases.row_cases import RowCases  # noqa: PLC0415  its parser of SQL takes 30 MB

        rows = RowCases(pdp, audit.decided).ask(case, batch)
        decisions = outcome.got or [{}] * batch.size
        return msgspec.structs.replace(
            outcome,
            got=[{**decision, **row} for decision, row in zip(decisions, rows.got, strict=True)],
            problems=(*outcome.problems, *rows.problems),
            warnings=(*outcome.warnings, *rows.warnings),
        )


def run_case(case: Case, build_pdp: BuildPdp, runner: asyncio.Runner) -> CaseOutcome:
    """Decide a case under its own policies and compare the result with the expected one."""
    return CaseRunner(build_pdp, runner).run(case)


def forget_files() -> None:
    """Forget the rule files, worlds and case files read so far: they may have changed."""
    _rule_files.cache_clear()
    forget_worlds()
    forget_places()


def build_case_pdp(case: Case, build_pdp: BuildPdp, audit: MemoryAudit) -> tuple[Pdp, Settings]:
    """Build the service that a case describes; raise a PdpError for an invalid case or invalid policies."""
    case.validate()
    data = case.data
    config = dict(data.get("config", {}))
    if "engines" in data:
        config.setdefault("authorities", {"default": {"engines": data["engines"]}})
    settings = make_settings(config, case.folder)
    rules = tuple(_rules(case, settings, key) for key in _RULE_KEYS)
    facts, sources = case_facts(case) or Facts.empty(), _engine_sources(case, settings)
    pdp = build_pdp(settings, facts, rules, audit, _documents(case), sources)
    set_clock(pdp, case)
    return pdp, settings


def case_batch(case: Case, settings: Settings) -> Batch:
    """Return the batch of a case, sent by the loopback caller of its configuration."""
    return _admitted(case, settings, _caller(settings))


def _admitted(case: Case, settings: Settings, caller: Caller) -> Batch:
    if "checks" not in case.data:
        raise InvalidCase("the case has no `checks`")
    return admit(decode_batch(case.request_body(), settings.limits.max_checks, "case"), caller)


async def _decide_view(case: Case, pdp: Pdp, settings: Settings, caller: Caller) -> bytes:
    views = ViewSecurity(pdp, settings)
    body = case.request_body()
    if case.view_key == "load":
        return encode_load(await views.load(decode_load(body), caller, "case"))
    return encode_change(await views.change(decode_change(body), caller, "case"))


async def _decide_scopes(case: Case, pdp: Pdp, settings: Settings, caller: Caller) -> list[dict[str, Any]]:
    """Return the answers to the scopes of a case, as POST /v1/scopes gives them, with their reasons."""
    found, scopes = [], ScopeService(pdp, settings.identity.cel_provider, settings.limits.max_checks)
    for body in case.data["scopeChecks"]:
        answer = await scopes.answer(decode_scopes(msgspec.json.encode(body)), caller, "case")
        found.append(msgspec.json.decode(msgspec.json.encode(decision_body(answer.decision))))
    return found


def _caller(settings: Settings) -> Caller:
    caller = local_caller(settings)
    if caller is None:
        raise Unauthenticated("the configuration of the case makes no caller of a loopback peer")
    return caller


def _rules(case: Case, settings: Settings, key: FileKey) -> RuleSet:
    """Return the rules of a case together with those of the files that its configuration names.

    Raise ConfigError where the service would not start, such as for a forbid without a rule.
    """
    value: Any = case.data.get(key, {})
    options, files = (settings.policies.cel_extensions, settings.policies.profiles), policy_files(settings, key)
    if files.required:
        configured = _rule_files(files.paths, *options, configured_check(settings, is_forbid=key == "forbid"))
        files.require_content({rule.place.file for rule in configured.rules})
    if not isinstance(value, Mapping):
        return _rule_files(tuple(dict.fromkeys((*files.paths, *case_files(case, value)))), *options)
    inline = inline_rules(value, frozenset(settings.policies.cel_extensions))
    return join_rules(_rule_files(files.paths, *options), inline) if files.paths else inline


def _engine_sources(case: Case, settings: Settings) -> dict[str, PolicySources]:
    """Return the policies of engines that a case brings, by the name of the engine."""
    sources: dict[str, PolicySources] = {}
    if (given := case.data.get("permissions")) is not None:
        files = [given] if isinstance(given, str) else [each for each in given if isinstance(each, str)]
        entries = load_entries(case_files(case, files)) if files else parse_entries(given)
        sources["scopes"] = sources_of([each.entry for each in entries], settings)
    if (cedar := case.data.get("cedar")) is not None:
        sources["cedar"] = cedar_policies(msgspec.convert(cedar, CedarCase), case.folder)
    return sources


def _documents(case: Case) -> Sequence[NamedDocument]:
    policies = case.data.get("policies", [])
    if isinstance(policies, Mapping):
        return [parse_document(policies)]
    return list(read_documents(list(case_files(case, policies))))


# many cases share few files: read each file once
@lru_cache(maxsize=256)
def _rule_files(
    files: tuple[Path, ...], extensions: tuple[str, ...], profiles: tuple[str, ...], names: NameCheck | None = None
) -> RuleSet:
    return load_rules(files, frozenset(extensions), profiles, names)
