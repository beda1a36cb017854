"""Real OpenFGA on loopback with a temporary PostgreSQL, with all caches enabled."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from loopback import Connection
from openfga_model import Tuple, authorization_model, question, relation_of, subject, tuples_of
from support.servers.openfga import running
from support.servers.postgres import postgres

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
_PATIENT: Final = (
    "--listObjects-max-results=0",
    "--listObjects-deadline=100s",
)


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
        with running(openfga, folder, *storage, *_CACHES, *_PATIENT) as url:
            yield url
