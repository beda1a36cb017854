"""Load on a service from several threads and surfaces, which keeps the id and the time of every answer."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import grpc
from support.clients.stubs import wire_grpc
from support.service.serving import Process

from pdp.surfaces.wire import decision_pb2 as wire

ALICE = "user:oidc~Alice"
JSON_HEADERS = {"Content-Type": "application/json"}


class AnsweredLoad:
    """Ids of answers, each with the time when it had arrived. Each client pauses after an answer."""

    def __init__(self, pause: float = 0) -> None:
        self.pause = pause
        self.answers: list[tuple[float, str]] = []
        self.stopped = threading.Event()

    def note(self, id: str) -> None:
        """Keep an answer."""
        assert id
        self.answers.append((time.monotonic(), id))
        if self.pause:
            time.sleep(self.pause)

    def ids(self) -> list[str]:
        """Return the ids of all answers."""
        return [id for _, id in self.answers]


@contextmanager
def answered_load(process: Process, pause: float = 0) -> Iterator[AnsweredLoad]:
    """Ask a service on all its surfaces until the end of the context, or of the service."""
    load = AnsweredLoad(pause)
    clients: list[Callable[[Process, AnsweredLoad], None]] = [
        check_one,
        check_one,
        check_many,
        trino,
        rows,
        rpc,
        refused,
    ]
    threads = [threading.Thread(target=_run, args=(client, process, load)) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.stopped.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()


def _run(client: Callable[[Process, AnsweredLoad], None], process: Process, load: AnsweredLoad) -> None:
    with suppress(OSError, http.client.HTTPException, grpc.RpcError):  # the service was killed
        client(process, load)


def check_one(process: Process, load: AnsweredLoad) -> None:
    """Ask for one check at a time."""
    body = {"checks": [{"principal": ALICE, "action": "read_data", "resource": "table:lake/Foo@prod"}]}
    _posts(process, load, "/v1/check", body)


def check_many(process: Process, load: AnsweredLoad) -> None:
    """Ask for batches."""
    tables = [f"table:lake/t{at}@prod" for at in range(300)]
    body = {"checks": [{"principal": ALICE, "action": "read_data", "resource": table} for table in tables]}
    _posts(process, load, "/v1/check", body)


def trino(process: Process, load: AnsweredLoad) -> None:
    """Ask as Trino does before a query."""
    table = {"table": {"catalogName": "lakehouse", "schemaName": "sales", "tableName": "orders", "columns": ["a"]}}
    action = {"operation": "SelectFromColumns", "resource": table}
    _posts(process, load, "/v1/data/trino/allow", {"input": {"context": _identity(), "action": action}})


def rows(process: Process, load: AnsweredLoad) -> None:
    """Ask for row filters as Trino does."""
    table = {"table": {"catalogName": "lakehouse", "schemaName": "sales", "tableName": "orders"}}
    action = {"operation": "GetRowFilters", "resource": table}
    _posts(process, load, "/v1/data/trino/rowFilters", {"input": {"context": _identity(), "action": action}})


def refused(process: Process, load: AnsweredLoad) -> None:
    """Send bodies that are refused: the id of the record is that of the request. Few have a record each second."""
    with closing(http.client.HTTPConnection(process.addresses["http"], timeout=30)) as client:
        while not load.stopped.wait(0.15):
            client.request("POST", "/v1/check", b"{", JSON_HEADERS)
            answer = client.getresponse()
            answer.read()
            assert answer.status == 400
            load.note(answer.headers["X-Request-ID"])


def rpc(process: Process, load: AnsweredLoad) -> None:
    """Ask over gRPC."""
    check = wire.Check(
        principal=wire.Principal(id=ALICE), action="read_data", resource=wire.Resource(reference="table:lake/Foo@prod")
    )
    with grpc.insecure_channel(process.addresses["grpc"]) as channel:
        stub: Any = wire_grpc.DecisionServiceStub(channel)
        while not load.stopped.is_set():
            load.note(stub.Check(wire.CheckRequest(checks=[check]), timeout=30).decision_id)


def _identity() -> dict[str, Any]:
    return {"identity": {"user": "Alice", "groups": []}, "softwareStack": {"trinoVersion": "476"}}


def _posts(process: Process, load: AnsweredLoad, path: str, body: Any) -> None:
    content = json.dumps(body).encode()
    with closing(http.client.HTTPConnection(process.addresses["http"], timeout=30)) as client:
        while not load.stopped.is_set():
            client.request("POST", path, content, JSON_HEADERS)
            answer = client.getresponse()
            answer.read()
            assert answer.status == 200
            load.note(answer.headers["X-Decision-ID"])
