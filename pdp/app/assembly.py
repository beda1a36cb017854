"""Assembly of a bundle from settings: reads policy files and builds the engines.

This part of the composition root names the engines. `app` names the classes that fetch, serve and record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from pdp.config.idle_settings import unstated_notices
from pdp.config.policy_files import FileKey, overlooked_files, policy_files
from pdp.config.references import engine_warehouses, idle_names, known_warehouses, unknown_warehouse
from pdp.config.settings import Settings
from pdp.decision.active_policies import ActivePolicies, Authority, RowSources, ShadowAuthority, source_text
from pdp.decision.missing_arguments import plan_missing_arguments
from pdp.decision.plan import Planners
from pdp.decision.scopes import plan_scope
from pdp.dialects.polaris.requests import plan_polaris
from pdp.dialects.trino.known_objects import meant_by_names, own_names, restriction_of, with_metadata_tables
from pdp.dialects.trino.operations import plan_operation
from pdp.engines.allow_all import WARNING, build_allow_all, permit_development
from pdp.engines.cel.engine import CelEngine, CelForbid
from pdp.engines.cel.rules import RuleSet, configured_check, load_rules, unfed_rules
from pdp.engines.custom import installed_kind, missing_engine
from pdp.engines.engine import Engine, EngineQuestion, ForbiddenPath, NamingEngine, beyond
from pdp.engines.engine_types import EngineType, PolicySources
from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.row_access.engine import RowAccessEngine, RowPolicies
from pdp.engines.row_access.entries import names_of
from pdp.engines.row_access.members import configured_members
from pdp.engines.row_access.policies import NamedDocument, read_documents
from pdp.engines.row_access.through_views import unprotected_catalogs
from pdp.engines.spelled_names import SpelledNames
from pdp.errors import ConfigError, InvalidArgument, InvalidReference, PolicyError
from pdp.facts.objects import fold_name
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal, Question, RequestContext, Resource
from pdp.model.redaction import Redactor
from pdp.model.references import parse_resource
from pdp.views.plans import plan_views

PLANNERS: Final = Planners(
    (with_metadata_tables(plan_views), plan_operation, plan_polaris, plan_scope, plan_missing_arguments),
    restriction_of,
    own_names,
    meant_by_names,
)
"""Planners of view chains, operations of Trino and Polaris, LakeQL's scopes, and checks without a needed name."""


def _scopes() -> EngineType:
    from pdp.engines.scopes.kind import build_scopes, describe_scopes, read_permissions  # noqa: PLC0415  see ENGINES

    return EngineType(build_scopes, read_permissions, describe_scopes)


def _cedar() -> EngineType:
    from pdp.engines.cedar.kind import build_cedar, read_cedar  # noqa: PLC0415  see ENGINES

    return EngineType(build_cedar, read_cedar)


ENGINES: Final[Mapping[str, Callable[[], EngineType]]] = {
    "grants": lambda: EngineType(lambda settings, _: GrantsEngine(frozenset(settings.store.bootstrap_admins))),
    "scopes": _scopes,
    "cedar": _cedar,
    "allow_all": lambda: EngineType(build_allow_all, permit_development),
}
"""Engines that authorities may name, beside `cel`, whose rules are read with those of `policies.forbid`. Those with
many modules are loaded when an authority names them."""


def read_rules(settings: Settings) -> tuple[RuleSet, RuleSet]:
    """Return the permitting and the forbidding rules.

    Raise PolicyError for the first invalid rule, ConfigError for a pattern without a file or a file without a rule.
    """
    return _read_rules(settings, "rules"), _read_rules(settings, "forbid")


def _read_rules(settings: Settings, key: FileKey) -> RuleSet:
    files = policy_files(settings, key)
    with files.naming_key():
        policies, names = settings.policies, configured_check(settings, is_forbid=key == "forbid")
        rules = load_rules(files.paths, frozenset(policies.cel_extensions), policies.profiles, names)
    files.require_content({rule.place.file for rule in rules.rules})
    return rules


def build_bundle(
    settings: Settings,
    rules: RuleSet,
    forbid: RuleSet,
    documents: Iterable[NamedDocument] = (),
    sources: Mapping[str, PolicySources] | None = None,
) -> ActivePolicies:
    """Return the bundle of settings and rules, with the row policies of `documents` and of the configured files.

    `sources` has the policies of some engines by name, in place of configured files. Raise ConfigError or PolicyError.
    """
    provider, masker = settings.identity.cel_provider, Redactor(settings.audit.mask)
    stored = settings.identity.cel_roles == "all"
    kinds = {"cel": lambda: EngineType(lambda *_: CelEngine(rules, provider, masker, stored=stored)), **ENGINES}
    chosen = _chosen_kinds(settings, kinds)
    read = {name: (sources or {}).get(name) or kind.read(settings) for name, kind in chosen.items()}
    engines = {name: kind.build(settings, read[name]) for name, kind in chosen.items()}
    authorities = _authorities(settings, engines)
    policies = _read_row_policies(settings, documents)
    forbids = (CelForbid(forbid, provider, masker, stored=stored),) if forbid.rules else ()
    row_access = _row_access(settings, policies)
    text, digest = source_text(
        _sources(settings, rules, forbid) | _row_sources(settings, policies) | _engine_sources(chosen, read, engines)
    )
    bundle = ActivePolicies(
        _by_warehouse(settings, authorities),
        _default(settings, authorities),
        forbids,
        settings.warehouses,
        settings.trino,
        row_access,
        text,
        digest,
        (
            *_warnings(settings, rules, forbid),
            *_broad_forbids(settings, forbids, authorities),
            *_cedar_warnings(settings, engines.get("cedar")),
            *_row_warnings(settings, policies, row_access),
            *_unstated(settings, forbids, engines.get("cedar"), row_access),
        ),
        _role_maps(settings),
        frozenset(settings.identity.instance_admins),
        _paths_of(("DELETE_ENTITY",), forbids, engines.values()),
        SpelledNames.of([engine for engine in (*forbids, *engines.values()) if isinstance(engine, NamingEngine)]),
        row_sources=_rewriting_sources(settings, policies),
        unmovable=_paths_of(("DELETE_ENTITY", "CREATE_ENTITY"), forbids, engines.values()),
        polaris=settings.polaris,
        engine_warehouses=engine_warehouses(settings),
    )
    return _with_reports(settings, bundle, authorities)


def _cedar_warnings(settings: Settings, cedar: Engine | None) -> Iterator[str]:
    if cedar:
        from pdp.engines.cedar.kind import unfed_cedar  # noqa: PLC0415  loaded with the engine

        yield from (notice.message for notice in unfed_cedar(settings, cedar))


def _row_warnings(settings: Settings, policies: RowPolicies, access: RowAccessEngine) -> tuple[str, ...]:
    return (*unprotected_catalogs(settings.trino, access), *map(str, policies.warnings))


def _unstated(
    settings: Settings, forbids: Sequence[CelForbid], cedar: object, access: RowAccessEngine
) -> Iterator[str]:
    """Yield a notice for each caller that names principals without evidence that policies read."""
    read = frozenset[str]().union(*(forbid.forbids_read for forbid in forbids))
    return unstated_notices(settings.identity, read, access.hidden_by() | getattr(cedar, "forbids_read", frozenset()))


def _paths_of(ops: Sequence[str], forbids: Sequence[CelForbid], engines: Iterable[Engine]) -> tuple[ForbiddenPath, ...]:
    """Return the paths that forbids of Nessie's checks may name, of all engines."""
    others = [engine for engine in engines if isinstance(engine, NamingEngine) and engine.forbids]
    found = (*(engine.paths_of(*ops) for engine in forbids), *(engine.forbidden_paths() for engine in others))
    return tuple(path for paths in found for path in paths)


def _chosen_kinds(settings: Settings, kinds: Mapping[str, Callable[[], EngineType]]) -> dict[str, EngineType]:
    """Return the kinds of the engines that authorities name; raise ConfigError for an unknown name."""
    chosen: dict[str, EngineType] = {}
    for name, authority in settings.authorities.items():
        for engine in authority.engines:
            kind = chosen.get(engine) or (kinds[engine]() if engine in kinds else installed_kind(engine))
            if kind is None:
                found = f"no engine `{engine}`, there are {', '.join(kinds)}; {missing_engine(engine)}"
                raise ConfigError(f"`authorities.{name}.engines`: {found}")
            chosen[engine] = kind
    return chosen


def _authorities(settings: Settings, engines: Mapping[str, Engine]) -> dict[str, Authority]:
    return {
        name: Authority(name, tuple(engines[engine] for engine in authority.engines), authority.combine)
        for name, authority in settings.authorities.items()
    }


def _engine_sources(
    kinds: Mapping[str, EngineType], read: Mapping[str, PolicySources], engines: Mapping[str, Engine]
) -> dict[str, object]:
    """Return the sources that engines with policies of their own add to a bundle; empty without such engines."""
    described = {name: kind.describe(read[name], engines[name]) for name, kind in kinds.items()}
    found = {name: policies for name, policies in described.items() if policies}
    return {"engines": found} if found else {}


def read_row_access(settings: Settings) -> RowAccessEngine:
    """Return the row policies and masks of the configured files; raise ConfigError or PolicyError."""
    return _row_access(settings, _read_row_policies(settings, ()))


def _read_row_policies(settings: Settings, documents: Iterable[NamedDocument]) -> RowPolicies:
    files = policy_files(settings, "row_access")
    with files.naming_key():
        read = list(read_documents(files.paths))
        policies = _row_policies(read, list(documents), settings)
        for each in read:
            if each.document.functions:
                _check_functions(each)
    files.require_content({each.name for each in read if each.document.has_entries})
    return policies


def _check_functions(source: NamedDocument) -> None:
    """Raise PolicyError for a declared function with a name of an engine."""
    from pdp.rewrite.catalog import catalog_of  # noqa: PLC0415  its parser of SQL takes 30 MB

    try:
        catalog_of([source.document])
    except InvalidArgument as error:
        raise PolicyError(str(error), source.place(("functions",))) from None


def _row_policies(read: Sequence[NamedDocument], documents: Sequence[NamedDocument], settings: Settings) -> RowPolicies:
    """Return the policies of files, whose names are judged, and of documents: those of an archive decided before."""
    if not read and not documents:
        return RowPolicies({}, (), ())
    from pdp.engines.row_access.validation import compile_policies  # noqa: PLC0415  its parser of SQL takes 30 MB

    return compile_policies(read, known_warehouses(settings), names_of(settings), recorded=documents)


def _rewriting_sources(settings: Settings, policies: RowPolicies) -> RowSources:
    """Return the row policies as the processes get them that rewrite statements."""
    rules = settings.row_access
    containers = map(parse_resource, rules.protected)
    through = {name: known.through_views for name, known in settings.warehouses.items() if known.through_views}
    return RowSources(
        tuple(policies.texts),
        tuple(fold_name(at.warehouse, at.path) for at in containers),
        rules.member.template,
        settings.identity.cel_provider,
        {"": rules.through_views, **through},
        rules.member.claim or "",
        rules.member.service_accounts,
        tuple(name for name, is_on in rules.barrier if not is_on),
    )


def _row_access(settings: Settings, policies: RowPolicies) -> RowAccessEngine:
    rules = settings.row_access
    try:
        for place, text in enumerate(rules.protected):
            if unknown := unknown_warehouse(parse_resource(text).warehouse, known_warehouses(settings)):
                raise settings.error(("row_access", "protected", place), unknown)
        return policies.build_engine(configured_members(settings), rules.protected, names_of(settings))
    except (ValueError, InvalidReference) as error:
        raise settings.error(("row_access", "protected"), str(error)) from None


def _row_sources(settings: Settings, policies: RowPolicies) -> dict[str, object]:
    """Return the sources that row policies add to a bundle; empty without row policies."""
    if not policies.tables and not settings.row_access.protected:
        return {}
    return {"rowAccess": policies.texts, "rowAccessRules": settings.row_access.model_dump()}


def _with_reports(settings: Settings, bundle: ActivePolicies, authorities: Mapping[str, Authority]) -> ActivePolicies:
    """Return the bundle with the authorities in report mode, each with a bundle that decides as it would."""
    reports = tuple(
        ShadowAuthority(replace(bundle, authorities={}, default=authorities[name]), frozenset(authority.warehouses))
        for name, authority in settings.authorities.items()
        if authority.mode == "report"
    )
    return replace(bundle, reports=reports) if reports else bundle


def _default(settings: Settings, authorities: Mapping[str, Authority]) -> Authority:
    if "default" not in authorities:
        raise ConfigError(
            "`authorities.default` is missing: it decides for warehouses without an authority of their own"
        )
    if settings.authorities["default"].mode == "report":
        message = "the default authority answers: name engines to compare in another authority with `mode: report`"
        raise settings.error(("authorities", "default", "mode"), message)
    return authorities["default"]


def _by_warehouse(settings: Settings, authorities: Mapping[str, Authority]) -> dict[str, Authority]:
    owners: dict[str, Authority] = {}
    for name, authority in settings.authorities.items():
        for warehouse in authority.warehouses if authority.mode == "enforce" else ():
            if warehouse in owners:
                raise ConfigError(f"warehouse `{warehouse}` has two authorities: {owners[warehouse].name} and {name}")
            owners[warehouse] = authorities[name]
    return owners


def _sources(settings: Settings, rules: RuleSet, forbid: RuleSet) -> dict[str, object]:
    return {
        "rules": dict(rules.texts),
        "forbid": dict(forbid.texts),
        "celExtensions": settings.policies.cel_extensions,
        "celProvider": settings.identity.cel_provider,
        "authorities": {name: authority.model_dump() for name, authority in settings.authorities.items()},
        "warehouses": {
            name: warehouse.model_dump(exclude={"catalog"}) for name, warehouse in settings.warehouses.items()
        },
        "trino": settings.trino.model_dump(),
        "bootstrapAdmins": sorted(settings.store.bootstrap_admins),
        "roleMaps": _role_maps(settings),
        "instanceAdmins": sorted(settings.identity.instance_admins),
        **_role_sources(settings, rules, forbid),
        **({"polaris": settings.polaris.model_dump()} if settings.polaris.catalogs or settings.polaris.admins else {}),
        **({"engineWarehouses": others} if (others := sorted(engine_warehouses(settings, trino=False))) else {}),
    }


def _role_sources(settings: Settings, rules: RuleSet, forbid: RuleSet) -> dict[str, object]:
    """Return which roles rules see; empty where no rule reads roles."""
    reads = rules.reads_roles or forbid.reads_roles
    return {"celRoles": settings.identity.cel_roles} if reads and not rules.as_sent else {}


def _role_maps(settings: Settings) -> dict[str, dict[str, str]]:
    return {idp: dict(known.role_map) for idp, known in settings.identity.providers.items() if known.role_map}


def _broad_forbids(
    settings: Settings, forbids: Sequence[CelForbid], authorities: Mapping[str, Authority]
) -> Iterator[str]:
    """Yield a warning for each rule that keeps a user without roles from Trino, whatever the user asks."""
    if not settings.trino.catalogs:
        return
    asked = [(f"trino:{name}", name, Resource("server")) for name in ("ExecuteQuery", "ReadSystemInformation")]
    asked.append(("trino:SelectFromColumns", "`system.jdbc`", Resource("system_catalog", "system", ("jdbc", "tables"))))
    for name, catalog in settings.trino.catalogs.items():
        place = Resource("warehouse", catalog.warehouse, ref=catalog.ref)
        asked.append(("use", f"AccessCatalog on `{name}`", place))
    denied: dict[str, list[str]] = {}
    nobody = Principal("user", f"{settings.identity.cel_provider}~")
    context = RequestContext(now=int(time.time()))
    for action, what, place in asked:
        known = settings.warehouses.get(place.warehouse)
        ref = place.ref or (known.default_ref if known else None)
        question = Question(nobody, action, context=context)
        for engine in forbids:
            group = EngineQuestion(question, place.type, place.warehouse, ref)
            # The plain evaluator compiles every rule, so it is asked only where some rule denies.
            if not any(engine.decide(group, (place,), Facts.empty()).effects):
                continue
            for rule in engine.reference_evaluator(group).not_false(place):
                denied.setdefault(rule, []).append(what)
    for rule, places in denied.items():
        yield (
            f"the forbid `{rule}` denies {', '.join(places)} to a user without roles, and so closes Trino: where "
            "that is not meant, begin the rule with a test of `op`, `path` or `warehouse`"
        )
    yield from _broad_cedar_forbids(settings, authorities.get("default"))


def _broad_cedar_forbids(settings: Settings, default: Authority | None) -> Iterator[str]:
    """Yield a warning for each forbid of Cedar that keeps a user without roles from all queries of Trino."""
    engines = default.engines if default else ()
    question = Question(Principal("user", f"{settings.identity.cel_provider}~"), "trino:ExecuteQuery")
    for engine in filter(None, map(beyond, engines)):
        group = EngineQuestion(question, "server", "", None)
        if engine.applies(question.action, "server"):
            for by in filter(None, engine.decide(group, (Resource("server"),), Facts.empty()).by):
                name = by.partition(":")[2]
                yield (
                    f"the forbid `{name}` of Cedar denies ExecuteQuery to a user without roles, and so closes Trino: "
                    "where that is not meant, name actions in its scope"
                )


def _warnings(settings: Settings, rules: RuleSet, forbid: RuleSet) -> tuple[str, ...]:
    warnings = [str(remark) for remark in (*rules.warnings, *forbid.warnings)]
    warnings += [message for _, message in (*idle_names(settings), *overlooked_files(settings))]
    named = {engine for authority in settings.authorities.values() for engine in authority.engines}
    if settings.policies.scopes.permissions and "scopes" not in named:
        warnings.append("`policies.scopes.permissions` decides nothing: no authority names the engine `scopes`")
    if settings.policies.cedar.policies and "cedar" not in named:
        warnings.append("`policies.cedar.policies` decides nothing: no authority names the engine `cedar`")
    if "allow_all" in named:
        warnings.append(WARNING)
    warnings += map(str, unfed_rules(forbid.rules, settings))
    if not rules.rules and "cel" in named:
        warnings.append("no rules are loaded: CEL permits nothing but VIEW_REFERENCE")
    modes = (settings.row_access.through_views, *(known.through_views for known in settings.warehouses.values()))
    if settings.trino.catalogs and {"caller", "both"} & set(modes) and settings.server.workers != 1:
        warnings.append(
            "`through_views`: with several `server.workers`, Trino sees no rows where the user of a query counts, "
            "because one process alone knows the user"
        )
    return tuple(warnings)
