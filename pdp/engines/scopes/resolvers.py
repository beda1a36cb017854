"""Resolvers of other packages in place of LakeQL's decision tables: sync or async functions that return a boolean."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import structlog

from pdp.engines.engine import ABSTAIN, FAILED, PERMIT, Cost, Group, Source, Verdicts
from pdp.engines.scopes.calls import Failure, Resolver, ResolverCalls
from pdp.engines.scopes.engine import NAME, ScopesEngine
from pdp.engines.scopes.permissions import Scope
from pdp.engines.scopes.questions import QUESTIONS, ScopeUser, target_of, user_of
from pdp.facts.snapshot import Facts
from pdp.model.question import Reason, Resource

RESOLVERS: Final = "pdp.scopes"
"""Group of the entry points of resolvers."""
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
        self._calls = ResolverCalls()

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
        """Return the verdicts. Equal targets are resolved once; raise TimeoutError at the deadline."""
        found = self._resolvers.get(QUESTIONS[group.action, group.type])
        if found is None:
            return self._engine.decide(group, resources, facts)
        name, resolver = found
        user = user_of(group.principal, self._engine.provider)
        asked = [target_of(group, resource) for resource in resources]
        targets = list(dict.fromkeys(asked))
        make_user = partial(current_user, user, group.principal.attributes)
        answers = await self._calls.answers(resolver, make_user, targets, deadline)
        known = dict(zip(targets, [_verdict(name, answer) for answer in answers], strict=True))
        rows = [known[target] for target in asked]
        errors = {row: (error,) for row, (_, _, error) in enumerate(rows) if error}
        return Verdicts(bytes([effect for effect, _, _ in rows]), [by for _, by, _ in rows], errors)


def current_user(user: ScopeUser, attributes: str) -> Mapping[str, Any] | None:
    """Return the user as LakeQL knows it: the claims, and `userName` if there is one."""
    if not user.known:
        return None
    named = {} if user.name is None else {"userName": user.name}
    return {**json.loads(attributes), **named}


def _verdict(name: str, answer: object) -> _Verdict:
    """Return the verdict of an answer: failed with the cause for an exception, and for anything but a boolean."""
    if isinstance(answer, Failure):
        error = answer.error
        log.error("resolver failed, denied", resolver=name, exc_info=error)
        return _failed(name, f"{type(error).__name__}: {error}")
    if answer is True:
        return PERMIT, f"{NAME}:{name}", ""
    if answer is False:
        return ABSTAIN, None, ""
    return _failed(name, f"returned {type(answer).__name__}, not a boolean")


def _failed(name: str, cause: str) -> _Verdict:
    text = " ".join(cause.split())[:_LONGEST_CAUSE]
    return FAILED, f"{NAME}:{name}: {text}", name
