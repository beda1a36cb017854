"""Loads through view chains, and changes of views: bodies to checks with their chains, outcomes to results.

Owns the rule of which chains count: only chains from a trusted engine. `plans` makes the checks of a chain, the
decision service decides.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import structlog
from msgspec import UNSET
from msgspec.structs import replace

from pdp.audit.records.record import DecisionRecord
from pdp.config.settings import Settings
from pdp.config.warehouses import NAMESPACE_SEPARATOR
from pdp.decision.bodies import bound_values, make_acting_role, make_principal, make_resource
from pdp.decision.codec import bound_checks
from pdp.decision.inspection import plain_reason
from pdp.decision.service import BatchResult, Pdp
from pdp.engines.engine import PERMIT
from pdp.errors import InvalidArgument, InvalidReference, ProtectedPropertyModification
from pdp.identity.callers import trusted_engines_of
from pdp.identity.evidence import admit_check, own_principal, refused_batch
from pdp.model.answer import DEFAULT_DENY, Rejection, SchemaColumn
from pdp.model.question import (
    Batch,
    Caller,
    ChainView,
    Check,
    Load,
    Question,
    Resource,
    TokenIdentity,
    TrustedEngine,
    ViewCommit,
)
from pdp.model.references import format_resource
from pdp.model.vocabulary import LOADS, VIEW_CHANGES
from pdp.views.chains import Path, check_chain_length, check_namespace_depth, parse_chain, protected_keys, resolve_owner
from pdp.views.codec import ChangeBody, LoadBody, LoadResult, LoadStep, TokenBody, ViewBody, columns_of
from pdp.views.plans import NO_SUCH_VIEW, READS, WRITES


def load_result(result: BatchResult, load: Load) -> LoadResult:
    """Return the result of a decided batch of one check."""
    answer = result.answer
    steps = tuple(_steps(result.record))
    decision = answer.decision(0)
    missing = next((step.resource for step in steps if step.by == (NO_SUCH_VIEW,)), None)
    if missing:
        rejected = Rejection("NoSuchView", f"`{missing}` in `referencedBy` does not exist")
        decision = replace(decision, error=rejected)
    storage = _storage(steps, load) if decision.allowed else "none"
    given = next((check.restrictions for check in result.record.checks), None)
    visible = steps if result.visible is None or result.visible[0] else tuple(_own_steps(steps))
    if grants := result.grants:
        visible = tuple(replace(step, by=tuple(map(grants.reason, step.by))) for step in visible)
    text = given.text if given else ""
    return LoadResult(decision, visible, answer.revision, answer.id, storage, load, text)


def _own_steps(steps: Sequence[LoadStep]) -> Iterator[LoadStep]:
    """Yield the steps for a caller without access to grants: the steps before the first owner, without reasons.

    Such a caller could check each of these steps alone.
    """
    for step in steps:
        if not step.delegated:
            yield replace(step, by=(plain_reason(step.by[0], step.allowed),))


def _steps(record: DecisionRecord) -> Iterator[LoadStep]:
    """Yield one step per concrete check, in the order of the plan."""
    last, name = None, ""
    for check in record.checks:
        for leaf in check.concrete:
            group, verdicts = leaf.group, leaf.verdicts
            if leaf.resources[0] is not last:
                last = leaf.resources[0]
                name = format_resource(last, group.ref, group.type)
            by = (verdicts.by[0] or DEFAULT_DENY,)
            allowed = verdicts.effects[0] == PERMIT
            yield LoadStep(name, group.principal.id, group.delegated, group.action, allowed, by)


def _storage(steps: Sequence[LoadStep], load: Load) -> str:
    """Return the storage access of a permitted load: credentials to write also read, so they take both rights.

    An owner's right to write counts only where the load says so. Other checks of the same right are for forbids alone:
    each permits unless a forbid binds, so all must permit.
    """
    counted = [step for step in steps if step.action != WRITES or not step.delegated or load.owner_writes]
    permitted = {step.action for step in counted} - {step.action for step in counted if not step.allowed}
    if READS not in permitted:
        return "none"
    return "read_write" if WRITES in permitted else "read"


NO_ENGINE: Final = "no trusted engine"
_IDP: Final = re.compile(r"[a-z0-9-]+")
_NO_CHAIN: Final = Load()
Properties = Mapping[str, Any]
log = structlog.get_logger()


class ViewCatalog(Protocol):
    """Source of view properties in addition to the request."""

    async def properties(self, view: Resource) -> Properties | None:
        """Return a view's properties; None for a missing view. Raise Unavailable if the catalog cannot answer."""
        ...


class ViewSecurity:
    """Decisions on loads and on changes of views. `catalogs` are by warehouse."""

    def __init__(self, pdp: Pdp, settings: Settings, catalogs: Mapping[str, ViewCatalog] | None = None) -> None:
        self._pdp = pdp
        self._limits = settings.limits
        self._rules = settings.trusted_engines
        self._catalogs = catalogs or {}
        self._warehouses = settings.warehouses
        providers = settings.identity.providers.items()
        self._users = {idp: frozenset(provider.users) for idp, provider in providers if provider.users}

    async def load(self, body: LoadBody, caller: Caller, surface: str, *, explain: bool = False) -> LoadResult:
        """Decide on a load through a chain.

        Raise InvalidArgument or a subclass for an invalid body, an exceeded limit or an unclear owner. Raise
        Unavailable if a catalog, the audit or the service cannot answer.
        """
        entries = check_chain_length(body.referenced_by, self._limits.referenced_by_depth)
        check = _load_check(body, caller)
        target = check.resources[0]
        check_namespace_depth([target.path], self._limits.namespace_depth)
        engines = self._engines(body.caller, caller)
        supplied = self._supplied_properties(body.views, target)
        columns = _columns(body, target)
        admitted = _admit(check, caller, body.caller, properties=bool(body.views or columns))
        if isinstance(admitted, Rejection):
            return await self._reject(surface, caller, admitted, check)
        load = await self._chain(body, engines, target, supplied) if entries else _NO_CHAIN
        if engines and all(engine.enforces_row_access for engine in engines):
            load = replace(load, enforced=True)
        if engines and all(engine.owner_writes for engine in engines):
            load = replace(load, owner_writes=True)
        if engines and all(engine.applies_read_restrictions for engine in engines):
            load = replace(load, columns=columns)
        batch = Batch(surface, caller, 1, (admitted.asking(view_security=load),), explain=explain)
        return load_result(await self._pdp.decide(batch), load)

    async def change(self, body: ChangeBody, caller: Caller, surface: str) -> LoadResult:
        """Decide on a change of a view; raise as `load` does.

        Raise ProtectedPropertyModification for a change of an owner property, after the denial is recorded.
        """
        check = _change_check(body, caller)
        check_namespace_depth([check.resources[0].path], self._limits.namespace_depth)
        engines = self._engines(body.caller, caller)
        admitted = _admit(check, caller, body.caller)
        if isinstance(admitted, Rejection):
            return await self._reject(surface, caller, admitted, check)
        owner_properties = [rule.owner_property for rule in self._rules.values()]
        bound_values(body.set, "set")
        touched = protected_keys([*body.set, *body.remove], owner_properties, engines)
        check = admitted.asking(view_security=ViewCommit(touched))
        result = await self._pdp.decide(Batch(surface, caller, 1, (check,)))
        if touched and not result.answer.rejected:
            keys = ", ".join(f"`{key}`" for key in touched)
            error = ProtectedPropertyModification(
                f"{keys}: only the trusted engine that a view's owner belongs to sets it"
            )
            error.record_id = result.answer.id
            raise error
        return load_result(result, _NO_CHAIN)

    async def _reject(self, surface: str, caller: Caller, rejected: Rejection, check: Check) -> LoadResult:
        """Record and return the denial of a request with evidence beyond the caller's rights."""
        batch = refused_batch(surface, caller, (check,), rejected)
        return load_result(await self._pdp.decide(batch), _NO_CHAIN)

    async def _chain(
        self, body: LoadBody, engines: Sequence[TrustedEngine], target: Resource, supplied: Mapping[Path, Properties]
    ) -> Load:
        """Return the chain of a load; an ignored chain if no trusted engine sent the chain or an entry is malformed."""
        entries = check_chain_length(body.referenced_by, self._limits.referenced_by_depth)
        if not engines:
            return _ignored(NO_ENGINE, entries)
        try:
            paths = parse_chain(body.referenced_by, self._separator(target.warehouse))
        except InvalidReference as error:
            return _ignored(f"malformed: {error}", entries)
        check_namespace_depth(paths, self._limits.namespace_depth)
        known = await self._properties(paths, target, supplied)
        if any(known[path] is None for path in paths):
            # no owner is resolved: the load is denied for the missing view, whatever the other views' properties
            return Load(tuple(ChainView(path, exists=known[path] is not None) for path in paths), entries)
        return Load(tuple(resolve_owner(path, known[path] or {}, engines, self._users) for path in paths), entries)

    def _separator(self, warehouse: str) -> str:
        """Return what stands between the parts of a namespace."""
        rule = self._warehouses.get(warehouse)
        return rule.namespace_separator if rule else NAMESPACE_SEPARATOR

    async def _properties(
        self, paths: Sequence[Path], target: Resource, supplied: Mapping[Path, Properties]
    ) -> dict[Path, Properties | None]:
        """Return the properties of views: supplied ones first, then the catalog's. None for a missing view.

        The catalog serves the warehouse's default ref only.
        """
        known: dict[Path, Properties | None] = {path: supplied.get(path) for path in paths}
        served = Resource("warehouse", target.warehouse)
        catalog = self._catalogs.get(target.warehouse) if self._place(target) == self._place(served) else None
        missing = [path for path, properties in known.items() if properties is None]
        if catalog and missing:
            views = [Resource("view", target.warehouse, path, target.ref) for path in missing]
            loaded = await asyncio.gather(*map(catalog.properties, views))
            known.update(zip(missing, loaded, strict=True))
        return known

    def _supplied_properties(self, views: Collection[ViewBody], target: Resource) -> dict[Path, Properties]:
        """Return the properties in a body of views in the target's warehouse and ref; raise TooManyChecks."""
        bound_checks(len(views), self._limits.max_checks)
        place = self._place(target)
        supplied: dict[Path, Properties] = {}
        for body in views:
            view = make_resource(body.resource)
            bound_values(body.properties, "properties")
            if view.type != "view":
                raise InvalidArgument(f"`{format_resource(view)}` in `views` is no view")
            if self._place(view) != place:
                continue
            if supplied.setdefault(view.path, body.properties) != body.properties:
                raise InvalidArgument(f"`{format_resource(view)}` stands in `views` twice, with other properties")
        return supplied

    def _place(self, resource: Resource) -> tuple[str, str | None]:
        """Return the warehouse and the ref of a resource."""
        return resource.warehouse, resource.ref or self._pdp.bundle.default_ref(resource.warehouse)

    def _engines(self, token: TokenBody | None, caller: Caller) -> tuple[TrustedEngine, ...]:
        """Return the trusted engines of a request, by the token in the body or else by the caller's own token."""
        if token is None:
            return caller.engines
        if not _IDP.fullmatch(token.idp):
            raise InvalidArgument(f"`caller.idp` is no provider's id: `{token.idp}`")
        return trusted_engines_of(TokenIdentity(token.idp, token.subject, token.audiences), self._rules)


def _ignored(cause: str, entries: int) -> Load:
    log.debug("referenced-by is ignored", cause=cause, entries=entries)
    return Load(entries=entries, ignored=cause)


def _load_check(body: LoadBody, caller: Caller) -> Check:
    target = make_resource(body.target)
    types = LOADS.get(body.action)
    if types is None:
        raise InvalidArgument(f"`action` is none of {', '.join(LOADS)}: `{body.action}`")
    if target.type not in types:
        raise InvalidArgument(f"{body.action} takes a {' or '.join(sorted(types))}, not a {target.type}")
    return _check(body.action, body, caller, target)


def _columns(body: LoadBody, target: Resource) -> tuple[SchemaColumn, ...]:
    """Return the columns of the loaded table, none without its metadata; raise InvalidArgument."""
    if body.metadata is None:
        return ()
    if target.type != "table":
        raise InvalidArgument(f"`metadata` is of a table, not of a {target.type}")
    return columns_of(body.metadata)


def _change_check(body: ChangeBody, caller: Caller) -> Check:
    view = make_resource(body.view)
    if body.operation not in VIEW_CHANGES:
        raise InvalidArgument(f"`operation` is none of {', '.join(VIEW_CHANGES)}: `{body.operation}`")
    if view.type != "view":
        raise InvalidArgument(f"`view` is a {view.type}")
    return _check(VIEW_CHANGES[body.operation][0], body, caller, view)


def _check(action: str, body: LoadBody | ChangeBody, caller: Caller, resource: Resource) -> Check:
    principal = own_principal(caller) if body.principal is UNSET else make_principal(body.principal)
    return Check(Question(principal, action, acting_role=make_acting_role(body.acting_role)), (resource,), (0,))


def _admit(check: Check, caller: Caller, token: TokenBody | None, *, properties: bool = False) -> Check | Rejection:
    """Return the check that the caller may ask, or the rejection."""
    evidence = {"callers": token is not None, "properties": properties or bool(check.resources[0].properties)}
    return admit_check(check, caller, frozenset(kind for kind, given in evidence.items() if given))
