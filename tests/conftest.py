"""Settings of the test run, and the PostgreSQL server that tests share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, is_hypothesis_test, settings
from structlog.dev import ConsoleRenderer, plain_traceback
from support.servers.postgres import fresh_database, postgres
from support.service.pauses import SHORT, documented_pauses
from support.untested import pytest_sessionfinish, pytest_terminal_summary  # noqa: F401  hooks of pytest

from pdp.model.pauses import set_pauses

# machines are shared: how long an example takes says nothing; CI judges a change by the same examples each time, and
# new ones are looked for wherever else the tests run
settings.register_profile(
    "pdp", deadline=None, derandomize=bool(os.environ.get("CI")), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("pdp")
set_pauses(SHORT)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell lets what it runs in the background ignore interrupts, and processes of tests would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
SHARE = 4
"""Tests of generated input play this share of their examples, and all of them in `make test-slow`."""
LONG_SECONDS = 900
"""Seconds in which a test with the marker `long` or `spark` must end, unless it says otherwise."""
FEWEST = 25
"""Examples that a test of generated input keeps, unless it asks for fewer."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and let it pass over 22,000 tests to the end of the interpreter."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def default_logging() -> None:
    """Log as at the start: a command that an earlier test ran in this process configures logging for all.

    Errors have plain tracebacks: to draw one with all variables takes a second.
    """
    structlog.reset_defaults()
    *before, _ = structlog.get_config()["processors"]
    structlog.configure(processors=[*before, ConsoleRenderer(exception_formatter=plain_traceback)])


@pytest.fixture(name="documented_pauses")
def use_documented_pauses() -> Iterator[None]:
    """Use the waits of production."""
    with documented_pauses():
        yield


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a PostgreSQL server once and yield its address."""
    with postgres(tmp_path_factory.mktemp("postgres")) as url:
        yield url


@pytest.fixture
def database(postgres_server: str) -> str:
    """Return the address of an empty PostgreSQL database."""
    return fresh_database(postgres_server)


# --- processes ----------------------------------------------------------------------------------------------------

STARTS = {"subprocess.Popen", "support.start_pdp"}
"""Audit events of a process that starts."""
STARTING = {"postgres_server": "postgres", "process": "process", "iceberg": "process"}
"""Markers of the fixtures that start processes."""
FORKS = {"os.fork", "os.forkpty"}
"""Audit events of a fork of this process, which may abort where gRPC's threads run."""
running: list[pytest.Item] = []
"""The test that runs now."""


def check_processes(event: str, arguments: object) -> None:
    """Refuse a process in a test without a marker for processes, and a fork in any test."""
    if event in FORKS:
        raise RuntimeError("no test forks its process: use `subprocess` without preexec_fn and user")
    if event in STARTS and running and not any(map(running[-1].get_closest_marker, ("process", "postgres"))):
        raise RuntimeError(f"{running[-1].nodeid} starts a process: mark the test with `pytest.mark.process`")


sys.addaudithook(check_processes)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let Spark's client leave sockets to the garbage collector."""
    if item.get_closest_marker("spark"):
        item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
        item.add_marker(
            pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note the test that runs, its fixtures included."""
    running.append(item)
    try:
        return (yield)
    finally:
        running.pop()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a fixture that starts a process, and let tests of generated input play a share.

    A long test, and one on Spark, has the time of a busy machine. To interrupt a call of Spark's client breaks its
    connection for all tests that follow.
    """
    for item in items:
        is_long = item.get_closest_marker("long") or item.get_closest_marker("spark")
        if is_long and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_SECONDS))
        for name in STARTING.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(STARTING[name])
    if os.environ.get("TEST_EXAMPLES") != "all":
        tests = {item.obj for item in items if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)}
        for test in tests:
            play_a_share(getattr(test, "__func__", test))


def play_a_share(test: Any) -> None:
    """Let a test play a share of its examples. State machines have settings of their own."""
    asked = getattr(test, "_hypothesis_internal_use_settings", None)
    if asked:
        fewer = min(asked.max_examples, max(FEWEST, asked.max_examples // SHARE))
        test._hypothesis_internal_use_settings = settings(asked, max_examples=fewer)
