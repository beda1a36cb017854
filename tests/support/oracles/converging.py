"""Services that share one database, as processes of their own, and what is asked of them."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from support.service.serving import Process, serve_process

from pdp.facts.objects import Grant, Object
from pdp.facts.snapshot import Facts
from pdp.store.sql import open_store

PATIENCE = 30.0
"""Seconds within which anything happens that happens at all."""
RULE = "nessie.server.authorization.rules.readers=op=='READ_ENTITY_VALUE' && role=='rita'\n"
BY_RULE = {"principal": "user:oidc~rita", "action": "READ_ENTITY_VALUE", "resource": "table:lake/sales/t0@main"}
Body = Mapping[str, Any]


def grant(number: int) -> dict[str, str]:
    """A grant that permits `reading` of the same number, and nothing else does."""
    return {"principal": f"user:oidc~u{number}", "privilege": "select", "object": f"table:lake/sales/t{number}"}


def reading(number: int) -> dict[str, str]:
    return {"principal": f"user:oidc~u{number}", "action": "read_data", "resource": f"table:lake/sales/t{number}"}


class Service:
    """A running `pdp serve`; one connection is kept, so each thread needs one of its own: `again`."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._connection = http.client.HTTPConnection(process.addresses["http"], timeout=PATIENCE)

    @contextmanager
    def again(self) -> Iterator[Service]:
        """The same with another connection."""
        with closing(Service(self.process)) as service:
            yield service

    def post(self, path: str, body: Body | bytes) -> tuple[int, Any]:
        """Status and answer; OSError or HTTPException where the service is gone."""
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            self._connection.request("POST", path, sent, {"Content-Type": "application/json"})
            with self._connection.getresponse() as response:
                return response.status, json.loads(response.read())
        except BaseException:
            self._connection.close()
            raise

    def write(self, *, add: tuple[int, ...] = (), remove: tuple[int, ...] = ()) -> str:
        """The revision of some grants given and taken."""
        wishes = {"add": [grant(n) for n in add], "remove": [grant(n) for n in remove]}
        status, answer = self.post("/v1/grants", wishes)
        assert status == 200, answer
        revision: str = answer["revision"]
        return revision

    def check(self, *checks: Body, consistency: Any = "minimize_latency") -> tuple[int, Any]:
        return self.post("/v1/check", {"checks": checks, "consistency": consistency})

    def allows(self, number: int, consistency: Any = "minimize_latency") -> bool:
        """Whether the grant of this number permits."""
        status, answer = self.check(reading(number), consistency=consistency)
        assert status == 200, answer
        allowed: bool = answer["decisions"][0]["allowed"]
        return allowed

    def allowed(self, numbers: range, consistency: Any = "full") -> set[int]:
        """Which of the grants permit."""
        status, answer = self.check(*map(reading, numbers), consistency=consistency)
        assert status == 200, answer
        return {n for n, decision in zip(numbers, answer["decisions"], strict=True) if decision["allowed"]}

    def revision(self) -> tuple[str, int]:
        """Epoch and sequence of what decides now."""
        epoch, sequence, *_ = self.check(reading(0))[1]["revision"].split(".")
        return epoch, int(sequence)

    def ready(self) -> tuple[int, Any]:
        with closing(http.client.HTTPConnection(self.process.addresses["diagnostics"], timeout=PATIENCE)) as connection:
            connection.request("GET", "/health/ready")
            with connection.getresponse() as response:
                return response.status, json.loads(response.read())

    def close(self) -> None:
        self._connection.close()


class Services:
    """Starts services on one database, each in a folder of its own."""

    def __init__(self, folder: Path, url: str, stack: ExitStack, *, fresh: bool = False) -> None:
        self.url = url
        self._fresh = fresh
        self._folder = folder
        self._stack = stack
        self._count = 0

    def start(self, url: str | None = None, **store: Any) -> Service:
        """One more service; `store` are settings."""
        self._count += 1
        folder = self._folder / f"service{self._count}"
        configure(folder, url or self.url, **store)
        service = Service(self._stack.enter_context(serve_process(folder, fresh=self._fresh)))
        self._stack.callback(service.close)
        return service


@contextmanager
def services(folder: Path, url: str, *, fresh: bool = False) -> Iterator[Services]:
    """Whatever is started is stopped at the end."""
    with ExitStack() as stack:
        yield Services(folder, url, stack, fresh=fresh)


def configure(folder: Path, url: str, **store: Any) -> None:
    """The configuration of a service: one rule, and grants."""
    folder.mkdir()
    (folder / "some.properties").write_text(RULE)
    config = {
        "policies": {"rules": ["some.properties"]},
        "store": {"url": url} | store,
        "audit": {"sinks": []},
        "identity": {"callers": {"tests": {"loopback": True, "may_assert": ["principals"], "may_write": True}}},
    }
    (folder / "pdp.yaml").write_text(json.dumps(config))


def until(happens: Callable[[], Any], seconds: float = PATIENCE) -> float:
    """How long it took, to a tenth: looks leave the processor to what is awaited."""
    began = time.monotonic()
    while not happens():
        waited = time.monotonic() - began
        assert waited < seconds, "it does not happen"
        time.sleep(min(0.05, max(0.002, waited / 10)))
    return time.monotonic() - began


async def awaited(happens: Callable[[], Any], seconds: float = 2 * PATIENCE) -> None:
    """Wait on the event loop until something happens."""
    async with asyncio.timeout(seconds):
        while not happens():  # noqa: ASYNC110  conditions of other processes have no event
            await asyncio.sleep(0.01)


def content(facts: Facts) -> set[Object | Grant]:
    return {*facts.objects(), *facts.grants()}


def assert_log_is_the_state(url: str) -> int:
    """The log has no gap, and applied to nothing it gives the snapshot; its length."""
    with closing(open_store(url)) as store:
        snapshot = store.load()
        log = store.since(Facts(snapshot.epoch, 0))
    assert [revision.sequence for revision in log] == list(range(1, snapshot.sequence + 1))
    facts = Facts(snapshot.epoch, 0)
    for revision in log:
        assert revision.changes
        facts = facts.apply(revision.sequence, revision.changes)
    assert content(facts) == content(snapshot)
    return len(log)
