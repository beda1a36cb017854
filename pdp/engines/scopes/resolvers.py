"""Resolvers of other packages in place of LakeQL's decision tables: sync or async functions that return a boolean."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import structlog

from pdp.engines.engine import ABSTAIN, FAILED, PERMIT, Cost, Group, Source, Verdicts
from pdp.engines.scopes.engine import NAME, ScopesEngine
from pdp.engines.scopes.permissions import Scope
from pdp.engines.scopes.questions import QUESTIONS, ScopeUser, Target, target_of, user_of
from pdp.facts.snapshot import Facts
from pdp.model.checks import Reason, Resource

RESOLVERS: Final = "pdp.scopes"
"""Group of the entry points of resolvers."""
Resolver: TypeAlias = Callable[[Mapping[str, Any] | None, str, str | None, str | None], bool | Awaitable[bool]]
"""Function of the user (None without one), the catalog, the schema and the table name."""
_Verdict: TypeAlias = tuple[int, Reason | None, str]
_UNKNOWN: Final[frozenset[Source]] = frozenset()
_LONGEST_CAUSE: Final = 200
log = structlog.get_logger()


class ResolvingScopes:
    """Async engine of scopes with resolvers. A scope without a resolver has LakeQL's table."""

    def __init__(self, engine: ScopesEngine, resolvers: Mapping[Scope, tuple[str, Resolver]]) -> None:
        """Take the engine of the tables, and for each scope the name and the function of a resolver."""
        self._engine = engine
        self._resolvers = resolvers

    @property
    def name(self) -> str:
        """Return the name of the engine in `by` and `engines`."""
        return NAME

    @property
    def digest(self) -> str:
        """Return the digest of the permissions."""
        return self._engine.digest

    @property
    def reads(self) -> frozenset[Source]:
        """Return no source: nobody knows what a resolver reads, so nothing is cached."""
        return _UNKNOWN

    @property
    def cost(self) -> Cost:
        """Return the cost of a verdict: a resolver may ask another service."""
        return Cost.MILLISECONDS

    def applies(self, action: str, type: str) -> bool:
        """Tell whether a scope stands for the action on the type."""
        return self._engine.applies(action, type)

    async def decide(self, group: Group, resources: Sequence[Resource], facts: Facts, deadline: float) -> Verdicts:
        """Return the verdicts. Equal targets are resolved once."""
        found = self._resolvers.get(QUESTIONS[group.action, group.type])
        if found is None:
            return self._engine.decide(group, resources, facts)
        user = user_of(group.principal, self._engine.provider)
        known: dict[Target, _Verdict] = {}
        rows: list[_Verdict] = []
        for resource in resources:
            target = target_of(group, resource)
            if target not in known:
                known[target] = await _resolve(*found, current_user(user, group.principal.attributes), target)
            rows.append(known[target])
        errors = {row: (error,) for row, (_, _, error) in enumerate(rows) if error}
        return Verdicts(bytes([effect for effect, _, _ in rows]), [by for _, by, _ in rows], errors)


def current_user(user: ScopeUser, attributes: str) -> Mapping[str, Any] | None:
    """Return the user as LakeQL knows it: the claims, and `userName` if there is one."""
    if not user.known:
        return None
    named = {} if user.name is None else {"userName": user.name}
    return {**json.loads(attributes), **named}


async def _resolve(name: str, resolver: Resolver, user: Mapping[str, Any] | None, target: Target) -> _Verdict:
    """Return the verdict of a resolver: failed with the cause if it raises or returns anything but a boolean."""
    try:
        answer: object = resolver(user, *target)
        if inspect.isawaitable(answer):
            answer = await answer
    except TimeoutError:
        raise
    except Exception as error:
        log.exception("resolver failed, denied", resolver=name)
        return _failed(name, f"{type(error).__name__}: {error}")
    if answer is True:
        return PERMIT, f"{NAME}:{name}", ""
    if answer is False:
        return ABSTAIN, None, ""
    return _failed(name, f"returned {type(answer).__name__}, not a boolean")


def _failed(name: str, cause: str) -> _Verdict:
    text = " ".join(cause.split())[:_LONGEST_CAUSE]
    return FAILED, f"{NAME}:{name}: {text}", name
