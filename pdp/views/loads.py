"""Loads through view chains and changes of views: which engine's word counts, whose views these are, what came of it.

Owns the way from a body to a check with its chain, and from the decided check to steps and storage access. What a
chain comes to is planned in `views`, decided where every check is.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import structlog
from msgspec import UNSET

from pdp.audit.record import DecisionRecord
from pdp.config.settings import Settings
from pdp.decision.codec import bound_checks, make_acting_role, make_principal, make_resource
from pdp.decision.inspection import plain_reason
from pdp.decision.service import BatchResult, Pdp
from pdp.engines.engine import PERMIT
from pdp.errors import InvalidArgument, InvalidReference, ProtectedPropertyModification
from pdp.identity.evidence import admit_check, own_principal
from pdp.identity.trust import trusted_engines_of
from pdp.model.checks import (
    DEFAULT_DENY,
    Batch,
    Caller,
    ChainView,
    Check,
    Load,
    Rejected,
    Resource,
    TokenIdentity,
    TrustedEngine,
    ViewCommit,
)
from pdp.model.references import format_resource
from pdp.model.vocabulary import LOADS, VIEW_CHANGES
from pdp.views.chains import (
    NO_SUCH_VIEW,
    READS,
    WRITES,
    Path,
    bound_entries,
    bound_namespaces,
    owned,
    parse_chain,
    protected_keys,
)
from pdp.views.codec import ChangeBody, LoadBody, LoadResult, LoadStep, TokenBody, ViewBody

NO_ENGINE: Final = "no trusted engine"
_IDP: Final = re.compile(r"[a-z0-9-]+")
_NO_LOAD: Final = Load()
Properties = Mapping[str, Any]
log = structlog.get_logger()


class ViewCatalog(Protocol):
    """Where the properties of views come from that a request does not bring."""

    async def properties(self, view: Resource) -> Properties | None:
        """A view's properties; None where it is not there. Raises Unavailable where nobody can tell."""
        ...


class ViewSecurity:
    """Decides loads and changes of views. `catalogs` are by warehouse."""

    def __init__(self, pdp: Pdp, settings: Settings, catalogs: Mapping[str, ViewCatalog] | None = None) -> None:
        self._pdp = pdp
        self._limits = settings.limits
        self._rules = settings.trusted_engines
        self._catalogs = catalogs or {}

    async def load(self, body: LoadBody, caller: Caller, surface: str, *, explain: bool = False) -> LoadResult:
        """Decide a load through its chain.

        Raises InvalidArgument in one of its kinds for what is no load, is beyond a limit or names no one owner;
        Unavailable where a catalog, the audit or the service cannot answer.
        """
        entries = bound_entries(body.referenced_by, self._limits.referenced_by_depth)
        check = _load_check(body, caller)
        bound_namespaces([check.resources[0].path], self._limits.namespace_depth)
        engines = self._engines(body.caller, caller)
        given = self._given(body.views, check.resources[0])
        admitted = _admit(check, caller, body.caller, properties=bool(body.views))
        if isinstance(admitted, Rejected):
            return await self._refused(surface, caller, admitted)
        load = await self._chain(body, engines, check.resources[0], given) if entries else _NO_LOAD
        if engines and all(engine.enforces_row_access for engine in engines):
            load = msgspec.structs.replace(load, enforced=True)
        check = msgspec.structs.replace(admitted, view_security=load)
        return _loaded(await self._pdp.decide(Batch(surface, caller, 1, (check,), explain=explain)), load)

    async def change(self, body: ChangeBody, caller: Caller, surface: str) -> LoadResult:
        """Decide a change of a view; raises as `load` does, and ProtectedPropertyModification once that is recorded."""
        check = _change_check(body, caller)
        bound_namespaces([check.resources[0].path], self._limits.namespace_depth)
        engines = self._engines(body.caller, caller)
        admitted = _admit(check, caller, body.caller)
        if isinstance(admitted, Rejected):
            return await self._refused(surface, caller, admitted)
        owners = [rule.owner_property for rule in self._rules.values()]
        touched = protected_keys([*body.set, *body.remove], owners, engines)
        check = msgspec.structs.replace(admitted, view_security=ViewCommit(touched))
        shown = await self._pdp.decide(Batch(surface, caller, 1, (check,)))
        if touched and not shown.answer.rejected:
            keys = ", ".join(f"`{key}`" for key in touched)
            raise ProtectedPropertyModification(
                f"{keys}: only the trusted engine that a view's owner belongs to sets it"
            )
        return _loaded(shown)

    async def _refused(self, surface: str, caller: Caller, rejected: Rejected) -> LoadResult:
        """What rests on evidence that does not count: recorded like everything, and decided by nothing else."""
        return _loaded(await self._pdp.decide(Batch(surface, caller, 1, (), {0: rejected})))

    async def _chain(
        self, body: LoadBody, engines: Sequence[TrustedEngine], target: Resource, given: Mapping[Path, Properties]
    ) -> Load:
        """The chain of a load: from a trusted engine, and parsing, or none at all."""
        entries = bound_entries(body.referenced_by, self._limits.referenced_by_depth)
        if not engines:
            return _ignored(NO_ENGINE, entries)
        try:
            paths = parse_chain(body.referenced_by)
        except InvalidReference as error:
            return _ignored(f"malformed: {error}", entries)
        bound_namespaces(paths, self._limits.namespace_depth)
        known = await self._properties(paths, target, given)
        if any(known[path] is None for path in paths):
            return Load(tuple(ChainView(path, found=known[path] is not None) for path in paths), entries)
        return Load(tuple(owned(path, known[path] or {}, engines) for path in paths), entries)

    async def _properties(
        self, paths: Sequence[Path], target: Resource, given: Mapping[Path, Properties]
    ) -> dict[Path, Properties | None]:
        """The properties of views: as supplied, or as the catalog has them on the ref that it serves."""
        known: dict[Path, Properties | None] = {path: given.get(path) for path in paths}
        served = Resource("warehouse", target.warehouse)
        catalog = self._catalogs.get(target.warehouse) if self._place(target) == self._place(served) else None
        missing = [path for path, properties in known.items() if properties is None]
        if catalog and missing:
            views = [Resource("view", target.warehouse, path, target.ref) for path in missing]
            found = await asyncio.gather(*map(catalog.properties, views))
            known.update(zip(missing, found, strict=True))
        return known

    def _given(self, views: Collection[ViewBody], target: Resource) -> dict[Path, Properties]:
        """The supplied properties of views that live where the target does; TooManyChecks for a flood of them."""
        bound_checks(len(views), self._limits.max_checks)
        place = self._place(target)
        found: dict[Path, Properties] = {}
        for body in views:
            view = make_resource(body.resource)
            if view.type != "view":
                raise InvalidArgument(f"`{format_resource(view)}` in `views` is no view")
            if self._place(view) != place:
                continue
            if found.setdefault(view.path, body.properties) != body.properties:
                raise InvalidArgument(f"`{format_resource(view)}` stands in `views` twice, with other properties")
        return found

    def _place(self, resource: Resource) -> tuple[str, str | None]:
        return resource.warehouse, resource.ref or self._pdp.bundle.default_ref(resource.warehouse)

    def _engines(self, token: TokenBody | None, caller: Caller) -> tuple[TrustedEngine, ...]:
        """The engines that the request comes from, by the token that the body tells of or by the caller's own."""
        if token is None:
            return caller.engines
        if not _IDP.fullmatch(token.idp):
            raise InvalidArgument(f"`caller.idp` is no provider's id: `{token.idp}`")
        return trusted_engines_of(TokenIdentity(token.idp, token.subject, token.audiences), self._rules)


def _ignored(why: str, entries: int) -> Load:
    log.debug("referenced-by is ignored", why=why, entries=entries)
    return Load(entries=entries, ignored=why)


def _load_check(body: LoadBody, caller: Caller) -> Check:
    target = make_resource(body.target)
    types = LOADS.get(body.action)
    if types is None:
        raise InvalidArgument(f"`action` is none of {', '.join(LOADS)}: `{body.action}`")
    if target.type not in types:
        raise InvalidArgument(f"{body.action} takes a {' or '.join(sorted(types))}, not a {target.type}")
    return _check(body.action, body, caller, target)


def _change_check(body: ChangeBody, caller: Caller) -> Check:
    view = make_resource(body.view)
    if body.operation not in VIEW_CHANGES:
        raise InvalidArgument(f"`operation` is none of {', '.join(VIEW_CHANGES)}: `{body.operation}`")
    if view.type != "view":
        raise InvalidArgument(f"`view` is a {view.type}")
    return _check(VIEW_CHANGES[body.operation][0], body, caller, view)


def _check(action: str, body: LoadBody | ChangeBody, caller: Caller, resource: Resource) -> Check:
    principal = own_principal(caller) if body.principal is UNSET else make_principal(body.principal)
    return Check(principal, action, (resource,), (0,), acting_role=make_acting_role(body.acting_role))


def _admit(check: Check, caller: Caller, token: TokenBody | None, *, properties: bool = False) -> Check | Rejected:
    """Return the check that the caller may ask, or the rejection."""
    evidence = {"callers": token is not None, "properties": properties or bool(check.resources[0].properties)}
    return admit_check(check, caller, frozenset(kind for kind, given in evidence.items() if given))


def _loaded(shown: BatchResult, load: Load = _NO_LOAD) -> LoadResult:
    answer = shown.answer
    steps = tuple(_steps(shown.decided))
    decision = answer.decision(0)
    missing = next((step.resource for step in steps if step.by == (NO_SUCH_VIEW,)), None)
    if missing:
        rejected = Rejected("NoSuchView", f"`{missing}` in `referencedBy` is not there")
        decision = msgspec.structs.replace(decision, error=rejected)
    storage = _storage(steps) if decision.allowed else "none"
    seen = steps if shown.visible is None or shown.visible[0] else tuple(_own_steps(steps))
    return LoadResult(decision, seen, answer.revision, answer.id, storage, load)


def _own_steps(steps: Sequence[LoadStep]) -> Iterator[LoadStep]:
    """What a caller may see who may not read the grants: its own part, which it could ask for by itself, no reasons."""
    for step in steps:
        if not step.delegated:
            yield msgspec.structs.replace(step, by=(plain_reason(step.by[0], step.allowed),))


def _steps(decided: DecisionRecord) -> Iterator[LoadStep]:
    """One row per concrete check, in the order of the plan."""
    last, name = None, ""
    for asked in decided.checks:
        for asking in asked.concrete:
            group, verdicts = asking.group, asking.verdicts
            if asking.resources[0] is not last:
                last = asking.resources[0]
                name = format_resource(last, group.ref, group.type)
            by = (verdicts.by[0] or DEFAULT_DENY,)
            allowed = verdicts.effects[0] == PERMIT
            yield LoadStep(name, group.principal.id, group.delegated, group.action, allowed, by)


def _storage(steps: Sequence[LoadStep]) -> str:
    """What a permitted load hands out: whoever may write may read."""
    permitted = {step.action for step in steps if step.allowed}
    return "read_write" if WRITES in permitted else "read" if READS in permitted else "none"
