"""Processes that rewrite: replaced when they hang or end, and shared fairly."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest

from pdp.errors import Overloaded, Unavailable
from pdp.facts.objects import RowPolicy
from pdp.rewrite.errors import PARSE_ERROR, RewriteRefused
from pdp.rewrite.process.messages import FilterCall, PolicyState, RewriteCall, StatementUser
from pdp.rewrite.process.pool import WorkerPool
from pdp.rewrite.process.worker import RewriteProcess

pytestmark = pytest.mark.process
DOCUMENT = {"default": ["lake", "sales"], "tables": {"items": {"columns": {"id": "INT"}}}}
SETUP = PolicyState("1", [DOCUMENT], (), "user:{subject}", "oidc", {})
READER = StatementUser("user", "oidc~bob")
CALL = RewriteCall("SELECT id FROM items", "duckdb", READER)


def workers() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [child for child in children if "pdp.rewrite.process.worker" in " ".join(child.cmdline())]


async def answered(pool: WorkerPool, key: str = "a") -> str:
    return (await pool.ask(key, SETUP, CALL)).sql


async def test_a_process_that_hangs_is_killed_and_replaced() -> None:
    pool = WorkerPool(1, 4)
    assert await answered(pool) == CALL.sql
    (first,) = workers()
    first.send_signal(signal.SIGSTOP)
    with pytest.raises(RewriteRefused, match="longer than 4 seconds") as error:
        await answered(pool)
    assert error.value.rap == PARSE_ERROR
    assert await answered(pool) == CALL.sql
    await pool.close()
    assert not workers()


async def test_the_judge_of_a_process_loads_no_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pandas.py").write_text(f"open({str(tmp_path / 'loaded')!r}, 'w').close()\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    pool = WorkerPool(1, 60)
    assert await answered(pool) == CALL.sql
    await pool.close()
    assert not (tmp_path / "loaded").exists()


async def test_a_process_that_ends_refuses_its_text_alone() -> None:
    pool = WorkerPool(1, 60)
    await answered(pool)
    (first,) = workers()
    first.send_signal(signal.SIGSTOP)
    asked = asyncio.create_task(answered(pool))
    await asyncio.sleep(0.1)
    os.kill(first.pid, signal.SIGKILL)
    with pytest.raises(RewriteRefused, match="ends the process"):
        await asked
    (await asyncio.gather(answered(pool), answered(pool, "b")))
    idle = workers()
    idle[0].kill()
    idle[0].wait()
    assert await answered(pool) == CALL.sql, "a process that ended while idle is replaced"
    await pool.close()


async def test_a_key_with_slow_texts_holds_up_no_other() -> None:
    pool = WorkerPool(2, 60)
    await answered(pool)
    (first,) = workers()
    first.send_signal(signal.SIGSTOP)
    slow = [asyncio.create_task(answered(pool, "slow")) for _ in range(10)]
    await asyncio.sleep(0.1)
    assert [await answered(pool, f"{number}") for number in range(5)] == [CALL.sql] * 5
    assert not any(task.done() for task in slow)
    first.send_signal(signal.SIGCONT)
    assert await asyncio.gather(*slow) == [CALL.sql] * 10
    await pool.close()


async def test_a_cancelled_request_leaves_no_answer_to_the_next() -> None:
    pool = WorkerPool(1, 60)
    await answered(pool)
    (first,) = workers()
    first.send_signal(signal.SIGSTOP)
    asked = asyncio.create_task(answered(pool))
    await asyncio.sleep(0.1)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    with suppress(psutil.NoSuchProcess):  # the pool may have ended the process of a request that nobody waits for
        first.send_signal(signal.SIGCONT)
    other = await pool.ask("a", SETUP, FilterCall(("lake", "sales", "items"), "duckdb", READER))
    assert (other.sql, other.rows) == ("", "")
    await pool.close()


async def test_too_many_waiting_requests_of_one_key_are_refused() -> None:
    pool = WorkerPool(1, 60)
    await answered(pool)
    workers()[0].send_signal(signal.SIGSTOP)
    asked = [asyncio.create_task(answered(pool)) for _ in range(40)]
    await asyncio.sleep(0.1)
    ended = [task for task in asked if task.done()]
    assert len(ended) == 8
    assert all(isinstance(task.exception(), Overloaded) for task in ended)
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    await pool.close()
    with pytest.raises(Unavailable):
        await answered(pool)


async def test_long_filters_and_constants_do_not_delay_the_set_up() -> None:
    """No text is parsed before a statement needs the table: 2,000 such texts take the parser minutes."""
    text = " OR ".join(["a = 'x' AND b"] * 600)
    rules = tuple(
        RowPolicy(
            ("lake", "sales", f"t{at}"), "r", ("allUsers",), text, column=column, kind="constant" if column else ""
        )
        for at in range(1_000)
        for column in ("", "c")
    )
    pool = WorkerPool(1, 60)
    made = PolicyState("4", [DOCUMENT], (), "user:{subject}", "oidc", {}, rules=rules)
    assert (await pool.ask("a", made, CALL)).sql == CALL.sql
    await pool.close()


async def test_new_policies_reach_a_running_process() -> None:
    pool = WorkerPool(1, 60)
    policy = {"id": "p", "table": "items", "grantees": ["allUsers"], "filter": "id > 1", "dialect": "duckdb"}
    closed = PolicyState("2", [{**DOCUMENT, "policies": [policy]}], (), "user:{subject}", "oidc", {})
    assert await answered(pool) == CALL.sql
    assert "id > 1" in (await pool.ask("a", closed, CALL)).sql
    protected = PolicyState("3", [DOCUMENT], (("lake", "sales"),), "user:{subject}", "oidc", {})
    assert "WHERE FALSE" in (await pool.ask("a", protected, CALL)).sql
    assert await answered(pool) == CALL.sql
    broken = PolicyState("4", [{"views": {"v": {}}}], (), "user:{subject}", "oidc", {})
    assert (await pool.ask("a", broken, CALL)).error, "unusable policies refuse every statement"
    await pool.close()


VIEW = "INFORMATION_SCHEMA.ROW_ACCESS_POLICIES"
READS_POLICIES = {
    "duckdb": [f"SELECT * FROM lake.{VIEW}", f"SELECT (SELECT count(*) FROM {VIEW}) AS n FROM items",
               'WITH x AS (SELECT * FROM "lake".information_schema."row_access_policies") SELECT * FROM x'],
    "trino": [f"SELECT * FROM lake.{VIEW.lower()} AS v"],
    "spark": ["SELECT * FROM lake.`information_schema`.`row_access_policies`"],
    "bigquery": [f"SELECT * FROM sales.{VIEW}"],
}  # fmt: skip
NAMES_POLICIES = ("SELECT id FROM items -- {view}", "SELECT id /* FROM {view} */ FROM items", "SELECT '{view}' AS x FROM items",
                  "SELECT id AS row_access_policies FROM items", "SELECT row_access_policies.id FROM items row_access_policies",
                  "WITH row_access_policies AS (SELECT 1 AS id) SELECT id FROM row_access_policies")  # fmt: skip


async def test_policies_are_asked_for_by_statements_that_read_them_alone() -> None:
    asked: list[str] = []
    pool = WorkerPool(1, 60)
    for dialect, texts in READS_POLICIES.items():
        for text in texts:
            call = RewriteCall(text, dialect, READER)

            async def completed(call: RewriteCall = call) -> RewriteCall:
                asked.append(call.sql)
                row = RowPolicy(("lake", "sales", "items"), "p", ("allUsers",), "id = 1")
                return msgspec.structs.replace(call, policies=(row,))

            reply = await pool.ask("a", SETUP, call, completed)
            assert (reply.error, asked.pop()) == ("", text)
            assert "'allUsers'" in reply.sql
            assert (await pool.ask("a", SETUP, call)).error == "RAP_METADATA_TABLE"
        for text in NAMES_POLICIES:
            reply = await pool.ask("a", SETUP, RewriteCall(text.format(view=VIEW), dialect, READER), completed)
            assert (reply.error, reply.wants_policies, asked) == ("", False, []), text
    await pool.close()


def test_policies_of_a_warehouse_are_those_of_each_of_its_catalogs() -> None:
    document = {**DOCUMENT, "policies": [{"id": "p", "table": "items", "grantees": ["allUsers"], "filter": "id = 1"}]}
    catalogs = {"first": "lake", "second": "lake", "other": "pond"}
    rewriting = RewriteProcess(PolicyState("1", [document], (), "user:{subject}", "oidc", {}, catalogs))
    row = RowPolicy(("lake", "sales", "items"), "p", ("allUsers",), "id = 1")
    for name, shown in (("first", True), ("second", True), ("other", False)):
        text = f"SELECT * FROM {name}.information_schema.row_access_policies"
        reply = rewriting.answer(RewriteCall(text, "trino", READER, policies=(row,)))
        assert (reply.error, f"'{name}'" in reply.sql) == ("", shown)
        found = rewriting.answer(RewriteCall(f"SELECT id FROM {name}.sales.items", "trino", READER))
        assert ("id = 1" in found.sql) == shown
    assert rewriting.answer(FilterCall(("lake", "sales", "items"), "trino", READER)).rows == "id = 1"
