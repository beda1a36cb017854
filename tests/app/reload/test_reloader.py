"""Watch of policy files in this process: failures that no file explains end, and the watch goes on."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.faults.file_limits import no_descriptors
from support.oracles.converging import awaited
from support.service.serving import settings_of

from pdp.app.assembly import build_bundle, read_rules
from pdp.app.reload import loader, loader_process
from pdp.app.reload.load_messages import LoadedPolicies, LoadFailure, PolicyChange
from pdp.app.reload.loader_process import BundleLoader
from pdp.app.reload.reloader import Reloader, ServedPolicies
from pdp.app.reload.watched_files import Stamps, take_stamps
from pdp.app.workers.process import WorkerFailed
from pdp.config.settings import Settings
from pdp.errors import ConfigError, PdpError, Place, PolicyError
from pdp.rewrite.iceberg.client import ObjectUnreadable

pytestmark = [pytest.mark.process, pytest.mark.waits]

GOOD, OTHER, BROKEN = {"a": "role=='alice'"}, {"a": "role=='bob'"}, {"a": "role =="}


def configured(folder: Path, rules: dict[str, str]) -> Settings:
    write_rules(folder, rules)
    return settings_of({"policies": {"rules": ["rules.yaml"], "refresh_seconds": 0.1}}, folder)


def write_rules(folder: Path, rules: dict[str, str]) -> None:
    new = folder / "rules.new"
    new.write_text(json.dumps({"rules": rules}))
    new.replace(folder / "rules.yaml")


class Serving:
    """Publisher to processes that fail as often as planned."""

    def __init__(self, settings: Settings, *failures: Exception) -> None:
        self.bundles = {build_bundle(settings, *read_rules(settings)).digest}
        self.converged = 0
        self.notes: list[str] = []
        self._failures = [*failures]

    def served(self) -> set[ServedPolicies]:
        return {ServedPolicies(bundle, None) for bundle in self.bundles}

    def text(self) -> bytes:
        return b""

    async def publish(self, result: LoadedPolicies) -> None:
        if self._failures:
            raise self._failures.pop(0)
        self.bundles = {result.digest}

    async def converge(self) -> None:
        self.converged += 1
        if self._failures:
            raise self._failures.pop(0)
        self.bundles = {min(self.bundles)}

    def note(self, what: str, **details: str) -> None:
        self.notes.append(what)


@asynccontextmanager
async def watching(settings: Settings, publisher: Serving) -> AsyncIterator[Reloader]:
    reloader = Reloader(settings)
    watch = asyncio.create_task(reloader.watch(publisher))
    try:
        yield reloader
        assert not watch.done()
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_process_without_descriptors_reloads_as_soon_as_there_are_some(tmp_path: Path, ordered: bool) -> None:
    settings = configured(tmp_path, GOOD)
    publisher = Serving(settings)
    (before,) = publisher.bundles
    async with watching(settings, publisher) as reloader:
        if not ordered:
            write_rules(tmp_path, OTHER)
        with no_descriptors():
            reloader.order()
            await awaited(lambda: reloader.failure)
            assert "open files" in reloader.failure
            assert publisher.bundles == {before}
        await awaited(lambda: not reloader.failure)
        assert (publisher.bundles == {before}) == ordered


@pytest.mark.parametrize(
    "failure",
    [
        WorkerFailed("a worker has no memory"),
        OSError(24, "Too many open files"),
        RuntimeError("can't start new thread"),
        TimeoutError(),
    ],
)
async def test_a_failed_publication_is_tried_again_without_a_change_of_files(
    tmp_path: Path, failure: Exception
) -> None:
    settings = configured(tmp_path, GOOD)
    publisher = Serving(settings, failure, failure)
    before = publisher.bundles
    async with watching(settings, publisher) as reloader:
        write_rules(tmp_path, OTHER)
        await awaited(lambda: reloader.failure)
        assert publisher.bundles == before
        await awaited(lambda: publisher.bundles != before and not reloader.failure)
    assert publisher.notes == ["policies_refused", "policies_replaced"]


async def test_invalid_files_are_not_read_again_until_they_change(tmp_path: Path) -> None:
    settings = configured(tmp_path, GOOD)
    publisher = Serving(settings)
    async with watching(settings, publisher) as reloader:
        write_rules(tmp_path, BROKEN)
        await awaited(lambda: reloader.failure)
        assert not await reloader._is_due(publisher)
        write_rules(tmp_path, OTHER)
        await awaited(lambda: not reloader.failure)


async def test_processes_with_different_policies_converge_also_while_the_files_are_invalid(tmp_path: Path) -> None:
    settings = configured(tmp_path, GOOD)
    publisher = Serving(settings, WorkerFailed("a worker does not answer"))
    async with watching(settings, publisher) as reloader:
        write_rules(tmp_path, BROKEN)
        await awaited(lambda: reloader.failure)
        publisher.bundles |= {"other"}
        await awaited(lambda: len(publisher.bundles) == 1)
        assert publisher.converged == 2
        await awaited(lambda: "rules.yaml:1:" in reloader.failure)


async def test_a_load_without_an_end_is_ended_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a load doubles after each failure, so that a slow machine also gets to the end."""
    settings = configured(tmp_path, GOOD)
    publisher = Serving(settings)
    first = publisher.bundles
    async with watching(settings, publisher) as reloader:
        write_rules(tmp_path, OTHER)
        await awaited(lambda: publisher.bundles != first)
        process = reloader._loader._process
        assert process
        monkeypatch.setattr(loader, "LOAD_SECONDS", 0.5)
        reloader._loader._seconds = 0.5
        process.send_signal(signal.SIGSTOP)
        write_rules(tmp_path, GOOD)
        await awaited(lambda: "policies_refused" in publisher.notes)
        assert process.wait() == -signal.SIGKILL
        await awaited(lambda: publisher.bundles == first and not reloader.failure)


@pytest.mark.parametrize("rules", [GOOD, BROKEN])
def test_files_that_change_all_the_time_end_a_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: dict[str, str]
) -> None:
    settings = configured(tmp_path, rules)
    looks = []

    def look_after_a_change(*arguments: Any) -> Stamps:
        looks.append(1)
        write_rules(tmp_path, rules)
        return take_stamps(*arguments)

    bundles = BundleLoader(settings)
    with monkeypatch.context() as patch:
        patch.setattr(loader_process, "take_stamps", look_after_a_change)
        result = bundles.load()
    assert "change all the time" in result.failure
    assert result.stamps != take_stamps(settings)
    assert len(looks) < 1000
    result = bundles.load()
    assert (result.failure == "") == (rules is GOOD)
    assert result.stamps == take_stamps(settings)


SECRET = "zelda"
MASK = {"id": "m", "table": f"lake.s.{SECRET}", "column": SECRET, "kind": "null", "grantees": [f"user:{SECRET}"]}
UID = {"type": "Lakekeeper::User", "id": f"oidc~{SECRET}"}
BROKEN_FILES: dict[str, Any] = {
    "rules.yaml": [
        {"rules": {SECRET: "role =="}}, {"rules": {"a": f"role == '{SECRET}' && {SECRET}"}},
        f"rules: {{{SECRET}: a: b}}",
    ],
    "forbid.yaml": [{"rules": {"a": f"role == '{SECRET}'", SECRET: f"{SECRET}"}}, {"rules": {"a": f"'{SECRET}"}}],
    "rows.json": [
        {"masks": [MASK | change]} for change in (
            {"kind": SECRET}, {"grantees": [SECRET]}, {"table": f"{SECRET}"}, {"table": f"lake.{SECRET}.*"},
            {"kind": "null", "expression": f"{SECRET}("}, {"except": [f"user:{SECRET}*"]}, {SECRET: 1},
        )
    ] + [{"masks": [MASK], "tables": {f"lake.s.{SECRET}": {"columns": {"a": "INTEGER"}}}}, {"masks": [MASK, MASK]}],
    "a.permissions.json": [[{"name": SECRET, SECRET: 1}], [{"name": f"{SECRET}*"}], f'[{{"name": "{SECRET}",'],
    "a.cedar": [
        f'permit (principal == Lakekeeper::User::"{SECRET}", action, resource', f"permit (principal, action, {SECRET});",
        f'permit (principal == Lakekeeper::User::"oidc~{SECRET}*", action, resource);',
    ],
    "a.entities.json": [
        [{"uid": UID, "attrs": {SECRET: SECRET}, "parents": []}], [{"uid": UID, "parents": [UID]}], [{"uid": SECRET}],
    ],
}  # fmt: skip


def broken_loads(folder: Path) -> Iterator[tuple[str, LoadedPolicies]]:
    """Yield the name of a broken file and the result of its load, for every kind of policy file."""
    good: dict[str, Any] = {
        "rules.yaml": {"rules": {"a": "true"}}, "forbid.yaml": {"rules": {"a": "role == 'nobody'"}},
        "rows.json": {"masks": [MASK | {"except": ["user:a"]}]}, "a.permissions.json": [],
        "a.cedar": "permit (principal, action, resource);", "a.entities.json": [],
    }  # fmt: skip
    config = {
        "policies": {
            "rules": ["rules.yaml"], "forbid": ["forbid.yaml"], "row_access": ["rows.json"],
            "scopes": {"permissions": [{"path": "*.permissions.json", "allow_empty": True}]},
            "cedar": {"policies": ["*.cedar"], "entities": [{"path": "*.entities.json", "allow_empty": True}]},
        },
        "authorities": {"default": {"engines": ["cel", "scopes", "cedar"]}},
        "warehouses": {"lake": {"project": "p1"}},
    }  # fmt: skip
    settings = settings_of(config, folder)

    def write(name: str, content: Any) -> None:
        dump = yaml.safe_dump if name.endswith(".yaml") else json.dumps
        (folder / name).write_text(content if isinstance(content, str) else dump(content))

    for name, content in good.items():
        write(name, content)
    loader = BundleLoader(settings)
    assert not loader.load().failure
    for name, contents in BROKEN_FILES.items():
        for content in contents:
            write(name, content)
            yield name, loader.load()
        write(name, good[name])


def test_what_diagnostics_show_of_a_failure_quotes_no_policy(tmp_path: Path) -> None:
    """The text names users and objects. Readers of health, whom nobody knows, get the place and the kind."""
    quoted = set()
    for name, result in broken_loads(tmp_path):
        assert result.failure, name
        assert SECRET not in result.shown, result.failure
        assert name in result.shown, result.failure
        assert re.search(r": [a-z_]+$", result.shown), result.shown
        quoted |= {name} if SECRET in result.failure else set()
    assert quoted == BROKEN_FILES.keys()


def test_the_readiness_shows_no_more(tmp_path: Path) -> None:
    reloader = Reloader(configured(tmp_path, GOOD))
    publisher = Serving(reloader._settings)
    errors = [
        PolicyError(f"rule of {SECRET}", Place("rules.yaml", 3, 1)), WorkerFailed(f"failed at {SECRET}"),
        ConfigError(f"`trino.impersonation.{SECRET}`: no"), ConfigError(f"`policies.rules`: {SECRET}"),
        ConfigError(f"{SECRET} twice", [("pdp.yaml:3:5", f"{SECRET} twice")]), PdpError(SECRET),
        ObjectUnreadable("the catalog answered 500", f" for table `{SECRET}`"),
    ]  # fmt: skip
    shown = []
    for error in errors:
        reloader._fail(publisher, LoadFailure.of(error))
        assert SECRET in reloader.failure
        shown += reloader.unready()
    assert [text.removeprefix("the last reload failed: ") for text in shown] == [
        "rules.yaml:3:1: policy_error", "worker_failed", "config_error", "`policies.rules`: config_error",
        "pdp.yaml:3:5: config_error", "internal", "the catalog answered 500",
    ]  # fmt: skip


def test_a_change_has_counts_and_the_names_of_forbids() -> None:
    old = {"rules": {"a": "x", "b": "y"}, "forbid": {"hr": "x", "pay": "y", "z": "z"}, "engines": {"cedar": 1, "scopes": 2},
           "rowAccess": [{"policies": [{}, {}], "masks": [{}]}, {"masks": [{}]}], "trino": {}}  # fmt: skip
    new = {"rules": {"a": "x"}, "forbid": {"z": "other"}, "engines": {"cedar": 1, "own": 3}}
    change = PolicyChange.between(*(json.dumps(one).encode() for one in (old, new)))
    assert change.counts == {"rules": "2 -> 1", "forbids": "3 -> 1", "row_policies": "2 -> 0", "masks": "2 -> 0"}
    assert change[1:] == (["hr", "pay"], ["z"], ["own", "scopes"])
    same = PolicyChange.between(*(json.dumps(old).encode() for _ in range(2)))
    assert same[1:] == ([], [], [])
