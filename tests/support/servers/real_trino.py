"""A Trino with the service in front of it, and what users get from it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import trino.dbapi
from support.clients.http_client import fetch
from support.pages.scenarios import Found, Step, compare, covers, load
from support.paths import TESTS
from support.servers.trino_server import Setup, trino_server
from support.service.commands import run_pdp
from support.service.serving import Process, serve_process
from trino.exceptions import TrinoQueryError

from pdp.model.trino_operations import TRINO_PREFIX

HERE = TESTS / "real_trino"
POLICIES = ("pdp.yaml", "rules.yaml", "forbids.yaml", "row_access.yaml", "world.yaml")
GROUPS = {"analysts": "ann,fay", "auditors": "fay"}
SQL_PATH = {
    "sql.path": "funcs.default",
    "sql.default-function-catalog": "funcs",
    "sql.default-function-schema": "default",
}
LEFT_OUT: Final[Mapping[str, tuple[str, ...]]] = {
    "single": ("opa.policy.batched-uri", "opa.policy.batch-column-masking-uri"),
    "batched": (),
}
"""How Trino asks, one question per object or many at once: the lines of `pdp trino-config` that it does without."""
PATIENCE = 30


@dataclass
class Stand:
    """A Trino and the service that decides for it."""

    port: int
    service: Process
    seconds: float
    running: dict[str, Any] = field(default_factory=dict)
    """Queries left running: name -> the cursor that fetches their rows."""
    played: set[str] = field(default_factory=set)
    """The scenarios that were played on it."""

    def play(self, name: str) -> list[str]:
        """Every step of a scenario in order; what was not as wanted."""
        scenario = load(name)
        self.played.add(name)
        wrong: list[str] = []
        with ExitStack() as held:
            connections: dict[tuple[str, str], trino.dbapi.Connection] = {}
            for step in scenario.steps:
                key = step.user, step.session
                if key not in connections:
                    connections[key] = held.enter_context(self._connect(step.user))
                wrong += self._step(step, connections[key])
        return wrong

    def metric(self, name: str) -> float:
        """A counter without labels of the service."""
        lines = fetch(self.service.url("/metrics", "diagnostics"), timeout=PATIENCE).text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def operations(self) -> set[str]:
        """The operations that the audit holds."""
        rows = [row for record in self.service.records() for row in (*record["checks"], *record.get("requests", ()))]
        return {row["action"].removeprefix(TRINO_PREFIX) for row in rows if row["action"].startswith(TRINO_PREFIX)}

    def _connect(self, user: str) -> trino.dbapi.Connection:
        return trino.dbapi.Connection(
            host="127.0.0.1", port=self.port, user=user, max_attempts=1, request_timeout=PATIENCE, source="pdp-tests"
        )

    def _step(self, step: Step, connection: trino.dbapi.Connection) -> list[str]:
        if step.grants:
            return self._grant(step)
        before = len(self.service.records()) if step.audit else 0
        found = self._ask(step, connection)
        wrong = compare(step, found)
        if step.audit:
            wrong += self._unrecorded(step, before)
        return [f"{step.note}\n    {step.user}: {step.sql or step.resume or step.rest}\n    {line}" for line in wrong]

    def _rest(self, step: Step) -> Found:
        method, path, *body = self._filled(step.rest).split(" ", 2)
        headers = {"X-Trino-User": step.user, "Content-Type": "application/json"}
        data = body[0] if body else None
        response = fetch(f"http://127.0.0.1:{self.port}{path}", data, method, headers, timeout=PATIENCE)
        if response.status < HTTPStatus.BAD_REQUEST:
            return Found()
        name = "PERMISSION_DENIED" if response.status == HTTPStatus.FORBIDDEN else f"HTTP_{response.status}"
        return Found(error=name, text=response.text)

    def _filled(self, text: str) -> str:
        """A statement with the ids of the queries that it names."""
        for name, cursor in self.running.items():
            text = text.replace(f"{{{name}}}", cursor.query_id)
        return text

    def _ask(self, step: Step, connection: trino.dbapi.Connection) -> Found:
        if step.rest:
            return self._rest(step)
        cursor = self.running[step.resume] if step.resume else connection.cursor()
        try:
            if step.resume:
                return Found(rows=cursor.fetchall())
            cursor.execute(self._filled(step.sql))
            if step.leave:
                self.running[step.leave] = cursor
                return Found(rows=[])
            return Found(rows=cursor.fetchall())
        except TrinoQueryError as error:
            return Found(error=str(error.error_name), text=str(error.message))

    def _grant(self, step: Step) -> list[str]:
        body = {"actor": f"user:oidc~{step.user}", **(step.grants or {})}
        answer = fetch(self.service.url("/v1/grants"), body, timeout=PATIENCE)
        return [] if answer.status == 200 else [f"{step.note}\n    {answer.text}"]

    def _unrecorded(self, step: Step, before: int) -> list[str]:
        """The wanted rows of audit that were not written; the writer may be a moment behind."""
        missing = step.audit

        def written() -> bool:
            nonlocal missing
            records = self.service.records()[before:]
            rows = [row for record in records for row in (*record["checks"], *record.get("requests", ()))]
            missing = [wanted for wanted in step.audit if not any(covers(row, wanted) for row in rows)]
            return not missing

        _until(written)
        return [f"no such record: {row}" for row in missing]


@contextmanager
def serving_policies(folder: Path) -> Iterator[Process]:
    """The service on the policies beside this module."""
    folder.mkdir(parents=True)
    for name in POLICIES:
        shutil.copy(HERE / name, folder)
    with serve_process(folder, "-c", "pdp.yaml") as service:
        yield service


@contextmanager
def standing(folder: Path, mode: str) -> Iterator[Stand]:
    """The service, and a Trino that asks it in one of the modes of `LEFT_OUT`."""
    place = folder / "trino"
    place.mkdir()
    with serving_policies(folder / "pdp") as service:
        setup = Setup(access_control(service, LEFT_OUT[mode]), GROUPS, SQL_PATH)
        with trino_server(place, setup) as server:
            yield Stand(server.port, service, server.seconds)


def access_control(service: Process, left_out: Sequence[str] = ()) -> dict[str, str]:
    """The lines of Trino's configuration, as the service prints them."""
    printed = run_pdp("trino-config", "-c", "pdp.yaml", "--url", service.url(""), "--check", cwd=service.folder)
    assert printed.returncode == 0, printed.stderr
    lines = (line.partition("=") for line in printed.stdout.splitlines() if line and not line.startswith("#"))
    return {key: value for key, _, value in lines if key not in left_out}


def _until(condition: Callable[[], bool], patience: float = 10) -> None:
    deadline = time.monotonic() + patience
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
