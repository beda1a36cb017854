"""Reload of engines and resolvers of another package, with two workers: each process makes an engine of its own."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import fetch
from support.oracles.converging import until
from support.paths import ROOT
from support.servers.acme import install_acme
from support.service.serving import Process, serve_process, settings_of

from pdp.app.archived_bundle import rebuild_pdp
from pdp.app.assembly import ENGINES, build_bundle, read_rules
from pdp.app.reload.published import build_published
from pdp.app.reload.watched_files import has_unlisted_files
from pdp.config.warehouses import PRODUCT_ENGINES
from pdp.errors import ConfigError

pytestmark = [pytest.mark.process, pytest.mark.waits]

TABLES = ("sales_a", "hr_a")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the installed package."""
    return install_acme(tmp_path_factory.mktemp("acme"))


@contextmanager
def serving(folder: Path, site: Path, engine: str, policies: dict[str, Any]) -> Iterator[Process]:
    config = {
        "policies": {"rules": ["rules.yaml"], "refresh_seconds": 0.1, **policies},
        "authorities": {"default": {"engines": [engine, "cel"]}},
        "warehouses": {"lake": {"project": "p1"}},
        "store": {"url": "sqlite:///pdp.db"},
    }
    (folder / "pdp.yaml").write_text(json.dumps(config))
    write(folder / "rules.yaml", '{"rules": {"none": "false"}}')
    path = os.pathsep.join((str(site), str(ROOT)))
    environ = {"PYTHONPATH": path, "ACME_TABLES": str(folder / "tables.txt")}
    with serve_process(folder, "--workers", "2", env=environ, fresh=True) as process:
        yield process
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr()


def write(file: Path, text: str) -> None:
    """Replace a file as a whole."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def answers(process: Process) -> set[tuple[tuple[bool, ...], str]]:
    """Permits by table, and the digests of their bundles, over connections of their own."""
    checks = [
        {"principal": "user:oidc~alice", "action": "read_data", "resource": f"table:lake/s/{name}"} for name in TABLES
    ]
    found = set()
    for _ in range(8):
        answer = fetch(process.url("/v1/check"), json.dumps({"checks": checks}).encode()).json()
        allowed = tuple(decision["allowed"] for decision in answer["decisions"])
        found.add((allowed, answer["revision"].rpartition(".")[2]))
    return found


def reasons(process: Process) -> str:
    return "".join(fetch(process.url("/health/ready", "diagnostics")).json().get("reasons", ()))


def metric(process: Process, name: str) -> str:
    text = fetch(process.url("/metrics", "diagnostics")).text
    return ",".join(re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE))


def served(process: Process, *allowed: bool) -> str:
    """Wait until all workers answer so; return the digest of their bundle."""
    found: set[tuple[tuple[bool, ...], str]] = set()

    def is_same() -> bool:
        found.clear()
        found.update(answers(process))
        return (
            len(found) == 1
            and {each for each, _ in found} == {allowed}
            and metric(process, "pdp_worker_bundles") == "1.0"
        )

    until(is_same)
    ((_, bundle),) = found
    return bundle


@pytest.mark.long
@pytest.mark.parametrize("engine", ["acme_file", "acme_awaited_file"])
def test_a_file_of_an_engine_is_a_policy_file(tmp_path: Path, site: Path, engine: str) -> None:
    """The file is in no list. Also the first edit after the start counts, and a broken file keeps the last engine."""
    file = tmp_path / "prefix.txt"
    file.write_text("sales_")
    with serving(tmp_path, site, engine, {"engines": {engine: {"options": {"file": str(file)}}}}) as process:
        first = served(process, True, False)
        until(lambda: metric(process, 'pdp_policies_reloads_total{outcome="unchanged"}') == "1.0")
        write(file, "hr_")
        second = served(process, False, True)
        file.unlink()
        until(lambda: f"policies.engines.{engine}" in reasons(process))
        assert served(process, False, True) == second
        write(file, "sales_")
        assert served(process, True, False) == first != second
        until(lambda: not reasons(process))


@pytest.mark.long
def test_the_digest_of_a_resolver_is_part_of_the_bundle(tmp_path: Path, site: Path) -> None:
    (tmp_path / "tables.txt").write_text("sales_a")
    with serving(tmp_path, site, "scopes", {"scopes": {"read_resolver": "acme_in_file"}}) as process:
        first = served(process, True, False)
        until(lambda: metric(process, 'pdp_policies_reloads_total{outcome="unchanged"}') == "1.0")
        write(tmp_path / "tables.txt", "hr_a")
        until(lambda: served(process, False, True) != first)


@pytest.mark.long
def test_an_engine_with_another_digest_in_each_process_cannot_be_reloaded(tmp_path: Path, site: Path) -> None:
    """Nobody could tell whether all workers have the same policies: readiness tells so, and answers go on."""
    with serving(tmp_path, site, "acme_unstable", {"engines": {"acme_unstable": {"options": {}}}}) as process:
        until(lambda: "`policies.engines.acme_unstable`: config_error" in reasons(process))
        write(tmp_path / "rules.yaml", '{"rules": {"all": "true"}}')
        process.process.send_signal(signal.SIGHUP)
        until(lambda: metric(process, 'pdp_policies_reloads_total{outcome="failed"}') not in ("", "0.0", "1.0"))
        assert {allowed for allowed, _ in answers(process)} == {(False, False)}


@pytest.mark.parametrize(
    ("engine", "policies", "key"),
    [
        ("acme_names", {"engines": {"acme_names": {"options": {}}}}, "digest"),
        ("acme_remote", {"engines": {"acme_remote": {"options": {}}}}, "digest"),
        ("scopes", {"scopes": {"read_resolver": "acme_admin"}}, "resolverDigest"),
        ("scopes", {"scopes": {"write_resolver": "acme_admin"}}, "resolverDigest"),
    ],
)
def test_a_bundle_of_other_code_is_not_built(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch, engine: str, policies: dict[str, Any], key: str
) -> None:
    """Neither for requests nor for the decisions of an audit. A bundle of the same code is."""
    monkeypatch.syspath_prepend(str(site))
    settings = settings_of({"policies": {"rules": [], **policies}, "authorities": authority(engine)}, tmp_path)
    text = build_bundle(settings, *read_rules(settings)).text
    assert build_published(settings, text).text == text
    assert rebuild_pdp(text).bundle.text == text
    sources = json.loads(text)
    sources["engines"][engine][key] = "0" * 64
    other = json.dumps(sources).encode()
    for build in (lambda: build_published(settings, other), lambda: rebuild_pdp(other)):
        with pytest.raises(ConfigError, match="other code or policies of the package"):
            build()


def authority(engine: str) -> dict[str, Any]:
    return {"default": {"engines": [engine]}}


def test_engines_of_the_product_name_their_files(tmp_path: Path) -> None:
    assert {*ENGINES, "cel"} == PRODUCT_ENGINES
    for engine in PRODUCT_ENGINES:
        assert not has_unlisted_files(settings_of({"authorities": authority(engine)}, tmp_path))
    assert has_unlisted_files(settings_of({"authorities": authority("acme")}, tmp_path))
    for kind in ("read", "write"):
        policies = {"scopes": {f"{kind}_resolver": "any"}}
        assert has_unlisted_files(settings_of({"policies": policies}, tmp_path))
