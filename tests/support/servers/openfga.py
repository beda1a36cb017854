"""Real OpenFGA on loopback: its binary, a server, and a store with a model."""

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

from support.servers.postgres import free_port

GET_IT: Final = "go install github.com/openfga/openfga/cmd/openfga@v1.22.1"
IN_MEMORY: Final = ("--datastore-engine", "memory")
_QUIET: Final = ("--playground-enabled=false", "--metrics-enabled=false", "--log-level=error", "--request-timeout=100s")
_TUPLES_PER_WRITE: Final = 100
_CHECKS_PER_BATCH: Final = 50


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


@contextmanager
def running(openfga: str, folder: Path, *options: str) -> Iterator[str]:
    """Run OpenFGA and yield the URL. Stop the server at the end. The log is in the folder."""
    http, grpc = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    command = [openfga, "run", "--http-addr", http, "--grpc-addr", grpc, *_QUIET, *options]
    with (folder / "openfga.log").open("ab") as log:
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
    for _ in range(400):
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.05)
    raise RuntimeError(f"OpenFGA did not start: {log.read_text(errors='replace')[-2000:]}")


class FgaStore:
    """Store of a server with a model and tuples."""

    def __init__(self, url: str, model: Mapping[str, Any], tuples: Sequence[tuple[str, str, str]]) -> None:
        self._url = f"{url}/stores"
        self._url += f"/{self._post('', {'name': 'tuples'})['id']}"
        self._model = self._post("/authorization-models", model)["authorization_model_id"]
        keys = [{"user": user, "relation": relation, "object": object} for user, relation, object in tuples]
        for at in range(0, len(keys), _TUPLES_PER_WRITE):
            self._post("/write", {"writes": {"tuple_keys": keys[at : at + _TUPLES_PER_WRITE]}})

    def check(self, questions: Sequence[tuple[str, str, str]]) -> list[bool]:
        """Return the answers to questions of user, relation and object; raise RuntimeError for an error of OpenFGA."""
        parts = [questions[at : at + _CHECKS_PER_BATCH] for at in range(0, len(questions), _CHECKS_PER_BATCH)]
        with ThreadPoolExecutor(2) as pool:
            return [answer for answers in pool.map(self._batch, parts) for answer in answers]

    def _batch(self, questions: Sequence[tuple[str, str, str]]) -> list[bool]:
        checks = [
            {"tuple_key": {"user": user, "relation": relation, "object": object}, "correlation_id": str(number)}
            for number, (user, relation, object) in enumerate(questions)
        ]
        result = self._post("/batch-check", {"checks": checks, "authorization_model_id": self._model})["result"]
        if failed := next((one["error"] for one in result.values() if "error" in one), None):
            raise RuntimeError(f"OpenFGA failed: {failed}")
        return [result[str(number)].get("allowed", False) for number in range(len(questions))]

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
