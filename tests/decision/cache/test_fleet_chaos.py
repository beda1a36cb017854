"""Two services with two workers each share a Redis that fails in every way, while grants and policies change.

Every decision is compared with the grants and the rule of its revision, and every answer has its record.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest
import redis
from support.faults.redis_faults import faults
from support.oracles.audit_files import audit_records
from support.oracles.converging import BY_RULE, Service, configure, reading
from support.servers.redis_server import RedisServer, redis_server
from support.service.serving import serve_process

pytestmark = [pytest.mark.process, pytest.mark.waits, pytest.mark.long]
SECONDS = float(os.environ.get("TEST_CHAOS_SECONDS", "1"))
NUMBERS = range(12)
ALLOWED_SECONDS = 0.05
MOST_FAULTS = 100
OTHER_RULE = "nessie.server.authorization.rules.readers=op=='READ_ENTITY_VALUE' && role=='nobody'\n"
CHECKS = 1, 1, 2, 8


class Fleet:
    """Services under load, what they answered, and the grants at every revision of the store."""

    def __init__(self, services: list[Service], twin: Service) -> None:
        self.services = services
        self.twin = twin
        self.stop = threading.Event()
        self.grants: dict[int, frozenset[int]] = {services[0].revision()[1]: frozenset()}
        self.seen: list[tuple[str, int, Any, bool, bool]] = []
        """Bundle, sequence, number or `rita`, allowed, cached."""
        self.ids: list[str] = []
        self.times: tuple[list[float], list[float]] = ([], [])

    def write(self) -> None:
        """Give and take grants. Each write changes one grant, so that each revision is known."""
        choice, held = random.Random(1), frozenset[int]()
        with self.services[0].again() as one, self.services[1].again() as other:
            while not self.stop.is_set():
                number = choice.choice(NUMBERS)
                with suppress(OSError, HTTPException):
                    change: Any = {"remove" if number in held else "add": (number,)}
                    sequence = int(choice.choice((one, other)).write(**change).split(".")[1])
                    held ^= {number}
                    self.grants[sequence] = held
                time.sleep(choice.random() * 0.2)

    def ask(self, reader: int) -> None:
        """Ask about some grants and the rule."""
        choice = random.Random(reader)
        with self.services[reader % 2].again() as service:
            while not self.stop.is_set():
                numbers = choice.sample(NUMBERS, choice.choice(CHECKS))
                with suppress(OSError, HTTPException):  # a worker that restarts closes its connections
                    status, answer = service.check(*map(reading, numbers), BY_RULE)
                    assert status == 200, answer
                    self._note(answer, [*numbers, "rita"])

    def _note(self, answer: Any, about: list[Any]) -> None:
        _, sequence, *_, bundle = answer["revision"].split(".")
        self.ids.append(answer["decisionId"])
        for subject, decision in zip(about, answer["decisions"], strict=True):
            self.seen.append((bundle, int(sequence), subject, decision["allowed"], decision["cached"]))

    def measure(self) -> None:
        """Time the same request with and without a cache, in turns."""
        choice = random.Random(2)
        # the other service restarts its workers, which says nothing of the cache
        with self.services[1].again() as cached, self.twin.again() as plain:
            while not self.stop.is_set():
                checks = [reading(number) for number in choice.sample(NUMBERS, 4)]
                for service, times in zip((cached, plain), self.times, strict=True):
                    with suppress(OSError, HTTPException):
                        began = time.perf_counter()
                        _, answer = service.check(*checks)
                        times.append(time.perf_counter() - began)
                        if service is cached:
                            self.ids.append(answer["decisionId"])
                time.sleep(0.005)

    def bundles(self) -> set[str]:
        """Return the bundles that answered."""
        return {seen[0] for seen in list(self.seen)}

    def wrong(self) -> list[Any]:
        """Return the decisions about grants that differ from the grants of their revision."""
        return [
            seen for seen in self.seen if seen[2] != "rita" and seen[3] is not (seen[2] in self.grants.get(seen[1], ()))
        ]


@contextmanager
def fleet(folder: Path, server: RedisServer) -> Iterator[Fleet]:
    """Start the services, and the twin without a cache, on one database."""
    with ExitStack() as stack:
        started = []
        for name, workers, cache in (("one", 2, "all"), ("two", 2, "all"), ("twin", 1, None)):
            configure(folder / name, f"sqlite:///{folder}/pdp.db")
            file = folder / name / "pdp.yaml"
            config = json.loads(file.read_text()) | {"audit": {"sinks": [{"file": "audit"}]}}
            config["server"] = {"workers": workers}
            if cache:
                config["cache"] = {"redis": server.url, "redis_for": cache, "local_entries": 100, "mac_key": "k" * 40}
            file.write_text(json.dumps(config))
            service = Service(stack.enter_context(serve_process(folder / name)))
            stack.callback(service.close)
            started.append(service)
        yield Fleet(started[:2], started[2])


def reload_policies(fleet: Fleet, *, other: bool) -> None:
    """Give one service another rule, by a rolling restart of its workers."""
    process = fleet.services[0].process
    rules = process.folder / "some.properties"
    kept = process.folder / "kept.properties"
    if not kept.exists():
        kept.write_text(rules.read_text())
    rules.write_text(OTHER_RULE if other else kept.read_text())
    process.process.send_signal(signal.SIGUSR2)


def break_redis(fleet: Fleet, server: RedisServer) -> None:
    """Inject every fault, and reload policies between some of them, until both kinds of policies were seen.

    The first other policies stay until a worker has them: on a busy machine its start takes longer than six faults.
    """
    end, number, other = time.monotonic() + SECONDS, 0, False
    while number == 0 or time.monotonic() < end or (number < MOST_FAULTS and len(fleet.bundles()) < 2):
        for steps in faults(server):
            for fault, pause in steps:
                with suppress(redis.RedisError):
                    fault()
                time.sleep(pause)
            number += 1
            if number % 6 == 0 and (not other or len(fleet.bundles()) > 1):
                other = not other
                reload_policies(fleet, other=other)


def test_a_fleet_decides_right_whatever_happens_to_redis(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server, fleet(tmp_path, server) as running:
        with ThreadPoolExecutor(8) as pool:
            tasks = [pool.submit(running.write), pool.submit(running.measure)]
            tasks += [pool.submit(running.ask, reader) for reader in range(4)]
            try:
                time.sleep(1)
                break_redis(running, server)
            finally:
                running.stop.set()
            for task in tasks:
                task.result(60)
        for service in running.services:
            assert service.process.terminate(30) == 0
        records = [record["id"] for name in ("one", "two") for record in audit_records(tmp_path / name)]
    cached = sum(seen[4] for seen in running.seen)
    with_cache, without = (quantiles(times, n=50)[-1] for times in running.times)
    print(  # noqa: T201  the figures of a long run
        f"{len(running.seen)} decisions, {cached} from the cache, {len(running.grants)} revisions, "
        f"98% of requests within {with_cache * 1e3:.1f} ms, without a cache {without * 1e3:.1f} ms"
    )
    assert running.wrong() == []
    by_rule = {(seen[0], seen[3]) for seen in running.seen if seen[2] == "rita"}
    assert len(by_rule) == len({bundle for bundle, _ in by_rule}) == 2, "each bundle has one answer"
    assert {allowed for _, allowed in by_rule} == {True, False}
    assert cached > 0
    assert len(records) == len(set(records))
    assert set(running.ids) <= set(records), "every answer has its record"
    # a busy machine delays both, and more the one that others ask, too
    assert with_cache < 2 * without + ALLOWED_SECONDS
