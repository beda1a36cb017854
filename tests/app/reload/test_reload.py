"""Reload in running services, of one process and of two workers: edits, failures, signals and crashes."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pytest
from support.clients.http_client import fetch
from support.oracles.audit_files import all_records
from support.oracles.converging import until
from support.rewriting import rows_of
from support.service.commands import run_pdp
from support.service.serving import Process, serve_process

pytestmark = [pytest.mark.process, pytest.mark.waits]

SECONDS_OF_LONG_PAUSE = 3600
ODD_NAMES = (os.mkfifo, lambda path: path.symlink_to("/dev/zero"))
CHECK = {"principal": "user:oidc~alice", "action": "READ_ENTITY_VALUE", "resource": "table:lake/s/t@main"}


def write_rules(folder: Path, **rules: str) -> None:
    file = folder / "rules" / "a.yaml"
    file.parent.mkdir(exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"rules": rules}))
    new.replace(file)


@contextmanager
def serving(
    folder: Path, workers: int, refresh: float = 0.1, more: Mapping[str, Any] = MappingProxyType({}), **policies: Any
) -> Iterator[Process]:
    write_rules(folder, a="role=='alice'")
    config = {
        "policies": {"rules": ["rules/*.yaml"], "refresh_seconds": refresh, **policies},
        "store": {"url": "sqlite:///pdp.db"},
        **more,
    }
    (folder / "pdp.yaml").write_text(json.dumps(config))
    with serve_process(folder, "--workers", str(workers)) as process:
        yield process
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr()


def readiness(process: Process) -> tuple[int, str, str]:
    answer = fetch(process.url("/health/ready", "diagnostics"))
    body = answer.json()
    return answer.status, body["status"], "".join(body.get("reasons", ()))


def metrics(process: Process) -> str:
    return fetch(process.url("/metrics", "diagnostics")).text


def bundle(process: Process) -> str:
    found = re.search(r'pdp_policies_info{bundle="(\w+)"} 1', metrics(process))
    assert found
    return found[1]


def answers(process: Process, count: int = 8) -> set[tuple[bool, str]]:
    """Permits, and the digests of their bundles, over connections of their own."""
    found = set()
    for _ in range(count):
        answer = fetch(process.url("/v1/check"), json.dumps({"checks": [CHECK]}).encode()).json()
        found.add((answer["decisions"][0]["allowed"], answer["revision"].rpartition(".")[2]))
    return found


def children(process: Process, module: str) -> list[int]:
    """Ids of the child processes that run a module. A thread of its own may have started them."""
    tasks = Path(f"/proc/{process.process.pid}/task").glob("*/children")
    found = [child for task in tasks for child in task.read_text().split()]
    return [int(child) for child in found if module in Path(f"/proc/{child}/cmdline").read_text()]


def steps(process: Process) -> list[dict[str, Any]]:
    found = [record for record in all_records(process.folder, running=True) if record["event"] == "service"]
    return [record for record in found if record["what"].startswith("policies_")]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_edit_is_served_and_a_failure_keeps_the_last_good_policies(tmp_path: Path, workers: int) -> None:
    with serving(tmp_path, workers) as process:
        first = bundle(process)
        assert answers(process) == {(True, first)}
        write_rules(tmp_path, a="role=='alice'", b="role == ")
        until(lambda: readiness(process)[0] == 503)
        status, state, reason = readiness(process)
        assert (status, state) == (503, "degraded")
        assert re.search(r"reload failed: \S+rules/a.yaml:1:\d+: rule_compile_error$", reason)
        assert "rule `b`" in process.stderr()
        assert "pdp_policies_reload_failing 1" in metrics(process)
        assert answers(process) == {(True, first)}
        write_rules(tmp_path, a="role=='bob'")
        until(lambda: readiness(process)[:2] == (200, "ready"))
        second = bundle(process)
        assert second != first
        assert answers(process) == {(False, second)}
        text = metrics(process)
        assert 'pdp_policies_reloads_total{outcome="published"} 1' in text
        assert 'pdp_policies_reloads_total{outcome="failed"} 1' in text
        assert "pdp_policies_reload_failing 0" in text
        assert float(re.findall(r"^pdp_policies_age_seconds (\S+)", text, re.MULTILINE)[0]) < 60
    refused, replaced = steps(process)
    assert (refused["what"], "rules/a.yaml" in refused["details"]["cause"]) == ("policies_refused", True)
    assert (replaced["what"], replaced["details"]["bundle"]) == ("policies_replaced", second)
    assert {first, second} == {file.name for file in (tmp_path / "audit" / "bundles").iterdir()}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_reloads_at_once_and_the_same_policies_change_nothing(tmp_path: Path, workers: int) -> None:
    with serving(tmp_path, workers, refresh=SECONDS_OF_LONG_PAUSE) as process:
        first = bundle(process)
        process.process.send_signal(signal.SIGHUP)
        until(lambda: 'outcome="unchanged"} 1' in metrics(process))
        assert bundle(process) == first
        config = tmp_path / "pdp.yaml"
        config.write_text(json.dumps({**json.loads(config.read_text()), "limits": {"max_checks": 1}}))
        process.process.send_signal(signal.SIGHUP)
        until(lambda: 'outcome="unchanged"} 2' in metrics(process))
        write_rules(tmp_path, a="false")
        config.unlink()
        process.process.send_signal(signal.SIGHUP)
        until(lambda: bundle(process) != first)
        assert answers(process) == {(False, bundle(process))}
    told = [line for line in process.stderr().splitlines() if "a reload reads policies and certificates alone" in line]
    assert ["has changed" in line for line in told] == [True, False]
    assert "cannot be read: no such file or directory" in told[1]


def test_a_pattern_that_matches_nothing_fails_until_a_file_is_back(tmp_path: Path) -> None:
    with serving(tmp_path, 1, forbid=[{"path": "forbid/*.yaml", "allow_empty": True}]) as process:
        first = bundle(process)
        (tmp_path / "rules" / "a.yaml").rename(tmp_path / "a.yaml")
        until(lambda: readiness(process)[2].endswith("`policies.rules`: config_error"))
        assert "`rules/*.yaml` matches no file" in process.stderr()
        assert answers(process) == {(True, first)}
        (tmp_path / "a.yaml").rename(tmp_path / "rules" / "a.yaml")
        until(lambda: readiness(process)[0] == 200)
        assert bundle(process) == first
        (tmp_path / "forbid").mkdir()
        (tmp_path / "forbid" / "f.yaml").write_text('rules: {f: "true"}')
        until(lambda: answers(process, 1) == {(False, bundle(process))})


def test_a_name_that_is_no_file_fails_a_reload_until_it_is_gone(tmp_path: Path) -> None:
    """A pipe would hold the loader for ever, and a device would fill the memory: both are seen at once."""
    with serving(tmp_path, 1, forbid=[{"path": "forbid/*.yaml", "allow_empty": True}]) as process:
        (tmp_path / "forbid").mkdir()
        for number, (folder, make) in enumerate((folder, make) for folder in ("rules", "forbid") for make in ODD_NAMES):
            odd = tmp_path / folder / "odd.yaml"
            make(odd)
            until(lambda: "odd.yaml: policy_error" in readiness(process)[2])
            assert "odd.yaml: cannot be read: " in process.stderr()
            assert readiness(process)[:2] == (503, "degraded")
            write_rules(tmp_path, a="role=='alice'", **{f"r{number}": "role=='bob'"})
            odd.unlink()
            until(lambda: readiness(process)[0] == 200)
            assert answers(process, 1) == {(True, bundle(process))}
        assert 'pdp_policies_reloads_total{outcome="failed"}' in metrics(process)


def test_a_swapped_config_map_is_served_as_a_whole(tmp_path: Path) -> None:
    """Two files of one mount: the rule of the one permits, the forbid of the other denies."""
    mount = tmp_path / "mount"
    for version, subject in (("..1", "alice"), ("..2", "bob")):
        (mount / version).mkdir(parents=True)
        (mount / version / "rules.yaml").write_text(json.dumps({"rules": {"a": "true"}}))
        (mount / version / "forbid.yaml").write_text(json.dumps({"rules": {"f": f"role=='{subject}'"}}))
    (mount / "..data").symlink_to("..1")
    for name in ("rules.yaml", "forbid.yaml"):
        (mount / name).symlink_to(f"..data/{name}")
    with serving(tmp_path, 1, rules=["mount/rules.yaml"], forbid=["mount/forbid.yaml"]) as process:
        first = bundle(process)
        assert answers(process, 1) == {(False, first)}
        (mount / "..new").symlink_to("..2")
        (mount / "..new").rename(mount / "..data")
        until(lambda: bundle(process) != first)
        assert answers(process, 1) == {(True, bundle(process))}


def test_a_worker_that_is_killed_comes_back_with_the_published_policies(tmp_path: Path) -> None:
    """The files are broken by then. The next good ones reach all workers."""
    with serving(tmp_path, 2) as process:
        write_rules(tmp_path, a="role=='bob'")
        until(lambda: answers(process, 1) == {(False, bundle(process))})
        published = bundle(process)
        write_rules(tmp_path, a="role ==")
        until(lambda: readiness(process)[1] == "degraded")
        for worker in children(process, "app.worker"):
            os.kill(worker, signal.SIGKILL)
        until(lambda: "pdp_workers 2" in metrics(process) and 'end"} 2' in metrics(process))
        until(lambda: readiness(process)[1] == "degraded")
        assert answers(process) == {(False, published)}
        assert "pdp_worker_bundles 1" in metrics(process)
        write_rules(tmp_path, a="true")
        until(lambda: readiness(process)[0] == 200)
        assert answers(process) == {(True, bundle(process))}


COLUMNS = ["id", "region", "email"]
VIEW = {"sql": "SELECT * FROM lake.s.t", "columns": COLUMNS}
MASKS = [
    {"id": column, "table": table, "column": column, "kind": "null", "grantees": ["allUsers"]}
    for table, column in (("lake.s.t", "region"), ("lake.s.v", "email"))
]


def write_columns(folder: Path, columns: list[str]) -> None:
    described = {"lake.s.t": {"columns": dict.fromkeys(columns, "VARCHAR")}}
    rows = {"tables": described, "views": {"lake.s.v": VIEW}, "masks": MASKS}
    (folder / "rows.new").write_text(json.dumps(rows))
    (folder / "rows.new").replace(folder / "rows.json")


def selected(process: Process, database: duckdb.DuckDBPyConnection) -> set[tuple[tuple[str, ...], str]]:
    """Return the columns of `SELECT *`, and the rows of a view with a masked column, of some rewritten statements."""
    found = set()
    for _ in range(6):
        texts = []
        for sql in ("SELECT * FROM lake.s.t", "SELECT id FROM lake.s.v"):
            body = {"principal": "user:oidc~alice", "dialect": "duckdb", "sql": sql}
            texts.append(fetch(process.url("/v1/rewrite"), json.dumps(body).encode()).json()["sql"])
        found.add((tuple(rows_of(database, texts[0])[0]), rows_of(database, texts[1])[1][0][0]))
    return found


def test_columns_keep_their_order_through_reloads_and_restarts_of_workers(tmp_path: Path) -> None:
    database = duckdb.connect()
    database.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.s")
    database.execute("CREATE TABLE lake.s.t AS SELECT 'one' AS id, 'EU' AS region, 'a@b' AS email")
    write_columns(tmp_path, COLUMNS)
    grant = {"principal": "user:oidc~alice", "privilege": "select", "object": "warehouse:lake"}
    (tmp_path / "world.json").write_text(json.dumps({"objects": ["project:p1"], "grants": [grant]}))
    store = {"url": "sqlite:///pdp.db", "seed": "world.json"}
    warehouses = {"lake": {"project": "p1", "default_ref": "main"}}
    limits = {"rewrite_seconds": 60, "request_timeout_seconds": 60}
    more = {"store": store, "warehouses": warehouses, "limits": limits}
    with serving(tmp_path, 2, row_access=["rows.json"], more=more) as process:
        wanted = {(tuple(COLUMNS), "one")}
        assert selected(process, database) == wanted
        first = bundle(process)
        write_rules(tmp_path, a="role=='bob'")
        until(lambda: bundle(process) != first)
        assert selected(process, database) == wanted
        os.kill(children(process, "app.worker")[0], signal.SIGKILL)
        until(lambda: "pdp_workers 2" in metrics(process) and 'end"} 1' in metrics(process))
        assert selected(process, database) == wanted
        second = bundle(process)
        write_columns(tmp_path, [COLUMNS[0], *reversed(COLUMNS[1:])])
        until(lambda: bundle(process) != second)
        assert {columns for columns, _ in selected(process, database)} == {("id", "email", "region")}


def test_an_id_of_the_store_in_a_file_is_a_warning(tmp_path: Path) -> None:
    """At the start, in a reload, and in the check of the configuration, for policies and masks."""
    policy = {"id": "eu", "table": "table:lake/s/t", "grantees": ["user:alice"], "filter": "a = 'x'"}
    mask = {"id": "m", "table": "table:lake/s/t", "column": "c", "kind": "null", "grantees": ["user:alice"]}
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps({"policies": [policy | {"id": "other"}]}))
    (tmp_path / "world.json").write_text('{"objects": ["project:p1"]}')
    warehouses = {"lake": {"project": "p1", "default_ref": "main"}}
    more = {"store": {"url": "sqlite:///pdp.db", "seed": "world.json"}, "warehouses": warehouses}
    warning = "the id `{}` of `table:lake/s/t` is in a file and in the store"
    warnings = [warning.format(id) for id in ("eu", "m")]
    with serving(tmp_path, 1, row_access=["rows.json"], more=more) as process:
        for path, body in (("row-access-policies", policy), ("column-masks", mask)):
            assert fetch(process.url(f"/v1/{path}"), json.dumps(body).encode()).status == 200
        rows.write_text(json.dumps({"policies": [policy], "masks": [mask]}))
        until(lambda: all(warning in process.stderr() for warning in warnings))
    checked = run_pdp("config", "check", "--format", "json", cwd=tmp_path)
    told = [(one["severity"], one["message"]) for one in json.loads(checked.stdout) if "in the store" in one["message"]]
    assert [severity for severity, _ in told] == ["warning"] * 2
    assert all(message.startswith(warning) for (_, message), warning in zip(told, warnings, strict=True))
    with serve_process(tmp_path) as process:
        assert all(warning in process.stderr() for warning in warnings)


def test_a_loader_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with serving(tmp_path, 1) as process:
        first = bundle(process)
        write_rules(tmp_path, a="false")
        until(lambda: bundle(process) != first)
        (loader,) = children(process, "loader_process")
        os.kill(loader, signal.SIGKILL)
        second = bundle(process)
        write_rules(tmp_path, a="role=='alice'")
        until(lambda: bundle(process) != second)
        assert readiness(process)[0] == 200
        assert answers(process) == {(True, first)}


@pytest.mark.parametrize("workers", [1, 2])
def test_the_log_of_a_reload_names_forbids_that_are_gone(tmp_path: Path, workers: int) -> None:
    file = tmp_path / "forbid.yaml"
    forbids = {"hr": "path.startsWith('hr')", "pay": "path == 'pay'"}
    file.write_text(json.dumps({"rules": forbids}))
    with serving(tmp_path, workers, forbid=["forbid.yaml"]) as process:
        new = file.with_suffix(".new")
        new.write_text(json.dumps({"rules": {"pay": "path == 'other'"}}))
        new.replace(file)
        until(lambda: "policies before and after" in process.stderr())
        until(lambda: "forbids have another text" in process.stderr())
        lines = [json.loads(line) for line in process.stderr().splitlines() if line.startswith("{")]
    found = {line["event"]: line for line in lines}
    assert found["policies before and after"]["forbids"] == "2 -> 1"
    assert found["policies before and after"]["rules"] == "1 -> 1"
    assert (found["forbids are gone"]["forbids"], found["forbids are gone"]["level"]) == (["hr"], "warning")
    assert found["forbids have another text"]["forbids"] == ["pay"]
