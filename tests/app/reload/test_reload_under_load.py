"""Reload under load: each answer is that of one published bundle, no request fails, and memory stays."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from support.clients.http_client import fetch
from support.generators.generated_pdps import batch, decide
from support.oracles.converging import PATIENCE, until
from support.service.serving import Process, serve_process, settings_of

from pdp.app.archived_bundle import rebuild_pdp
from pdp.app.process import resident_bytes
from pdp.app.reload.reloader import Reloader
from pdp.app.service import Service

pytestmark = [pytest.mark.process, pytest.mark.waits, pytest.mark.long]

BITS: Final = 8
REQUESTS: Final = 10_000
CHANGES: Final = 100
CHECKS: Final = [
    {"principal": f"user:oidc~{file}{bit}", "action": "READ_ENTITY_VALUE", "resource": "table:lake/s/t@main"}
    for file in ("a", "b", "f")
    for bit in range(BITS)
]
"""Questions about each bit of each file. Forbids deny what the third rule of `a.yaml` permits."""
LARGE: Final = 100
"""Repetitions of the questions in a large batch, which takes turns with others."""


class ConfigMap:
    """Mounted folder of three files, each with the same version number in bits. A change is one swap of a link."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[int] = []
        """Numbers of the valid versions."""
        folder.mkdir()
        self._count = 0
        for name in ("a.yaml", "b.yaml", "f.yaml"):
            (folder / name).symlink_to(f"..data/{name}")

    def write(self, version: int, damage: str = "") -> None:
        """Mount a version; damaged by a syntax error, a missing file, a file without a forbid, or half a file."""
        roles = {file: [f"{file}{bit}" for bit in range(BITS) if version >> bit & 1] for file in ("a", "b", "f")}
        every = [f"f{bit}" for bit in range(BITS)]
        rules = {
            "a.yaml": {"a": f"role in {roles['a'] or ['none']}", "c": f"role in {every}"},
            "b.yaml": {"b": f"role in {roles['b'] or ['none']}"},
            "f.yaml": {"f": f"role in {sorted({*every} - {*roles['f']}) or ['none']}"},
        }
        self._count += 1
        target = self.folder / f"..{self._count}"
        target.mkdir()
        for name, content in rules.items():
            (target / name).write_text(json.dumps({"rules": content}))
        if damage == "syntax":
            (target / "b.yaml").write_text('{"rules": {"b": "role in ["}}')
        elif damage == "missing":
            (target / "a.yaml").unlink()
        elif damage == "empty":
            (target / "f.yaml").write_text("rules: {}")
        elif damage == "half":
            (target / "a.yaml").write_text((target / "a.yaml").read_text()[:-9])
        else:
            self.written.append(version)
        (self.folder / "..new").symlink_to(target.name)
        (self.folder / "..new").rename(self.folder / "..data")


def version_of(allowed: Sequence[bool]) -> int:
    """Return the version that gives these answers; fail for a mixture of two."""
    numbers = {
        sum(bit << place for place, bit in enumerate(allowed[start : start + BITS]))
        for start in range(0, len(allowed), BITS)
    }
    assert len(numbers) == 1, f"an answer of several versions: {numbers}"
    return numbers.pop()


class Client(threading.Thread):
    """Asks until `done`. Notes the version behind each digest, and everything else that an answer may be."""

    def __init__(self, process: Process, done: threading.Event, seed: int) -> None:
        super().__init__()
        self.count = 0
        self.found: set[tuple[str, int]] = set()
        self.wrong: list[str] = []
        self._address = process.addresses["http"]
        self._done = done
        self._random = Random(seed)

    def run(self) -> None:
        small, large = (json.dumps({"checks": CHECKS * times}) for times in (1, LARGE))
        with closing(http.client.HTTPConnection(self._address, timeout=PATIENCE)) as connection:
            while not self._done.is_set() and not self.wrong:
                body = large if self._random.random() < 0.004 else small
                try:
                    connection.request("POST", "/v1/check", body, {"Content-Type": "application/json"})
                    response = connection.getresponse()
                    self._take(response.status, json.loads(response.read()))
                except (OSError, http.client.HTTPException, AssertionError, KeyError) as error:
                    self.wrong.append(repr(error))

    def _take(self, status: int, answer: Any) -> None:
        assert status == 200, answer
        version = version_of([decision["allowed"] for decision in answer["decisions"]])
        self.found.add((answer["revision"].rpartition(".")[2], version))
        self.count += 1


@pytest.mark.timeout(300)
def test_each_answer_is_that_of_one_published_bundle(tmp_path: Path) -> None:
    random = Random(5)
    mount = ConfigMap(tmp_path / "mount")
    mount.write(1)
    policies = {"rules": ["mount/a.yaml", "mount/b.yaml"], "forbid": ["mount/f.yaml"], "refresh_seconds": 0.1}
    (tmp_path / "pdp.yaml").write_text(json.dumps({"policies": policies, "store": {"url": "sqlite:///pdp.db"}}))
    done = threading.Event()
    with serve_process(tmp_path, "--workers", "2") as process:
        clients = [Client(process, done, seed) for seed in range(6)]
        for client in clients:
            client.start()
        for change in range(CHANGES):
            damage = random.choice(["syntax", "missing", "empty", "half"]) if change % 3 == 2 else ""
            mount.write(random.randrange(2, 2**BITS - 1) if damage else (change * 7 + 3) % 251, damage)
            done.wait(random.choice([0.02, 0.1, 0.3, 0.5]))
        mount.write(2**BITS - 1)
        until(lambda: sum(client.count for client in clients) >= REQUESTS or any(c.wrong for c in clients), 200)
        until(lambda: _last_version(process) == 2**BITS - 1)
        done.set()
        for client in clients:
            client.join(PATIENCE)
        assert fetch(process.url("/health/ready", "diagnostics")).status == 200
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr()
    assert [wrong for client in clients for wrong in client.wrong] == []
    found = {pair for client in clients for pair in client.found}
    assert len({digest for digest, _ in found}) == len(found), "one digest, two versions"
    assert {version for _, version in found} <= {*mount.written}
    assert len(found) > 10
    for digest, version in found:  # the archive has the bundle that answered
        pdp = rebuild_pdp((tmp_path / "audit" / "bundles" / digest).read_bytes())
        assert version_of(list(map(bool, decide(pdp, CHECKS).allowed))) == version


def _last_version(process: Process) -> int:
    """Version of several connections, 0 while they differ."""
    body = json.dumps({"checks": CHECKS}).encode()
    answers = [fetch(process.url("/v1/check"), body).json()["decisions"] for _ in range(6)]
    versions = {version_of([decision["allowed"] for decision in answer]) for answer in answers}
    return versions.pop() if len(versions) == 1 else 0


RELOADS: Final = 500
WARM: Final = 100
GROWTH_BYTES: Final = 8 << 20
"""Growth that fragments of memory explain. Bundles of the test that stay would cost more."""


@pytest.mark.timeout(300)
async def test_memory_is_flat_over_reloads(tmp_path: Path) -> None:
    """A reload exchanges a tenth of the rules, and half of the reloads bring a rule of the past back."""
    file = tmp_path / "rules.yaml"

    def write(version: int) -> None:
        rules = {
            f"r{number}": f"role=='u{number}' && path.size() > {version if number % 10 == version % 10 else 0}"
            for number in range(100)
        }
        file.write_text(json.dumps({"rules": rules}))

    write(0)
    settings = settings_of({"policies": {"rules": ["rules.yaml"], "refresh_seconds": 60}}, tmp_path)
    reloader, service = Reloader(settings), Service(settings)
    await service.start()
    watch = asyncio.create_task(reloader.watch(service))
    sizes = []
    try:
        for reload in range(1, RELOADS + 1):
            before = service.pdp.bundle.digest
            write(reload % 250)
            reloader.order()
            async with asyncio.timeout(PATIENCE):
                while service.pdp.bundle.digest == before:  # noqa: ASYNC110  there is no event for a test
                    await asyncio.sleep(0.002)
            assert not reloader.failure
            decide_in(service)
            if reload % WARM == 0:
                sizes.append(resident_bytes())
    finally:
        watch.cancel()
        await service.stop()
    assert sizes[-1] - sizes[0] < GROWTH_BYTES, [size >> 20 for size in sizes]


def decide_in(service: Service) -> None:
    """Decide by the newest bundle, as a request does."""

    assert service.pdp.decide_now(batch(CHECKS[:2])) is not None
