"""Real OpenFGA on loopback with a temporary PostgreSQL, with all caches enabled."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from loopback import Connection
from openfga_model import Tuple, authorization_model, question, relation_of, subject, tuples_of
from support.servers.postgres import free_port, postgres

GET_IT: Final = "go install github.com/openfga/openfga/cmd/openfga@v1.22.1"
_TUPLES_PER_WRITE: Final = 100
_CACHES: Final = (
    "--check-query-cache-enabled",
    "--check-iterator-cache-enabled",
    "--list-objects-iterator-cache-enabled",
    "--shared-iterator-enabled",
    "--check-cache-limit=1000000",
    "--check-query-cache-ttl=10m",
    "--check-iterator-cache-ttl=10m",
    "--list-objects-iterator-cache-ttl=10m",
)
"""Larger and longer caches than by default (10,000 answers, ten seconds), so that no entry expires during a run."""
_QUIET: Final = (
    "--playground-enabled=false",
    "--metrics-enabled=false",
    "--log-level=error",
    "--listObjects-max-results=0",
    "--request-timeout=100s",
    "--listObjects-deadline=100s",
)


def binary() -> str | None:
    """Return the path of OpenFGA: `$OPENFGA`, else on PATH, else in Go's folder; None if not installed."""
    configured = os.environ.get("OPENFGA")
    if configured:
        return configured
    found = shutil.which("openfga")
    if found is None and (go := shutil.which("go")):
        output = subprocess.run([go, "env", "GOPATH"], capture_output=True, text=True, check=True, timeout=60)
        found = shutil.which("openfga", path=str(Path(output.stdout.strip()) / "bin"))
    return found


class Store:
    """One store with the model. Most methods return a request, for the user to send over a connection."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        with Connection(url) as connection:
            self._path = "/stores"
            self._path += "/" + self._post(connection, "", {"name": name})["id"]
            self._model = self._post(connection, "/authorization-models", authorization_model())[
                "authorization_model_id"
            ]

    def write(self, world: Mapping[str, Any]) -> int:
        """Write the data of a world file; return the number of tuples."""
        tuples = tuples_of(world)
        parts = [tuples[at : at + _TUPLES_PER_WRITE] for at in range(0, len(tuples), _TUPLES_PER_WRITE)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._write, parts))
        return len(tuples)

    def check(self, principal: str, action: str, object: str) -> bytes:
        """Return the request of one Check."""
        return self._request("/check", {"tuple_key": question(principal, action, object)})

    def batch(self, questions: Sequence[tuple[str, str, str]]) -> bytes:
        """Return the request of one BatchCheck."""
        checks = [{"tuple_key": question(*each), "correlation_id": str(at)} for at, each in enumerate(questions)]
        return self._request("/batch-check", {"checks": checks})

    def list(self, principal: str, action: str, type: str, *, streamed: bool = False) -> bytes:
        """Return the request of one ListObjects or StreamedListObjects."""
        path = "/streamed-list-objects" if streamed else "/list-objects"
        return self._request(path, {"user": subject(principal), "relation": relation_of(action), "type": type})

    def _request(self, path: str, body: dict[str, Any]) -> bytes:
        data = json.dumps(body | {"authorization_model_id": self._model}).encode()
        return Connection.request(self.url + self._path + path, data)

    def _write(self, tuples: Sequence[Tuple]) -> None:
        keys = [{"user": user, "relation": relation, "object": object} for user, relation, object in tuples]
        with Connection(self.url) as connection:
            connection.send(self._request("/write", {"writes": {"tuple_keys": keys}}))

    def _post(self, connection: Connection, path: str, body: dict[str, Any]) -> Any:
        request = Connection.request(self.url + self._path + path, json.dumps(body).encode())
        return json.loads(connection.send(request))


def allowed(answer: bytes) -> list[bool]:
    """Return the decisions of a BatchCheck, in order; exit if an item failed."""
    result = json.loads(answer)["result"]
    if failed := next((item for item in result.values() if "error" in item), None):
        raise SystemExit(f"OpenFGA failed: {failed}")
    return [result[str(at)].get("allowed", False) for at in range(len(result))]


def objects(answer: bytes) -> list[str]:
    """Return the objects in a response of ListObjects or StreamedListObjects."""
    lines = [json.loads(line) for line in answer.splitlines() if line]
    return [name for line in lines for name in (line["objects"] if "objects" in line else [line["result"]["object"]])]


@contextmanager
def serving(openfga: str, folder: Path) -> Iterator[str]:
    """Run OpenFGA with its own PostgreSQL and yield the URL. Stop both at the end."""
    with postgres(folder) as datastore, (folder / "openfga.log").open("wb") as log:
        storage = ("--datastore-engine", "postgres", "--datastore-uri", datastore)
        subprocess.run([openfga, "migrate", *storage], check=True, timeout=120, stdout=log, stderr=log)
        http, grpc = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        command = [openfga, "run", *storage, "--http-addr", http, "--grpc-addr", grpc, *_CACHES, *_QUIET]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait(f"http://{http}/healthz", process, folder / "openfga.log")
            yield f"http://{http}"
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.05)
    raise RuntimeError(f"OpenFGA did not start: {log.read_text(errors='replace')[-2000:]}")
