"""Published policies: built in a serving process from the text of the loader process, in pauses of the event loop.

The text has all sources, so a serving process reads no file: each process builds the same policies, also while the
files change. The digest proves so.

Threads of an interpreter take turns. A computing thread takes half of all turns, and every wait for a turn costs a
request time. So the thread that builds works for a moment and then sleeps for a longer moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from pdp.app.archived_bundle import read_sources
from pdp.app.assembly import build_bundle, read_rules
from pdp.app.reload.load_messages import Published
from pdp.config.policy_files import without_files
from pdp.config.settings import Settings
from pdp.decision.active_policies import ActivePolicies
from pdp.engines.cel.engine import CelEngine, CelForbid
from pdp.engines.engine import Engine
from pdp.errors import ConfigError, PdpError
from pdp.facts.snapshot import without_collection
from pdp.identity.tls import Certificates, make_context

log = structlog.get_logger()
T = TypeVar("T")


class BundleUnusable(PdpError):
    """Loaded bundle without a way to build the engines in a serving process."""

    code = "bundle_unusable"


def build_published(settings: Settings, text: bytes) -> ActivePolicies:
    """Return the bundle of a text under settings.

    Raise ConfigError if these settings make another bundle of the same policies, PolicyError if this version cannot
    read the text.
    """
    sources = read_sources(text)
    bundle = build_bundle(without_files(settings), *sources.rule_sets(), sources.documents(), sources.engines)
    if bundle.text != text:
        raise ConfigError("the loaded policies belong to other settings: restart the service")
    return bundle


class PreparedPolicies(NamedTuple):
    """Bundle, and certificates with their context, ready to serve."""

    bundle: ActivePolicies
    certificates: Certificates | None
    context: ssl.SSLContext | None


async def prepare(settings: Settings, published: Published, bundle: ActivePolicies) -> PreparedPolicies:
    """Return published policies ready to serve, made while requests go on; raise PdpError.

    The present `bundle` stays if its text is the same.
    """
    context = make_context(published.certificates) if published.certificates else None
    if published.text != bundle.text:
        bundle = await prepare_bundle(settings, published.text, bundle)
    return PreparedPolicies(bundle, published.certificates, context)


async def prepare_bundle(settings: Settings, text: bytes, present: ActivePolicies | None = None) -> ActivePolicies:
    """Return the bundle of a text, built while requests go on; raise PdpError, also for a defect.

    The bundle is ready for the kinds of checks that the present one was asked about.
    """

    def build() -> ActivePolicies:
        bundle = build_published(settings, text)
        if present:
            _prepare_rules(bundle, present)
        return bundle

    try:
        return await run_paced(build)
    except PdpError:
        raise
    except Exception as error:
        log.exception("a loaded bundle cannot be built")
        raise BundleUnusable(f"a process that serves cannot build the policies: {type(error).__name__}") from None


def _prepare_rules(bundle: ActivePolicies, present: ActivePolicies) -> None:
    """Index rules as the present bundle has done: with many rules, the first check of an op takes long otherwise."""
    before = _rule_engines(present)
    for kind, engine in _rule_engines(bundle).items():
        if kind in before:
            engine.prepare_for(before[kind])


def _rule_engines(bundle: ActivePolicies) -> dict[type[Engine], CelEngine | CelForbid]:
    """Return the engines of rules, of which a bundle has one of each kind."""
    reports = (reporting.bundle.default for reporting in bundle.reports)
    stacks = (authority.engines for authority in (bundle.default, *bundle.authorities.values(), *reports))
    engines = (engine for stack in (bundle.forbids, *stacks) for engine in stack)
    return {type(engine): engine for engine in engines if isinstance(engine, CelEngine | CelForbid)}


def load_bundle(settings: Settings, text: bytes) -> tuple[ActivePolicies, dict[str, int]]:
    """Return the bundle of a text, else of the files, and the numbers of its policies; raise PdpError.

    After a failed rolling restart, the text may belong to other settings. Call before requests come.
    """
    with without_collection():
        if text:
            with contextlib.suppress(ConfigError):
                bundle = build_published(settings, text)
                sources = read_sources(text)
                return bundle, _counts(len(sources.rules), len(sources.forbid), bundle)
        rules, forbid = read_rules(settings)
        bundle = build_bundle(settings, rules, forbid)
        return bundle, _counts(len(rules.rules), len(forbid.rules), bundle)


def _counts(rules: int, forbids: int, bundle: ActivePolicies) -> dict[str, int]:
    return {"rules": rules, "forbids": forbids, "row_policies": bundle.row_access.count()}


WORK_SECONDS: Final = 0.0005
REST_SECONDS: Final = 0.0015
"""Longest work in one go, and the rest afterwards."""
SMALL_COLLECTIONS: Final = (2_000, 20, 500)
"""Thresholds of the garbage collector during the work. No rest is possible in a collection, so each must be short."""


async def run_paced(work: Callable[[], T]) -> T:
    """Return the result of work in a resting thread; raise the errors of the work.

    The thread rests at calls of functions anywhere in the work.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]
        else:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        sys.setprofile(_Pace())
        try:
            with _COLLECTIONS.small():
                result = work()
        except Exception as error:  # noqa: BLE001  raised where the work is awaited
            failure = error
        finally:
            sys.setprofile(None)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="paced", daemon=True).start()
    return await done


class _Collections:
    """Thresholds of the garbage collector, which all threads share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._usual = SMALL_COLLECTIONS

    @contextmanager
    def small(self) -> Iterator[None]:
        """Let collections be small meanwhile, until the last of several users ends."""
        with self._lock:
            if not self._users:
                self._usual = gc.get_threshold()
                gc.set_threshold(*SMALL_COLLECTIONS)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    gc.set_threshold(*self._usual)


_COLLECTIONS: Final = _Collections()


class _Pace:
    """Function for the interpreter to call at each call of a function in the thread."""

    def __init__(self) -> None:
        self._clock = time.perf_counter
        self._until = self._clock() + WORK_SECONDS

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if self._clock() > self._until:
            time.sleep(REST_SECONDS)
            self._until = self._clock() + WORK_SECONDS
