"""Scopes engine from settings: permission files to policies of a bundle, and policies to the engine.

Resolvers of other packages stand in place of LakeQL's decision tables: sync or async functions that return a boolean.
Calls are bounded in time and number. Async functions run beside each other on the event loop, all others in threads, so
no resolver holds up the event loop. A thread that does not end keeps its slot, so calls of a resolver that hangs are
late, and denied, but take no more threads.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import structlog

from pdp.config.policy_files import FileKey, policy_files
from pdp.config.references import name_check
from pdp.config.settings import Settings
from pdp.engines.custom import find_entry, load_entry, loaded_package, missing_entry, require_recorded
from pdp.engines.engine import ABSTAIN, FAILED, PERMIT, Cost, Dependency, Engine, EngineQuestion, Verdicts
from pdp.engines.engine_types import PolicySources
from pdp.engines.guarded import AwaitedEngine
from pdp.engines.scopes.engine import NAME, ScopesEngine
from pdp.engines.scopes.explain import load_entries
from pdp.engines.scopes.permissions import (
    QUESTIONS,
    READ,
    Scope,
    ScopeUser,
    Target,
    parse_entries,
    target_of,
    user_of,
)
from pdp.errors import ConfigError
from pdp.facts.snapshot import Facts
from pdp.model.answer import Reason
from pdp.model.question import Resource
from pdp.model.redaction import DEFAULT_MASKER, Redactor, without_text

KEY: Final[FileKey] = "scopes.permissions"
T = TypeVar("T")
MOST_AWAITED: Final = 64
MOST_THREADS: Final = 8
"""Calls of one engine that run at the same time: awaited ones, and threads."""
Resolver: TypeAlias = Callable[[Mapping[str, Any] | None, str, str | None, str | None], bool | Awaitable[bool]]
"""Function of the user (None without one), the catalog, the schema and the table name."""
MakeUser: TypeAlias = Callable[[], Mapping[str, Any] | None]
"""Function that makes the user for one call: a resolver may change the mapping."""
RESOLVERS: Final = "pdp.scopes"
"""Group of the entry points of resolvers."""
_Verdict: TypeAlias = tuple[int, Reason | None, str]
_UNKNOWN: Final[frozenset[Dependency]] = frozenset()
_LONGEST_CAUSE: Final = 200
log = structlog.get_logger()


class ResolvingScopes:
    """Async engine of scopes with resolvers. A scope without a resolver has LakeQL's table."""

    forbids = True
    """A resolver that raises fails, which denies."""
    counts_stored_roles = False
    """A resolver gets the user alone."""

    def __init__(
        self,
        engine: ScopesEngine,
        resolvers: Mapping[Scope, tuple[str, Resolver]],
        masker: Redactor = DEFAULT_MASKER,
    ) -> None:
        """Take the engine of the tables, and for each scope the name and the function of a resolver."""
        self._masker = masker
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
    def reads(self) -> frozenset[Dependency]:
        """Return no source: nobody knows what a resolver reads, so nothing is cached."""
        return _UNKNOWN

    @property
    def cost(self) -> Cost:
        """Return the cost of a verdict: a resolver may ask another service."""
        return Cost.MILLISECONDS

    def applies(self, action: str, type: str) -> bool:
        """Tell whether a scope stands for the action on the type."""
        return self._engine.applies(action, type)

    async def decide(
        self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts, deadline: float
    ) -> Verdicts:
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
        attributes = group.principal.attributes
        verdicts = [self._failure(name, answer, attributes) or _verdict(name, answer) for answer in answers]
        known = dict(zip(targets, verdicts, strict=True))
        rows = [known[target] for target in asked]
        errors = {row: (error,) for row, (_, _, error) in enumerate(rows) if error}
        return Verdicts(bytes([effect for effect, _, _ in rows]), [by for _, by, _ in rows], errors)

    def _failure(self, name: str, answer: object, attributes: str) -> _Verdict | None:
        """Return the verdict of a resolver that raised. Its text may quote any claim, so no claim may be a secret."""
        if not isinstance(answer, Failure):
            return None
        claims = json.loads(attributes)
        has_secrets = self._masker.masked(claims) is not claims
        cause = type(answer.error).__name__
        if not has_secrets:
            cause = f"{cause}: {answer.error}"
        log.error("resolver failed, denied", resolver=name, cause=cause, exc_info=without_text(answer.error))
        return _failed(name, cause)


def current_user(user: ScopeUser, attributes: str) -> Mapping[str, Any] | None:
    """Return the user as LakeQL knows it: the claims, and `userName` if there is one."""
    if not user.known:
        return None
    named = {} if user.name is None else {"userName": user.name}
    return {**json.loads(attributes), **named}


def _verdict(name: str, answer: object) -> _Verdict:
    """Return the verdict of an answer: failed with the cause for anything but a boolean."""
    if answer is True:
        return PERMIT, f"{NAME}:{name}", ""
    if answer is False:
        return ABSTAIN, None, ""
    return _failed(name, f"returned {type(answer).__name__}, not a boolean")


def _failed(name: str, cause: str) -> _Verdict:
    text = " ".join(cause.split())[:_LONGEST_CAUSE]
    return FAILED, f"{NAME}:{name}: {text}", name


class Failure(NamedTuple):
    """Exception in place of the answer of a resolver."""

    error: Exception


class _Slots(NamedTuple):
    awaited: asyncio.Semaphore
    threads: asyncio.Semaphore


class _Questions(NamedTuple):
    """Questions of one thread, with an end on the monotonic clock, and the answers so far."""

    resolver: Resolver
    user: MakeUser
    targets: Sequence[Target]
    until: float
    answers: list[object]

    def ask(self) -> None:
        """Ask about the targets, one after the other; raise TimeoutError at the end of the time."""
        for target in self.targets:
            if time.monotonic() > self.until:
                raise TimeoutError
            try:
                self.answers.append(self.resolver(self.user(), *target))
            except TimeoutError:
                raise
            except Exception as error:  # noqa: BLE001  denied by the engine, with the cause
                self.answers.append(Failure(error))


class ResolverCalls:
    """Calls of the resolvers of one engine."""

    def __init__(self) -> None:
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, _Slots] = WeakKeyDictionary()

    async def answers(
        self, resolver: Resolver, user: MakeUser, targets: Sequence[Target], deadline: float
    ) -> list[object]:
        """Return the answers about targets in order, and a `Failure` for each exception.

        Raise TimeoutError if a resolver raises one, or at the deadline, which is on the clock of the event loop.
        """
        if _is_async(resolver):
            return await _all(self._awaited(lambda at=target: resolver(user(), *at)) for target in targets)
        until = time.monotonic() + deadline - asyncio.get_running_loop().time()
        count = min(MOST_THREADS, len(targets))
        parts = [_Questions(resolver, user, targets[start::count], until, []) for start in range(count)]
        try:
            await _all(map(self._in_thread, parts))
            answers = [parts[at % count].answers[at // count] for at in range(len(targets))]
            return await _all(map(self._finished, answers))
        finally:
            for part in parts:
                _close(part.answers)

    async def _finished(self, answer: object) -> object:
        return await self._awaited(lambda: answer) if inspect.isawaitable(answer) else answer

    async def _awaited(self, call: Callable[..., Any]) -> object:
        async with self._slots_here().awaited:
            try:
                return await call()
            except TimeoutError:
                raise
            except Exception as error:  # noqa: BLE001  denied by the engine, with the cause
                return Failure(error)

    async def _in_thread(self, questions: _Questions) -> None:
        """Wait for the answers of a thread, which keeps a slot until its end, even if nobody waits any longer."""
        slots, loop = self._slots_here(), asyncio.get_running_loop()
        await slots.threads.acquire()
        done: asyncio.Future[None] = loop.create_future()

        def settle(error: Exception | None) -> None:
            slots.threads.release()
            if done.done():
                _close(questions.answers)
            elif error:
                done.set_exception(error)
            else:
                done.set_result(None)

        def run() -> None:
            failure = None
            try:
                questions.ask()
            except Exception as error:  # noqa: BLE001  raised where the work is awaited
                failure = error
            except BaseException as error:  # noqa: BLE001  a resolver must not end the process
                failure = RuntimeError(type(error).__name__)
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, failure)

        try:
            threading.Thread(target=run, name="resolver", daemon=True).start()
        except RuntimeError:  # the machine has no thread left
            slots.threads.release()
            raise
        await done

    def _slots_here(self) -> _Slots:
        loop = asyncio.get_running_loop()
        slots = self._slots.get(loop)
        if slots is None:
            slots = self._slots[loop] = _Slots(asyncio.Semaphore(MOST_AWAITED), asyncio.Semaphore(MOST_THREADS))
        return slots


def _is_async(resolver: Resolver) -> bool:
    return inspect.iscoroutinefunction(resolver) or inspect.iscoroutinefunction(type(resolver).__call__)


def _close(answers: Sequence[object]) -> None:
    """Close coroutines whose turn had not come at the deadline."""
    for answer in answers:
        if inspect.iscoroutine(answer) and inspect.getcoroutinestate(answer) == inspect.CORO_CREATED:
            answer.close()


async def _all(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of coroutines in order. The first exception ends all."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def read_permissions(settings: Settings) -> PolicySources:
    """Return the entries of the configured files; raise ConfigError or PolicyError."""
    files = policy_files(settings, KEY)
    with files.naming_key():
        entries = load_entries(files.paths, name_check(settings))
    files.require_content({each.file for each in entries})
    return sources_of([each.entry for each in entries], settings)


def sources_of(entries: object, settings: Settings) -> PolicySources:
    """Return entries with the settings that decide beside them, as policies of a bundle."""
    rules = settings.policies.scopes
    found = {"permissions": msgspec.to_builtins(entries), "strict": rules.strict}
    resolvers = {"readPermission": rules.read_resolver, "writePermission": rules.write_resolver}
    named = {scope: name for scope, name in resolvers.items() if name}
    return {**found, "resolvers": named} if named else found


def build_scopes(settings: Settings, sources: PolicySources) -> Engine:
    """Return the engine of permissions; raise PolicyError."""
    entries = [each.entry for each in parse_entries(sources.get("permissions"))]
    engine = ScopesEngine(entries, settings.identity.cel_provider, strict=bool(sources.get("strict")))
    names = sources.get("resolvers")
    if not names:
        return engine
    found = _resolvers(names)
    code = _digest_of(found)
    require_recorded("policies.scopes", sources.get("resolverDigest"), code)
    digest = sha256(f"{engine.digest} {code}".encode()).hexdigest()
    resolvers = {scope: (each.name, each.function) for scope, each in found.items()}
    seconds = settings.policies.scopes.resolver_seconds
    return AwaitedEngine(
        engine.name, ResolvingScopes(engine, resolvers, Redactor(settings.audit.mask)), digest, seconds
    )


def describe_scopes(sources: PolicySources, engine: Engine) -> PolicySources:
    """Return the policies with the digest of the resolvers, if there are resolvers."""
    names = sources.get("resolvers")
    return {**sources, "resolverDigest": _digest_of(_resolvers(names))} if names else sources


class _InstalledResolver(NamedTuple):
    name: str
    package: str
    function: Resolver


def _resolvers(names: Mapping[Scope, str]) -> dict[Scope, _InstalledResolver]:
    return {scope: _InstalledResolver(name, *_resolver(scope, name)) for scope, name in names.items()}


def _digest_of(resolvers: Mapping[Scope, _InstalledResolver]) -> str:
    """Return the digest of the packages of resolvers. A resolver with policies of its own has a `digest`, too."""
    known = [(scope, each.name, each.package, _own_digest(each)) for scope, each in sorted(resolvers.items())]
    return sha256(msgspec.json.encode(known)).hexdigest()


def _own_digest(resolver: _InstalledResolver) -> str:
    own = getattr(resolver.function, "digest", "")
    if type(own) is not str:
        raise ConfigError(f"`policies.scopes`: resolver `{resolver.name}`: `digest` is a text")
    return own


def _resolver(scope: Scope, name: str) -> tuple[str, Resolver]:
    """Return the package and the function of a resolver; raise ConfigError."""
    key = f"policies.scopes.{'read' if scope == READ else 'write'}_resolver"
    entry = find_entry(RESOLVERS, name, key)
    if entry is None:
        raise ConfigError(f"`{key}`: {missing_entry(RESOLVERS, name)}")
    resolver: Resolver = load_entry(entry, key)
    if not callable(resolver):
        raise ConfigError(f"`{key}`: `{entry.value}` is no function")
    return loaded_package(entry), resolver
